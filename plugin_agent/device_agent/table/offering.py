"""Which devices are offered, and why the others are not. Pure: verdicts are written to the table's devices.

Two rules stand above health. Ids are unique over all resource names, as the kubelet finds the pod of a device by
the id alone (pkg/kubelet/cm/devicemanager/pod_devices.go, getPodAndContainerForDevice). And hardware that is in
use under one name or id is offered under no other, nor more often than it has replicas: whatever was edited,
nothing is held twice.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from device_agent.contract.document import Resource
from device_agent.health.conditions import Conditions
from device_agent.select.unit import Selection, Unit
from device_agent.table.device import Device, Hardware
from device_agent.table.snapshot import Health
from device_agent.table.usage import Ledger

MISSING: Final = "Missing"
"""Discovery no longer finds the device."""
DRAINING: Final = "Draining"
"""The device is there, and the configuration offers it no longer under this name and id."""
HELD_AS: Final = "HeldAs"
"""The device is in use under another name or id, and offered again when it is free."""
DRIVER_UNAVAILABLE: Final = "DriverUnavailable"
"""The device is in use, and its driver does not tell whether it is there: only the id is known."""
DUPLICATE: Final = "DuplicateIdentity"
"""Another device is listed with the same id."""

_NO_LONGER_SHOWN: Final = (
    "the driver shows it no more: nvidia-smi -L on the node lists what it has, the kernel's log (dmesg, NVRM lines) "
    "says what happened"
)


def judge(
    devices: Iterable[Device],
    *,
    elsewhere: Iterable[Device],
    ledger: Ledger,
    selection: Selection,
    entries: Mapping[str, Resource],
    conditions: Conditions,
    wall: datetime,
) -> None:
    """A verdict for each device, in the order in which the table came to know them: earlier ones keep their ids.

    `elsewhere`: devices with the ids that are in use under names which other objects have offered.
    """
    everything = tuple(devices)
    gone = [device for device in everything if not device.present]
    blocking, moved = Hardware(), Hardware()
    for device in gone:
        if device.exclusive and _may_be_used(device, ledger):
            blocking.add(device)
    for device in elsewhere:
        blocking.add(device)
    if gone:
        for device in everything:
            if device.present and device.exclusive:
                moved.add(device)
    leaving = _share_out_ids(everything)
    present = _Present(ledger=ledger, blocking=blocking, leaving=leaving, conditions=conditions, wall=wall)
    for device in everything:
        device.withheld = frozenset()
        if device.present:
            present.judge(device)
        else:
            reason, message = _why_gone(device, moved, selection, entries, ledger)
            since = conditions.vanished(device.unit, wall=wall) if reason == MISSING else None
            device.unanswered = ""
            device.judge(Health.UNHEALTHY, reason, message, wall=wall, since=since)


def overused(device: Device, ids: Collection[str], ledger: Ledger) -> bool:
    """Whether giving out `ids` would have the device in use more often than it has replicas now.

    Asked at Allocate, as an id that stays healthy for its holder's sake may be free again by then and chosen anew.
    """
    if not device.leaving:
        return False
    used = {i for i in (*device.ids, *device.leaving) if ledger.busy(device.unit.resource, i)}
    return len(used.union(ids)) > len(device.ids)


def _may_be_used(device: Device, ledger: Ledger) -> tuple[str, ...]:
    """The device's ids on their way out that are, or may be, in use."""
    return tuple(i for i in device.leaving if ledger.busy(device.unit.resource, i))


def _share_out_ids(devices: tuple[Device, ...]) -> dict[str, str]:
    """Who is listed with which id; those on their way out first, as the kubelet has them. Returns theirs with names."""
    leaving: dict[str, str] = {}
    for device in devices:
        if device.leaving:
            device.unlisted = frozenset(leaving.keys() & device.leaving.keys())
            for i in device.leaving:
                leaving.setdefault(i, device.unit.resource)
        elif device.unlisted:
            device.unlisted = frozenset()
    taken = set(leaving)
    for device in devices:
        before = len(taken)
        taken.update(device.ids)
        if len(taken) - before != len(device.ids):
            _take_doubles(device, devices, leaving)
    return leaving


def _take_doubles(device: Device, devices: tuple[Device, ...], leaving: Mapping[str, str]) -> None:
    earlier = {i for other in devices[: devices.index(device)] for i in other.ids}
    device.unlisted |= {i for i in device.ids if i in earlier or i in leaving}


@dataclass(frozen=True, slots=True)
class _Present:
    """Judges devices that the last selection has. `leaving`: ids on their way out -> the name they are listed under."""

    ledger: Ledger
    blocking: Hardware
    leaving: Mapping[str, str]
    conditions: Conditions
    wall: datetime

    def judge(self, device: Device) -> None:
        unit = device.unit
        health, reason, message, since = Health.UNHEALTHY, "", "", None
        verdict = self.conditions.verdict(unit)
        device.unanswered = verdict.unanswered
        holder = self.blocking.sharing(unit) if self.blocking and device.exclusive else None
        if holder is not None:
            reason, message = HELD_AS, self._held_as(holder)
        elif device.unlisted.issuperset(device.ids):
            reason, message = self._why_unlisted(unit)
        elif not verdict.offered:
            reason, message, since = verdict.reason, verdict.message, verdict.since
        else:
            surplus = len(_may_be_used(device, self.ledger)) if device.leaving else 0
            if surplus:
                device.withheld = self._withheld(device, keep=len(device.ids) - surplus)
            if surplus and len(device.withheld) == len(device.ids):
                reason, message = (
                    HELD_AS,
                    f"in use by {surplus} of its former replicas; offered again when they are free",
                )
            else:
                health, reason, message, since = Health.HEALTHY, verdict.reason, verdict.message, verdict.since
        device.judge(health, reason, message, wall=self.wall, since=since)

    def _withheld(self, device: Device, *, keep: int) -> frozenset[str]:
        """Free ids beyond `keep` in all. Those in use stay healthy: it is their pods that would be said unhealthy."""
        used = {i for i in device.ids if self.ledger.in_use(device.unit.resource, i)}
        free = [i for i in device.ids if i not in used]
        return frozenset(free[max(0, keep - len(used)) :])

    def _held_as(self, holder: Device) -> str:
        name = holder.unit.resource
        ids = _may_be_used(holder, self.ledger)
        who = sorted({str(h) for i in ids for h in self.ledger.holders_of(name, i)})
        by = f" by {', '.join(who[:3])}" if who else ""
        return f"in use as {ids[0]} of {name}{by}; offered again when that is free"

    def _why_unlisted(self, unit: Unit) -> tuple[str, str]:
        if name := self.leaving.get(unit.id):
            return HELD_AS, f"still listed as {unit.id} of {name}; offered when the kubelet has let go of that"
        return DUPLICATE, f"the id {unit.id} is that of another device; choose a unit that tells them apart"


def _why_gone(
    device: Device, present: Hardware, selection: Selection, entries: Mapping[str, Resource], ledger: Ledger
) -> tuple[str, str]:
    """(reason, message) of a device that the last selection does not have under this name and id."""
    unit = device.unit
    note = selection.notes.get(unit.entry, "")
    if device.never_found and note:
        return DRIVER_UNAVAILABLE, f"a pod holds it, and whether it is there cannot be told: {note}"
    if device.ghost and unit.entry in entries:
        return MISSING, "the kubelet says that it is in use, and no scan has found it"
    if refused := selection.refused.get(unit.resource) or selection.refused.get(unit.entry):
        return DRAINING, refused
    if unit.entry not in entries:
        return DRAINING, f"its resource left the configuration; {_until(device, ledger)}"
    if device.exclusive and (other := present.sharing(unit)) is not None:
        return DRAINING, f"now {other.unit.id} of {other.unit.resource}; {_until(device, ledger)}"
    for excluded in selection.excluded:
        named = excluded.id in (unit.id, unit.value) or excluded.hardware in unit.hardware
        if excluded.entry == unit.entry and named:
            return DRAINING, f"excluded now: {excluded.reason}; {_until(device, ledger)}"
    if unit.source == "nvml":
        return MISSING, note or _NO_LONGER_SHOWN
    return MISSING, "the last scan did not find it"


def _until(device: Device, ledger: Ledger) -> str:
    """How long a device that is offered no longer stays listed."""
    if any(ledger.in_use(device.unit.resource, i) for i in device.leaving):
        return "listed until it is free"
    return "nobody holds it, it leaves the list in a moment" if ledger.known else "listed until it is known to be free"
