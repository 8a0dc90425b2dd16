"""The conditions of all devices: who is told of which news, under whose rules, and what follows for a unit. Pure.

A condition belongs to a resource entry, as thresholds and ignored errors are the entry's, and to one thing:
- a part: a physical device, or a part of one, that its driver speaks of. All units that lie on it share it, whatever
  they are called and however often they are listed, so they go and come back together. Failures stay with the part
  while the device is unlisted, and pass on to an entry that is new, so that neither an edit nor a GPU that vanished
  and came back makes a broken one healthy.
- a unit's own checks (`unhealthyWhen`), and what scans say of it (gone, a node or companion missing): the unit's
  alone. A scan's word counts at once.
"""

import dataclasses
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from device_agent.contract import attributes
from device_agent.contract.document import HealthRules, Resource
from device_agent.contract.times import since_text
from device_agent.contract.values import dataclass
from device_agent.health import assessment as verdicts
from device_agent.health.assessment import Verdict
from device_agent.health.state_machine import (
    AT_ONCE,
    Answer,
    Check,
    Condition,
    Driver,
    Failure,
    Fault,
    Look,
    Ruling,
    Signal,
    State,
    checked,
    failed,
    over,
    step,
    with_failures,
)
from device_agent.select.unit import Unit

NO_ANSWER: Final = "NoAnswer"
"""The reason of a device whose last check gave no answer, where nothing better is known: it is what it was before."""
UNHEALTHY_WHEN: Final = "UnhealthyWhen"
"""The reason of a device that matches its entry's `health.unhealthyWhen`."""
_TOLERANCE: Final = 0.9
"""Of the interval: a check may come a little early by the other clock, and still counts."""


class Kind(StrEnum):
    PART = "Part"
    CHECK = "Check"
    SCAN = "Scan"


@dataclass(frozen=True, slots=True)
class Record:
    """One condition, as it is kept across restarts. `name`: of the part, or as `own` gives it."""

    entry: str
    kind: Kind
    name: str
    condition: Condition


@dataclasses.dataclass(slots=True)
class _Watched:
    """`counted`: when a check counted last, monotonic seconds. `silent`: `unanswered` as one word."""

    condition: Condition
    counted: float | None = None
    unanswered: str = ""
    silent: str = ""


_EARLY: Final = 100
_APART: Final = timedelta(seconds=2)
"""Between the times that two agents of a node note for one event."""
_Name = tuple[Kind, str]


def own(unit: Unit) -> str:
    """The name under which a unit's own conditions are kept: an id may be of two resources of one entry for a while."""
    return f"{unit.resource} {unit.id}"


class Conditions:
    """See the module. `rule`: what a fault means under rules, None: nothing."""

    def __init__(self, rule: Callable[[int, HealthRules], Ruling | None]) -> None:
        self._rule = rule
        self._rules: dict[str, HealthRules] = {}
        self._physical: frozenset[str] = frozenset()
        self._watched: dict[str, dict[_Name, _Watched]] = {}
        self._last = Look(checks={})
        self._early: deque[tuple[Fault, datetime]] = deque(maxlen=_EARLY)
        self._restored: set[str] = set()
        self._inherited: dict[str, list[Condition]] = {}
        self.revision = 0
        """Grows with every change that is worth being kept."""

    # Configuration

    def configure(self, resources: Iterable[Resource], *, now: float, wall: datetime) -> None:
        """The entries in force. One that is new is judged by the last look: the next may be a while off."""
        rules = {r.name: r.health for r in resources}
        physical = frozenset(r.name for r in resources if any(entry.kind == attributes.NVML for entry in r.devices))
        for entry in self._watched.keys() - rules.keys():
            self._keep_failures(entry)
        for entry, health in rules.items():
            if self._rules.get(entry) != health or entry in self._restored:
                self._rules[entry] = health
                self._rule_anew(entry)
        self._restored.clear()
        for entry in sorted(physical - self._physical):
            self._from_entries(entry)
            self._from_objects(entry)
        new, self._physical = physical - self._physical, physical
        for entry in new:
            for part, check in self._last.checks.items():
                watched = self._of(entry, (Kind.PART, part), wall=wall)
                self._looked(watched, check, rules[entry], self._last.driver, now=now, wall=wall)
        if physical:
            early = tuple(self._early)
            self._early.clear()
            for fault, at in early:
                self.fault(fault, wall=at)
        for entry in self._rules.keys() - rules.keys() - self._watched.keys():
            del self._rules[entry]

    def _keep_failures(self, entry: str) -> None:
        """Of an entry that left only what must not be forgotten: what has failed, and what is known to be over."""
        watched = self._watched[entry]
        for name in [n for n, w in watched.items() if not w.condition.failures and w.condition.ended is None]:
            self._forget(entry, name)

    def _rule_anew(self, entry: str) -> None:
        for watched in self._watched.get(entry, {}).values():
            if watched.condition.failures:
                ruled = self._ruled(watched.condition.failures, self._rules[entry])
                self._set(watched, with_failures(watched.condition, ruled))

    def _ruled(self, failures: Iterable[Failure], rules: HealthRules) -> tuple[Failure, ...]:
        ruled = ((f, self._rule(f.xid, rules)) for f in failures)
        return tuple(replace(f, ruling=ruling) for f, ruling in ruled if ruling is not None)

    def _from_entries(self, entry: str) -> None:
        for other in sorted(self._watched.keys() - {entry}):
            for (kind, part), watched in tuple(self._watched[other].items()):
                theirs = watched.condition
                failures = self._ruled(theirs.failures, self._rules[entry])
                if kind is Kind.PART and failures and (kind, part) not in self._watched.get(entry, {}):
                    mine = Condition(since=theirs.since, state=State.UNHEALTHY)
                    self._set(self._of(entry, (kind, part), wall=theirs.since), with_failures(mine, failures))

    def _from_objects(self, entry: str) -> None:
        """What has been inherited, but for what is known to be over: `inherit` has the rule."""
        for part, theirs in self._inherited.items():
            mine = [c[Kind.PART, part].condition for c in self._watched.values() if (Kind.PART, part) in c]
            still: list[Failure] = []
            for condition in theirs:
                ends = [c.ended + _APART for c in (*theirs, *mine) if c is not condition and c.ended is not None]
                still += [f for f in condition.failures if all(f.since > end for end in ends)]
            for failure in sorted(self._ruled(still, self._rules[entry]), key=lambda f: (f.since, f.ruling.cause)):
                watched = self._of(entry, (Kind.PART, part), wall=failure.since)
                if all(f.ruling.cause != failure.ruling.cause for f in watched.condition.failures):
                    after = failed(watched.condition, failure, self._rules[entry], wall=failure.since)
                    self._set(watched, after)

    # News of physical devices

    def look(self, look: Look, *, now: float, wall: datetime) -> bool:
        """One look at physical devices; whether a unit's verdict may be another."""
        changed = False
        if look.unanswered:
            for _, _, watched in self._parts():
                changed |= self._unanswered(watched, look.unanswered, look.cause)
            return changed
        self._last = look
        for entry in self._physical:
            for part in look.checks:
                self._of(entry, (Kind.PART, part), wall=wall)
        for entry, part, watched in self._parts():
            check = look.checks.get(part.partition("/")[0])
            if check is not None and check.fresh:
                changed |= self._looked(watched, check, self._rules[entry], look.driver, now=now, wall=wall)
        return changed

    def fault(self, fault: Fault, *, wall: datetime) -> bool:
        """One event of a physical device; whether that is a failure to anybody, and news: some come in storms."""
        if not self._physical:
            self._early.append((fault, wall))  # the driver is listened to before the first configuration is in force
        before = self.revision
        for entry, rules in sorted(self._rules.items()):
            ruling = self._rule(fault.xid, rules)
            if ruling is not None and (entry in self._physical or self._has_parts(entry)):
                watched = self._of(entry, (Kind.PART, fault.part), wall=wall)
                since = self._moment(entry, fault.part, wall=wall)
                failure = Failure(ruling=ruling, xid=fault.xid, since=since, driver=fault.driver)
                self._set(watched, failed(watched.condition, failure, rules, wall=wall))
        return self.revision != before

    def _moment(self, entry: str, part: str, *, wall: datetime) -> datetime:
        """When a failure that is new begins: in a later second than any other of the GPU, as seconds are what is told.

        Also where the clock went back: an acknowledgement that stands must not find it under its own moment.
        """
        of, known = part.partition("/")[0], []
        for (kind, name), watched in self._watched[entry].items():
            if kind is Kind.PART and name.partition("/")[0] == of:
                condition = watched.condition
                known += [f.since for f in condition.failures]
                known += [] if condition.ended is None else [condition.ended]
                known += [] if condition.state.offered else [condition.since]
        if not known or since_text(max(known)) < since_text(wall):
            return wall
        return max(known).replace(microsecond=0) + timedelta(seconds=1)

    def acknowledge(self, entry: str, parts: Collection[str], *, since: str, told: str = "") -> dict[str, list[str]]:
        """An admin says that what parts have failed with by then is over; good checks decide from here on.

        Nothing, unless one of these parts' failures began at that moment, over or not, or `told` is it, which
        inventories have for them: a moment of something else may have others before it that nobody was told of.
        Returns the causes that ended, by part.
        """
        conditions = self._watched.get(entry, {})
        found = {part: conditions[Kind.PART, part] for part in sorted(parts) if (Kind.PART, part) in conditions}
        moments = {told}
        for watched in found.values():
            moments.update(since_text(f.since) for f in watched.condition.failures)
            if watched.condition.ended is not None:
                moments.add(since_text(watched.condition.ended))
        ended = {}
        for part, watched in found.items():
            gone = [f for f in watched.condition.failures if since_text(f.since) <= since]
            if gone and since in moments:
                self._set(watched, over(watched.condition, gone))
                ended[part] = [f.ruling.cause for f in gone]
        return ended

    def parts(self) -> tuple[tuple[str, str, tuple[Failure, ...]], ...]:
        """(entry, part, its open failures) of every part that is known."""
        return tuple((entry, part, watched.condition.failures) for entry, part, watched in self._parts())

    @property
    def broken(self) -> bool:
        """Whether anything is wrong with a physical device."""
        return any(not watched.condition.state.offered for _, _, watched in self._parts())

    # News of units

    def scanned(self, unit: Unit, *, now: float, wall: datetime) -> bool:
        """A scan has found the unit; whether its verdict may be another."""
        before = self.revision
        conditions = self._watched.get(unit.entry, {})
        scan, check_name = (Kind.SCAN, own(unit)), (Kind.CHECK, own(unit))
        if unit.problem or scan in conditions:
            watched = self._of(unit.entry, scan, wall=wall)
            self._set(watched, step(watched.condition, Signal.RETURNED, AT_ONCE, wall=wall))
            check = Check(Answer.BAD, *unit.problem) if unit.problem else Check(Answer.GOOD)
            self._set(watched, checked(watched.condition, check, AT_ONCE, wall=wall))
            if watched.condition.state.offered:
                self._forget(unit.entry, scan)  # nothing is wrong, which takes no memory
        rules = self._rules[unit.entry]
        if rules.unhealthy_when:
            check = Check(Answer.BAD, UNHEALTHY_WHEN, unit.unfit) if unit.unfit else Check(Answer.GOOD)
            watched = self._of(unit.entry, check_name, wall=wall)
            return self._count(watched, check, rules, now=now, wall=wall) or self.revision != before
        if check_name in conditions:
            self._forget(unit.entry, check_name)
        return self.revision != before

    def vanished(self, unit: Unit, *, wall: datetime) -> datetime:
        """The last scan did not find the unit. Returns since when it is missing."""
        watched = self._of(unit.entry, (Kind.SCAN, own(unit)), wall=wall)
        self._set(watched, step(watched.condition, Signal.VANISHED, AT_ONCE, wall=wall))
        return watched.condition.since

    def forget(self, unit: Unit) -> None:
        """The unit is listed no more; failures stay with its parts."""
        for kind in (Kind.SCAN, Kind.CHECK):
            if (kind, own(unit)) in self._watched.get(unit.entry, {}):
                self._forget(unit.entry, (kind, own(unit)))

    def forget_others(self, names: Collection[str]) -> None:
        """Units that an earlier process listed and nobody knows any more; `names` as `own` gives them."""
        for entry in tuple(self._watched):
            for kind, name in tuple(self._watched[entry]):
                if kind is not Kind.PART and name not in names:
                    self._forget(entry, (kind, name))

    # Answers

    def verdict(self, unit: Unit) -> Verdict:
        """What holds for a unit: the worst of all that is known of it."""
        conditions = self._watched.get(unit.entry)
        if not conditions:
            return verdicts.FINE
        names = [(Kind.SCAN, own(unit)), (Kind.CHECK, own(unit)), *((Kind.PART, part) for part in unit.parts)]
        known = [conditions[name] for name in names if name in conditions]
        if not known:
            return verdicts.FINE
        silent, unanswered = next(((w.silent, w.unanswered) for w in known if w.unanswered), ("", ""))
        conditions_known = [w.condition for w in known]
        return verdicts.of(conditions_known, self._rules[unit.entry], unanswered=unanswered, silent=silent)

    def records(self) -> tuple[Record, ...]:
        """Everything, in a fixed order."""
        return tuple(
            Record(entry=entry, kind=kind, name=name, condition=watched.condition)
            for entry in sorted(self._watched)
            for (kind, name), watched in sorted(self._watched[entry].items())
        )

    def restore(self, records: Iterable[Record]) -> None:
        """What an earlier process knew, before anything else is said; its count of driver loads means nothing here."""
        for record in records:
            failures = tuple(replace(f, driver=replace(f.driver, epoch=0)) for f in record.condition.failures)
            condition = replace(record.condition, failures=failures)
            self._rules.setdefault(record.entry, HealthRules())
            self._restored.add(record.entry)
            self._watched.setdefault(record.entry, {})[record.kind, record.name] = _Watched(condition)

    def inherit(self, records: Iterable[Record]) -> None:
        """What other objects' agents knew in this boot; also what an earlier process of ours did, when it comes late.

        Of it the failures of parts count, as a part is the same whoever offers it: each that is open with one of
        them, unless one of them or of ours has seen it end (`Condition.ended`), and under the rules of our entries.
        What is polled is polled anew.
        """
        for record in records:
            if record.kind is Kind.PART:
                failures = tuple(replace(f, driver=replace(f.driver, epoch=0)) for f in record.condition.failures)
                self._inherited.setdefault(record.name, []).append(replace(record.condition, failures=failures))
        for entry in sorted(self._physical):
            self._from_objects(entry)

    # Within

    def _parts(self) -> Iterator[tuple[str, str, _Watched]]:
        for entry, conditions in self._watched.items():
            for (kind, name), watched in conditions.items():
                if kind is Kind.PART:
                    yield entry, name, watched

    def _has_parts(self, entry: str) -> bool:
        return any(kind is Kind.PART for kind, _ in self._watched.get(entry, {}))

    def _of(self, entry: str, name: _Name, *, wall: datetime) -> _Watched:
        conditions = self._watched.setdefault(entry, {})
        if name not in conditions:
            conditions[name] = _Watched(Condition(since=wall))
        return conditions[name]

    def _set(self, watched: _Watched, condition: Condition) -> None:
        if condition != watched.condition:
            watched.condition = condition
            self.revision += 1

    def _forget(self, entry: str, name: _Name) -> None:
        del self._watched[entry][name]
        if not self._watched[entry]:
            del self._watched[entry]
        self.revision += 1

    def _unanswered(self, watched: _Watched, why: str, cause: str = "") -> bool:
        changed = watched.unanswered != why
        watched.unanswered, watched.silent = why, cause or (NO_ANSWER if why else "")
        return changed

    def _looked(
        self, watched: _Watched, check: Check, rules: HealthRules, driver: Driver, *, now: float, wall: datetime
    ) -> bool:
        before = self.revision
        condition = watched.condition
        if condition.failures:
            after = [(f, f.after(action=check.action, driver=driver)) for f in condition.failures]
            condition = over(condition, [f for f, still in after if still is None])
            self._set(watched, with_failures(condition, tuple(still for _, still in after if still is not None)))
        return self._count(watched, check, rules, now=now, wall=wall) or self.revision != before

    def _count(self, watched: _Watched, check: Check, rules: HealthRules, *, now: float, wall: datetime) -> bool:
        """Whether anything changed. Checks that follow each other faster than the interval are one."""
        if check.answer is Answer.UNKNOWN:
            return self._unanswered(watched, check.message or "it gives no answer", check.cause)
        before, answered = self.revision, self._unanswered(watched, "")
        early = watched.counted is not None and now - watched.counted < _TOLERANCE * rules.interval_seconds
        if check.answer is Answer.LOST or not early:
            watched.counted = now
            self._set(watched, checked(watched.condition, check, rules, wall=wall))
        return answered or self.revision != before
