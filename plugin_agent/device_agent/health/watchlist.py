"""The conditions that are watched, by entry and name, and what only this process knows of each of them."""

import dataclasses
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from enum import StrEnum
from typing import Final

from device_agent.contract.document import HealthRules
from device_agent.contract.reasons import DeviceReason
from device_agent.contract.values import dataclass
from device_agent.health.news import Answer, Check, DriverLoad
from device_agent.health.state_machine import HealthCondition, checked, over, with_failures

_TOLERANCE: Final = 0.9
"""Share of the interval after which a check counts: by another clock it may come a little early."""


class Kind(StrEnum):
    """Whose word a condition is: a driver's of a part, a check's (`unhealthyWhen`), or a scan's."""

    PART = "Part"
    CHECK = "Check"
    SCAN = "Scan"


Name = tuple[Kind, str]


@dataclass(frozen=True, slots=True)
class Record:
    """One condition, as it is kept across restarts. `name`: of the part, or as `conditions.own` gives it."""

    entry: str
    kind: Kind
    name: str
    condition: HealthCondition


@dataclasses.dataclass(slots=True)
class Watched:
    """One condition. `counted`: when a check counted last, monotonic seconds.

    `unanswered`: why the last check gave no answer, or ''; `silent`: that in one word. `source`: whose driver has
    spoken of it in this process, or ''.
    """

    condition: HealthCondition
    counted: float | None = None
    unanswered: str = ""
    silent: str = ""
    source: str = ""


class Watchlist:
    """All of them. Every change of a condition goes through here, so that `revision` grows with each."""

    def __init__(self) -> None:
        self.revision = 0
        """Grows with every change that is worth being kept."""
        self._watched: dict[str, dict[Name, Watched]] = {}

    # Looking up

    def entries(self) -> AbstractSet[str]:
        """Entries of which anything is known."""
        return self._watched.keys()

    def of_entry(self, entry: str) -> Mapping[Name, Watched]:
        """Everything that is known of an entry; it may change while this is looked at."""
        return self._watched.get(entry, {})

    def get(self, entry: str, name: Name) -> Watched | None:
        """One condition, None where nothing is known."""
        return self._watched.get(entry, {}).get(name)

    def parts(self) -> Iterator[tuple[str, str, Watched]]:
        """(entry, part, its condition) of all parts."""
        for entry, conditions in self._watched.items():
            for (kind, name), watched in conditions.items():
                if kind is Kind.PART:
                    yield entry, name, watched

    def has_parts(self, entry: str) -> bool:
        """Whether anything is known of a part of the entry's devices."""
        return any(kind is Kind.PART for kind, _ in self._watched.get(entry, {}))

    def of_part(self, part: str) -> Iterator[HealthCondition]:
        """What each entry knows of a part."""
        for conditions in self._watched.values():
            if watched := conditions.get((Kind.PART, part)):
                yield watched.condition

    def records(self) -> tuple[Record, ...]:
        """Everything, in a fixed order."""
        return tuple(
            Record(entry=entry, kind=kind, name=name, condition=watched.condition)
            for entry in sorted(self._watched)
            for (kind, name), watched in sorted(self._watched[entry].items())
        )

    # Changing

    def put(self, record: Record) -> None:
        """A condition that is kept already."""
        self._watched.setdefault(record.entry, {})[record.kind, record.name] = Watched(record.condition)

    def of(self, entry: str, name: Name, *, wall: datetime) -> Watched:
        """One condition, made when nothing was known."""
        conditions = self._watched.setdefault(entry, {})
        if name not in conditions:
            conditions[name] = Watched(HealthCondition(since=wall))
        return conditions[name]

    def set(self, watched: Watched, condition: HealthCondition) -> None:
        """The condition has become this one."""
        if condition != watched.condition:
            watched.condition = condition
            self.revision += 1

    def forget(self, entry: str, name: Name) -> None:
        """Nothing is known any more."""
        del self._watched[entry][name]
        if not self._watched[entry]:
            del self._watched[entry]
        self.revision += 1

    # Checks

    def looked(
        self, watched: Watched, check: Check, rules: HealthRules, load: DriverLoad, *, now: float, wall: datetime
    ) -> bool:
        """A driver's check of a part, which may also end failures. Whether anything changed."""
        before = self.revision
        condition = watched.condition
        if condition.failures:
            after = [(f, f.after(action=check.action, load=load)) for f in condition.failures]
            condition = over(condition, [f for f, still in after if still is None])
            self.set(watched, with_failures(condition, tuple(still for _, still in after if still is not None)))
        return self.count(watched, check, rules, now=now, wall=wall) or self.revision != before

    def count(self, watched: Watched, check: Check, rules: HealthRules, *, now: float, wall: datetime) -> bool:
        """One check. Whether anything changed. Checks that follow each other faster than the interval are one."""
        if check.answer is Answer.UNKNOWN:
            return self.unanswered(watched, check.message or "it gives no answer", check.cause)
        before, answered = self.revision, self.unanswered(watched, "")
        early = watched.counted is not None and now - watched.counted < _TOLERANCE * rules.interval_seconds
        if check.answer is Answer.LOST or not early:
            watched.counted = now
            self.set(watched, checked(watched.condition, check, rules, wall=wall))
        return answered or self.revision != before

    def unanswered(self, watched: Watched, why: str, cause: str = "") -> bool:
        """Why the last check gave no answer, '' when it gave one. Whether that is new."""
        changed = watched.unanswered != why
        watched.unanswered, watched.silent = why, cause or (DeviceReason.NO_ANSWER if why else "")
        return changed
