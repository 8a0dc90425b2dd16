"""The wiring of health: news on their way to the table and to whoever is told, memory to and from a slow disk."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from device_agent.health.watchlist import Record
from device_agent.runtime.settings import Settings
from device_agent.store.health_watch import HealthWatch
from device_agent.store.node_state import NodeState
from device_agent.table.device_table import DeviceTable
from unit.health.gpus import Gpus, gpu, gpu_resource, new_table, xid_fault
from unit.health.news import RESET_XID
from unit.table.samples import NAME, Steps, selection, unit, wall

UID = "0b7e6a3c-1111-4222-8333-444455556666"
QUICK = Settings(health_recall=0.05, health_deadline=0.1, health_retry=0.05)


async def watch(
    tmp_path: Path, told: list[frozenset[str]], *, state: NodeState | None = None, settings: Settings = QUICK
) -> tuple[HealthWatch, DeviceTable]:
    table = new_table(gpu_resource())
    table.apply_selection(selection(gpu(0), gpu(1)), now=0.0, wall=wall(0))
    state = state or NodeState(tmp_path, object_uid=UID)
    return HealthWatch(table, state, boot="b", settings=settings, changed=told.append), table


class SlowDisk(NodeState):
    """Nothing is read before `spins`."""

    def __init__(self, device_plugins: Path) -> None:
        super().__init__(device_plugins, object_uid=UID)
        self.spins = threading.Event()

    def recall_health(self, *, boot_id: str) -> tuple[tuple[Record, ...], str]:
        self.spins.wait(30)
        return super().recall_health(boot_id=boot_id)


async def test_a_disk_that_is_slow_at_the_start_costs_no_failure(tmp_path: Path) -> None:
    gpus = Gpus(gpu(0), gpu(1))
    gpus.look()
    gpus.xid(RESET_XID)
    disk = SlowDisk(tmp_path)
    disk.remember_health(gpus.table.health_records(), boot_id="b")
    told: list[frozenset[str]] = []
    health, table = await watch(tmp_path, told, state=disk)
    await health.recall()
    task = asyncio.create_task(health.run())
    told.append(table.apply_health(xid_fault(RESET_XID, "GPU-1"), now=1.0, wall=wall(1)))
    health.stirred()
    await health.close()
    assert [a.healthy for a in table.listed(NAME)] == [True, False]
    disk.spins.set()
    await until(lambda: [a.healthy for a in table.listed(NAME)] == [False, False])
    [first, _] = table.snapshot().resources[0].devices
    assert (first.reason, first.since) == ("Xid79", gpus.device("GPU-0").since)
    await until(
        lambda: {r.name for r in disk.recall_health(boot_id="b")[0] if r.condition.failures} == {"GPU-0", "GPU-1"}
    )
    task.cancel()


class OthersSlow(NodeState):
    """What other objects kept is not read before `spins`."""

    def __init__(self, device_plugins: Path, *, uid: str) -> None:
        super().__init__(device_plugins, object_uid=uid)
        self.spins = threading.Event()

    def recall_others(self, *, boot_id: str) -> tuple[tuple[Record, ...], str]:
        self.spins.wait(30)
        return super().recall_others(boot_id=boot_id)


async def test_what_other_objects_kept_holds_up_nothing_of_our_own(tmp_path: Path) -> None:
    for uid, part in ((UID, "GPU-0"), ("other", "GPU-1")):
        gpus = Gpus(gpu(0), gpu(1))
        gpus.look()
        gpus.xid(RESET_XID, part)
        NodeState(tmp_path, object_uid=uid).remember_health(gpus.table.health_records(), boot_id="b")
    disk, table = OthersSlow(tmp_path, uid=UID), new_table(gpu_resource())
    health = HealthWatch(table, disk, boot="b", settings=QUICK, changed=lambda _: None)
    await health.recall()
    table.apply_selection(selection(gpu(0), gpu(1)), now=1.0, wall=wall(1))
    assert [a.healthy for a in table.listed(NAME)] == [False, True]
    assert "not read yet" in health.problem
    task = asyncio.create_task(health.run())
    disk.spins.set()
    await until(lambda: [a.healthy for a in table.listed(NAME)] == [False, False])
    await until(lambda: health.problem == "")
    task.cancel()


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not within ten seconds")


class SlowWrites(NodeState):
    """Its first write takes until `go` is set."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, object_uid="uid")
        self.writing, self.go = threading.Event(), threading.Event()

    def remember_health(self, records: Iterable[Record], *, boot_id: str) -> str:
        if not self.writing.is_set():
            self.writing.set()
            self.go.wait(30)
        return super().remember_health(records, boot_id=boot_id)


async def test_what_is_new_when_the_process_ends_in_the_middle_of_a_write_is_kept_too(tmp_path: Path) -> None:
    steps, state = Steps(), SlowWrites(tmp_path)
    settings = Settings(health_last=20)
    watch = HealthWatch(steps.table, state, boot="boot", settings=settings, changed=lambda _: None)
    broken = [unit(device, problem=("CompanionMissing", "x")) for device in ("a", "b")]
    steps.scan(broken[0])
    watch.stirred()
    running = asyncio.ensure_future(watch.run())
    assert await asyncio.to_thread(state.writing.wait, 10)
    steps.scan(*broken)
    running.cancel()
    closing = asyncio.ensure_future(watch.close())
    await asyncio.sleep(0)
    state.go.set()
    await asyncio.wait_for(closing, 10)
    records, problem = state.recall_health(boot_id="boot")
    assert (problem, {r.name.rpartition(" ")[2] for r in records}) == ("", {"a", "b"})
