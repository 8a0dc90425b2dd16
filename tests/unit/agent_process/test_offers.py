"""Which registrations the agent has running while names come and go."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from device_agent import agent, inventory
from device_agent.settings import Settings

NAME = "example.com/a"


class SlowToEnd:
    """A registration whose server takes its time to stop."""

    running = 0
    at_once = 0
    begun = asyncio.Event()

    def __init__(self, name: str, **_: Any) -> None:
        self.name = name

    async def run(self) -> None:
        cls = type(self)
        cls.running += 1
        cls.at_once = max(cls.at_once, cls.running)
        cls.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            cls.running -= 1


async def test_a_name_that_comes_and_goes_quickly_is_never_served_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(agent, "Registration", SlowToEnd)
    process = agent.Agent(
        agent.Options(
            config=tmp_path / "config.json",
            kubelet_dir=tmp_path,
            pod_resources=tmp_path / "kubelet.sock",
            host_root=tmp_path,
            listen=("127.0.0.1", 0),
            identity=inventory.Identity(node="", config="", config_uid="", pool="", version="1"),
            pod=None,
            api=None,
            settings=Settings(stream_settle=0.0),
        )
    )
    process._probes.start()
    process.prepare()
    process._offer(NAME)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    SlowToEnd.begun.clear()
    for _ in range(3):
        process._withdraw(NAME)
        process._offer(NAME)
        await asyncio.sleep(0)
    earlier = [task for task in process._tasks if task is not process._offers[NAME]]
    await asyncio.wait(earlier, timeout=5)
    await asyncio.wait_for(SlowToEnd.begun.wait(), 5)
    assert SlowToEnd.at_once == 1
    last = process._offers[NAME]
    process._withdraw(NAME)
    await asyncio.wait([last], timeout=5)
    assert SlowToEnd.running == 0
    process._probes.stop()
