"""What the wiring of health passes on."""

import asyncio
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from device_agent.conditions import Record
from device_agent.contract.document import HealthRules
from device_agent.healthwatch import HealthWatch
from device_agent.nodestate import NodeState
from device_agent.settings import Settings
from unit.agent_core.samples import NAME, Steps, resource, unit


async def test_a_list_that_changes_while_an_acknowledgement_is_read_is_told(tmp_path: Path) -> None:
    """The inventory is read every now and then, annotated or not; what else was due by then must not be lost."""
    steps = Steps(resource(health=HealthRules(removal_grace_seconds=60)))
    steps.now = time.monotonic() - 600
    told: list[frozenset[str]] = []
    state = NodeState(tmp_path, object_uid="uid")
    watch = HealthWatch(steps.table, state, boot="boot", settings=Settings(), changed=told.append)
    steps.scan(unit("a"), unit("b"))
    steps.scan(unit("a"))
    steps.send()
    steps.list({})
    steps.list({})
    assert steps.seen() == {"a": True, "b": False}  # it may return within its grace
    watch.acknowledge("")
    assert steps.seen() == {"a": True}
    assert told == [frozenset({NAME})]


class SlowDisk(NodeState):
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
    steps, state = Steps(), SlowDisk(tmp_path)
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
