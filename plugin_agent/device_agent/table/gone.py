"""Why a device that the last selection does not have is still listed. Pure."""

from collections.abc import Collection, Mapping

from device_agent.contract.document import Resource
from device_agent.contract.reasons import DeviceReason, ExclusionReason, Withheld
from device_agent.contract.values import dataclass
from device_agent.select.unit import Selection, Unit
from device_agent.table.device import Device, Key
from device_agent.table.exclusions import Exclusions
from device_agent.table.hardware import HardwareIndex
from device_agent.table.lists import Ids
from device_agent.table.usage import Usage


@dataclass(frozen=True, slots=True)
class Cause:
    """`reason`: why the device is broken, or `Withheld.DRAINING`. `message`: for an admin."""

    reason: DeviceReason | Withheld
    message: str


@dataclass(frozen=True, slots=True)
class Departures:
    """The input. `entries`: those in force. `libraries`: sources that are driver libraries."""

    selection: Selection
    entries: Mapping[str, Resource]
    usage: Usage
    libraries: Collection[str] = ()

    def causes(self, devices: Mapping[Key, Device], ids: Mapping[Key, Ids]) -> Mapping[Key, Cause]:
        """The cause for each device that is gone."""
        gone = [(key, device) for key, device in devices.items() if not device.present]
        if not gone:
            return {}
        moved = HardwareIndex[Unit]()
        for device in devices.values():
            if device.present and device.exclusive:
                moved.add(device.unit, device.unit)
        excluded = Exclusions(self.selection.excluded)
        return {key: self._cause(device, ids[key], moved, excluded) for key, device in gone}

    def _cause(self, device: Device, ids: Ids, moved: HardwareIndex[Unit], excluded: Exclusions) -> Cause:
        unit, selection = device.unit, self.selection
        note = selection.notes.get(unit.entry, "")
        if device.never_found and note:
            text = f"a pod holds it, but the driver cannot tell whether it is present: {note}"
            return Cause(DeviceReason.DRIVER_UNAVAILABLE, text)
        if device.never_found and (unread := excluded.of(unit)) and unread.reason is ExclusionReason.UNREADABLE:
            return Cause(DeviceReason.NO_ANSWER, f"a pod holds it, but it cannot be read: {unread.message}")
        if device.ghost and unit.entry in self.entries:
            return Cause(DeviceReason.MISSING, "the kubelet reports it in use, but no scan has found it")
        if refused := selection.refused.get(unit.resource) or selection.refused.get(unit.entry):
            return Cause(Withheld.DRAINING, refused)
        if why := self._taken_away(device, moved, excluded):
            return Cause(Withheld.DRAINING, f"{why}; {self._until(unit.resource, ids)}")
        if advice := selection.vanished.get(unit.source):
            return Cause(DeviceReason.MISSING, note or advice)
        return Cause(DeviceReason.MISSING, "the last scan did not find it")

    def _taken_away(self, device: Device, moved: HardwareIndex[Unit], excluded: Exclusions) -> str:
        """How the configuration took the device away, or '' if it did not."""
        unit = device.unit
        if unit.entry not in self.entries:
            return f"the configuration no longer has the resource {unit.entry} (spec.resources, or serves of the pool)"
        if device.exclusive and (other := moved.sharing(unit)) is not None:
            return f"now offered as {other.id} of {other.resource}"
        if (exclusion := excluded.of(unit)) is not None:
            why = f" ({exclusion.message})" if exclusion.message else ""
            return f"excluded now: {exclusion.reason}{why}"
        if device.removed_by:
            return device.removed_by
        if device.never_found and unit.source not in self.libraries and self.selection.has(unit):
            return f"no source of {unit.entry} selects it"
        return ""

    def _until(self, name: str, ids: Ids) -> str:
        """Until when a device that is no longer offered stays listed, for an admin."""
        if any(self.usage.in_use(name, i) for i in ids.leaving):
            return "listed until it is free"
        if self.usage.known:
            return "the device is unused and disappears shortly"
        return "listed until the kubelet reports that it is free"
