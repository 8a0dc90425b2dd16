"""Preference, telemetry and labels on a node with NVIDIA GPUs. The driver is a fake; all else is real."""

from itertools import combinations
from pathlib import Path

import pytest
from agent.harness import AgentProcess, Node, Start, document
from agent.standin import Kubelet, until
from fakenvml import Scenario, a100s, linked
from unit.allocate.nodes import CUBE_MESH

GPU = "nvidia.com/gpu"


def nvidia(name: str = GPU, *, kind: str = "GPU", **fields) -> dict:
    return {"name": name, "devices": [{"nvml": {"kind": kind}}], **fields}


class GpuNode:
    """A node, its GPUs, and how an agent is started on it."""

    def __init__(self, node: Node, start: Start, driver: Path) -> None:
        self.node = node
        self.driver = driver
        self._start = start

    def with_gpus(self, gpus) -> Scenario:
        scenario = Scenario(self.driver, gpus=gpus, dev=self.node.host / "dev")
        self.show(scenario)
        return scenario

    def show(self, scenario: Scenario) -> None:
        scenario.make_nodes()
        scenario.make_proc(self.node.host / "proc")
        scenario.make_sysfs(self.node.host / "sys")

    def start(self, *arguments: str) -> AgentProcess:
        settings = {"sample_interval": 0.1, "nvml_interval": 0.2}
        return self._start(f"--driver-root={self.driver}", *arguments, settings=settings)


@pytest.fixture
def gpus(node: Node, start: Start, tmp_path: Path) -> GpuNode:
    return GpuNode(node, start, tmp_path / "driver")


@pytest.mark.parametrize(("size", "links"), [(2, 2), (3, 5), (4, 9)])
def test_containers_get_the_gpus_with_the_most_links_between_them(
    gpus: GpuNode, kubelet: Kubelet, size: int, links: int
) -> None:
    scenario = gpus.with_gpus(linked(a100s(8), CUBE_MESH))
    number = {gpu.uuid: n for n, gpu in enumerate(scenario.gpus)}
    gpus.node.configure(document(nvidia()))
    gpus.start()
    kubelet.wait_for(GPU, 8)
    for pod in ("a", "b"):
        kubelet.admit(pod, GPU, size)
        got = sorted(number[i] for i in kubelet.ids_of(pod, GPU))
        assert sum(CUBE_MESH.get(pair, 0) for pair in combinations(got, 2)) == links, f"{pod}: {got}"


def test_a_lost_gpu_is_never_preferred(gpus: GpuNode, kubelet: Kubelet) -> None:
    scenario = gpus.with_gpus(linked(a100s(8), CUBE_MESH))
    number = {gpu.uuid: n for n, gpu in enumerate(scenario.gpus)}
    gpus.node.configure(document(nvidia()))
    gpus.start()
    kubelet.wait_for(GPU, 8)
    scenario.lose(3)
    kubelet.wait_for(GPU, 7)
    kubelet.admit("a", GPU, 4)
    assert sorted(number[i] for i in kubelet.ids_of("a", GPU)) == [4, 5, 6, 7], "the mesh that is whole"


def series(agent: AgentProcess, name: str) -> dict[tuple[str, str, str], float]:
    """(device, pod, container) -> value."""
    found = {}
    for line in agent.get("/metrics")[1].splitlines():
        if line.startswith(f"device_agent_gpu_{name}{{"):
            labels, _, value = line.partition("{")[2].rpartition("} ")
            of = dict(item.split("=") for item in labels.replace('"', "").split(","))
            found[of["device"], of["pod"], of["container"]] = float(value)
    return found


def test_telemetry_names_each_holder_of_each_gpu(gpus: GpuNode, kubelet: Kubelet) -> None:
    made = a100s(3)
    for n, gpu in enumerate(made):
        gpu.temperature, gpu.power, gpu.utilisation = 40 + n, 100_000 + n, 10 * n
    scenario = gpus.with_gpus(made)
    gpus.node.configure(document(nvidia(sharing={"replicas": 2}, allocation={"policy": "Packed"})))
    agent = gpus.start("--device-metrics=Prometheus")
    kubelet.wait_for(GPU, 6)
    for pod in ("a", "b", "c"):
        kubelet.admit(pod, GPU, 1)
    held = {pod: kubelet.ids_of(pod, GPU)[0].partition("::")[0] for pod in ("a", "b", "c")}
    assert len(set(held.values())) == 2, "two pods on one GPU"
    expected = {(device, pod, "main"): 40.0 + n for n, device in enumerate(g.uuid for g in made)
                for pod, has in held.items() if has == device}  # fmt: skip
    expected |= {(g.uuid, "", ""): 40.0 + n for n, g in enumerate(made) if g.uuid not in held.values()}
    until(lambda: series(agent, "temperature_celsius") == expected, what=f"temperatures {expected}")
    assert set(series(agent, "power_watts").values()) == {100.0, 100.001, 100.002}
    scenario.gpus[0].temperature = 90
    scenario.write()
    until(lambda: 90.0 in series(agent, "temperature_celsius").values(), what="a new sample")
    kubelet.delete("a")
    until(lambda: not any(pod == "a" for _, pod, _ in series(agent, "power_watts")), what="no holder a")


def test_telemetry_is_off_unless_asked_for(gpus: GpuNode, kubelet: Kubelet) -> None:
    gpus.with_gpus(a100s(1))
    gpus.node.configure(document(nvidia()))
    agent = gpus.start()
    kubelet.wait_for(GPU, 1)
    agent.wait_ready()
    assert "device_agent_gpu" not in agent.get("/metrics")[1]


def test_a_hanging_driver_does_not_delay_a_scrape(gpus: GpuNode, kubelet: Kubelet) -> None:
    scenario = gpus.with_gpus(a100s(1))
    gpus.node.configure(document(nvidia()))
    agent = gpus.start("--device-metrics=Prometheus")
    kubelet.wait_for(GPU, 1)
    until(lambda: series(agent, "temperature_celsius"), what="a sample")
    scenario.hang(seconds=30)
    try:
        until(lambda: not series(agent, "temperature_celsius"), seconds=10, what="no old samples")
        assert agent.metric(f'device_agent_capacity{{resource="{GPU}"}}') == 1
    finally:
        scenario.hang(seconds=0)
    until(lambda: series(agent, "temperature_celsius"), seconds=20, what="samples again")


def facts(file: Path) -> dict[str, str]:
    if not file.exists():
        return {}
    return dict(line.split("=", 1) for line in file.read_text().splitlines() if not line.startswith("#"))


def test_node_features_follow_the_gpus_and_go_with_the_resource(
    gpus: GpuNode, kubelet: Kubelet, tmp_path: Path
) -> None:
    folder = tmp_path / "features.d"
    folder.mkdir()
    file = folder / "device-operator-local"
    scenario = gpus.with_gpus(a100s(2))
    whole, parts = nvidia(), nvidia("nvidia.com/mig-{profile}", kind="MIG")
    gpus.node.configure(document(whole, parts))
    gpus.start("--node-features=NFD", f"--features-dir={folder}")
    kubelet.wait_for(GPU, 2)
    until(lambda: facts(file).get("nvidia.com/gpu.count") == "2", what="two GPUs")
    assert facts(file)["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-40GB"
    assert facts(file)["nvidia.com/gpu.replicas"] == "1"
    assert facts(file)["nvidia.com/cuda.driver-version.full"] == "580.95.05"
    assert "nvidia.com/mig.strategy" not in facts(file)
    scenario.repartition(1, ["1g.5gb", "1g.5gb"])
    gpus.show(scenario)
    until(lambda: facts(file).get("nvidia.com/mig-1g.5gb.count") == "2", what="partitions")
    assert facts(file)["nvidia.com/mig.strategy"] == "mixed"
    gpus.node.configure(document({"name": "example.com/sim", "devices": [{"simulated": {"count": 1}}]}))
    until(lambda: not file.exists(), what="no file")
    assert list(folder.iterdir()) == []


def test_held_gpus_are_not_offered_again_after_a_rename_and_a_restart(gpus: GpuNode, kubelet: Kubelet) -> None:
    shared = "nvidia.com/gpu.shared"
    gpus.with_gpus(a100s(4))
    gpus.node.configure(document(nvidia()))
    agent = gpus.start()
    kubelet.wait_for(GPU, 4)
    kubelet.admit("holder", GPU, 3)
    held = set(kubelet.ids_of("holder", GPU))
    agent.kill()
    gpus.node.configure(document(nvidia(shared, sharing={"replicas": 4, "maxPerContainer": 1})))
    gpus.start()
    offered = kubelet.wait_for(shared, 4)
    assert held.isdisjoint(i.partition("::")[0] for i in offered)
    until(lambda: held == kubelet.health(GPU).keys(), what="the old name registered again")
    assert kubelet.healthy(GPU) == set()
    kubelet.delete("holder")
    kubelet.wait_for(shared, 16)
