"""Makes Events from changes of a status and of devices. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from device_agent.contract.inventory import InventoryDevice
from device_agent.contract.reasons import DeviceHealth, EventReason
from device_agent.contract.status import ConditionStatus, ConditionType, ConfigStatus

from device_operator.spec.wording import clip
from device_operator.status.observed import InventoryView


@dataclass(frozen=True, slots=True)
class Notice:
    """An Event to write. `type`: Normal or Warning. `key`: notices with equal keys are written once."""

    type: str
    reason: str
    message: str
    key: str


_TOLD: Final[Mapping[tuple[str, ConditionStatus], tuple[str, EventReason | None]]] = {
    (ConditionType.ACCEPTED, ConditionStatus.TRUE): ("Normal", EventReason.ACCEPTED),
    (ConditionType.ACCEPTED, ConditionStatus.FALSE): ("Warning", None),
    (ConditionType.PROGRESSING, ConditionStatus.TRUE): ("Normal", EventReason.UPDATING),
    (ConditionType.DEGRADED, ConditionStatus.TRUE): ("Warning", None),
    (ConditionType.READY, ConditionStatus.TRUE): ("Normal", EventReason.READY),
    (ConditionType.READY, ConditionStatus.FALSE): ("Warning", EventReason.NOT_READY),
}
"""Type and reason of the Event for a condition and its status; None: the reason of the condition."""
_TOLD_AFTER: Final[Mapping[tuple[str, ConditionStatus | None, ConditionStatus], tuple[str, EventReason]]] = {
    (ConditionType.PROGRESSING, ConditionStatus.TRUE, ConditionStatus.FALSE): ("Normal", EventReason.UPDATED),
    (ConditionType.DEGRADED, ConditionStatus.TRUE, ConditionStatus.FALSE): ("Normal", EventReason.RECOVERED),
}
"""The same for a change from one status to another."""


def transitions(old: ConfigStatus, new: ConfigStatus) -> tuple[Notice, ...]:
    """Events for the conditions that changed between two statuses, and for each newly rejected edit."""
    before, notices = old.by_type, []
    for kind, condition in new.by_type.items():
        status, earlier = condition.status, before.get(kind)
        was = earlier.status if earlier else None
        generation = condition.observed_generation
        rejected = kind == ConditionType.ACCEPTED and status is ConditionStatus.FALSE
        again = rejected and (earlier is None or earlier.observed_generation != generation)
        if status is was and not again:
            continue
        told = _TOLD_AFTER.get((kind, was, status)) or _TOLD.get((kind, status))
        if told:
            notices.append(
                Notice(
                    type=told[0],
                    reason=told[1] or condition.reason,
                    message=clip(condition.message, 1024),  # an Event's limit
                    # built from the old status, so the key is the same after a failed write or a restart
                    key=f"{kind}/{was}/{earlier and earlier.last_transition_time}/{status}/{generation}",
                )
            )
    return tuple(notices)


def health_transitions(old: Iterable[InventoryView], new: Iterable[InventoryView]) -> tuple[Notice, ...]:
    """Events for the devices whose health changed between two observations of an object's inventories.

    A device that is seen for the first time gets an Event if it is Unhealthy. The key holds `since`, so a restarted
    operator writes no Event twice. A device that is not listed gets none: the list may be incomplete.
    """
    before = {inventory.name: inventory for inventory in old}
    notices: list[Notice] = []
    for inventory in new:
        earlier = before.get(inventory.name)
        if inventory.status is None or (earlier is not None and earlier.status is inventory.status):
            continue
        known = {(d.resource, d.id): d.health for d in (earlier.status.devices if earlier and earlier.status else ())}
        for device in inventory.status.devices:
            was = known.get((device.resource, device.id))
            if device.health is not was and (was or device.health is DeviceHealth.UNHEALTHY):
                notices.append(_health_notice(inventory.node, device))
    return tuple(notices)


def _health_notice(node: str, device: InventoryDevice) -> Notice:
    what = f"{device.resource} {device.id} on node {node}"
    key = f"{node}/{device.resource}/{device.id}/{device.health}/{device.since}"
    if device.health is DeviceHealth.HEALTHY:
        return Notice("Normal", EventReason.DEVICE_HEALTHY, clip(f"{what} is Healthy again", 1024), key)
    why = ": ".join(text for text in (device.reason, device.message) if text)
    unknown = device.health is DeviceHealth.UNKNOWN
    reason = EventReason.DEVICE_UNKNOWN if unknown else EventReason.DEVICE_UNHEALTHY
    return Notice("Warning", reason, clip(f"{what} is {device.health}: {why}", 1024), key)
