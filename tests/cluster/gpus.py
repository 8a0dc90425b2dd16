"""Nodes with NVIDIA GPUs: the driver's library is a fake, the device nodes are made by hand."""

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fakenvml import Gpu, Scenario
from kube import Kube, Object

GPU = "nvidia.com/gpu"
FUSE = os.makedev(10, 229)
"""What stands behind the fake's nodes: a device that opens, and that the device cgroup refuses to a pod without rights."""


@contextmanager
def driver_of(kube: Kube, gpus: Sequence[Gpu]) -> Iterator[Scenario]:
    """A node's driver. Nodes below /dev are made by hand; all nodes share it with the machine."""
    assert not Path("/proc/driver/nvidia").exists(), "an NVIDIA driver is loaded here, whose nodes in /dev are not ours"
    root = kube.cluster.state / "nvidia-driver"
    shutil.rmtree(root, ignore_errors=True)
    scenario = Scenario(root, gpus=gpus, node_dev=Path("/dev"))
    make_nodes(scenario)
    try:
        yield scenario
    finally:
        for path in (*Path("/dev").glob("nvidia*"), *Path("/dev/nvidia-caps").glob("*"), scenario.node_scenario):
            if not path.is_dir():
                path.unlink()
        Path("/dev/nvidia-caps").rmdir()


def make_nodes(scenario: Scenario) -> None:
    """All that the scenario's driver has below /dev, and in the /dev of its own root: a driver container has both."""
    paths = [dev / name for dev in (Path("/dev"), scenario.root / "dev") for name in scenario.nodes()]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        os.mknod(path, 0o666 | stat.S_IFCHR, FUSE)


@contextmanager
def served(kube: Kube, *resources: Object, **agent: object) -> Iterator[None]:
    """A configuration with these resources on node-1."""
    pool = {"name": "gpu", "nodeSelector": {"kubernetes.io/hostname": "node-1"}}
    with kube.config("gpus", {"resources": list(resources), "nodePools": [pool], "agent": agent}):
        kube.wait_ready("gpus")
        yield


def driver_root(scenario: Scenario) -> Object:
    """The agent's access to the driver without NVIDIA's toolkit."""
    return {"driverRoot": str(scenario.root)}


def gpu(name: str = GPU, preset: str = "nvidia-gpu-env", **fields: object) -> Object:
    return {"name": name, "preset": preset, **fields}


def devices(kube: Kube) -> dict[str, Object]:
    """The devices in node-1's inventory by id."""
    return {d["id"]: d for d in kube.inventory("gpus", "node-1")["status"].get("devices", [])}
