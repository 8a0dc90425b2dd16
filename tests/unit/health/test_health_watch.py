"""News of the driver on their way to the table: storms of one error cost no more than one."""

from dataclasses import replace
from pathlib import Path

from device_agent.contract.document import Document
from device_agent.devices import DeviceTable
from device_agent.healthwatch import HealthWatch
from device_agent.nodestate import NodeState
from device_agent.nvml.model import XidEvent
from device_agent.settings import Settings
from unit.agent_core.samples import selection, wall
from unit.health.gpus import HARMLESS_XID, RESET_XID, gpu, gpu_resource


async def watch(tmp_path: Path, told: list[frozenset[str]]) -> tuple[HealthWatch, DeviceTable]:
    table = DeviceTable(Document((gpu_resource(),)))
    table.apply_selection(selection(gpu(0), gpu(1)), now=0.0, wall=wall(0))
    state = NodeState(tmp_path, object_uid="0b7e6a3c-1111-4222-8333-444455556666")
    return HealthWatch(table, state, boot="b", settings=Settings(), changed=told.append), table


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
