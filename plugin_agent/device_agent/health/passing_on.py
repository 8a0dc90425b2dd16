"""How failures pass on: a broken part stays broken for the next entry, object or process that offers it. Pure.

- From entry to entry of one object, after an edit: under the rules of the new entry.
- From other objects' agents, by their files on the node: a part is the same for all objects.
- From an earlier process of this object. Its count of driver loads means nothing in this process.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from device_agent.health.state_machine import Failure, HealthCondition
from device_agent.health.watchlist import Kind, Record

_APART: Final = timedelta(seconds=2)
"""The largest difference between the times that two agents of a node note for one event."""


def of_another_process(condition: HealthCondition) -> HealthCondition:
    """The condition without values that are only valid in the process that noted it."""
    failures = tuple(replace(f, load=replace(f.load, epoch=0)) for f in condition.failures)
    return replace(condition, failures=failures)


class Inheritance:
    """What other objects' agents knew of parts in this boot."""

    def __init__(self) -> None:
        self._parts: dict[str, list[HealthCondition]] = {}

    def add(self, records: Iterable[Record]) -> None:
        """Takes the failures of parts. Everything else is checked anew."""
        for record in records:
            if record.kind is Kind.PART:
                self._parts.setdefault(record.name, []).append(of_another_process(record.condition))

    def parts(self) -> tuple[str, ...]:
        """The parts with any record."""
        return tuple(self._parts)

    def open(self, part: str, ours: Sequence[HealthCondition]) -> tuple[Failure, ...]:
        """The failures of the part that are still open. A failure is over if another agent, or `ours`, has seen it
        end.
        """
        theirs = self._parts.get(part, ())
        still: list[Failure] = []
        for condition in theirs:
            ends = [c.ended + _APART for c in (*theirs, *ours) if c is not condition and c.ended is not None]
            still += [f for f in condition.failures if all(f.since > end for end in ends)]
        return tuple(still)
