"""The conditions of all devices: applies news to them under the rules of each entry, and assesses units. Pure.

A condition belongs to a resource entry, because thresholds and ignored faults do, and to one of these:
- a part: a physical device, or a part of one, that its driver reports on. All units on a part share its conditions, so
  they fail and recover together. Failures stay with the part while the device is unlisted, and pass on to a new entry
  (`passing_on`). So an edit, or a device that vanishes and returns, does not make a broken device healthy.
- a unit: its own checks (`unhealthyWhen`), and the results of scans (gone, a node or companion missing). The result of
  a scan counts at once.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from device_agent.contract.document import HealthRules, Resource
from device_agent.contract.reasons import DeviceReason
from device_agent.contract.times import since_text
from device_agent.health import assessment
from device_agent.health.assessment import Assessment
from device_agent.health.news import Answer, Check, Code, Fault, FaultRule, Look, Ruling
from device_agent.health.passing_on import Inheritance, of_another_process
from device_agent.health.state_machine import (
    AT_ONCE,
    Failure,
    HealthCondition,
    Signal,
    State,
    checked,
    failed,
    over,
    step,
    with_failures,
)
from device_agent.health.watchlist import Kind, Record, Watched, Watchlist
from device_agent.select.unit import Unit

_EARLY: Final = 100
"""Faults that are remembered until a configuration is in force."""
_NONE: Final[frozenset[str]] = frozenset()


def own(unit: Unit) -> str:
    """The name of a unit's own conditions. It contains the resource, because one id may belong to two resources of an
    entry for a while.
    """
    return f"{unit.resource} {unit.id}"


class Conditions:
    """See the module. `fault_rules`: source -> what its faults mean, for each source that reports on physical parts, as
    a driver library does. Entries with such a source have physical parts.
    """

    def __init__(self, fault_rules: Mapping[str, FaultRule]) -> None:
        self._fault_rules = fault_rules
        self._rules: dict[str, HealthRules] = {}
        self._drivers: dict[str, frozenset[str]] = {}
        """Entry -> its sources that have fault rules, of entries that have any."""
        self._list = Watchlist()
        self._last: dict[str, Look] = {}
        """Source -> its last look that had answers."""
        self._early: deque[tuple[Fault, datetime]] = deque(maxlen=_EARLY)
        self._restored: set[str] = set()
        self._inherited = Inheritance()

    @property
    def revision(self) -> int:
        """Grows with every change that must be kept."""
        return self._list.revision

    # Configuration

    def configure(self, resources: Iterable[Resource], *, now: float, wall: datetime) -> None:
        """Sets the entries in force.

        A new entry is judged by the last look, because the next look may come much later.
        """
        resources = tuple(resources)
        rules = {r.name: r.health for r in resources}
        for entry in self._list.entries() - rules.keys():
            self._keep_failures(entry)
        for entry, health in rules.items():
            if self._rules.get(entry) != health or entry in self._restored:
                self._rules[entry] = health
                self._rule_anew(entry)
        self._restored.clear()
        before, self._drivers = self._drivers, {r.name: s for r in resources if (s := self._drivers_of(r))}
        for entry in sorted(self._drivers.keys() - before.keys()):
            self._from_entries(entry)
            self._from_objects(entry)
        for entry, sources in self._drivers.items():
            for source in sources - before.get(entry, _NONE):
                if (look := self._last.get(source)) is not None:
                    self._begin_with(look, entry, now=now, wall=wall)
        early = tuple(self._early)
        self._early.clear()
        for fault, at in early:
            self.fault(fault, wall=at)
        for entry in self._rules.keys() - rules.keys() - self._list.entries():
            del self._rules[entry]

    def _drivers_of(self, resource: Resource) -> frozenset[str]:
        return frozenset(entry.kind for entry in resource.devices if entry.kind in self._fault_rules)

    def _keep_failures(self, entry: str) -> None:
        """Forgets an entry that left the configuration, except its failures, open or over."""
        known = self._list.of_entry(entry)
        for name in [n for n, w in known.items() if not w.condition.failures and w.condition.ended is None]:
            self._list.forget(entry, name)

    def _rule_anew(self, entry: str) -> None:
        for watched in self._list.of_entry(entry).values():
            if watched.condition.failures:
                ruled = self._ruled(watched.condition.failures, self._rules[entry])
                self._list.set(watched, with_failures(watched.condition, ruled))

    def _ruling(self, code: Code, rules: HealthRules) -> Ruling | None:
        rulings = (rule(code, rules) for rule in self._fault_rules.values())
        return next((ruling for ruling in rulings if ruling is not None), None)

    def _ruled(self, failures: Iterable[Failure], rules: HealthRules) -> tuple[Failure, ...]:
        ruled = ((f, self._ruling(f.code, rules)) for f in failures)
        return tuple(replace(f, ruling=ruling) for f, ruling in ruled if ruling is not None)

    def _from_entries(self, entry: str) -> None:
        for other in sorted(self._list.entries() - {entry}):
            for (kind, part), watched in tuple(self._list.of_entry(other).items()):
                theirs = watched.condition
                failures = self._ruled(theirs.failures, self._rules[entry])
                if kind is Kind.PART and failures and self._list.get(entry, (kind, part)) is None:
                    mine = HealthCondition(since=theirs.since, state=State.UNHEALTHY)
                    self._list.set(self._list.of(entry, (kind, part), wall=theirs.since), with_failures(mine, failures))

    def _from_objects(self, entry: str) -> None:
        for part in self._inherited.parts():
            still = self._inherited.open(part, tuple(self._list.of_part(part)))
            for failure in sorted(self._ruled(still, self._rules[entry]), key=lambda f: (f.since, f.ruling.cause)):
                watched = self._list.of(entry, (Kind.PART, part), wall=failure.since)
                if all(f.ruling.cause != failure.ruling.cause for f in watched.condition.failures):
                    after = failed(watched.condition, failure, self._rules[entry], wall=failure.since)
                    self._list.set(watched, after)

    # News of physical devices

    def look(self, look: Look, *, now: float, wall: datetime) -> bool:
        """Applies one look at physical devices. Returns whether a unit's assessment may have changed."""
        changed = False
        if look.unanswered:
            for entry, _, watched in self._list.parts():
                if self._speaks_of(look.source, entry, watched):
                    changed |= self._list.unanswered(watched, look.unanswered, look.cause, wall=wall)
            return changed
        self._last[look.source] = look
        for entry in self._rules:
            changed |= self._take(look, entry, now=now, wall=wall)
        return changed

    def _speaks_of(self, source: str, entry: str, watched: Watched) -> bool:
        """Whether a part belongs to the source. If no driver has reported the part yet, its entry decides."""
        return watched.source == source if watched.source else source in self._drivers.get(entry, {source})

    def _begin_with(self, look: Look, entry: str, *, now: float, wall: datetime) -> None:
        for device, check in look.checks.items():
            watched = self._list.of(entry, (Kind.PART, device), wall=wall)
            watched.source = look.source
            self._list.looked(watched, check, self._rules[entry], look.load, now=now, wall=wall)

    def _take(self, look: Look, entry: str, *, now: float, wall: datetime) -> bool:
        """The checks of a look for the parts of an entry: all its devices if the entry has this source, else the parts
        it knows.
        """
        if look.source in self._drivers.get(entry, _NONE):
            for part in look.checks:
                self._list.of(entry, (Kind.PART, part), wall=wall)
        changed = False
        for (kind, part), watched in self._list.of_entry(entry).items():
            check = look.checks.get(part.partition("/")[0]) if kind is Kind.PART else None
            if check is not None:
                watched.source = look.source
                if check.fresh:
                    changed |= self._list.looked(watched, check, self._rules[entry], look.load, now=now, wall=wall)
        return changed

    def fault(self, fault: Fault, *, wall: datetime) -> bool:
        """Applies one fault of a physical device. Returns whether it is a new failure of an entry: faults can come in
        storms.
        """
        if not any(fault.source in sources for sources in self._drivers.values()):
            self._early.append((fault, wall))  # the driver is listened to before the first configuration is in force
        before = self.revision
        for entry, rules in sorted(self._rules.items()):
            concerned = fault.source in self._drivers.get(entry, _NONE) or self._list.has_parts(entry)
            ruling = self._ruling(fault.code, rules)
            if ruling is not None and concerned:
                watched = self._list.of(entry, (Kind.PART, fault.part), wall=wall)
                watched.source = fault.source
                since = self._moment(entry, fault.part, wall=wall)
                failure = Failure(ruling=ruling, code=fault.code, since=since, load=fault.load)
                self._list.set(watched, failed(watched.condition, failure, rules, wall=wall))
        return self.revision != before

    def _moment(self, entry: str, part: str, *, wall: datetime) -> datetime:
        """The time of a new failure: at least a second later than every time shown for the device so far.

        Times are shown in seconds. An acknowledgement of an earlier time, even after the clock was set back, must not
        end this failure.
        """
        of, known = part.partition("/")[0], []
        for (kind, name), watched in self._list.of_entry(entry).items():
            if kind is Kind.PART and name.partition("/")[0] == of:
                condition = watched.condition
                known += [f.since for f in condition.failures]
                known += [] if condition.ended is None else [condition.ended]
                known += [] if watched.silent_since is None else [watched.silent_since]
                known += [] if condition.state.offered else [condition.since]
        if not known or since_text(max(known)) < since_text(wall):
            return wall
        return max(known).replace(microsecond=0) + timedelta(seconds=1)

    def parts(self) -> tuple[tuple[str, str], ...]:
        """(entry, part) of every part that is known."""
        return tuple((entry, part) for entry, part, _ in self._list.parts())

    def part(self, entry: str, part: str) -> HealthCondition | None:
        """The condition of a part. None: nothing is known of it."""
        watched = self._list.get(entry, (Kind.PART, part))
        return watched.condition if watched else None

    def end(self, entry: str, part: str, gone: Collection[Failure]) -> None:
        """Ends these failures of a part. From now on its checks decide."""
        watched = self._list.get(entry, (Kind.PART, part))
        if watched is not None:
            self._list.set(watched, over(watched.condition, gone))

    # News of units

    def scanned(self, unit: Unit, *, now: float, wall: datetime) -> bool:
        """Notes that a scan found the unit. Returns whether its assessment may have changed."""
        before, answers = self.revision, False
        scan, check_name = (Kind.SCAN, own(unit)), (Kind.CHECK, own(unit))
        if unit.problem or self._list.get(unit.entry, scan) is not None:
            watched = self._list.of(unit.entry, scan, wall=wall)
            answers = self._list.unanswered(watched, "", wall=wall)
            self._list.set(watched, step(watched.condition, Signal.RETURNED, AT_ONCE, wall=wall))
            check = Check(Answer.BAD, *unit.problem) if unit.problem else Check(Answer.GOOD)
            self._list.set(watched, checked(watched.condition, check, AT_ONCE, wall=wall))
            if watched.condition.state.offered:
                self._list.forget(unit.entry, scan)  # a good scan needs no condition
        rules = self._rules[unit.entry]
        if rules.unhealthy_when:
            check = Check(Answer.BAD, DeviceReason.UNHEALTHY_WHEN, unit.unfit) if unit.unfit else Check(Answer.GOOD)
            watched = self._list.of(unit.entry, check_name, wall=wall)
            answers |= self._list.count(watched, check, rules, now=now, wall=wall)
        elif self._list.get(unit.entry, check_name) is not None:
            self._list.forget(unit.entry, check_name)
        return answers or self.revision != before

    def unread(self, unit: Unit, why: str, *, wall: datetime) -> bool:
        """Notes that a scan could not read the unit. Returns whether its assessment may have changed."""
        return self._list.unanswered(self._list.of(unit.entry, (Kind.SCAN, own(unit)), wall=wall), why, wall=wall)

    def vanished(self, unit: Unit, *, wall: datetime) -> datetime:
        """Notes that the last scan did not find the unit. Returns since when it is missing."""
        watched = self._list.of(unit.entry, (Kind.SCAN, own(unit)), wall=wall)
        self._list.unanswered(watched, "", wall=wall)
        self._list.set(watched, step(watched.condition, Signal.VANISHED, AT_ONCE, wall=wall))
        return watched.condition.since

    def forget(self, unit: Unit) -> None:
        """Forgets a unit that is no longer listed. Failures stay with its parts."""
        for kind in (Kind.SCAN, Kind.CHECK):
            if self._list.get(unit.entry, (kind, own(unit))) is not None:
                self._list.forget(unit.entry, (kind, own(unit)))

    def forget_others(self, names: Collection[str]) -> None:
        """Forgets units that an earlier process listed and that no longer exist. `names`: the units to keep, as `own`
        gives them.
        """
        for entry in tuple(self._list.entries()):
            for kind, name in tuple(self._list.of_entry(entry)):
                if kind is not Kind.PART and name not in names:
                    self._list.forget(entry, (kind, name))

    # Answers

    def assess(self, unit: Unit, *, found: bool = True) -> Assessment:
        """The assessment of a unit: the worst of all its conditions.

        `found`: scans find it. Otherwise only its parts count.
        """
        known = self._list.of_entry(unit.entry)
        if not known:
            return assessment.FINE
        names = [(Kind.PART, part) for part in unit.parts]
        if found:
            names = [(Kind.SCAN, own(unit)), (Kind.CHECK, own(unit)), *names]
        mine = [known[name] for name in names if name in known]
        if not mine:
            return assessment.FINE
        silent, unanswered = next(((w.silent, w.unanswered) for w in mine if w.unanswered), ("", ""))
        conditions = [w.condition for w in mine]
        return assessment.of(conditions, self._rules[unit.entry], unanswered=unanswered, silent=silent)

    # Memory

    def records(self) -> tuple[Record, ...]:
        """All records, in a fixed order."""
        return self._list.records()

    def restore(self, records: Iterable[Record]) -> None:
        """Takes what an earlier process knew. Call it before any other event."""
        for record in records:
            self._rules.setdefault(record.entry, HealthRules())
            self._restored.add(record.entry)
            self._list.put(replace(record, condition=of_another_process(record.condition)))

    def inherit(self, records: Iterable[Record]) -> None:
        """Takes the failures that other objects' agents knew in this boot. The rules of this object's entries apply.

        If the disk returns this object's own file after the start, that file comes here too.
        """
        self._inherited.add(records)
        for entry in sorted(self._drivers):
            self._from_objects(entry)
