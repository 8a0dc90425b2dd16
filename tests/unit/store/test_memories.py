"""The device table's memories through the node store, after a restart, beside another object, on a slow disk."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from device_agent.health.memory import HEALTH, lasting
from device_agent.health.watchlist import Record
from device_agent.runtime.settings import Settings
from device_agent.store.keeper import Keeper
from device_agent.store.node_store import KeptFile, NodeStore
from device_agent.store.section import Section
from device_agent.table.forgotten import STARTING_SECONDS
from device_agent.table.grants import GRANTS, SeenGrant
from device_agent.table.memory import GrantMemory, HealthMemory
from unit.health.gpus import Gpus, gpu, gpu_resource, new_table
from unit.health.news import RESET_XID
from unit.store.kept import ANOTHER, UID, store
from unit.table.samples import NAME, OTHER, Steps, held, resource, selection, unit, wall

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


# Grants


def seen(device: str, *, pod: str = "pod-old") -> tuple[SeenGrant, ...]:
    """What an earlier process saw: a pod has the device."""
    before = Steps()
    before.scan(unit(device))
    return (SeenGrant(before.grant(device), "default", pod),)


class GrantProcess:
    def __init__(self, disk: NodeStore, *, settings: Settings | None = None) -> None:
        self.steps = Steps(resource(), resource(OTHER))
        self.changed: list[frozenset[str]] = []
        memory = GrantMemory(self.steps.table, changed=self.changed.append)
        self.keeper = Keeper(disk, GRANTS, memory, settings=settings or Settings(), told=lambda _: None)


RENAMED = unit("x", name=OTHER, hardware="devices/old")
TORN = "kubelet_internal_checkpoint: it is no JSON"


async def test_the_last_grants_count_after_a_restart_until_the_record_is_read(tmp_path: Path) -> None:
    store(tmp_path).write(GRANTS, seen("old"))
    process = GrantProcess(store(tmp_path))
    await process.keeper.recall()
    process.steps.record(problem=TORN)
    process.steps.list({})  # such as an init container's
    process.steps.scan(RENAMED)
    assert process.steps.seen(OTHER) == {"x": False}
    assert process.steps.device("x", name=OTHER).withheld == "HeldAs"
    assert "default/pod-old" in process.steps.device("x", name=OTHER).text
    process.steps.record()
    process.steps.now += STARTING_SECONDS
    process.steps.settle()
    assert process.steps.seen(OTHER) == {"x": True}


async def test_what_a_slow_disk_gives_late_counts_only_while_the_record_tells_nothing(tmp_path: Path) -> None:
    for problem, offered in ((TORN, False), ("", True)):
        disk = SlowDisk(tmp_path)
        disk.write(GRANTS, seen("old"))
        process = GrantProcess(disk, settings=QUICK)
        await process.keeper.recall()
        process.steps.record(problem=problem)
        process.steps.list({})
        process.steps.scan(RENAMED)
        assert process.steps.seen(OTHER) == {"x": True}
        disk.spins.set()
        running = asyncio.create_task(process.keeper.run())
        await until(lambda process=process: bool(process.changed))
        running.cancel()
        assert process.steps.seen(OTHER) == {"x": offered}


async def test_what_the_record_shows_is_kept_with_the_pods_name(tmp_path: Path) -> None:
    process = GrantProcess(store(tmp_path))
    await process.keeper.recall()
    running = asyncio.create_task(process.keeper.run())
    process.steps.scan(unit("a"))
    grant = process.steps.grant("a")
    process.steps.record(grant)
    process.keeper.stirred()
    await until(lambda: store(tmp_path).read(GRANTS).items == (SeenGrant(grant),))
    process.steps.list(held("a"))
    process.keeper.stirred()
    await until(lambda: store(tmp_path).read(GRANTS).items == (SeenGrant(grant, "default", "pod-a"),))
    process.steps.settle()
    process.keeper.stirred()
    await until(lambda: store(tmp_path).read(GRANTS).items == ())
    running.cancel()


async def test_an_event_that_changes_no_grant_writes_nothing(tmp_path: Path) -> None:
    process = GrantProcess(store(tmp_path))
    memory = GrantMemory(process.steps.table, changed=process.changed.append)
    process.steps.scan(unit("a"))
    process.steps.record(process.steps.grant("a"))
    process.steps.list(held("a"))
    before = memory.revision
    process.steps.record(process.steps.grant("a"))
    process.steps.list(held("a"))
    process.steps.scan(unit("a"))
    assert memory.revision == before


async def test_what_other_objects_saw_last_counts_until_the_record_is_read(tmp_path: Path) -> None:
    store(tmp_path, ANOTHER).write(GRANTS, seen("old"))
    process = GrantProcess(store(tmp_path))
    await process.keeper.recall()
    process.steps.record(problem=TORN)
    process.steps.list({})
    process.steps.scan(RENAMED)
    assert process.steps.seen(OTHER) == {"x": False}
    process.steps.record()
    process.steps.now += STARTING_SECONDS
    process.steps.settle()
    assert process.steps.seen(OTHER) == {"x": True}
    await process.keeper.close()
    assert store(tmp_path).read(GRANTS).items == (), "it is not taken over"
