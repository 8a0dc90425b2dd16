"""Small values that the tests of the agent's core are built from."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from device_agent.allocate.grant import read_note
from device_agent.contract.document import (
    DeviceEntry,
    Document,
    HealthRules,
    Resource,
    SimulatedSource,
)
from device_agent.contract.inventory import Identity
from device_agent.select.unit import Excluded, Grants, Selection, Unit
from device_agent.table.device_table import DeviceTable
from device_agent.table.grants import Grant, SeenGrant
from device_agent.table.holders import Holder, Holders, Listing
from device_agent.table.kubelet_view import Reading

NAME = "example.com/dev"
OTHER = "example.com/other"
START = datetime(2026, 1, 1, tzinfo=UTC)


def wall(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


NO_GRACE = HealthRules(removal_grace_seconds=0)
"""A device that is gone goes as soon as nobody can have it."""


def resource(name: str = NAME, *, health: HealthRules = NO_GRACE, **fields) -> Resource:
    return Resource(name=name, devices=(DeviceEntry(simulated=SimulatedSource(count=1)),), health=health, **fields)


def document(*resources: Resource) -> Document:
    return Document(resources or (resource(),))


def unit(device: str, *, name: str = NAME, entry: str | None = None, hardware: str | None = None, **fields) -> Unit:
    values = {
        "value": device,
        "identity": Identity.STABLE,
        "source": "pci",
        "attributes": {},
        "nodes": (),
        "grants": Grants(),
    }
    return Unit(
        entry=entry or name,
        resource=name,
        id=device,
        hardware=(hardware or f"devices/{device}",),
        **(values | fields),
    )


def selection(
    *units: Unit,
    excluded: tuple[Excluded, ...] = (),
    refused: dict[str, str] | None = None,
    notes: dict[str, str] | None = None,
    still_there: frozenset[str] = frozenset(),
    vanished: dict[str, str] | None = None,
    blind: dict[tuple[str, str], str] | None = None,
) -> Selection:
    return Selection(
        units=units,
        excluded=excluded,
        refused=refused or {},
        notes=notes or {},
        vanished=vanished or {},
        blind=blind or {},
        still_there=still_there,
    )


def held(*ids: str, name: str = NAME) -> Holders:
    return {name: {i: (Holder("default", f"pod-{i}", "main"),) for i in ids}}


def listing(holders: Holders, *pods: tuple[str, str]) -> Listing:
    """A List with these holders, and with further pods that have no device."""
    named = {(who.namespace, who.pod) for ids in holders.values() for those in ids.values() for who in those}
    return Listing(holders, frozenset({*named, *pods}))


class Steps:
    """A table driven one second per event, as the kubelet's shell drives it."""

    def __init__(self, *resources: Resource, owner: str = "lab") -> None:
        self.now = 0.0
        self._life: object = None
        self._started = 0.0
        self._record: tuple[tuple[Grant, ...], object] | None = None
        self.table = DeviceTable(document(*resources), owner=owner, boot="boot")

    def scan(self, *units: Unit, **fields) -> frozenset[str]:
        self.now += 1
        return self.table.apply_selection(selection(*units, **fields), now=self.now, wall=wall(self.now))

    def edit(self, *resources: Resource, units: tuple[Unit, ...]) -> frozenset[str]:
        self.table.configure(document(*resources))
        return self.scan(*units)

    def list(self, holders: Holders | None, *, begun: float | None = None, pods: Iterable[tuple[str, str]] = ()):
        """One answer of List."""
        self.now += 1
        at = self.now if begun is None else begun
        told = None if holders is None else listing(holders, *pods)
        changed = self.table.apply_listing(told, begun=at, now=self.now, wall=wall(self.now))
        if told is not None and self.table.nameless and self._record is not None:
            grants, life = self._record
            changed |= self.record(*grants, life=life)
        return changed

    def record(
        self, *grants: Grant, resent: float | None = None, life: object = 1, problem: str = ""
    ) -> frozenset[str]:
        """One look at the kubelet's record."""
        self.now += 1
        self._record = None if problem else (grants, life)
        if life != self._life:
            self._life, self._started = life, self.now
        reading = Reading(grants, begun=self.now, resent=resent, life=life, started=self._started, problem=problem)
        return self.table.apply_record(reading, now=self.now, wall=wall(self.now))

    def settle(self, holders: Holders | None = None, *grants: Grant, life: object = 1) -> frozenset[str]:
        """List, every list sent again, and the record later: what the shell does while ids are in doubt."""
        changed = self.list(holders or {})
        sent = self.now = self.now + 1
        for name in self.table.resources():
            self.send(name)
        self.now += 2
        return changed | self.record(*grants, resent=sent, life=life)

    def restore(self, *seen: SeenGrant) -> frozenset[str]:
        """What is read from the node's disk."""
        self.now += 1
        return self.table.restore_grants(seen, now=self.now, wall=wall(self.now))

    def grant(self, *ids: str, name: str = NAME, pod: str = "", container: str = "main") -> Grant:
        """What the kubelet writes into its record when these ids were allocated. `pod`: its uid."""
        note = read_note(self.table.note(name, ids)[1])
        return Grant(pod=pod or f"uid-{ids[0]}", container=container, resource=name, ids=tuple(sorted(ids)), note=note)

    def allocate(self, *ids: str, name: str = NAME) -> None:
        self.now += 1
        self.table.handed_out(name, ids, now=self.now)

    def send(self, name: str = NAME) -> dict[str, bool]:
        """ListAndWatch writes the list: id -> healthy."""
        listed = self.table.listed(name)
        self.table.told(name, listed, now=self.now)
        return {device.id: device.healthy for device in listed}

    def seen(self, name: str = NAME) -> dict[str, bool]:
        """What the list is now, sent or not."""
        return {device.id: device.healthy for device in self.table.listed(name)}

    def device(self, device_id: str, *, name: str = NAME):
        (found,) = (
            device
            for state in self.table.snapshot().resources
            for device in state.devices
            if state.name == name and device.unit.id == device_id
        )
        return found
