"""Adopts ids that PodResources shows in use and that no list contains: makes devices of them. Pure.

An earlier process of this object, or another object's agent, gave these ids out. A claim says which hardware an id is.
Without a claim only the id is known.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from device_agent.contract.document import Ownership, Resource
from device_agent.contract.values import dataclass
from device_agent.table.claims import Claim, Claims
from device_agent.table.device import Device, Key, ghost, split_replica
from device_agent.table.lists import Ids, Leaving
from device_agent.table.presence import ids_of


@dataclass(frozen=True, slots=True)
class Adopted:
    """The devices including the adopted ones, and their ids. `entries`: resource name -> its entry, for names that no
    device in force has. `claims`: those that this object takes over, because it lists their devices from now on.
    """

    devices: Mapping[Key, Device]
    ids: Mapping[Key, Ids]
    entries: Mapping[str, Resource]
    claims: tuple[Claim, ...]


@dataclass(frozen=True, slots=True)
class Adoption:
    """The input. `of_name`: resource name -> the entry behind it, if it ever had one; `entries`: those in force."""

    claims: Claims
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
        claims: list[Claim] = []
        for name, i in held:
            if i in known[name]:
                continue
            found = self.claims.find(name, i)
            claim = found.claim if found else None
            of, replica = (found.claim.id, found.replica) if found else split_replica(i)
            key = (name, of)
            if key not in devices and key not in new:
                entry = entries.get(name) or self._entry(name, claim)
                entries.setdefault(name, entry)
                new[key] = _device(key, claim, entry)
            leaving.setdefault(key, {})[i] = Leaving(replica=replica, since=self.now)
            if claim is not None:
                claims.append(claim)
        if not leaving:
            return Adopted(devices, ids, {}, ())
        more = {key: ids.get(key, Ids()).also_leaving(those) for key, those in leaving.items()}
        return Adopted({**devices, **new}, {**ids, **more}, entries, tuple(claims))

    def _entry(self, name: str, claim: Claim | None) -> Resource:
        """The entry of a name. If the configuration no longer has it: an entry without sources."""
        entry = self.of_name.get(name) or self.entries.get(name) or (self.entries.get(claim.entry) if claim else None)
        return entry or Resource(name=claim.entry if claim else name, devices=())


def named(devices: Mapping[Key, Device], claims: Claims) -> Mapping[Key, Device]:
    """The devices. Where only the id was known, a claim may now say which hardware it is."""
    changed: dict[Key, Device] = {}
    for key, device in devices.items():
        found = claims.find(*key) if device.ghost else None
        if found is not None and found.claim.id == key[1]:
            changed[key] = replace(device, unit=found.claim.unit(entry=device.unit.entry))
    return {**devices, **changed} if changed else devices


def _device(key: Key, claim: Claim | None, entry: Resource) -> Device:
    """A device that a pod holds under this name, and that no scan has found under it."""
    unit = claim.unit(entry=entry.name) if claim else ghost(entry, *key)
    exclusive = claim.exclusive if claim else entry.ownership is Ownership.EXCLUSIVE
    return Device(unit=unit, present=False, exclusive=exclusive)
