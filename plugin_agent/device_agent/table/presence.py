"""Which devices are present: applies one scan to the known devices. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from device_agent.contract.document import DeviceEntry, Ownership, Resource
from device_agent.contract.reasons import ExclusionReason
from device_agent.contract.values import dataclass
from device_agent.select.unit import Selection, Unit
from device_agent.table.device import Device, Key
from device_agent.table.edits import no_longer_selected
from device_agent.table.exclusions import Exclusions
from device_agent.table.hardware import HardwareIndex
from device_agent.table.lists import Ids
from device_agent.table.retention import kept_until


@dataclass(frozen=True, slots=True)
class Scan:
    """`units`: those that were found, one for each key; `entries`: those in force.

    `edited`: entries whose sources were edited -> their sources before; `has`: whether the node still has the hardware
    of a unit that is not found. `now`: monotonic seconds.
    """

    units: Mapping[Key, Unit]
    entries: Mapping[str, Resource]
    edited: Mapping[str, Sequence[DeviceEntry]]
    has: Callable[[Unit], bool]
    now: float

    def devices(self, before: Mapping[Key, Device]) -> Mapping[Key, Device]:
        """The known devices, present or gone, then the new ones. `before` itself is returned if nothing changed."""
        changed: dict[Key, Device] = {}
        for key, device in before.items():
            after = self._known(device, self.units.get(key))
            if after is not device:
                changed[key] = after
        for key, unit in self.units.items():
            if key not in before:
                changed[key] = self._found(unit)
        return {**before, **changed} if changed else before

    def ids(
        self, before: Mapping[Key, Ids], *, was: Mapping[Key, Device], now: Mapping[Key, Device]
    ) -> Mapping[Key, Ids]:
        """The ids after the scan. `was`, `now`: the devices before and after it; `before`: the ids of `was`."""
        if was is now:
            return before
        changed: dict[Key, Ids] = {}
        for key, device in now.items():
            if device is not was.get(key):
                own = before.get(key, Ids())
                changed[key] = own.of(device.unit, now=self.now) if device.present else own.all_leaving(now=self.now)
        return _recognised({**before, **changed}, now)

    def _known(self, device: Device, unit: Unit | None) -> Device:
        if unit is not None:
            return device if device.present and device.unit == unit else self._found(unit)
        if device.present:
            kept = kept_until(self.entries.get(device.unit.entry), edited=self.edited, now=self.now)
            return replace(device, present=False, kept_until=kept, removed_by=self._removed_by(device.unit))
        return device

    def _removed_by(self, unit: Unit) -> str:
        """The edit that took the unit out of its entry, for an admin; '' if it left by itself."""
        before, entry = self.edited.get(unit.entry), self.entries.get(unit.entry)
        if before is None or entry is None or not self.has(unit):
            return ""
        return no_longer_selected(unit, before, entry.devices)

    def _found(self, unit: Unit) -> Device:
        return Device(unit=unit, exclusive=self.entries[unit.entry].ownership is Ownership.EXCLUSIVE)


@dataclass(frozen=True, slots=True)
class Unread:
    """A device that the last scan could not read. It stays as it is. `why`: for an admin."""

    unit: Unit
    why: str


def unread(
    devices: Mapping[Key, Device], units: Mapping[Key, Unit], selection: Selection, *, entries: Collection[str]
) -> Mapping[Key, Unread]:
    """The present devices of `entries` that a scan could not read, at least in part, or whose source could not look.

    `units`: what the scan has found.
    """
    unreadable = [one for one in selection.excluded if one.reason is ExclusionReason.UNREADABLE]
    if not unreadable and not selection.blind:
        return {}
    left_out, found = Exclusions(unreadable), {}
    for key, device in devices.items():
        unit = device.unit
        if device.present and unit.entry in entries:
            exclusion = left_out.of(unit)
            why = exclusion.message if exclusion is not None else ""
            if not why and key not in units:
                why = selection.blind.get((unit.entry, unit.source), "")
            if why:
                found[key] = Unread(unit, why)
    return found


def with_unread(
    units: Mapping[Key, Unit], known: Mapping[Key, Unread], entries: Mapping[str, Resource]
) -> Mapping[Key, Unit]:
    """What a scan has found, with the devices that it could not read. No other entry gets their hardware meanwhile."""
    if not known:
        return units
    taken = HardwareIndex[Unit]()
    for one in known.values():
        if entries[one.unit.entry].ownership is Ownership.EXCLUSIVE:
            taken.add(one.unit, one.unit)
    free = {
        key: unit
        for key, unit in units.items()
        if entries[unit.entry].ownership is not Ownership.EXCLUSIVE or taken.sharing(unit) is None
    }
    return {**free, **{key: one.unit for key, one in known.items()}}


def found_once(units: Iterable[Unit], entries: Collection[str]) -> Mapping[Key, Unit]:
    """The units by key, if their entry is in force. If two have one key, the first counts."""
    found: dict[Key, Unit] = {}
    for unit in units:
        if unit.entry in entries:
            found.setdefault((unit.resource, unit.id), unit)
    return found


def owned_as(entries: Mapping[str, Resource], devices: Mapping[Key, Device]) -> Mapping[Key, Device]:
    """The devices with `exclusive` as their entries say now. If the entry is gone, it stays as it was."""
    changed: dict[Key, Device] = {}
    for key, device in devices.items():
        entry = entries.get(device.unit.entry)
        if entry is not None and device.exclusive != (entry.ownership is Ownership.EXCLUSIVE):
            changed[key] = replace(device, exclusive=not device.exclusive)
    return {**devices, **changed} if changed else devices


def ids_of(names: Iterable[str], ids: Mapping[Key, Ids], *, leaving: bool = True) -> Mapping[str, set[str]]:
    """All ids of devices under each of the names. `leaving`: with those on their way out."""
    found: dict[str, set[str]] = {name: set() for name in names}
    if found:
        for (name, _), own in ids.items():
            if name in found:
                found[name].update(own.current)
                if leaving:
                    found[name].update(own.leaving)
    return found


def _recognised(ids: Mapping[Key, Ids], devices: Mapping[Key, Device]) -> Mapping[Key, Ids]:
    """Removes ids from ghosts if a scan has now found the device they belong to."""
    ghosts = [key for key, device in devices.items() if device.ghost]
    known = ids_of((name for name, _ in ghosts), ids, leaving=False)
    changed = {key: ids[key].without(known[key[0]]) for key in ghosts}
    return {**ids, **changed} if changed else ids
