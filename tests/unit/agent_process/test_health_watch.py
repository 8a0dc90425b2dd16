"""What the wiring of health passes on."""

import time
from pathlib import Path

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
