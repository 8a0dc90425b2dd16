"""An admin's word that failures are over: the annotation's items, what each ends, and the answer to each. Pure.

Nobody reads the log of an agent after `kubectl annotate`, and the API server takes any text for an annotation. So
every item gets an answer in the inventory, and one that ends nothing is told what would have been right.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from device_agent.contract.times import since_text
from device_agent.contract.values import dataclass
from device_agent.health.conditions import Conditions
from device_agent.select.unit import Unit

MAX_ITEMS: Final = 256
_SHOWN: Final = 3
"""Devices that an answer names as those that may be meant."""


@dataclass(frozen=True, slots=True)
class Item:
    """`<name>=<since>`. `since`: as the inventory writes times, '' where it is none; `text`: as it was written."""

    text: str
    name: str
    since: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What one item came to. `parts`: those with a failure that it ended; `words`: for the admin.

    `failing`: what it names has failures, or would have to be named otherwise; else it may have been taken before.
    """

    item: str
    words: str
    parts: tuple[str, ...] = ()
    failing: bool = False


@dataclass(frozen=True, slots=True)
class _Target:
    """Parts of one entry that are acknowledged together, and since when, by what, they are said to be unhealthy."""

    entry: str
    parts: tuple[str, ...]
    told: str = ""
    reason: str = ""


def items(text: str) -> Iterator[Item]:
    """The items of an annotation; blanks around `=` and `,` mean nothing, nor does a comma too many."""
    for item in map(str.strip, text.split(",")):
        if item:
            name, equals, since = item.rpartition("=")
            yield Item(text=item, name=(name if equals else item).strip(), since=_moment(since) if equals else "")


def take(text: str, units: Iterable[Unit], conditions: Conditions, *, wall: datetime) -> tuple[Answer, ...]:
    """Ends the failures that the annotation names. `units`: all devices that are listed."""
    first = tuple(islice(items(text), MAX_ITEMS + 1))
    if not first:
        return ()
    targets = _Targets(units, conditions)
    answers = [_taken(item, tuple(targets.of(item.name)), conditions, wall=wall) for item in first[:MAX_ITEMS]]
    if len(first) > MAX_ITEMS:
        answers.append(Answer("", f"only the first {MAX_ITEMS} items are read", failing=True))
    return tuple(answers)


def _taken(item: Item, targets: Sequence[_Target], conditions: Conditions, *, wall: datetime) -> Answer:
    failures = _failures(targets, conditions)
    if not item.since:
        right = _rather(failures or _all_failures(conditions))
        return Answer(item.text, f"{item.text}: must read <device>=<since>{right}", failing=True)
    ended: dict[str, list[str]] = {}
    for target in targets:
        taken = conditions.acknowledge(target.entry, target.parts, since=item.since, told=target.told)
        for part, causes in taken.items():
            ended.setdefault(part, []).extend(causes)
    if ended:
        told = ", ".join(sorted({cause for causes in ended.values() for cause in causes}))
        words = f"{item.text}: taken at {since_text(wall)}, {told} ended; Healthy when its checks are good"
        return Answer(item.text, words, tuple(sorted(ended)))
    words = f"{item.text}: {_why(targets, failures, conditions)}"
    return Answer(item.text, words, failing=bool(failures) or not targets)


class _Targets:
    """What names mean on this node."""

    def __init__(self, units: Iterable[Unit], conditions: Conditions) -> None:
        self._conditions = conditions
        self._units: defaultdict[str, list[Unit]] = defaultdict(list)
        self._parts: defaultdict[str, list[_Target]] = defaultdict(list)
        for unit in units:
            for name in {unit.id, unit.value, *unit.parts}:
                self._units[name].append(unit)
        for entry, part, _ in conditions.parts():  # also of a GPU or of a partition that is not listed now
            name = part
            while name:
                self._parts[name].append(_Target(entry, (part,)))
                name = name.rpartition("/")[0]

    def of(self, name: str) -> Iterator[_Target]:
        for unit in self._units.get(name, ()):
            verdict = self._conditions.verdict(unit)
            told = since_text(verdict.since) if verdict.since and not verdict.offered else ""
            yield _Target(unit.entry, unit.parts, told=told, reason=verdict.reason)
        yield from self._parts.get(name, ())


def _why(targets: Collection[_Target], failures: "_Failures", conditions: Conditions) -> str:
    """Why it ended nothing."""
    if not targets:
        return f"no device and no GPU here has this name{_rather(_all_failures(conditions))}"
    if failures:
        return f"no failure of it began at that moment{_rather(failures)}"
    if reason := next((t.reason for t in targets if t.reason), ""):
        return f"it has no failure that this could end: it stays {reason} until its checks are good"
    return "it has no failure now"


_Failures = dict[str, tuple[str, set[str]]]


def _failures(targets: Collection[_Target], conditions: Conditions) -> _Failures:
    """GPU -> when the newest of its failures began, and their causes; of the targets alone."""
    wanted = {(target.entry, part) for target in targets for part in target.parts}
    return _newest((part, f) for entry, part, f in _open(conditions) if (entry, part) in wanted)


def _all_failures(conditions: Conditions) -> _Failures:
    return _newest((part, f) for _, part, f in _open(conditions))


def _open(conditions: Conditions) -> Iterator[tuple[str, str, tuple[str, str]]]:
    for entry, part, failures in conditions.parts():
        for failure in failures:
            yield entry, part, (since_text(failure.since), failure.ruling.cause)


def _newest(failures: Iterable[tuple[str, tuple[str, str]]]) -> _Failures:
    found: _Failures = {}
    for part, (since, cause) in failures:
        gpu = part.partition("/")[0]
        newest, causes = found.get(gpu, ("", set()))
        found[gpu] = (max(newest, since), causes | {cause})
    return found


def _rather(failures: _Failures) -> str:
    """What would be right, to be copied."""
    if not failures:
        return ""
    told = [f"{gpu}={since} ({', '.join(sorted(causes))})" for gpu, (since, causes) in sorted(failures.items())]
    more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    return f"; what has failed now is {', '.join(told[:_SHOWN])}{more}"


def _moment(text: str) -> str:
    """A time of any RFC 3339 form as the inventory writes it; '' where it is none."""
    try:
        moment = datetime.fromisoformat(text.strip())
        return since_text(moment.astimezone(UTC)) if moment.tzinfo else ""
    except (ValueError, OverflowError):
        return ""
