"""NVIDIA's own container runtime and toolkit on the real kubelet: what an admin with the toolkit gets.

Only the driver's library is a fake. The runtime behind the RuntimeClass, the CDI specifications and their hooks are
NVIDIA's. So the tests prove which names and variables they accept.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from fakenvml import Scenario, a100s
from gpus import GPU, devices, driver_of, gpu, make_nodes, served
from kube import NAMESPACE, Kube
from localcluster import binaries

RUNTIME_CLASS = {"runtimeClass": "nvidia"}
MANAGEMENT = "management.nvidia.com/gpu=all"
MIG = "nvidia.com/mig-{profile}"
SHOW_NODES = "print('nodes', *sorted(n for n in os.listdir('/dev') if n.startswith('nvidia') and n[-1].isdigit()), '.')"


@pytest.fixture
def driver(kube: Kube) -> Iterator[Scenario]:
    """Two A100; the RuntimeClass as the toolkit's chart makes it."""
    with driver_of(kube, a100s(2)) as scenario:
        scenario.make_proc(kube.cluster.state / "nodes/node-1/proc")
        kind = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass"}
        kube.apply({**kind, "metadata": {"name": "nvidia"}, "handler": "nvidia"})
        yield scenario
        kube("delete", "runtimeclass", "nvidia")
        kube.cluster.run_in_node(1, "sh", "-c", "rm -f /etc/cdi/nvidia.yaml /etc/cdi/management.yaml")


def specify(kube: Kube, scenario: Scenario, name: str, *arguments: str) -> None:
    """The toolkit writes a CDI specification on the node."""
    kube.cluster.run_in_node(
        1,
        str(binaries.path("nvidia-ctk")),
        *("cdi", "generate", f"--output=/etc/cdi/{name}.yaml"),
        *(f"--driver-root={scenario.root}", "--dev-root=/"),
        f"--nvidia-cdi-hook-path={binaries.path('nvidia-cdi-hook')}",
        *arguments,
    )


def specify_management(kube: Kube, scenario: Scenario) -> None:
    """As docs/gpu.md tells an admin to."""
    specify(kube, scenario, "management", "--mode=management", "--vendor=management.nvidia.com", "--class=gpu")


@contextmanager
def runtime_setting(kube: Kube, line: str) -> Iterator[None]:
    """Another line at the top of the runtime's configuration on node-1, which it reads for each container."""
    file = kube.cluster.state / "nodes/node-1/nvidia/config.toml"
    before = file.read_text()
    file.write_text(f"{line}\n{before}")
    try:
        yield
    finally:
        file.write_text(before)


def assert_the_pod_has_its_gpu_alone(kube: Kube, scenario: Scenario, **fields: object) -> None:
    with kube.pod("one", limits={GPU: 1}, node="node-1", script=SHOW_NODES, **fields):
        ((held,),) = kube.held_ids(1, resource=GPU).values()
        (minor,) = (g.minor for g in scenario.gpus if g.uuid == held)
        shown = kube.log("one", until="nodes").split()
        assert shown[1:-1] == [f"nvidia{minor}"]


def test_the_runtime_class_gives_the_agent_the_driver_and_pods_exactly_their_gpu(kube: Kube, driver: Scenario):
    with served(kube, gpu(), driverAccess=RUNTIME_CLASS):
        kube.wait_node("node-1", GPU, 2, 2)
        assert {d["attributes"]["model"] for d in devices(kube).values()} == {driver.gpus[0].name}
        agent = kube.agent("gpus", "node-1")["spec"]
        assert agent["runtimeClassName"] == "nvidia"
        assert not agent["containers"][0]["securityContext"]["privileged"]
        assert_the_pod_has_its_gpu_alone(kube, driver, runtime_class="nvidia")


def test_a_runtime_that_takes_mounts_alone_gives_the_agent_the_driver_and_a_pod_its_gpu(kube: Kube, driver: Scenario):
    with (
        runtime_setting(kube, "accept-nvidia-visible-devices-envvar-when-unprivileged = false"),
        served(kube, gpu(preset="nvidia-gpu-mounts"), driverAccess=RUNTIME_CLASS),
    ):
        kube.wait_node("node-1", GPU, 2, 2)
        assert_the_pod_has_its_gpu_alone(kube, driver, runtime_class="nvidia")


def test_a_pod_gets_its_gpu_by_the_cdi_preset_without_any_runtime_class(kube: Kube, driver: Scenario):
    specify(kube, driver, "nvidia", "--mode=nvml", "--device-name-strategy=uuid")
    with served(kube, gpu(preset="nvidia-gpu-cdi"), driverAccess=RUNTIME_CLASS):
        kube.wait_node("node-1", GPU, 2, 2)
        assert_the_pod_has_its_gpu_alone(kube, driver)


def partitioned(scenario: Scenario) -> None:
    scenario.repartition(0, ["3g.20gb", "1g.5gb", "1g.5gb"])
    make_nodes(scenario)


def test_mig_by_the_runtime_class_with_the_monitor_capability(kube: Kube, driver: Scenario):
    partitioned(driver)
    with served(kube, gpu(MIG, "nvidia-mig-env"), gpu(), driverAccess=RUNTIME_CLASS):
        kube.wait_node("node-1", "nvidia.com/mig-1g.5gb", 2, 2)
        kube.wait_node("node-1", "nvidia.com/mig-3g.20gb", 1, 1)
        kube.wait_node("node-1", GPU, 1, 1)
        (agent,) = kube.agent("gpus", "node-1")["spec"]["containers"]
        assert agent["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
        show = "print('nodes', *sorted(os.listdir('/dev/nvidia-caps')), '.')"
        limits = {"nvidia.com/mig-3g.20gb": 1}
        with kube.pod("slice", limits=limits, node="node-1", script=show, runtime_class="nvidia"):
            (mig,) = (m for m in driver.gpus[0].migs if m.profile == "3g.20gb")
            assert kube.log("slice", until="nodes").split()[1:-1] == [f"nvidia-cap{n}" for n in mig.caps]


@pytest.mark.parametrize("preset", ["nvidia-mig-env", "nvidia-mig-cdi"])
def test_mig_by_a_management_cdi_device_needs_no_capability(kube: Kube, driver: Scenario, preset: str):
    partitioned(driver)
    specify_management(kube, driver)
    specify(kube, driver, "nvidia", "--mode=nvml", "--device-name-strategy=uuid")
    with served(kube, gpu(MIG, preset), driverAccess={**RUNTIME_CLASS, "cdiDevice": MANAGEMENT}):
        kube.wait_node("node-1", "nvidia.com/mig-1g.5gb", 2, 2)
        (agent,) = kube.agent("gpus", "node-1")["spec"]["containers"]
        assert agent["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        show = "print('nodes', *sorted(os.listdir('/dev/nvidia-caps')), '.')"
        runtime = None if preset.endswith("cdi") else "nvidia"
        with kube.pod("slice", limits={"nvidia.com/mig-1g.5gb": 1}, node="node-1", script=show, runtime_class=runtime):
            shown = kube.log("slice", until="nodes").split()[1:-1]
            assert shown in [[f"nvidia-cap{n}" for n in mig.caps] for mig in driver.gpus[0].migs]


@contextmanager
def nri_plugin(kube: Kube) -> Iterator[None]:
    """The toolkit's NRI plugin on node-1; the product's namespace may have management devices."""
    started = 'setsid "$0" "$1" >/run/nvidia-nri-plugin.log 2>&1 </dev/null & echo $!'
    pid = kube.cluster.run_in_node(1, "sh", "-c", started, str(binaries.path("nvidia-nri-plugin")), NAMESPACE).strip()
    try:
        yield
    finally:
        kube.cluster.run_in_node(1, "kill", pid)


def test_a_management_cdi_device_by_the_nri_plugin_needs_no_runtime_class(kube: Kube, driver: Scenario):
    partitioned(driver)
    specify_management(kube, driver)
    with nri_plugin(kube), served(kube, gpu(MIG, "nvidia-mig-env"), gpu(), driverAccess={"cdiDevice": MANAGEMENT}):
        kube.wait_node("node-1", "nvidia.com/mig-1g.5gb", 2, 2)
        kube.wait_node("node-1", GPU, 1, 1)
        agent = kube.agent("gpus", "node-1")["spec"]
        assert "runtimeClassName" not in agent
        assert agent["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
