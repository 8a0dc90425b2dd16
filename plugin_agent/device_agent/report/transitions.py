"""Logs and counts devices that appear, disappear, fail or recover. At most 20 lines at a time."""

import logging
from typing import Final, Protocol

from device_agent.contract.reasons import DeviceHealth, DeviceReason, as_label
from device_agent.table.snapshot import DeviceState, Health, TableSnapshot

logger = logging.getLogger(__name__)

_MOST: Final = 20
"""The most lines at a time: when a switch disappears, many devices do."""


class Count(Protocol):
    """Counts a change of a device."""

    def __call__(self, resource: str, *, to: str, reason: str) -> None: ...


class Transitions:
    """Compares each snapshot with the previous one. `count` gets each change."""

    def __init__(self, count: Count | None = None) -> None:
        self._count = count
        self._before: dict[tuple[str, str], tuple[Health, str, bool, str]] = {}

    def log(self, snapshot: TableSnapshot) -> None:
        now = {}
        lines = []
        for resource in snapshot.resources:
            for device in resource.devices:
                key = (resource.name, device.unit.id)
                now[key] = (
                    device.health,
                    device.reason,
                    bool(device.unanswered),
                    device.withheld,
                )
                before = self._before.get(key)
                if before == now[key]:
                    continue
                self._counted(resource.name, device, new=before is None)
                if device.unanswered and (before is None or not before[2]):
                    lines.append((logging.WARNING, "device gives no answer", key, {"error": device.unanswered}))
                elif device.reason == DeviceReason.RECOVERING:
                    lines.append((logging.INFO, "device recovering", key, {}))
                elif device.health is not Health.HEALTHY:
                    fields = {"reason": device.reason, "error": device.message}
                    lines.append((logging.WARNING, "device unhealthy", key, fields))
                elif device.hold is not None:
                    fields = {"reason": device.hold.word, "error": device.hold.message}
                    lines.append((logging.INFO, "device withheld", key, fields))
                else:
                    lines.append((logging.INFO, _good_news(before), key, {}))
        lines += [(logging.INFO, "device gone", key, {}) for key in self._before if key not in now]
        self._before = now
        for level, message, (name, device_id), fields in lines[:_MOST]:
            logger.log(level, message, extra={"resource": name, "device": device_id, **fields})
        if len(lines) > _MOST:
            logger.info("more devices changed", extra={"devices": len(lines) - _MOST})

    def _counted(self, resource: str, device: DeviceState, *, new: bool) -> None:
        """A new device that is well is not counted: each start of the agent would count all devices."""
        if self._count is None:
            return
        if device.told is not DeviceHealth.HEALTHY:
            self._count(resource, to=device.told, reason=as_label(device.reason))
        elif device.hold is not None:
            self._count(resource, to="Withheld", reason=as_label(device.hold.word))
        elif not new:
            self._count(resource, to=DeviceHealth.HEALTHY, reason="OK")


def _good_news(before: tuple[Health, str, bool, str] | None) -> str:
    if before is None:
        return "device found"
    if before[3]:
        return "device offered again"
    return "device answers again" if before[0] is Health.HEALTHY else "device healthy again"
