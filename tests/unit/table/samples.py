"""Small values that the tests of the agent's core are built from."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from device_agent.contract.document import (
    DeviceEntry,
    Document,
    HealthRules,
    Ownership,
    Resource,
    SimulatedSource,
)
from device_agent.contract.inventory import Identity
from device_agent.select.unit import Excluded, Grants, Selection, Unit
from device_agent.table.claims import Claim
from device_agent.table.device_table import DeviceTable
from device_agent.table.holders import Holder, Holders

NAME = "example.com/dev"
OTHER = "example.com/other"
START = datetime(2026, 1, 1, tzinfo=UTC)


def wall(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


NO_GRACE = HealthRules(removal_grace_seconds=0)
"""A device that is gone goes as soon as nobody can have it."""


def resource(name: str = NAME, *, health: HealthRules = NO_GRACE, **fields) -> Resource:
    return Resource(name=name, devices=(DeviceEntry(simulated=SimulatedSource(count=1)),), health=health, **fields)


def exclusive(*resources: Resource) -> frozenset[str]:
    """Names of the entries whose devices nobody else may have."""
    return frozenset(r.name for r in document(*resources).resources if r.ownership is Ownership.EXCLUSIVE)


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
    vanished: dict[str, str] | None = None,
) -> Selection:
    return Selection(units=units, excluded=excluded, refused=refused or {}, notes=notes or {}, vanished=vanished or {})


def held(*ids: str, name: str = NAME) -> Holders:
    return {name: {i: (Holder("default", f"pod-{i}", "main"),) for i in ids}}


class Steps:
    """A table driven one second per event, as the kubelet's shell drives it."""

    def __init__(self, *resources: Resource) -> None:
        self.now = 0.0
        self.table = DeviceTable(document(*resources))
        self.exclusive = exclusive(*resources)

    def claims(self, own: Iterable[Claim], others: Iterable[Claim]) -> frozenset[str]:
        """What is read from the node's disk."""
        self.now += 1
        return self.table.apply_claims(own, others, now=self.now, wall=wall(self.now))

    def scan(self, *units: Unit, **fields) -> frozenset[str]:
        self.now += 1
        self.table.claim(units, exclusive=self.exclusive)
        return self.table.apply_selection(selection(*units, **fields), now=self.now, wall=wall(self.now))

    def edit(self, *resources: Resource, units: tuple[Unit, ...]) -> frozenset[str]:
        self.table.configure(document(*resources))
        self.exclusive = exclusive(*resources)
        return self.scan(*units)

    def list(self, holders: Holders | None, *, begun: float | None = None) -> frozenset[str]:
        self.now += 1
        at = self.now if begun is None else begun
        return self.table.apply_holders(holders, begun=at, now=self.now, wall=wall(self.now))

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
