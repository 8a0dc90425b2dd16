"""The devices' health as the node store keeps it for the agent's next start. Pure.

A reboot restarts hardware and driver. So what was known before it no longer counts.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from device_agent.health.passing_on import of_another_process
from device_agent.health.watchlist import Kind, Record
from device_agent.store.section import Section

HEALTH: Final = Section(
    name="health",
    item=Record,
    version=2,
    what="the devices' health",
    forgotten="devices that have failed may be offered",
    until_reboot=True,
    others_at_start=True,
    shared=("kind", Kind.PART),
)
"""Only parts are shared: a part is the same for all objects. Checks and scans of units belong to their own object."""


def lasting(records: Iterable[Record]) -> tuple[Record, ...]:
    """The records without what only this process can use."""
    return tuple(
        replace(record, condition=of_another_process(record.condition)) if record.condition.failures else record
        for record in records
    )
