"""Which devices appeared, disappeared, failed or recovered between two snapshots of the table. The only comparison.

The log has a line for each, at most 20 at a time; a metric counts them; the history gets them as values.
"""

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from device_agent.contract.inventory import HistoryState
from device_agent.contract.reasons import DeviceReason, as_label
from device_agent.contract.values import dataclass
from device_agent.runtime.metrics import Metrics
from device_agent.table.snapshot import DeviceState, Health, TableSnapshot

logger = logging.getLogger(__name__)

Key = tuple[str, str]
"""(resource name, the device's id)"""

_MOST: Final = 20
"""The most lines at a time: when a switch disappears, many devices do."""


@dataclass(frozen=True, slots=True)
class Seen:
    """How a device is. `reason`: why, one word. `unanswered`: its last check gave no answer, whatever its state."""

    state: HistoryState
    reason: str = ""
    unanswered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One change of a device.

    `before`: None if nothing is known. `new`: this process sees the device for the first time, or again after it had
    left the table; `before` is then what the history has. `device`: None if it has left the table. `real`: its state
    or reason changed. A healthy device that the agent finds at its start has changed nothing.
    """

    resource: str
    id: str
    time: datetime
    before: Seen | None
    after: Seen
    new: bool
    device: DeviceState | None
    real: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What was known before a snapshot. `seen`: by this process. `kept`: in the history, with when it changed last.

    `complete`: all sources had shown their devices, so a device that is not there is gone.
    """

    seen: Mapping[Key, Seen]
    kept: Mapping[Key, tuple[Seen, datetime]]
    complete: bool


def seen_as(device: DeviceState) -> Seen:
    """How a device is, in one word, and why."""
    unanswered = bool(device.unanswered)
    if device.health is not Health.HEALTHY:
        return Seen(HistoryState.UNHEALTHY, device.reason, unanswered)
    if device.hold is not None:
        return Seen(HistoryState.WITHHELD, device.hold.word, unanswered)
    return Seen(HistoryState.UNKNOWN if unanswered else HistoryState.HEALTHY, device.reason, unanswered)


def seen_in(snapshot: TableSnapshot) -> dict[Key, Seen]:
    """How all devices are."""
    return {(r.name, device.unit.id): seen_as(device) for r in snapshot.resources for device in r.devices}


def compare(known: Known, snapshot: TableSnapshot, *, now: datetime, complete: bool) -> tuple[Transition, ...]:
    """The changes since then, in the order of the snapshot; devices that are gone come last.

    `complete`: as in `Known`, of this snapshot. What changed before this process saw the device has the time at which
    the table says it began.
    """
    found: list[Transition] = []
    present: set[Key] = set()
    for resource in snapshot.resources:
        for device in resource.devices:
            key = (resource.name, device.unit.id)
            present.add(key)
            if known.seen.get(key) != seen_as(device):
                found.append(_change(key, device, known, now=now))
    return (*found, *_gone(known, present, now=now, complete=complete))


def _change(key: Key, device: DeviceState, known: Known, *, now: datetime) -> Transition:
    before, after, time = known.seen.get(key), seen_as(device), now
    new = before is None
    if new and key in known.kept:
        before, last = known.kept[key]
        time = min(max(device.since, last), now)
    elif new:
        time = min(device.since, now)
    if before is None:
        real = known.complete or after.state is not HistoryState.HEALTHY
    else:
        real = _told(before) != _told(after)
    name, device_id = key
    return Transition(
        resource=name, id=device_id, time=time, before=before, after=after, new=new, device=device, real=real
    )


def _gone(known: Known, present: set[Key], *, now: datetime, complete: bool) -> tuple[Transition, ...]:
    """Devices that this process has seen, and those of the history that it never saw."""
    left = {key: seen for key, seen in known.seen.items() if key not in present}
    if complete:
        for key, (seen, _) in known.kept.items():
            if key not in present and seen.state is not HistoryState.GONE:
                left.setdefault(key, seen)
    return tuple(
        Transition(
            resource=name,
            id=device_id,
            time=now,
            before=before,
            after=Seen(HistoryState.GONE, before.reason),
            new=(name, device_id) not in known.seen,
            device=None,
            real=True,
        )
        for (name, device_id), before in left.items()
    )


def _told(seen: Seen) -> tuple[HistoryState, str]:
    return seen.state, seen.reason


class Comparison:
    """Compares each snapshot with the one before. `kept`: see `Known`. `awaiting`: a source has not shown its devices
    yet, so one that is missing at the start may still come.
    """

    def __init__(self) -> None:
        self._seen: Mapping[Key, Seen] = {}
        self._complete = False

    def take(
        self,
        snapshot: TableSnapshot,
        *,
        kept: Mapping[Key, tuple[Seen, datetime]],
        now: datetime,
        awaiting: bool = False,
    ) -> tuple[Transition, ...]:
        """What changed since the last call."""
        known = Known(seen=self._seen, kept=kept, complete=self._complete)
        self._complete = self._complete or not awaiting
        self._seen = seen_in(snapshot)
        return compare(known, snapshot, now=now, complete=self._complete)


def count(transitions: Iterable[Transition], metrics: Metrics) -> None:
    """Counts what really changed: a start of the agent does not count every healthy device."""
    for transition in transitions:
        if transition.real:
            after = transition.after
            reason = as_label(after.reason) if after.reason else "OK"
            metrics.transition(transition.resource, to=after.state, reason=reason)


def log(transitions: tuple[Transition, ...]) -> None:
    """A line for each."""
    lines = [_line(transition) for transition in transitions]
    for transition, (level, message, fields) in list(zip(transitions, lines, strict=True))[:_MOST]:
        logger.log(level, message, extra={"resource": transition.resource, "device": transition.id, **fields})
    if len(lines) > _MOST:
        logger.info("more devices changed", extra={"devices": len(lines) - _MOST})


def _line(transition: Transition) -> tuple[int, str, dict[str, str]]:
    device, before = transition.device, None if transition.new else transition.before
    if device is None:
        return logging.INFO, "device gone", {}
    if device.unanswered and not (before and before.unanswered):
        return logging.WARNING, "device gives no answer", {"error": device.unanswered}
    if device.reason == DeviceReason.RECOVERING:
        return logging.INFO, "device recovering", {}
    if device.health is not Health.HEALTHY:
        return logging.WARNING, "device unhealthy", {"reason": device.reason, "error": device.message}
    if device.hold is not None:
        return logging.INFO, "device withheld", {"reason": device.hold.word, "error": device.hold.message}
    return logging.INFO, _good_news(before), {}


def _good_news(before: Seen | None) -> str:
    if before is None:
        return "device found"
    if before.state is HistoryState.WITHHELD:
        return "device offered again"
    return "device healthy again" if before.state is HistoryState.UNHEALTHY else "device answers again"
