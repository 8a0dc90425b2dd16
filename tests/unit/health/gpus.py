"""A device table of GPUs, driven by looks and events as the driver's library gives them."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from device_agent.contract.attributes import NVML
from device_agent.contract.document import DeviceEntry, Document, HealthRules, NvmlSource, Resource
from device_agent.contract.times import since_text
from device_agent.health.memory import HEALTH, lasting
from device_agent.health.news import Check, DriverLoad, Fault, Look
from device_agent.health.watchlist import Record
from device_agent.nvml import xids
from device_agent.select.unit import Unit
from device_agent.table.device_table import DeviceTable
from unit.health import news
from unit.table.samples import NAME, listing, selection, unit, wall

RULES = HealthRules(failure_threshold=3, recovery_threshold=3, interval_seconds=10, removal_grace_seconds=60)
FIRST_LOAD = DriverLoad("m1", 1)
FAULT_RULES = {NVML: xids.rule}


def gpu_resource(name: str = NAME, *, health: HealthRules = RULES, **fields) -> Resource:
    return Resource(name=name, devices=(DeviceEntry(nvml=NvmlSource()),), health=health, **fields)


def gpu(number: int, **fields) -> Unit:
    return unit(f"GPU-{number}", source="nvml", parts=(f"GPU-{number}",), **fields)


def mig(number: int, *, gi: int, ci: int = 0, **fields) -> Unit:
    parent = f"GPU-{number}"
    parts = (parent, f"{parent}/{gi}", f"{parent}/{gi}/{ci}")
    return unit(f"MIG-{number}-{gi}-{ci}", source="nvml", parts=parts, hardware=f"devices/{number}/{gi}", **fields)


def xid_fault(number: int, part: str = "GPU-0", *, load: DriverLoad = FIRST_LOAD) -> Fault:
    return Fault(part=part, code=xids.code(number), source=NVML, load=load)


def open_failures(of: "Gpus") -> set[tuple[str, str, datetime]]:
    """(part, number, since) of everything that is kept as failing."""
    return {(r.name, f.code.number, f.since) for r in of.table.health_records() for f in r.condition.failures}


def new_table(*resources: Resource) -> DeviceTable:
    return DeviceTable(Document(resources), fault_rules=FAULT_RULES)


class Gpus:
    """Ten seconds pass with every look, one with everything else."""

    def __init__(self, *units: Unit, resources: Iterable[Resource] | None = None, load: DriverLoad = FIRST_LOAD):
        self.resources = tuple(resources or (gpu_resource(),))
        self.units = units
        self.load = load
        self.now = 0.0
        self.table = new_table(*self.resources)
        self.scan()

    @property
    def wall(self) -> datetime:
        return wall(self.now)

    def scan(self, *units: Unit) -> frozenset[str]:
        self.now += 1
        return self.table.apply_selection(selection(*(units or self.units)), now=self.now, wall=self.wall)

    def edit(self, *resources: Resource, units: tuple[Unit, ...]) -> frozenset[str]:
        self.resources, self.units = resources, units
        self.table.configure(Document(resources))
        return self.scan()

    def parts(self) -> set[str]:
        return {part.partition("/")[0] for found in self.units for part in found.parts}

    def look(self, *, after: float = 10, others: Check = news.GOOD, **checks: Check) -> frozenset[str]:
        """One look at all GPUs. `GPU_0=BAD`: the answer of one GPU; `others`: the answer of the rest."""
        self.now += after
        given = {name.replace("_", "-"): check for name, check in checks.items()}
        all_checks = {part: given.get(part, others) for part in self.parts()}
        return self.table.apply_health(Look(all_checks, source=NVML, load=self.load), now=self.now, wall=self.wall)

    def looks(self, number: int, **checks: Check) -> None:
        for _ in range(number):
            self.look(**checks)

    def hang(self, why: str = "NVML hangs") -> frozenset[str]:
        self.now += 10
        return self.table.apply_health(Look({}, source=NVML, unanswered=why), now=self.now, wall=self.wall)

    def xid(self, number: int, part: str = "GPU-0") -> frozenset[str]:
        self.now += 1
        return self.table.apply_health(xid_fault(number, part, load=self.load), now=self.now, wall=self.wall)

    def reload(self) -> None:
        self.load = DriverLoad(module=f"{self.load.module}'", epoch=self.load.epoch + 1)

    def acknowledge(self, name: str, since: datetime | None = None, *, of: str | None = None) -> tuple[str, ...]:
        self.now += 1
        moment = since or self.device(of or name).since
        _, replies = self.table.acknowledge(f"{name}={since_text(moment)}", now=self.now, wall=self.wall)
        return tuple(part for reply in replies for part in reply.parts)

    def restart(self, *, boot: str = "boot-1", read_at: str = "boot-1") -> None:
        """Restarts only the agent's process. It reads what it kept, and counts loads of the driver anew."""
        raw = HEALTH.dump(lasting(self.table.health_records()), boot_id=boot)
        self.table = new_table()
        self.table.restore_health(HEALTH.parse(raw, boot_id=read_at))
        self.table.configure(Document(self.resources))
        self.load = replace(self.load, epoch=1)
        self.scan()

    def inherit(self, *records: Record) -> frozenset[str]:
        """What the agents of other objects knew."""
        return self.table.inherit(records, now=self.now, wall=self.wall)

    def list(self, held: dict | None = None) -> frozenset[str]:
        self.now += 1
        return self.table.apply_listing(listing(held or {}), begun=self.now, now=self.now, wall=self.wall)

    def device(self, device_id: str, *, name: str | None = None):
        (found,) = (
            device
            for state in self.table.snapshot().resources
            for device in state.devices
            if device.unit.id == device_id and name in (None, state.name)
        )
        return found

    def seen(self, name: str = NAME) -> dict[str, bool]:
        """ListAndWatch writes the list: id -> healthy."""
        listed = self.table.listed(name)
        self.table.told(name, listed, now=self.now)
        return {a.id: a.healthy for a in listed}
