"""What is known of the devices' health, as it is kept on the node for the agent's next start. Pure.

A reboot is a fresh start for hardware and driver: what was known before it says nothing any more.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from device_agent.health.passing_on import of_another_process
from device_agent.health.watchlist import Kind, Record
from device_agent.store.section import Others, Section

HEALTH: Final = Section(
    name="health",
    item=Record,
    version=2,
    what="the devices' health",
    forgotten="devices that have failed may be offered",
    until_reboot=True,
    others=Others.AT_START,
    shared=("kind", Kind.PART),
)
"""A part is the same whoever offers it; checks and scans of units are their object's own."""


def lasting(records: Iterable[Record]) -> tuple[Record, ...]:
    """The records without what only this process can use."""
    return tuple(
        replace(record, condition=of_another_process(record.condition)) if record.condition.failures else record
        for record in records
    )
