"""Makes devices for ids that the kubelet shows in use and that no list has. Pure.

An earlier process of this object, or another object's agent, gave these ids out. The note in the kubelet's record says
which hardware an id was. Without a note only the id is known.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from device_agent.contract.document import Ownership, Resource
from device_agent.contract.values import dataclass
from device_agent.table.device import Device, Key, ghost, split_replica
from device_agent.table.grants import Granted, Grants
from device_agent.table.lists import Ids, Leaving
from device_agent.table.presence import ids_of


@dataclass(frozen=True, slots=True)
class Adopted:
    """The devices including the adopted ones, and their ids. `entries`: resource name -> its entry, for each adopted
    device.
    """

    devices: Mapping[Key, Device]
    ids: Mapping[Key, Ids]
    entries: Mapping[str, Resource]


@dataclass(frozen=True, slots=True)
class Adoption:
    """The input. `of_name`: resource name -> the entry behind it, if it ever had one; `entries`: those in force."""

    grants: Grants
    of_name: Mapping[str, Resource]
    entries: Mapping[str, Resource]
    now: float

    def adopt(self, held: Iterable[Key], devices: Mapping[Key, Device], ids: Mapping[Key, Ids]) -> Adopted:
        """`held`: ids in use under names of this object. Ids that a device already has are left alone."""
        held = tuple(held)
        known = ids_of((name for name, _ in held), ids)
        new: dict[Key, Device] = {}
        leaving: dict[Key, dict[str, Leaving]] = {}
        entries: dict[str, Resource] = {}
        for name, i in held:
            if i in known[name]:
                continue
            granted = self.grants.of((name, i))
            of, replica = (granted.device.id, granted.replica) if granted else split_replica(i)
            key = (name, of)
            if key not in devices and key not in new:
                entry = entries.get(name) or self._entry(name, granted)
                entries.setdefault(name, entry)
                new[key] = _device(key, granted, entry)
            leaving.setdefault(key, {})[i] = Leaving(replica=replica, since=self.now)
        if not leaving:
            return Adopted(devices, ids, {})
        more = {key: ids.get(key, Ids()).also_leaving(those) for key, those in leaving.items()}
        return Adopted({**devices, **new}, {**ids, **more}, entries)

    def _entry(self, name: str, granted: Granted | None) -> Resource:
        """The entry of a name; one without sources if the name's own entry left the configuration."""
        of = granted.device.entry if granted else name
        return self.of_name.get(name) or self.entries.get(name) or self.entries.get(of) or Resource(name=of, devices=())


def named(devices: Mapping[Key, Device], ids: Mapping[Key, Ids], grants: Grants) -> Mapping[Key, Device]:
    """The devices. Where only the id was known, the record may now say which hardware it is."""
    changed: dict[Key, Device] = {}
    for key, device in devices.items():
        if device.ghost:
            known = (grants.of((key[0], i)) for i in ids[key].leaving)
            granted = next((found for found in known if found is not None and found.device.id == key[1]), None)
            if granted is not None:
                unit = granted.device.unit(resource=key[0], entry=device.unit.entry)
                changed[key] = replace(device, unit=unit, exclusive=granted.device.exclusive)
    return {**devices, **changed} if changed else devices


def _device(key: Key, granted: Granted | None, entry: Resource) -> Device:
    """A device that a pod holds under this name, and that no scan has found under it."""
    unit = granted.device.unit(resource=key[0], entry=entry.name) if granted else ghost(entry, *key)
    exclusive = granted.device.exclusive if granted else entry.ownership is Ownership.EXCLUSIVE
    return Device(unit=unit, present=False, exclusive=exclusive)
