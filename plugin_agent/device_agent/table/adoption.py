"""Ids that PodResources says are in use and no list has, made devices by what is known of them. Pure.

An earlier process of this object gave it out, or the agent of another one. Claims tell which hardware it is; without
one the id itself is all there is.
"""

from collections.abc import Collection, Mapping
from datetime import datetime

from device_agent.contract.document import Ownership, Resource
from device_agent.table.claims import Claim, Claims, Key
from device_agent.table.device import Device, Leaving, ghost
from device_agent.table.usage import Ledger


def entry_of(name: str, claim: Claim | None, *, former: Resource | None, entries: Mapping[str, Resource]) -> Resource:
    """The entry behind a resource name that no device in force has; a bare one when it left the configuration."""
    entry = former or entries.get(name) or (entries.get(claim.entry) if claim else None)
    return entry or Resource(name=claim.entry if claim else name, devices=())


def adopted(name: str, device_id: str, claim: Claim | None, *, entry: Resource, wall: datetime) -> Device:
    """A device that is in use under this name and not found under it."""
    unit = claim.unit(entry=entry.name) if claim else ghost(entry, name, device_id)
    exclusive = claim.exclusive if claim else entry.ownership is Ownership.EXCLUSIVE
    return Device(unit=unit, since=wall, present=False, exclusive=exclusive)


class Elsewhere:
    """Devices in use under names that are not this object's: others list them, or nobody does."""

    def __init__(self) -> None:
        self.devices: tuple[Device, ...] = ()
        self._held: dict[Key, dict[str, object]] = {}

    def look(self, ids: Collection[Key], *, claims: Claims, ledger: Ledger, wall: datetime) -> bool:
        """`ids`: (resource name, id) of all that is held under such names. Whether anything changed."""
        held: dict[Key, dict[str, object]] = {}
        devices: dict[Key, Device] = {}
        for name, i in sorted(ids):
            claim = claims.find(name, i)
            if claim is None or not claim.exclusive:
                continue
            held.setdefault(claim.key, {})[i] = ledger.holders_of(name, i)
            if claim.key not in devices:
                devices[claim.key] = Device(unit=claim.unit(entry=claim.entry), since=wall, present=False)
            devices[claim.key].leaving[i] = Leaving(index=claim.replica(i) or 0)
        if held == self._held:
            return False
        self._held, self.devices = held, tuple(devices.values())
        return True
