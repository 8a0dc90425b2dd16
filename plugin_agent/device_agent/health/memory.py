"""What is known of the devices' health, as it is kept on the node for the agent's next start. Pure.

A reboot is a fresh start for hardware and driver: what was known before it says nothing any more.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

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
    """The records without what only this process can use: its count of the driver's loads."""
    return tuple(_lasting(record) if record.condition.failures else record for record in records)


def _lasting(record: Record) -> Record:
    failures = tuple(replace(f, load=replace(f.load, epoch=0)) for f in record.condition.failures)
    return replace(record, condition=replace(record.condition, failures=failures))
