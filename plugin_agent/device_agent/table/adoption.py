"""Ids that PodResources says are in use and no list has, made devices by what is known of them. Pure.

An earlier process of this object gave it out, or the agent of another one. Claims tell which hardware it is; without
one the id itself is all there is.
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
    """The devices with those that were adopted, and their ids.

    `entries`: resource name -> the entry behind it, of names that no device in force has; `claims`: those that this
    object takes over, as it lists their devices from now on.
    """

    devices: Mapping[Key, Device]
    ids: Mapping[Key, Ids]
    entries: Mapping[str, Resource]
    claims: tuple[Claim, ...]


@dataclass(frozen=True, slots=True)
class Adoption:
    """What decides. `of_name`: resource name -> the entry behind it, if it ever had one; `entries`: those in force."""

    claims: Claims
    of_name: Mapping[str, Resource]
    entries: Mapping[str, Resource]
    now: float

    def adopt(self, held: Iterable[Key], devices: Mapping[Key, Device], ids: Mapping[Key, Ids]) -> Adopted:
        """`held`: ids in use under names of this object; those that a device has already are left alone."""
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
        """A bare one when the name's own left the configuration."""
        entry = self.of_name.get(name) or self.entries.get(name) or (self.entries.get(claim.entry) if claim else None)
        return entry or Resource(name=claim.entry if claim else name, devices=())


def named(devices: Mapping[Key, Device], claims: Claims) -> Mapping[Key, Device]:
    """The devices, where a claim now tells which hardware an id is of which nothing else was known."""
    changed: dict[Key, Device] = {}
    for key, device in devices.items():
        found = claims.find(*key) if device.ghost else None
        if found is not None and found.claim.id == key[1]:
            changed[key] = replace(device, unit=found.claim.unit(entry=device.unit.entry))
    return {**devices, **changed} if changed else devices


def _device(key: Key, claim: Claim | None, entry: Resource) -> Device:
    """A device that is in use under this name and not found under it."""
    unit = claim.unit(entry=entry.name) if claim else ghost(entry, *key)
    exclusive = claim.exclusive if claim else entry.ownership is Ownership.EXCLUSIVE
    return Device(unit=unit, present=False, exclusive=exclusive)
