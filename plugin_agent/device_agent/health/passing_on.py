"""Failures that pass on: a broken part stays broken, whichever entry, object or process offers it next. Pure.

- From entry to entry of one object, by what an edit did: with the rules of the entry that is new.
- From the agents of other objects, by what they keep on the node: a part is the same whoever offers it.
- From an earlier process of this object. Its count of driver loads means nothing in this one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from device_agent.health.state_machine import Failure, HealthCondition
from device_agent.health.watchlist import Kind, Record

_APART: Final = timedelta(seconds=2)
"""Two agents of a node note the time of one event this far apart at most."""


def of_another_process(condition: HealthCondition) -> HealthCondition:
    """The condition without what counts in the process alone that noted it."""
    failures = tuple(replace(f, load=replace(f.load, epoch=0)) for f in condition.failures)
    return replace(condition, failures=failures)


class Inheritance:
    """What other objects' agents knew of parts in this boot."""

    def __init__(self) -> None:
        self._parts: dict[str, list[HealthCondition]] = {}

    def add(self, records: Iterable[Record]) -> None:
        """Of all that was known the failures of parts count; what is polled is polled anew."""
        for record in records:
            if record.kind is Kind.PART:
                self._parts.setdefault(record.name, []).append(of_another_process(record.condition))

    def parts(self) -> tuple[str, ...]:
        """The parts of which anything is known."""
        return tuple(self._parts)

    def open(self, part: str, ours: Sequence[HealthCondition]) -> tuple[Failure, ...]:
        """The failures of the part that are open with one agent, unless another or `ours` has seen them end."""
        theirs = self._parts.get(part, ())
        still: list[Failure] = []
        for condition in theirs:
            ends = [c.ended + _APART for c in (*theirs, *ours) if c is not condition and c.ended is not None]
            still += [f for f in condition.failures if all(f.since > end for end in ends)]
        return tuple(still)
