"""When a changed status may be written. Each write of a big status goes to etcd and to every watcher. Pure.

A changed condition is written at once. Other changes wait for some seconds, so the rollout of a thousand nodes needs
few writes. Changes of devices' holders alone wait longer, because they never stop in a busy cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from device_agent.contract.codec import encode
from device_agent.contract.status import ConfigStatus

_HOLDERS: Final = frozenset({"allocated", "allocatedTo"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds between writes, and bytes per second on average."""

    seconds: float = 5.0
    holders_seconds: float = 30.0
    bytes_per_second: float = 16384.0


@dataclass(frozen=True, slots=True)
class LastWrite:
    """`at`: on the clock of `wait`. `size`: bytes of the status as JSON."""

    at: float
    size: int


def wait(old: ConfigStatus, new: ConfigStatus, *, last: LastWrite | None, now: float, pace: Pace) -> float | None:
    """Seconds until `new` may replace `old`; 0: at once; None: nothing differs."""
    if old == new:
        return None
    if last is None or _conditions(old) != _conditions(new):
        return 0.0
    same = _without_holders(encode(old)) == _without_holders(encode(new))
    least = pace.holders_seconds if same else pace.seconds
    least = max(least, last.size / pace.bytes_per_second)
    return max(0.0, last.at + least - now)


def _conditions(status: ConfigStatus) -> tuple[object, ...]:
    conditions = ((c.type, c.status, c.reason, c.observed_generation) for c in status.conditions)
    return status.observed_generation, *sorted(conditions)


def _without_holders(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_holders(inner) for key, inner in value.items() if key not in _HOLDERS}
    if isinstance(value, list | tuple):
        return [_without_holders(inner) for inner in value]
    return value
