"""The device table's memories through the node store, after a restart, beside another object, on a slow disk."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from device_agent.contract.names import replica_id
from device_agent.health.memory import HEALTH, lasting
from device_agent.health.watchlist import Record
from device_agent.runtime.settings import Settings
from device_agent.store.keeper import Keeper
from device_agent.store.node_store import KeptFile, NodeStore
from device_agent.store.section import Section
from device_agent.table.claims import CLAIMS, Claim
from device_agent.table.holders import Holders
from device_agent.table.memory import ClaimMemory, HealthMemory
from unit.health.gpus import Gpus, gpu, gpu_resource, new_table
from unit.health.news import RESET_XID
from unit.store.kept import ANOTHER, THIRD, UID, store
from unit.table.samples import NAME, OTHER, Steps, document, held, resource, selection, unit, wall

QUICK = Settings(store_wait=0.05, store_deadline=0.1, store_retry=0.02)


class SlowDisk(NodeStore):
    """Reads of this object's file hang until `spins` is set."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, object_uid=UID, boot="this")
        self.spins = threading.Event()

    def read(self, section: Section[Any], known: KeptFile[Any] | None = None) -> KeptFile[Any]:
        self.spins.wait(30)
        return super().read(section, known)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - files and threads have no event of this loop
            await asyncio.sleep(0.005)


# Health


def failed(*parts: str) -> tuple[Record, ...]:
    gpus = Gpus(gpu(0), gpu(1))
    gpus.look()
    for part in parts:
        gpus.xid(RESET_XID, part)
    return lasting(gpus.table.health_records())


class HealthProcess:
    """An agent that has looked at two GPUs, or one that starts (`scanned` False)."""

    def __init__(self, disk: NodeStore, *, settings: Settings, scanned: bool = False) -> None:
        self.changed: list[frozenset[str]] = []
        self.table = new_table(gpu_resource())
        if scanned:
            self.scan()
        memory = HealthMemory(self.table, changed=self.changed.append)
        self.keeper = Keeper(disk, HEALTH, memory, settings=settings, told=lambda _: None)

    def scan(self) -> None:
        self.table.apply_selection(selection(gpu(0), gpu(1)), now=1.0, wall=wall(1))

    @property
    def healthy(self) -> list[bool]:
        return [a.healthy for a in self.table.listed(NAME)]


async def test_after_a_restart_the_own_and_other_objects_health_is_known(tmp_path: Path) -> None:
    store(tmp_path).write(HEALTH, failed("GPU-0"))
    store(tmp_path, ANOTHER).write(HEALTH, failed("GPU-1"))
    process = HealthProcess(store(tmp_path), settings=Settings())
    await process.keeper.recall()
    process.scan()
    assert process.healthy == [False, False]


async def test_health_of_another_boot_is_ignored(tmp_path: Path) -> None:
    for uid in (UID, ANOTHER):
        store(tmp_path, uid, boot="another").write(HEALTH, failed("GPU-0", "GPU-1"))
    process = HealthProcess(store(tmp_path), settings=Settings())
    await process.keeper.recall()
    process.scan()
    assert (process.healthy, process.keeper.problem) == ([True, True], "")


async def test_a_slow_disk_at_the_start_loses_no_failure(tmp_path: Path) -> None:
    disk = SlowDisk(tmp_path)
    disk.write(HEALTH, failed("GPU-0"))
    since = next(f.since for r in failed("GPU-0") for f in r.condition.failures)
    process = HealthProcess(disk, settings=QUICK, scanned=True)
    await process.keeper.recall()
    running = asyncio.create_task(process.keeper.run())
    gpus = Gpus(gpu(0), gpu(1))
    gpus.table = process.table
    gpus.xid(RESET_XID, "GPU-1")
    process.keeper.stirred()
    await process.keeper.close()
    assert process.healthy == [True, False]
    disk.spins.set()
    await until(lambda: process.healthy == [False, False])
    [first, _] = process.table.snapshot().resources[0].devices
    assert (first.reason, first.since) == ("Xid79", since)

    def kept() -> set[str]:
        return {r.name for r in store(tmp_path).read(HEALTH).items if r.condition.failures}

    await until(lambda: kept() == {"GPU-0", "GPU-1"})
    running.cancel()


# Claims


def claims(*names: str, name: str = NAME) -> tuple[Claim, ...]:
    return tuple(Claim.of(unit(device, name=name), exclusive=True) for device in names)


class ClaimProcess:
    def __init__(self, disk: NodeStore, *, settings: Settings | None = None) -> None:
        self.steps = Steps(resource(), resource(OTHER))
        self.asked = 0
        self.changed: list[frozenset[str]] = []
        self.memory = ClaimMemory(self.steps.table, changed=self.changed.append, ask=self._ask)
        self.keeper = Keeper(disk, CLAIMS, self.memory, settings=settings or Settings(), told=lambda _: None)

    def _ask(self) -> None:
        self.asked += 1

    async def write_ahead(self, *units: Any) -> None:
        claimed = document(resource(), resource(OTHER)), selection(*units)
        await self.keeper.write_ahead(lambda: self.memory.claim(*claimed))

    async def scan(self, *units: Any) -> None:
        await self.write_ahead(*units)
        self.steps.scan(*units)


async def test_new_devices_are_written_before_they_are_offered(tmp_path: Path) -> None:
    process = ClaimProcess(store(tmp_path))
    await process.keeper.recall()
    await process.write_ahead(unit("a"))
    assert [claim.id for claim in store(tmp_path).read(CLAIMS).items] == ["a"]
    assert process.steps.table.resources() == ()


async def test_names_of_other_objects_make_pod_resources_be_asked_soon(tmp_path: Path) -> None:
    process = ClaimProcess(store(tmp_path))
    await process.keeper.recall()
    await process.scan(unit("a"))
    assert process.asked == 0
    store(tmp_path, ANOTHER).write(CLAIMS, claims("z", name="example.net/z"))
    for _ in range(2):
        await process.scan(unit("a"))
        assert process.asked == 1
    assert process.steps.table.could_serve("example.net/z")


async def test_if_two_files_have_the_same_id_the_newer_file_counts(tmp_path: Path) -> None:
    for uid, hardware in ((ANOTHER, "devices/first"), (THIRD, "devices/second")):
        store(tmp_path, uid).write(
            CLAIMS, (Claim.of(unit("z", name="example.net/z", hardware=hardware), exclusive=True),)
        )
    process = ClaimProcess(store(tmp_path))
    await process.keeper.recall()
    process.steps.list(held("z", name="example.net/z"))
    await process.scan(unit("x", hardware="devices/first"), unit("y", hardware="devices/second"))
    assert process.steps.seen() == {"x": True, "y": False}


async def test_a_pod_on_hardware_of_an_earlier_process_is_known_when_a_slow_disk_is_read(tmp_path: Path) -> None:
    disk = SlowDisk(tmp_path)
    disk.write(CLAIMS, claims("old"))
    process = ClaimProcess(disk, settings=QUICK)
    await process.keeper.recall()
    renamed = unit("x", name=OTHER, hardware="devices/old")
    await process.scan(renamed)
    process.steps.list(held("old"))
    assert process.steps.seen(OTHER) == {"x": True}
    disk.spins.set()
    running = asyncio.create_task(process.keeper.run())
    await until(lambda: [claim.id for claim in store(tmp_path).read(CLAIMS).items] == ["old", "x"])
    running.cancel()
    process.steps.list(held("old"))
    assert process.steps.seen(OTHER) == {"x": False}
    assert process.steps.device("x", name=OTHER).reason == "HeldAs"


LONG = "x" * 63
"""Its replicas' ids are cut, so they do not show whose they are."""


@pytest.mark.parametrize(
    ("holders", "used"),
    [
        (None, True),
        ({}, False),
        ({NAME: {LONG: ()}}, False),
        (held(LONG), True),
        (held(replica_id(LONG, 1)), True),
        (held(replica_id(LONG, 2)), False),
        (held(LONG, name=OTHER), False),
    ],
)
async def test_a_claim_is_in_use_while_a_pod_has_one_of_its_ids_or_holders_are_unknown(
    tmp_path: Path, holders: Holders | None, *, used: bool
) -> None:
    process = ClaimProcess(store(tmp_path))
    process.steps.list(holders)
    claim = Claim.of(unit(LONG, replicas=2), exclusive=True)
    assert process.memory.in_use()(claim) is used
