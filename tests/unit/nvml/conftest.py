"""A node with GPUs: the fake library's driver root, and the node's /dev, /sys and /proc. Also a clock for tests."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fakenvml
import pytest
from device_agent.discovery.source import Roots
from device_agent.nvml.driver import Driver, EventCalls
from device_agent.nvml.library import Library
from fakenvml import Gpu, Scenario


class GpuNode:
    """`scenario`: the fake library and its GPUs. `roots`: the node's file systems, as the agent sees them."""

    def __init__(self, root: Path, gpus: list[Gpu]) -> None:
        self.roots = Roots.below(root / "host")
        self.scenario = Scenario(root / "driver", gpus=gpus, dev=root / "host/dev")
        self.show()

    @property
    def driver_root(self) -> Path:
        return self.scenario.root

    def show(self) -> None:
        """/dev, /sys and /proc follow the scenario."""
        self.scenario.make_nodes()
        self.scenario.make_sysfs(self.roots.sys)
        self.scenario.make_proc(self.roots.proc)

    def repartition(self, gpu: int, *profiles: str) -> list[fakenvml.Mig]:
        migs = self.scenario.repartition(gpu, profiles)
        self.show()
        return migs


@dataclass
class Clock:
    """Monotonic seconds that pass only when a test says so. `takes`: seconds that each call of a function takes."""

    now: float = 0.0
    takes: dict[str, float] = field(default_factory=dict)
    reads: int = 0

    def __call__(self) -> float:
        self.reads += 1
        return self.now


MakeNode = Callable[..., GpuNode]
MakeDriver = Callable[..., Driver]


@pytest.fixture
def node_of(tmp_path: Path) -> MakeNode:
    def make(gpus: list[Gpu] | int = 8) -> GpuNode:
        return GpuNode(tmp_path, fakenvml.a100s(gpus) if isinstance(gpus, int) else gpus)

    return make


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    ask = Library.ask

    def timed(library: Library, function: str, *arguments: object, of: str = "") -> Any:
        made.now += made.takes.get(function, 0.0)
        return ask(library, function, *arguments, of=of)

    monkeypatch.setattr(Library, "ask", timed)
    return made


@pytest.fixture
def driver_of() -> Iterator[MakeDriver]:
    made: list[Driver] = []

    def make(
        node: GpuNode,
        *,
        events: EventCalls | None = None,
        restart_seconds: float = 0.0,
        slow_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> Driver:
        driver = Driver(
            driver_root=node.driver_root,
            roots=node.roots,
            events=events,
            restart_seconds=restart_seconds,
            slow_seconds=slow_seconds,
            own_dev=node.roots.dev,
            clock=clock,
        )
        made.append(driver)
        return driver

    yield make
    for driver in made:
        driver.close()
