"""Which changes of a status and of devices are worth an Event. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from device_operator.spec.wording import clip
from device_operator.status.conditions import ACCEPTED, DEGRADED, PROGRESSING, READY, by_type
from device_operator.status.observed import InventoryView


@dataclass(frozen=True, slots=True)
class Notice:
    """An Event to write. `type`: Normal or Warning. `key`: notices with equal keys are written once."""

    type: str
    reason: str
    message: str
    key: str


_TOLD: Final = {
    (ACCEPTED, "True"): ("Normal", "Accepted"),
    (ACCEPTED, "False"): ("Warning", ""),
    (PROGRESSING, "True"): ("Normal", "Updating"),
    (DEGRADED, "True"): ("Warning", ""),
    (READY, "True"): ("Normal", "Ready"),
    (READY, "False"): ("Warning", "NotReady"),
}
"""Type and reason of the Event for a condition and its status; an empty reason: that of the condition."""
_TOLD_AFTER: Final = {
    (PROGRESSING, "True", "False"): ("Normal", "Updated"),
    (DEGRADED, "True", "False"): ("Normal", "Recovered"),
}
"""The same for a change from one status to another."""


def transitions(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Notice, ...]:
    """Events for the conditions that changed between two statuses, and for each newly rejected edit."""
    before, notices = by_type(old), []
    for kind, condition in by_type(new).items():
        status, earlier = condition["status"], before.get(kind, {})
        generation = condition.get("observedGeneration", 0)
        again = kind == ACCEPTED and status == "False" and earlier.get("observedGeneration") != generation
        if status == earlier.get("status") and not again:
            continue
        told = _TOLD_AFTER.get((kind, earlier.get("status", ""), status)) or _TOLD.get((kind, status))
        if told:
            notices.append(
                Notice(
                    type=told[0],
                    reason=told[1] or condition["reason"],
                    message=clip(condition["message"], 1024),  # an Event's limit
                    # made of the old status: after a failed write or a restart the key is the same
                    key=f"{kind}/{earlier.get('status')}/{earlier.get('lastTransitionTime')}/{status}/{generation}",
                )
            )
    return tuple(notices)


def health_transitions(old: Iterable[InventoryView], new: Iterable[InventoryView]) -> tuple[Notice, ...]:
    """Events for the devices whose health changed between two observations of an object's inventories.

    A device that is seen for the first time has an Event if it is Unhealthy. The key holds `since`, so a restarted
    operator writes no Event twice.
    """
    before = {inventory.name: inventory for inventory in old}
    notices: list[Notice] = []
    for inventory in new:
        earlier = before.get(inventory.name)
        if earlier is not None and earlier.status is inventory.status:
            continue
        known = {(d.get("resource"), d["id"]): d for d in (earlier.status.get("devices") or () if earlier else ())}
        for device in inventory.status.get("devices") or ():
            was = known.get((device.get("resource"), device["id"]), {}).get("health")
            if device.get("health") != was and (was or device.get("health") == "Unhealthy"):
                notices.append(_health_notice(inventory.node, device))
    return tuple(notices)


def _health_notice(node: str, device: Mapping[str, Any]) -> Notice:
    what = f"{device.get('resource', '')} {device['id']} on node {node}"
    key = f"{node}/{device.get('resource', '')}/{device['id']}/{device.get('health')}/{device.get('since', '')}"
    if device.get("health") == "Healthy":
        return Notice("Normal", "DeviceHealthy", clip(f"{what} is Healthy again", 1024), key)
    why = ": ".join(text for text in (device.get("reason", ""), device.get("message", "")) if text)
    reason = "DeviceUnknown" if device.get("health") == "Unknown" else "DeviceUnhealthy"
    return Notice("Warning", reason, clip(f"{what} is {device.get('health')}: {why}", 1024), key)
