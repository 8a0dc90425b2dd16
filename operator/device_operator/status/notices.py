"""Makes Events from changes of a status and of devices. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from device_agent.contract.config_reasons import ConditionReason, EventReason
from device_agent.contract.inventory import UNNAMED_POD, InventoryDevice
from device_agent.contract.reasons import DeviceHealth
from device_agent.contract.status import ConditionStatus, ConditionType, ConfigCondition, ConfigStatus

from device_operator.spec.wording import clip, count, name_nodes
from device_operator.status.observed import InventoryView

MAX_NAMED: Final = 5
"""Up to so many devices with one reason get an Event each in one pass."""
_MAX_TEXT: Final = 1024
"""Characters of a message. The API server refuses longer ones."""


@dataclass(frozen=True, slots=True)
class Notice:
    """An Event to write. `type`: Normal or Warning. `key`: notices with equal keys are written once.

    `kind`: each kind of transition has its own budget of Events (`EventWriter`).
    """

    type: str
    reason: str
    message: str
    key: str
    kind: str


_TOLD: Final[Mapping[tuple[str, ConditionStatus], tuple[str, EventReason | None]]] = {
    (ConditionType.ACCEPTED, ConditionStatus.TRUE): ("Normal", EventReason.ACCEPTED),
    (ConditionType.ACCEPTED, ConditionStatus.FALSE): ("Warning", None),
    (ConditionType.PROGRESSING, ConditionStatus.TRUE): ("Normal", EventReason.UPDATING),
    (ConditionType.DEGRADED, ConditionStatus.TRUE): ("Warning", None),
    (ConditionType.READY, ConditionStatus.TRUE): ("Normal", EventReason.READY),
    (ConditionType.READY, ConditionStatus.FALSE): ("Warning", EventReason.NOT_READY),
}
"""(condition, new status) -> (type, reason) of the Event. Reason None: the Event has the reason of the condition."""
_TOLD_AFTER: Final[Mapping[tuple[str, ConditionStatus | None, ConditionStatus], tuple[str, EventReason]]] = {
    (ConditionType.PROGRESSING, ConditionStatus.TRUE, ConditionStatus.FALSE): ("Normal", EventReason.UPDATED),
    (ConditionType.DEGRADED, ConditionStatus.TRUE, ConditionStatus.FALSE): ("Normal", EventReason.RECOVERED),
}
"""(condition, status before, new status) -> (type, reason) of the Event. This table comes before `_TOLD`."""


def transitions(old: ConfigStatus, new: ConfigStatus) -> tuple[Notice, ...]:
    """Events for the conditions that differ between two statuses, and for each edit that is newly rejected."""
    before, notices = old.by_type, []
    for kind, condition in new.by_type.items():
        status, earlier = condition.status, before.get(kind)
        was = earlier.status if earlier else None
        generation = condition.observed_generation
        rejected = kind == ConditionType.ACCEPTED and status is ConditionStatus.FALSE
        again = rejected and (earlier is None or earlier.observed_generation != generation)
        if (status is was and not again) or _needs_none(condition, earlier=earlier, new=new):
            continue
        told = _TOLD_AFTER.get((kind, was, status)) or _TOLD.get((kind, status))
        if told:
            notices.append(
                Notice(
                    type=told[0],
                    reason=told[1] or condition.reason,
                    message=clip(condition.message, _MAX_TEXT),
                    # built from the old status, so the key is the same after a failed write or a restart
                    key=f"{kind}/{was}/{earlier and earlier.last_transition_time}/{status}/{generation}",
                    kind=f"{kind}/{status}",
                )
            )
    return tuple(notices)


def _needs_none(condition: ConfigCondition, *, earlier: ConfigCondition | None, new: ConfigStatus) -> bool:
    """Whether the change gets no Event, because another Event says enough.

    For a halted rollout that is the Event of Degraded. For a new object it is the Event of Accepted or of Ready.
    """
    if condition.type == ConditionType.PROGRESSING:
        return earlier is None or condition.reason == ConditionReason.HALTED
    if condition.type == ConditionType.READY and condition.status is ConditionStatus.FALSE and earlier is None:
        degraded = new.condition(ConditionType.DEGRADED)
        return degraded is not None and degraded.status is not ConditionStatus.TRUE
    return False


def health_transitions(old: Iterable[InventoryView], new: Iterable[InventoryView]) -> tuple[Notice, ...]:
    """Events for the devices whose health changed between two observations of an object's inventories.

    Up to `MAX_NAMED` devices with one reason get an Event each. If there are more, they share one Event. A device that
    is seen for the first time gets an Event only if it is Unhealthy. A device that is no longer listed gets none: the
    list may be incomplete.

    One Normal Event is about all devices that are now withheld by plan, or offered again.
    """
    groups: defaultdict[tuple[DeviceHealth, str], list[_Change]] = defaultdict(list)
    planned: list[_Change] = []
    for change in _changes(old, new):
        if change.planned:
            planned.append(change)
        elif change.told:
            groups[change.device.health, change.cause].append(change)
    notices = [notice for (health, cause), found in groups.items() for notice in _told(health, cause, found)]
    return (*notices, _planned(planned)) if planned else tuple(notices)


def stale_grants(old: Iterable[InventoryView], new: Iterable[InventoryView]) -> tuple[Notice, ...]:
    """Events for pods whose device node is gone or now belongs to other hardware, if that is new.

    `old`, `new`: two observations of an object's inventories. A grant gets its Event when its pod is known. It gets no
    second Event if the node changes again. Up to `MAX_NAMED` grants get an Event each. If there are more, they share
    one Event.
    """
    found = [change for change in _changes(old, new) if change.newly_stale]
    reason = EventReason.STALE_GRANT
    if len(found) <= MAX_NAMED:
        return tuple(Notice("Warning", reason, c.stale_text(_MAX_TEXT), c.grant_key, reason) for c in found)
    first = "; ".join(change.stale_text(_MAX_TEXT // (MAX_NAMED + 1)) for change in found[:MAX_NAMED])
    text = f"{len(found)} grants: {first}; {len(found) - MAX_NAMED} others: see staleGrant in the inventories"
    key = "\n".join(sorted(change.grant_key for change in found))
    return (Notice("Warning", reason, clip(text, _MAX_TEXT), key, f"{reason}/many"),)


def _changes(old: Iterable[InventoryView], new: Iterable[InventoryView]) -> Iterator["_Change"]:
    """All devices of the inventories that changed. An inventory without a status is skipped."""
    before = {inventory.name: inventory for inventory in old}
    for inventory in new:
        earlier = before.get(inventory.name)
        if inventory.status is None or (earlier is not None and earlier.status is inventory.status):
            continue
        known = {(d.resource, d.id): d for d in (earlier.status.devices if earlier and earlier.status else ())}
        for device in inventory.status.devices:
            yield _Change(inventory.node, device, known.get((device.resource, device.id)))


@dataclass(frozen=True, slots=True)
class _Change:
    """A device of an inventory that changed. `was`: the device before; None: it was not listed."""

    node: str
    device: InventoryDevice
    was: InventoryDevice | None

    @property
    def planned(self) -> bool:
        """Whether its `withheld` changed and its health did not."""
        return self.device.withheld != (self.was.withheld if self.was is not None else "") and not self.told

    @property
    def told(self) -> bool:
        if self.was is None:
            return self.device.health is DeviceHealth.UNHEALTHY
        return self.device.health is not self.was.health

    @property
    def cause(self) -> str:
        """The device's reason. If it is Healthy again: the reason that it had before."""
        if self.device.health is DeviceHealth.HEALTHY and self.was is not None:
            return self.was.reason
        return self.device.reason

    @property
    def key(self) -> str:
        """The key of its Event. It contains `since`, so an operator that restarts does not write the Event again."""
        device = self.device
        return f"{self.node}/{device.resource}/{device.id}/{device.health}{device.withheld}/{device.since}"

    @property
    def newly_stale(self) -> bool:
        """Whether a known pod has a wrong device node, and no Event has said so yet."""
        if not _names_stale(self.device):
            return False
        if self.was is None or not _names_stale(self.was):
            return True
        before, now = _pods(self.was), _pods(self.device)
        return bool(before and now) and before != now  # a full inventory lists no holders

    @property
    def grant_key(self) -> str:
        device = self.device
        return f"{self.node}/{device.resource}/{device.id}/{device.stale_grant}"

    def stale_text(self, room: int) -> str:
        """What is wrong, where, and what to do, in at most `room` characters. What to do is never cut off."""
        device, cure = self.device, ": delete the pod; the new one gets what is there"
        text = f"{device.resource} {device.id} on node {self.node}: {device.stale_grant}"
        return clip(text, room - len(cure)) + cure


_OF_HEALTH: Final = {
    DeviceHealth.HEALTHY: ("Normal", EventReason.DEVICE_HEALTHY),
    DeviceHealth.UNHEALTHY: ("Warning", EventReason.DEVICE_UNHEALTHY),
    DeviceHealth.UNKNOWN: ("Warning", EventReason.DEVICE_UNKNOWN),
}


def _told(health: DeviceHealth, cause: str, changes: list[_Change]) -> Iterable[Notice]:
    kind, reason = _OF_HEALTH[health]
    healthy = health is DeviceHealth.HEALTHY
    if len(changes) <= MAX_NAMED:
        for change in changes:
            device = change.device
            why = "" if healthy else ": ".join(text for text in (device.reason, device.message) if text)
            what = f"{device.resource} {device.id} on node {change.node} is {health}"
            text = f"{what} again" if healthy else f"{what}: {why}"
            yield Notice(kind, reason, clip(text, _MAX_TEXT), change.key, f"{reason}/{cause}")
        return
    first = ", ".join(f"{c.device.resource} {c.device.id}" for c in changes[:MAX_NAMED])
    text = f"{len(changes)} devices are {health}{' again' if healthy else f': {cause}'} on "
    text += f"{name_nodes(c.node for c in changes)}: {first} and {len(changes) - MAX_NAMED} others"
    # its own kind: an Event about many devices must not use up the budget of single devices
    yield Notice(kind, reason, clip(text, _MAX_TEXT), _key(changes), f"{reason}/{cause}/many")


def _names_stale(device: InventoryDevice) -> bool:
    return bool(device.stale_grant) and not device.stale_grant.startswith(f"{UNNAMED_POD}:")


def _pods(device: InventoryDevice) -> frozenset[tuple[str, str]]:
    return frozenset((holder.namespace, holder.pod) for holder in device.allocated_to)


def _planned(changes: list[_Change]) -> Notice:
    numbers = Counter(c.device.withheld or "offered again" for c in changes)
    text = f"planned change on {name_nodes(c.node for c in changes)}: "
    text += ", ".join(f"{count(n, 'device')} {what}" for what, n in sorted(numbers.items()))
    reason = EventReason.DEVICES_CHANGED
    return Notice("Normal", reason, clip(text, _MAX_TEXT), _key(changes), reason)


def _key(changes: Iterable[_Change]) -> str:
    return "\n".join(sorted(change.key for change in changes))
