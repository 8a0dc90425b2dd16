"""Health as the kubelet and the inventory see it: what makes a device Unhealthy, what survives, what clears it."""

import os
from pathlib import Path
from typing import Any

import grpc
import pytest
from agent.apiserver import OBJECTS, ApiServer
from agent.harness import AgentProcess, Node, Start, document, files
from agent.standin import Kubelet, until
from device_agent.kubelet import rpc
from device_agent.kubelet.proto import deviceplugin_pb2 as dp
from fakenvml import Gpu, Scenario, a100s, uuid

GPU = "nvidia.com/gpu"
WIDGET = "example.com/widget"
UID = "0b7e6a3c-1111-4222-8333-444455556666"
ENV = {"NODE_NAME": "node-1", "CONFIG_NAME": "lab", "CONFIG_UID": UID, "POOL_NAME": "edge"}
INVENTORY = "lab.node-1"
QUICK = {"intervalSeconds": 1, "failureThreshold": 2, "recoveryThreshold": 1, "removalGraceSeconds": 0}
ACKNOWLEDGE = "device-operator.io/acknowledge"


class Widgets:
    """Objects of a class with a file `state` that their driver writes."""

    def __init__(self, node: Node, count: int, *, first: int = 0) -> None:
        self._sys = node.host / "sys"
        for number in range(first, count):
            path = self._sys / f"devices/virtual/widget/w{number}"
            path.mkdir(parents=True)
            (path / "uevent").write_text("")
            self.say(number, "enabled")
            for link, to in (
                (self._sys / f"class/widget/w{number}", path),
                (path / "subsystem", self._sys / "class/widget"),
            ):
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(os.path.relpath(to, link.parent))

    def say(self, number: int, state: str) -> None:
        (self._sys / f"devices/virtual/widget/w{number}/state").write_text(f"{state}\n")


def widgets(**health: Any) -> dict[str, Any]:
    rule = {"unhealthyWhen": [{"attribute": "attr.state", "values": ["disabled", "dead*"]}]}
    return {
        "name": WIDGET,
        "devices": [{"sysfs": {"subsystem": "widget"}}],
        "sharing": {"replicas": 2},
        "health": {**QUICK, **rule, **health},
    }


def gpus(name: str = GPU, **health: Any) -> dict[str, Any]:
    return {"name": name, "devices": [{"nvml": {"kind": "GPU"}}], "health": {**QUICK, **health}}


@pytest.fixture
def driver(node: Node, tmp_path: Path) -> Scenario:
    """Four GPUs. Their driver reports a recovery action (0: none)."""
    return shown(node, tmp_path / "driver", a100s(4))


def shown(node: Node, root: Path, devices: list[Gpu]) -> Scenario:
    scenario = Scenario(root, gpus=devices, dev=node.host / "dev")
    scenario.make_nodes()
    scenario.make_sysfs(node.host / "sys")
    scenario.make_proc(node.host / "proc")
    return scenario


def on(driver: Scenario) -> tuple[str, ...]:
    return (f"--driver-root={driver.root}",)


def reporting(start: Start, api: ApiServer, *arguments: str, **settings: float) -> AgentProcess:
    return start(
        "--report=api", f"--api-server={api.url}", *arguments, env=ENV, settings={"inventory_poll": 0.2, **settings}
    )


def told(api: ApiServer, device_id: str) -> dict[str, Any]:
    """The inventory's entry of a device."""
    devices = api.objects.get(INVENTORY, {}).get("status", {}).get("devices", ())
    return next((d for d in devices if d["id"] == device_id), {})


def ask_for(driver: Scenario, number: int, action: int) -> None:
    """The driver's recovery action: 1 is a reset, 0 none."""
    driver.gpus[number].recovery = action
    driver.write()


def kept(node: Node) -> Path:
    return node.plugins / "device-operator" / "health" / f"{UID}.json"


# Any device


def test_a_device_that_matches_unhealthy_when_is_unhealthy_with_all_replicas_until_it_does_not(
    node: Node, kubelet: Kubelet, start: Start
) -> None:
    driver = Widgets(node, 3)
    node.configure(document(widgets()))
    agent = start(settings={"scan_interval": 60})  # the entry's interval asks for more
    kubelet.wait_for(WIDGET, 6)
    driver.say(1, "dead since noon")
    until(lambda: kubelet.healthy(WIDGET) == {"w0", "w0::1", "w2", "w2::1"}, what="w1 unhealthy")
    record = agent.wait_said("device unhealthy", device="w1")
    assert record["reason"] == "UnhealthyWhen"
    assert record["error"] == "attr.state is 'dead since noon' (health.unhealthyWhen[0])"
    driver.say(1, "enabled")
    until(lambda: len(kubelet.healthy(WIDGET)) == 6, what="all healthy")
    agent.wait_said("device healthy again", device="w1")


def test_one_bad_check_below_the_threshold_changes_nothing(node: Node, kubelet: Kubelet, start: Start) -> None:
    driver = Widgets(node, 1)
    node.configure(document(widgets(failureThreshold=100)))
    agent = start(settings={"scan_interval": 0.1})
    kubelet.wait_for(WIDGET, 2)
    driver.say(0, "disabled")
    scans = agent.metric("device_agent_scan_seconds_count") or 0
    until(lambda: (agent.metric("device_agent_scan_seconds_count") or 0) > scans + 15, what="many scans")
    assert len(kubelet.healthy(WIDGET)) == 2


def test_a_vanished_device_stays_for_its_grace_and_is_the_same_when_it_returns(
    node: Node, kubelet: Kubelet, start: Start
) -> None:
    path = node.device("widget0")
    node.device("widget1")
    node.configure(document(files(WIDGET, "/dev/widget*", health={"removalGraceSeconds": 600})))
    start()
    ids = kubelet.wait_for(WIDGET, 2)
    path.unlink()
    until(lambda: len(kubelet.healthy(WIDGET)) == 1, what="one unhealthy")
    lists = kubelet.list_calls
    until(lambda: kubelet.list_calls > lists + 3, what="asked for holders a few times")
    assert set(kubelet.health(WIDGET)) == ids
    node.device("widget0")
    assert kubelet.wait_for(WIDGET, 2) == ids


def test_a_vanished_device_that_nobody_holds_is_dropped_after_its_grace(
    node: Node, kubelet: Kubelet, start: Start
) -> None:
    path = node.device("widget0")
    node.device("widget1")
    node.configure(document(files(WIDGET, "/dev/widget*", health={"removalGraceSeconds": 1})))
    start()
    kubelet.wait_for(WIDGET, 2)
    path.unlink()
    until(lambda: len(kubelet.health(WIDGET)) == 1, what="dropped")
    before = kubelet.lists[WIDGET][-2][1]
    assert sorted(before.values()) == ["Healthy", "Unhealthy"], "the kubelet heard that it is unhealthy first"


# GPUs


def test_a_fatal_xid_is_reported_with_meaning_and_advice(
    node: Node, kubelet: Kubelet, start: Start, api: ApiServer, driver: Scenario
) -> None:
    node.configure(document(gpus()))
    reporting(start, api, *on(driver))
    kubelet.wait_for(GPU, 4)
    driver.xid(3, 79)
    until(lambda: kubelet.healthy(GPU) == {uuid(n) for n in range(3)}, what="GPU 3 unhealthy")
    until(lambda: told(api, uuid(3)).get("health") == "Unhealthy", what="the inventory")
    state = told(api, uuid(3))
    assert state["reason"] == "Xid79"
    assert "the GPU has fallen off the PCIe bus; reboot the node" in state["message"]
    assert all(told(api, uuid(n))["health"] == "Healthy" for n in range(3))


def preferred(kubelet: Kubelet, size: int) -> set[str]:
    """The preference for a kubelet that does not know of any failure."""
    container = dp.ContainerPreferredAllocationRequest(
        available_deviceIDs=[uuid(n) for n in range(4)], allocation_size=size
    )
    request = dp.PreferredAllocationRequest(container_requests=[container])
    path = kubelet.directory / kubelet.clients[GPU].endpoint
    with grpc.insecure_channel(f"unix:{path}", options=(rpc.LOCAL_AUTHORITY,)) as channel:
        answer = channel.unary_unary(
            rpc.PREFERRED.path,
            request_serializer=rpc.PREFERRED.request.SerializeToString,
            response_deserializer=rpc.PREFERRED.answer.FromString,
        )(request, timeout=10)
    return set(answer.container_responses[0].deviceIDs)


def test_a_gpu_that_is_lost_while_the_kubelet_chooses_is_not_preferred(
    node: Node, kubelet: Kubelet, start: Start, driver: Scenario
) -> None:
    node.configure(document(gpus()))
    agent = start(*on(driver), settings={"nvml_interval": 0.2})
    kubelet.wait_for(GPU, 4)
    driver.lose(0)
    agent.wait_said("device unhealthy", device=uuid(0), reason="GpuLost")
    assert preferred(kubelet, 3) == {uuid(n) for n in (1, 2, 3)}
    assert len(preferred(kubelet, 4)) == 4


def test_a_gpu_is_healthy_again_after_its_reset(node: Node, kubelet: Kubelet, start: Start, driver: Scenario) -> None:
    node.configure(document(gpus(recoveryThreshold=2)))
    agent = start(*on(driver))
    kubelet.wait_for(GPU, 4)
    ask_for(driver, 3, 1)
    driver.xid(3, 119)
    agent.wait_said("device unhealthy", device=uuid(3), reason="Xid119")
    until(lambda: '"asked":true' in kept(node).read_text(), what="the driver's wish is known")
    ask_for(driver, 3, 0)
    agent.wait_said("device recovering", device=uuid(3))
    assert len(kubelet.healthy(GPU)) == 3
    until(lambda: len(kubelet.healthy(GPU)) == 4, what="healthy again")


def test_a_gpu_is_healthy_again_after_a_reload_of_the_driver(
    node: Node, kubelet: Kubelet, start: Start, driver: Scenario
) -> None:
    node.configure(document(gpus()))
    agent = start(*on(driver))
    kubelet.wait_for(GPU, 4)
    driver.xid(2, 48)
    agent.wait_said("device unhealthy", device=uuid(2), reason="Xid48")
    driver.reload_driver()
    until(lambda: len(kubelet.healthy(GPU)) == 4, what="healthy again")


def test_state_cause_and_since_survive_a_kill_of_the_agent(
    node: Node, kubelet: Kubelet, start: Start, api: ApiServer, driver: Scenario
) -> None:
    node.configure(document(gpus()))
    first = reporting(start, api, *on(driver))
    kubelet.wait_for(GPU, 4)
    driver.xid(1, 79)
    until(lambda: told(api, uuid(1)).get("health") == "Unhealthy", what="the inventory")
    until(lambda: "Xid79" in kept(node).read_text(), what="kept")
    before, happened = told(api, uuid(1)), api.objects[INVENTORY]["status"]["history"]
    first.kill()
    until(lambda: kubelet.healthy(GPU) == set(), what="the kubelet saw it go")
    writes = len(api.written)
    lists = len(kubelet.lists[GPU])
    reporting(start, api, *on(driver))
    until(lambda: len(kubelet.healthy(GPU)) == 3, what="served again")
    until(lambda: len(api.written) > writes and told(api, uuid(1)), what="reported")
    assert {k: told(api, uuid(1))[k] for k in ("health", "reason", "message", "since")} == {
        k: before[k] for k in ("health", "reason", "message", "since")
    }
    assert api.objects[INVENTORY]["status"]["history"] == happened
    assert all(uuid(1) not in healthy_ids(ids) for _, ids in kubelet.lists[GPU][lists:]), "offered for a moment"


def healthy_ids(listed: dict[str, Any]) -> set[str]:
    return {i for i, health in listed.items() if health == "Healthy"}


def test_a_reboot_of_the_node_clears_failures(node: Node, kubelet: Kubelet, start: Start, driver: Scenario) -> None:
    boot = node.host / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("first\n")
    node.configure(document(gpus()))
    first = start(*on(driver))
    kubelet.wait_for(GPU, 4)
    driver.xid(1, 79)
    first.wait_said("device unhealthy", device=uuid(1), reason="Xid79")
    first.terminate()
    assert "Xid79" in kept(node).read_text()
    boot.write_text("second\n")
    start(*on(driver))
    kubelet.wait_for(GPU, 4)


def test_a_failure_under_a_deleted_object_is_known_to_the_recreated_one(
    node: Node, kubelet: Kubelet, start: Start, driver: Scenario
) -> None:
    node.configure(document(gpus()))
    first = start(*on(driver), env={**ENV, "CONFIG_UID": UID})
    kubelet.wait_for(GPU, 4)
    driver.xid(1, 79)
    first.wait_said("device unhealthy", device=uuid(1), reason="Xid79")
    first.terminate()
    second = start(*on(driver), env={**ENV, "CONFIG_UID": UID.replace("0b7e", "1c8f")})
    second.wait_said("device unhealthy", device=uuid(1), reason="Xid79")
    until(lambda: kubelet.healthy(GPU) == {uuid(n) for n in (0, 2, 3)}, what="the others")


def acknowledgement(api: ApiServer) -> str:
    return api.objects.get(INVENTORY, {}).get("status", {}).get("acknowledgement", "")


def test_an_acknowledgement_on_the_inventory_makes_the_gpu_healthy(
    node: Node, kubelet: Kubelet, start: Start, api: ApiServer, driver: Scenario
) -> None:
    node.configure(document(gpus()))
    agent = reporting(start, api, *on(driver), report_interval=0.1)
    kubelet.wait_for(GPU, 4)
    driver.xid(1, 79)
    until(lambda: told(api, uuid(1)).get("health") == "Unhealthy", what="the inventory")
    since = told(api, uuid(1))["since"]
    notes = api.objects[INVENTORY]["metadata"].setdefault("annotations", {})
    notes[ACKNOWLEDGE] = f"{uuid(1)}=2020-01-01T00:00:00Z"
    agent.wait_said("the acknowledgement matches no failure")
    until(lambda: f"{uuid(1)}={since} (Xid79)" in acknowledgement(api), what="what is right")
    assert len(kubelet.healthy(GPU)) == 3
    notes[ACKNOWLEDGE] = f"{uuid(0)}={since}, {uuid(1)} = {since}"
    agent.wait_said("failures acknowledged", parts=uuid(1))
    until(lambda: len(kubelet.healthy(GPU)) == 4, what="healthy again")
    until(lambda: "Xid79 ended" in acknowledgement(api), what="told")
    assert f"{uuid(0)}={since}: it has no failure now; " in acknowledgement(api)
    reads = [r for r in api.requests if r[1] == "GET"]
    assert {path for _, _, path, _ in reads} == {f"{OBJECTS}/{INVENTORY}"}


def test_acknowledging_the_first_of_two_failures_leaves_the_second(
    node: Node, kubelet: Kubelet, start: Start, api: ApiServer, driver: Scenario
) -> None:
    node.configure(document(gpus()))
    agent = reporting(start, api, *on(driver), report_interval=0.1)
    kubelet.wait_for(GPU, 4)
    driver.xid(1, 79)
    until(lambda: told(api, uuid(1)).get("reason") == "Xid79", what="the first")
    first = told(api, uuid(1))["since"]
    driver.xid(1, 48)
    until(lambda: "; also XID 48 (" in told(api, uuid(1))["message"], what="the second")
    both = told(api, uuid(1))["since"]
    assert both > first
    notes = api.objects[INVENTORY]["metadata"].setdefault("annotations", {})
    notes[ACKNOWLEDGE] = f"{uuid(1)}={first}"
    until(lambda: told(api, uuid(1))["reason"] == "Xid48", what="the second alone")
    assert f"{uuid(1)}={first}: taken at " in acknowledgement(api)
    assert len(kubelet.healthy(GPU)) == 3
    notes[ACKNOWLEDGE] = f"{uuid(1)}={both}"
    until(lambda: len(kubelet.healthy(GPU)) == 4, what="healthy again")
    assert [r["parts"] for r in agent.said("failures acknowledged")] == [uuid(1)] * 2


def test_an_xid_that_the_resource_ignores_is_no_failure(
    node: Node, kubelet: Kubelet, start: Start, driver: Scenario
) -> None:
    node.configure(document(gpus(ignoreXids=[79], xids=[{"xid": 94, "clears": "Quiet"}])))
    agent = start(*on(driver))
    kubelet.wait_for(GPU, 4)
    driver.xid(0, 79)
    driver.xid(1, 13)
    driver.xid(2, 94)
    agent.wait_said("device unhealthy", device=uuid(2), reason="Xid94")
    agent.wait_said("xid", xid=79)
    assert [r["device"] for r in agent.said("device unhealthy")] == [uuid(2)]
    until(lambda: len(kubelet.healthy(GPU)) == 4, what="quiet again")


def test_a_hanging_driver_makes_devices_unknown_but_they_stay_offered(
    node: Node, kubelet: Kubelet, start: Start, api: ApiServer, driver: Scenario
) -> None:
    node.configure(document(gpus(failureThreshold=1)))
    agent = reporting(start, api, *on(driver), nvml_deadline=0.3, nvml_interval=0.2)
    kubelet.wait_for(GPU, 4)
    until(lambda: told(api, uuid(0)).get("health") == "Healthy", what="the inventory")
    driver.hang("*", seconds=3)
    until(lambda: told(api, uuid(0)).get("health") == "Unknown", what="unknown")
    assert "NVML hangs" in told(api, uuid(0))["message"]
    assert len(kubelet.healthy(GPU)) == 4
    kubelet.admit("pod", GPU, 1)
    until(lambda: told(api, uuid(0)).get("health") == "Healthy", what="back")
    assert agent.said("device unhealthy") == []


def health_error(api: ApiServer) -> str:
    return api.objects.get(INVENTORY, {}).get("status", {}).get("healthError", "")


def test_a_store_that_cannot_keep_health_is_reported_and_stops_nothing(
    node: Node, kubelet: Kubelet, start: Start, api: ApiServer, driver: Scenario
) -> None:
    kept(node).parent.parent.mkdir()
    kept(node).parent.write_text("in the way")
    node.configure(document(gpus()))
    agent = reporting(start, api, *on(driver), store_retry=0.1, report_interval=0.1)
    kubelet.wait_for(GPU, 4)
    told = agent.wait_said("the node store cannot be read", section="health")
    assert f"{kept(node)} cannot be read: Not a directory" in told["error"]
    driver.xid(1, 79)
    until(lambda: len(kubelet.healthy(GPU)) == 3, what="unhealthy all the same")
    until(lambda: "cannot be read: Not a directory; devices that have failed may be offered" in health_error(api))
    kept(node).parent.unlink()
    until(lambda: kept(node).exists() and "Xid79" in kept(node).read_text(), what="kept after all")
    until(lambda: health_error(api) == "", what="told no more: it has been read by now")


def test_a_damaged_health_file_is_reported_as_long_as_the_agent_runs(
    node: Node, kubelet: Kubelet, start: Start, api: ApiServer, driver: Scenario
) -> None:
    kept(node).parent.mkdir(parents=True)
    kept(node).write_text("{gar")
    node.configure(document(gpus()))
    first = reporting(start, api, *on(driver), report_interval=0.1)
    kubelet.wait_for(GPU, 4)
    until(lambda: "cannot be used" in health_error(api), what="told")
    assert health_error(api).endswith("; devices that have failed may be offered")
    driver.xid(1, 79)
    until(lambda: kept(node).read_text().startswith('{"version"'), what="written anew")
    until(lambda: told(api, uuid(1)).get("health") == "Unhealthy", what="a later report")
    assert health_error(api)
    first.terminate()
    reporting(start, api, *on(driver), report_interval=0.1)
    until(lambda: health_error(api) == "", what="read")
