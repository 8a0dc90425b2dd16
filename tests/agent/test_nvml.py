"""The agent with NVIDIA GPUs: the real pynvml on the fake driver, devices served to the stand-in kubelet."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fakenvml
import pytest
from agent.apiserver import ApiServer
from agent.harness import AgentProcess, Node, Start, document, simulated
from agent.standin import Kubelet, until
from fakenvml import Gpu, Scenario, a100s, uuid

GPU = "nvidia.com/gpu"
NVML = {"nvml_interval": 0.3, "nvml_restart": 0.5}


def gpus(name: str = GPU, kind: str = "GPU", **fields: Any) -> dict[str, Any]:
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "{uuid}"}]
    inject = {"env": env, "deviceNodes": [{"hostPath": "/dev/nvidiactl"}, {"hostPath": "/dev/nvidia-uvm"}]}
    return {"name": name, "devices": [{"nvml": {"kind": kind}}], "inject": inject, **fields}


class Driver(Scenario):
    """The fake driver of a node, with what the kernel shows of it. The agent finds its library by --driver-root."""

    def __init__(self, node: Node, devices: list[Gpu]) -> None:
        super().__init__(node.root / "driver", gpus=devices, dev=node.host / "dev")
        self._node = node
        self.show()

    def show(self) -> None:
        for name in self.nodes():  # /dev of the node is a real one: nodes are devices
            if not (self._node.host / "dev" / name).exists():
                self._node.device(name)
        (self._node.host / "dev/null").exists() or self._node.device("null")
        self.make_sysfs(self._node.host / "sys")
        self.make_proc(self._node.host / "proc")

    @property
    def flags(self) -> tuple[str, str]:
        return "--driver-root", str(self.root)


MakeDriver = Callable[..., Driver]


@pytest.fixture
def driver_of(node: Node) -> MakeDriver:
    def make(devices: list[Gpu] | int = 8) -> Driver:
        return Driver(node, a100s(devices) if isinstance(devices, int) else devices)

    return make


def loaded(agent: AgentProcess) -> bool:
    """Whether the process has the driver's library in its memory."""
    return "libnvidia-ml" in Path(f"/proc/{agent.process.pid}/maps").read_text()


def test_eight_gpus_are_offered_and_a_pod_gets_the_variable_and_nodes_of_its_own(
    node: Node, kubelet: Kubelet, start: Start, driver_of: MakeDriver
) -> None:
    driver = driver_of(8)
    node.configure(document(gpus()))
    agent = start(*driver.flags)
    assert kubelet.wait_for(GPU, 8) == {uuid(i) for i in range(8)}
    answer = kubelet.admit("pod", GPU, 1)
    [mine] = kubelet.ids_of("pod", GPU)
    number = next(i for i in range(8) if uuid(i) == mine)
    assert dict(answer.envs) == {"NVIDIA_VISIBLE_DEVICES": mine}
    assert {d.host_path for d in answer.devices} == {f"/dev/nvidia{number}", "/dev/nvidia-uvm", "/dev/nvidiactl"}
    agent.wait_ready()
    assert kubelet.healthy(GPU) == {uuid(i) for i in range(8)}


def test_mig_mixed_with_three_profiles_and_a_repartition_while_running(
    node: Node, kubelet: Kubelet, start: Start, driver_of: MakeDriver
) -> None:
    driver = driver_of(2)
    one, two, three = driver.repartition(1, ["1g.5gb", "2g.10gb", "3g.20gb"])
    driver.show()
    node.configure(document(gpus(), gpus("nvidia.com/mig-{profile}", kind="MIG")))
    agent = start(*driver.flags, settings=NVML)
    assert kubelet.wait_for(GPU, 1) == {uuid(0)}
    assert kubelet.wait_for("nvidia.com/mig-1g.5gb", 1) == {one.uuid}
    assert kubelet.wait_for("nvidia.com/mig-2g.10gb", 1) == {two.uuid}
    assert kubelet.wait_for("nvidia.com/mig-3g.20gb", 1) == {three.uuid}
    answer = kubelet.admit("pod", "nvidia.com/mig-2g.10gb", 1)
    assert dict(answer.envs) == {"NVIDIA_VISIBLE_DEVICES": two.uuid}
    assert {d.host_path for d in answer.devices} == {
        "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm", *(f"/dev/nvidia-caps/nvidia-cap{n}" for n in two.caps)
    }  # fmt: skip
    until(lambda: agent.metric('device_agent_allocated{resource="nvidia.com/mig-2g.10gb"}') == 1, what="holder seen")
    kubelet.delete("pod")
    new = driver.repartition(1, ["4g.20gb", "1g.5gb"])
    driver.show()
    assert kubelet.wait_for("nvidia.com/mig-4g.20gb", 1) == {new[0].uuid}
    until(lambda: kubelet.healthy("nvidia.com/mig-1g.5gb") == {new[1].uuid}, what="the new small one alone")


def test_an_xid_takes_one_gpu_away_before_any_scan_or_look_is_due(
    node: Node, kubelet: Kubelet, start: Start, driver_of: MakeDriver
) -> None:
    driver = driver_of(8)
    node.configure(document(gpus(sharing={"replicas": 2}, health={"intervalSeconds": 3600})))
    agent = start(*driver.flags, settings={"scan_interval": 600, "nvml_interval": 600})
    kubelet.wait_for(GPU, 16)
    agent.wait_ready()
    driver.xid(3, 79, gi=0, ci=0)  # a GPU without MIG may name them
    ill = {uuid(3), f"{uuid(3)}::1"}
    until(lambda: set(kubelet.health(GPU)) - kubelet.healthy(GPU) == ill, what="its replicas unhealthy")


def test_a_lost_gpu_is_unhealthy_and_back_after_its_reset(
    node: Node, kubelet: Kubelet, start: Start, driver_of: MakeDriver
) -> None:
    driver = driver_of(4)
    health = {"recoveryThreshold": 1}
    node.configure(document(gpus(health=health)))
    start(*driver.flags, settings=NVML)
    kubelet.wait_for(GPU, 4)
    driver.lose(2)
    until(lambda: kubelet.healthy(GPU) == {uuid(i) for i in (0, 1, 3)}, what="the lost one unhealthy")
    kubelet.admit("pod", GPU, 3)
    driver.recover(2)
    until(lambda: len(kubelet.healthy(GPU)) == 4, what="back")


def test_while_the_driver_hangs_pods_get_their_gpus(
    node: Node, kubelet: Kubelet, start: Start, driver_of: MakeDriver
) -> None:
    driver = driver_of(8)
    node.configure(document(gpus()))
    agent = start(*driver.flags, settings={**NVML, "nvml_deadline": 0.5})
    kubelet.wait_for(GPU, 8)
    agent.wait_ready()
    driver.hang("nvmlDeviceGetTotalEccErrors", gpu=2, seconds=30)
    agent.wait_said("nvml", error="NVML hangs: nvmlDeviceGetTotalEccErrors of GPU 2 does not answer")
    for i in range(4):
        kubelet.admit(f"pod{i}", GPU, 2)
    assert agent.said("device answers again") == [], "the hang lasts longer than the admissions"
    assert len(kubelet.healthy(GPU)) == 8, "unknown is not unhealthy"
    assert agent.get("/healthz")[0] == 200
    driver.hang("nvmlDeviceGetTotalEccErrors", gpu=2, seconds=0)
    driver.lose(5)
    until(lambda: kubelet.healthy(GPU) == {uuid(i) for i in range(8)} - {uuid(5)}, what="looked at again")


def test_a_driver_that_comes_late_is_served_without_a_restart(
    node: Node, kubelet: Kubelet, start: Start, driver_of: MakeDriver
) -> None:
    driver = driver_of(4)
    driver.unload_driver()
    node.configure(document(gpus(), simulated()))
    agent = start(*driver.flags, settings=NVML)
    kubelet.wait_for("example.com/sim", 4)
    agent.wait_ready()
    assert kubelet.registered(GPU) == 0
    driver.load_driver()
    assert len(kubelet.wait_for(GPU, 4)) == 4


def test_a_reload_of_the_driver_is_survived(node: Node, kubelet: Kubelet, start: Start, driver_of: MakeDriver) -> None:
    driver = driver_of(4)
    node.configure(document(gpus(health={"recoveryThreshold": 1})))
    start(*driver.flags, settings=NVML)
    kubelet.wait_for(GPU, 4)
    driver.unload_driver()
    until(lambda: kubelet.healthy(GPU) == set(), what="nothing to give")
    driver.load_driver()
    until(lambda: len(kubelet.healthy(GPU)) == 4, what="all back")
    kubelet.admit("pod", GPU, 4)


def reporting(api: ApiServer) -> tuple[tuple[str, ...], dict[str, str]]:
    """Flags and environment of an agent that writes its inventory there."""
    identity = {"NODE_NAME": "n1", "CONFIG_NAME": "lab", "POOL_NAME": "default"}
    return ("--report=api", "--api-server", api.url), identity


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        ("library", "no driver library: libnvidia-ml.so.1 is in none of the usual directories"),
        ("driver", "driver not loaded: "),
    ],
)
@pytest.mark.usefixtures("kubelet")
def test_the_inventory_says_why_there_are_no_gpus(
    node: Node, start: Start, api: ApiServer, trouble: str, message: str
) -> None:
    driver = Driver(node, a100s(2))
    if trouble == "library":
        driver.library.unlink()
    else:
        driver.unload_driver()
        (node.host / "dev/nvidiactl").unlink()  # otherwise the message would be about this machine, which has no driver
    node.configure(document(gpus()))
    flags, identity = reporting(api)
    agent = start(*driver.flags, *flags, settings=NVML, env=identity)
    agent.wait_ready()

    def told() -> list[str]:
        return [
            resource.get("message", "")
            for written in api.written[-1:]
            for resource in written["resources"]
            if resource["name"] == GPU
        ]

    until(lambda: told() and told()[0].startswith(message), what=message)


def test_an_agent_without_gpu_entries_does_not_load_the_driver(
    node: Node, kubelet: Kubelet, start: Start, driver_of: MakeDriver
) -> None:
    driver = driver_of(2)
    node.configure(document(simulated()))
    agent = start(*driver.flags, settings=NVML)
    kubelet.wait_for("example.com/sim", 4)
    assert not loaded(agent)
    node.configure(document(simulated(), gpus()))
    kubelet.wait_for(GPU, 2)
    assert loaded(agent)
    node.configure(document(simulated()))
    agent.wait_said("nvml stopped: no resource uses it")

    def held() -> list[str]:
        links = []
        for link in Path(f"/proc/{agent.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                links.append(str(link.readlink()))
        return [link for link in links if "/dev/nvidia" in link]

    until(lambda: held() == [], what="the driver is let go")


def test_the_scan_command_shows_gpus_and_what_is_left_out(node: Node, driver_of: MakeDriver) -> None:
    driver = driver_of(2)
    driver.repartition(1, ["1g.5gb"])
    driver.show()
    node.configure(document(gpus(), gpus("nvidia.com/mig-{profile}", kind="MIG")))
    command = [sys.executable, "-m", "device_agent", "scan", "--config", str(node.config)]
    command += ["--host-root", str(node.host), *driver.flags]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(run.stdout)
    assert run.stderr == ""
    assert [(d["resource"], d["source"]) for d in found["devices"]] == [
        (GPU, "nvml"), ("nvidia.com/mig-1g.5gb", "nvml")
    ]  # fmt: skip
    assert [e["reason"] for e in found["excluded"]] == ["MigEnabled", "MigDisabled"]
    driver.fail("nvmlInitWithFlags", fakenvml.VERSION_MISMATCH)
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout)["notes"][GPU].startswith("driver/library version mismatch")


def inventory(api: ApiServer) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """Resources by name and devices by id, as last written."""
    status = api.written[-1] if api.written else {}
    resources = {r["name"]: r for r in status.get("resources", ())}
    return resources, {d["id"]: d for d in status.get("devices", ())}


def test_the_inventory_says_that_the_driver_hangs(
    node: Node, kubelet: Kubelet, start: Start, api: ApiServer, driver_of: MakeDriver
) -> None:
    driver = driver_of(2)
    node.configure(document(gpus()))
    flags, identity = reporting(api)
    start(*driver.flags, *flags, settings={**NVML, "nvml_deadline": 0.3}, env=identity)
    kubelet.wait_for(GPU, 2)
    until(lambda: len(inventory(api)[1]) == 2, what="the inventory")
    driver.hang(seconds=30)
    until(lambda: inventory(api)[0][GPU].get("message", "").startswith("NVML hangs: "), what="the resource's message")
    until(lambda: {d["health"] for d in inventory(api)[1].values()} == {"Unknown"}, what="unknown")
    assert {d["reason"] for d in inventory(api)[1].values()} == {"DriverUnavailable"}
    assert len(kubelet.healthy(GPU)) == 2, "unknown is not unhealthy"
    driver.hang(seconds=0)
    until(lambda: [d.get("reason") for d in inventory(api)[1].values()] == [None, None], what="good again")
    until(lambda: "message" not in inventory(api)[0][GPU], what="nothing to say")


def test_an_agent_that_starts_while_the_driver_hangs_lists_only_held_devices_with_the_reason(
    node: Node, kubelet: Kubelet, start: Start, api: ApiServer, driver_of: MakeDriver
) -> None:
    driver = driver_of(4)
    node.configure(document(gpus(), simulated()))
    flags, identity = reporting(api)
    settings = {**NVML, "nvml_deadline": 1.0, "nvml_first": 0.2}
    first = start(*driver.flags, *flags, settings=settings, env=identity)
    kubelet.wait_for(GPU, 4)
    kubelet.admit("pod", GPU, 1)
    [mine] = kubelet.ids_of("pod", GPU)
    driver.hang(seconds=60)
    first.kill()
    lists = kubelet.registered(GPU)
    start(*driver.flags, *flags, settings=settings, env=identity)
    until(lambda: kubelet.registered("example.com/sim") == 2, what="others do not wait")
    assert kubelet.registered(GPU) == lists, "until it is known that the driver hangs nothing is taken away"
    until(lambda: kubelet.health(GPU) == {mine: "Unhealthy"}, what="what is held stays listed")
    why = "NVML hangs: nvmlInitWithFlags does not answer"
    until(lambda: inventory(api)[1].get(mine, {}).get("message", "").endswith(why), what="the cause")
    resources, devices = inventory(api)
    assert (devices[mine]["reason"], resources[GPU]["message"]) == ("DriverUnavailable", why)
    driver.hang(seconds=0)
    until(lambda: kubelet.healthy(GPU) == {uuid(i) for i in range(4)}, what="all of them")


def test_on_a_slow_driver_failures_are_noticed_and_recoveries_counted(
    node: Node, kubelet: Kubelet, start: Start, api: ApiServer, driver_of: MakeDriver
) -> None:
    """Each call takes a good part of the deadline; a look takes several times as long."""
    driver = driver_of(8)
    health = {"failureThreshold": 1, "recoveryThreshold": 1, "intervalSeconds": 1}
    node.configure(document(gpus(health=health)))
    flags, identity = reporting(api)
    settings = {**NVML, "nvml_deadline": 0.3, "sample_interval": 0.1}
    agent = start("--device-metrics=Prometheus", *driver.flags, *flags, settings=settings, env=identity)
    kubelet.wait_for(GPU, 8)
    driver.slow(seconds=0.02)
    driver.gpus[7].ecc_uncorrected = 2
    driver.write()
    until(lambda: uuid(7) not in kubelet.healthy(GPU), seconds=20, what="noticed")
    driver.xid(3, 79)
    until(lambda: uuid(3) not in kubelet.healthy(GPU), what="an event")
    driver.gpus[7].ecc_uncorrected = 0
    driver.write()
    until(lambda: uuid(7) in kubelet.healthy(GPU), seconds=20, what="recovered")
    assert agent.said("device gives no answer") == []


def test_a_companion_that_is_removed_is_noticed_at_once(
    node: Node, kubelet: Kubelet, start: Start, driver_of: MakeDriver
) -> None:
    """The kernel sends no event, and the next periodic scan is far away."""
    driver = driver_of(2)
    node.configure(document(gpus()))
    agent = start(*driver.flags, settings={"scan_interval": 600, "config_poll": 600})
    kubelet.wait_for(GPU, 2)
    agent.wait_ready()
    for _ in range(2):
        (node.host / "dev/nvidia-uvm").unlink()
        until(lambda: kubelet.healthy(GPU) == set(), what="no companion, no GPU")
        node.device("nvidia-uvm")
        until(lambda: len(kubelet.healthy(GPU)) == 2, what="back")


def test_an_agent_whose_driver_starts_slowly_does_not_report_held_devices_as_unhealthy(
    node: Node, kubelet: Kubelet, start: Start, api: ApiServer, driver_of: MakeDriver
) -> None:
    """The old inventory is truer than a report before the driver has answered."""
    driver = driver_of(4)
    node.configure(document(gpus()))
    flags, identity = reporting(api)
    settings = {**NVML, "nvml_first": 0.2}
    first = start(*driver.flags, *flags, settings=settings, env=identity)
    kubelet.wait_for(GPU, 4)
    kubelet.admit("pod", GPU, 1)
    until(lambda: any(d.get("allocatedTo") for d in inventory(api)[1].values()), what="the holder")
    first.kill()
    driver.slow("nvmlInitWithFlags", seconds=2)
    written = len(api.written)
    start(*driver.flags, *flags, settings=settings, env=identity)
    until(lambda: len(kubelet.healthy(GPU)) == 4 and kubelet.registered(GPU) == 2, what="all at once")
    until(lambda: len(api.written) > written and len(inventory(api)[1]) == 4, what="the inventory")
    healths = {d["health"] for status in api.written[written:] for d in status.get("devices", ())}
    assert healths == {"Healthy"}
