"""When a changed status may be written. Each write of a big status goes to etcd and to every watcher. Pure.

A changed condition, or word of the status, is written at once. Other changes wait for some seconds, so the rollout of
a thousand nodes needs few writes. Changes of devices' holders alone wait longer, because they never stop in a busy
cluster. A status without changes is written again before it is five minutes old, so that an old one shows that no
operator runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from device_agent.contract.codec import encode
from device_agent.contract.status import ConfigStatus

_HOLDERS: Final = frozenset({"allocated", "allocatedTo", "lastUpdateTime"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds between writes, and bytes per second on average. `refresh`: greatest age of a status without changes."""

    seconds: float = 5.0
    holders_seconds: float = 30.0
    refresh: float = 270.0
    bytes_per_second: float = 16384.0


@dataclass(frozen=True, slots=True)
class LastWrite:
    """`at`: on the clock of `wait`. `size`: bytes of the status as JSON."""

    at: float
    size: int


def wait(old: ConfigStatus, new: ConfigStatus, *, last: LastWrite | None, now: float, pace: Pace) -> float:
    """Seconds until `new` may replace `old`; 0: at once. `last`: the last write of this process."""
    if unchanged(old, new):
        return max(0.0, pace.refresh - _age(old, new))
    if last is None or _conditions(old) != _conditions(new):
        return 0.0
    if _age(old, new) >= pace.refresh:
        return 0.0
    same = _without_holders(encode(old)) == _without_holders(encode(new))
    least = pace.holders_seconds if same else pace.seconds
    least = max(least, last.size / pace.bytes_per_second)
    return max(0.0, last.at + least - now)


def unchanged(old: ConfigStatus, new: ConfigStatus) -> bool:
    """Whether the two say the same, apart from the time."""
    return replace(old, last_update_time=new.last_update_time) == new


def _age(old: ConfigStatus, new: ConfigStatus) -> float:
    """Seconds from the write of `old` to `new`; infinite where a time is missing or wrong.

    A time far in the future comes from a process whose clock was wrong, and counts as old.
    """
    try:
        age = datetime.fromisoformat(new.last_update_time) - datetime.fromisoformat(old.last_update_time)
    except ValueError:
        return float("inf")
    return abs(age.total_seconds())


def _conditions(status: ConfigStatus) -> tuple[object, ...]:
    conditions = ((c.type, c.status, c.reason, c.observed_generation) for c in status.conditions)
    word = status.summary.status if status.summary else ""
    return status.observed_generation, word, *sorted(conditions)


def _without_holders(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_holders(inner) for key, inner in value.items() if key not in _HOLDERS}
    if isinstance(value, list | tuple):
        return [_without_holders(inner) for inner in value]
    return value
