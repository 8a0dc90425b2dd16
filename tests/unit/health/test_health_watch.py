"""News of the driver on their way to the table: storms of one error cost no more than one."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from device_agent.conditions import Record
from device_agent.contract.document import Document
from device_agent.devices import DeviceTable
from device_agent.healthwatch import HealthWatch
from device_agent.nodestate import NodeState
from device_agent.nvml.model import XidEvent
from device_agent.settings import Settings
from unit.agent_core.samples import NAME, selection, wall
from unit.health.gpus import Gpus, gpu, gpu_resource
from unit.health.news import HARMLESS_XID, RESET_XID

UID = "0b7e6a3c-1111-4222-8333-444455556666"
QUICK = Settings(health_recall=0.05, health_deadline=0.1, health_retry=0.05)


async def watch(
    tmp_path: Path, told: list[frozenset[str]], *, state: NodeState | None = None, settings: Settings = QUICK
) -> tuple[HealthWatch, DeviceTable]:
    table = DeviceTable(Document((gpu_resource(),)))
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
    disk.remember_health(gpus.table.conditions.records(), boot_id="b")
    told: list[frozenset[str]] = []
    health, table = await watch(tmp_path, told, state=disk)
    await health.recall()
    task = asyncio.create_task(health.run())
    health.xid(XidEvent(uuid="GPU-1", xid=RESET_XID, at=100.0, epoch=1))
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
        NodeState(tmp_path, object_uid=uid).remember_health(gpus.table.conditions.records(), boot_id="b")
    disk, table = OthersSlow(tmp_path, uid=UID), DeviceTable(Document((gpu_resource(),)))
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


async def test_a_storm_of_one_error_is_taken_once_and_errors_of_programs_wake_nobody(tmp_path: Path) -> None:
    told: list[frozenset[str]] = []
    health, table = await watch(tmp_path, told)
    taken = []
    take = table.apply_health
    table.apply_health = lambda news, **when: (taken.append(news), take(news, **when))[1]  # type: ignore[method-assign]
    event = XidEvent(uuid="GPU-0", xid=RESET_XID, at=100.0, epoch=1)
    for n in range(50):
        health.xid(replace(event, at=100.0 + n / 1000))
        health.xid(replace(event, at=100.0 + n / 1000, xid=HARMLESS_XID))
    assert [fault.xid for fault in taken] == [RESET_XID, HARMLESS_XID]
    assert told == [frozenset({"example.com/dev"})]
    health.xid(replace(event, uuid="GPU-1", at=100.05))
    assert len(told) == 2, "of another GPU it is other news"
    health.xid(replace(event, at=100.2))
    assert len(taken) == 4
