"""The acknowledgement of failures by an admin: reads the annotation, ends failures, replies to each item. Pure.

Admins do not read an agent's log after `kubectl annotate`, and the API server accepts any text as an annotation. So
each item gets a reply in the inventory. The reply to an item that ends nothing shows the right items.

An item is `<device>=<since>`. It ends all failures of the device's parts that began by that time. The time must be the
start of one of these failures, open or over, or the time in the inventory. Any other time could end failures that no
admin has seen.
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
"""The most devices that a reply names as possible matches."""


@dataclass(frozen=True, slots=True)
class Item:
    """`<name>=<since>`. `since`: as the inventory writes times, '' where it is none; `text`: as it was written."""

    text: str
    name: str
    since: str


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of one item. `parts`: those with a failure that it ended. `words`: for the admin.

    `failing`: the named device has failures, or the item is wrong. Otherwise an earlier reading may have taken it.
    """

    item: str
    words: str
    parts: tuple[str, ...] = ()
    failing: bool = False


@dataclass(frozen=True, slots=True)
class _Target:
    """Parts of one entry that are acknowledged together.

    `told`: since when the inventory shows them as unhealthy, or ''; `reason`: the reason that it shows.
    """

    entry: str
    parts: tuple[str, ...]
    told: str = ""
    reason: str = ""


def items(text: str) -> Iterator[Item]:
    """The items of an annotation. Blanks around `=` and `,` and surplus commas are ignored."""
    for item in map(str.strip, text.split(",")):
        if item:
            name, equals, since = item.rpartition("=")
            yield Item(text=item, name=(name if equals else item).strip(), since=_moment(since) if equals else "")


def take(text: str, units: Iterable[Unit], conditions: Conditions, *, wall: datetime) -> tuple[Reply, ...]:
    """Ends the failures that the annotation names. `units`: all devices that are listed."""
    first = tuple(islice(items(text), MAX_ITEMS + 1))
    if not first:
        return ()
    names = _Names(units, conditions)
    replies = [_taken(item, tuple(names.targets(item.name)), conditions, wall=wall) for item in first[:MAX_ITEMS]]
    if len(first) > MAX_ITEMS:
        replies.append(Reply("", f"only the first {MAX_ITEMS} items are read", failing=True))
    return tuple(replies)


def _taken(item: Item, targets: Sequence[_Target], conditions: Conditions, *, wall: datetime) -> Reply:
    wanted = {(target.entry, part) for target in targets for part in target.parts}
    failing = _newest(conditions, wanted)
    if not item.since:
        right = _rather(failing or _newest(conditions))
        return Reply(item.text, f"{item.text}: must read <device>=<since>{right}", failing=True)
    ended = {end for target in targets for end in _end(target, item.since, conditions)}
    if ended:
        causes = ", ".join(sorted({cause for _, cause in ended}))
        words = f"{item.text}: taken at {since_text(wall)}, {causes} ended; Healthy when its checks are good"
        return Reply(item.text, words, tuple(sorted({part for part, _ in ended})))
    words = f"{item.text}: {_why_nothing(targets, failing, conditions)}"
    return Reply(item.text, words, failing=bool(failing) or not targets)


def _end(target: _Target, since: str, conditions: Conditions) -> Iterator[tuple[str, str]]:
    """(part, cause) of each failure of the target that an acknowledgement of this moment ends."""
    found = {part: c for part in target.parts if (c := conditions.part(target.entry, part)) is not None}
    moments = {since_text(f.since) for c in found.values() for f in c.failures}
    moments.update(since_text(c.ended) for c in found.values() if c.ended is not None)
    if since not in moments | {target.told}:
        return
    for part, condition in found.items():
        gone = [f for f in condition.failures if since_text(f.since) <= since]
        conditions.end(target.entry, part, gone)
        yield from ((part, f.ruling.cause) for f in gone)


class _Names:
    """Finds the devices and parts of this node that a name in an item means."""

    def __init__(self, units: Iterable[Unit], conditions: Conditions) -> None:
        self._conditions = conditions
        self._units: defaultdict[str, list[Unit]] = defaultdict(list)
        self._parts: defaultdict[str, list[_Target]] = defaultdict(list)
        for unit in units:
            for name in {unit.id, unit.value, *unit.parts}:
                self._units[name].append(unit)
        for entry, part in conditions.parts():  # also of devices and of partitions that are not listed now
            name = part
            while name:
                self._parts[name].append(_Target(entry, (part,)))
                name = name.rpartition("/")[0]

    def targets(self, name: str) -> Iterator[_Target]:
        for unit in self._units.get(name, ()):
            found = self._conditions.assess(unit)
            told = since_text(found.since) if found.since and not found.offered else ""
            yield _Target(unit.entry, unit.parts, told=told, reason=found.reason)
        yield from self._parts.get(name, ())


def _why_nothing(targets: Collection[_Target], failing: "_Failing", conditions: Conditions) -> str:
    """Why an item ended nothing."""
    if not targets:
        return f"no device here has this name{_rather(_newest(conditions))}"
    if failing:
        return f"no failure of it began at that moment{_rather(failing)}"
    if reason := next((t.reason for t in targets if t.reason), ""):
        return f"it has no failure to acknowledge: it stays {reason} until its checks are good"
    return "it has no failure now"


_Failing = dict[str, tuple[str, set[str]]]
"""Physical device -> when the newest of its failures began, and the causes of all of them."""


def _newest(conditions: Conditions, wanted: Collection[tuple[str, str]] | None = None) -> _Failing:
    """What is failing now. `wanted`: (entry, part) that count, None: all."""
    found: _Failing = {}
    for entry, part in conditions.parts() if wanted is None else wanted:
        condition = conditions.part(entry, part)
        for failure in condition.failures if condition else ():
            device = part.partition("/")[0]
            newest, causes = found.get(device, ("", set()))
            found[device] = max(newest, since_text(failure.since)), causes | {failure.ruling.cause}
    return found


def _rather(failing: _Failing) -> str:
    """The items that are right now, ready to copy."""
    if not failing:
        return ""
    told = [f"{device}={since} ({', '.join(sorted(causes))})" for device, (since, causes) in sorted(failing.items())]
    more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    return f"; failed now: {', '.join(told[:_SHOWN])}{more}"


def _moment(text: str) -> str:
    """A time of any RFC 3339 form as the inventory writes it; '' where it is none."""
    try:
        moment = datetime.fromisoformat(text.strip())
        return since_text(moment.astimezone(UTC)) if moment.tzinfo else ""
    except (ValueError, OverflowError):
        return ""
