"""All conditions by entry and name, with what only this process knows of each."""

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
"""A check counts after this share of the interval: another clock may make it come slightly early."""


class Kind(StrEnum):
    """Who decides a condition: a driver for a part, a check (`unhealthyWhen`), or a scan."""

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

    `unanswered`: why the last check gave no answer, or ''; `silent`: its reason code; `silent_since`: since when.
    `source`: the source that reported it in this process, or ''.
    """

    condition: HealthCondition
    counted: float | None = None
    unanswered: str = ""
    silent: str = ""
    silent_since: datetime | None = None
    source: str = ""


class Watchlist:
    """All conditions. Every change goes through this class, so that `revision` grows with each."""

    def __init__(self) -> None:
        self.revision = 0
        """Grows with every change that must be kept."""
        self._watched: dict[str, dict[Name, Watched]] = {}

    # Looking up

    def entries(self) -> AbstractSet[str]:
        """Entries with any condition."""
        return self._watched.keys()

    def of_entry(self, entry: str) -> Mapping[Name, Watched]:
        """All conditions of an entry. It is the mapping itself, which may change during an iteration."""
        return self._watched.get(entry, {})

    def get(self, entry: str, name: Name) -> Watched | None:
        """One condition. None: nothing is known."""
        return self._watched.get(entry, {}).get(name)

    def parts(self) -> Iterator[tuple[str, str, Watched]]:
        """(entry, part, its condition) of all parts."""
        for entry, conditions in self._watched.items():
            for (kind, name), watched in conditions.items():
                if kind is Kind.PART:
                    yield entry, name, watched

    def has_parts(self, entry: str) -> bool:
        """Whether the entry has a condition of any part."""
        return any(kind is Kind.PART for kind, _ in self._watched.get(entry, {}))

    def of_part(self, part: str) -> Iterator[HealthCondition]:
        """The condition that each entry has of a part."""
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
        """Adds a condition that is already on the disk."""
        self._watched.setdefault(record.entry, {})[record.kind, record.name] = Watched(record.condition)

    def of(self, entry: str, name: Name, *, wall: datetime) -> Watched:
        """One condition. Makes it if nothing was known."""
        conditions = self._watched.setdefault(entry, {})
        if name not in conditions:
            conditions[name] = Watched(HealthCondition(since=wall))
        return conditions[name]

    def set(self, watched: Watched, condition: HealthCondition) -> None:
        """Replaces a condition."""
        if condition != watched.condition:
            watched.condition = condition
            self.revision += 1

    def forget(self, entry: str, name: Name) -> None:
        """Removes a condition."""
        del self._watched[entry][name]
        if not self._watched[entry]:
            del self._watched[entry]
        self.revision += 1

    # Checks

    def looked(
        self, watched: Watched, check: Check, rules: HealthRules, load: DriverLoad, *, now: float, wall: datetime
    ) -> bool:
        """Applies a driver's check of a part, which may also end failures. Returns whether anything changed."""
        before = self.revision
        condition = watched.condition
        if condition.failures:
            after = [(f, f.after(action=check.action, load=load)) for f in condition.failures]
            condition = over(condition, [f for f, still in after if still is None])
            self.set(watched, with_failures(condition, tuple(still for _, still in after if still is not None)))
        return self.count(watched, check, rules, now=now, wall=wall) or self.revision != before

    def count(self, watched: Watched, check: Check, rules: HealthRules, *, now: float, wall: datetime) -> bool:
        """Applies one check. Returns whether anything changed. Checks that follow each other faster than the interval
        count as one.
        """
        if check.answer is Answer.UNKNOWN:
            return self.unanswered(watched, check.message or "it gives no answer", check.cause, wall=wall)
        before, answered = self.revision, self.unanswered(watched, "", wall=wall)
        early = watched.counted is not None and now - watched.counted < _TOLERANCE * rules.interval_seconds
        if check.answer is Answer.LOST or not early:
            watched.counted = now
            self.set(watched, checked(watched.condition, check, rules, wall=wall))
        return answered or self.revision != before

    def unanswered(self, watched: Watched, why: str, cause: str = "", *, wall: datetime) -> bool:
        """Notes why the last check gave no answer, or '' if it gave one. Returns whether that is new."""
        changed = watched.unanswered != why
        if changed and why:
            watched.silent_since = wall
        watched.unanswered, watched.silent = why, cause or (DeviceReason.NO_ANSWER if why else "")
        return changed
