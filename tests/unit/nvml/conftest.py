"""A node with GPUs: the fake library's driver root, and the node's /dev, /sys and /proc beside it."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import fakenvml
import pytest
from device_agent.discovery.source import Roots
from device_agent.nvml.driver import Driver, EventCalls
from fakenvml import Gpu, Scenario


class GpuNode:
    """`scenario` and what the kernel shows of it. `roots`: as the agent has the node."""

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


MakeNode = Callable[..., GpuNode]
MakeDriver = Callable[..., Driver]


@pytest.fixture
def node_of(tmp_path: Path) -> MakeNode:
    def make(gpus: list[Gpu] | int = 8) -> GpuNode:
        return GpuNode(tmp_path, fakenvml.a100s(gpus) if isinstance(gpus, int) else gpus)

    return make


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
