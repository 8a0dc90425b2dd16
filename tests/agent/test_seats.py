"""Two agents on one node never serve the same thing, and the other one takes over when the first ends."""

import json
from pathlib import Path

import pytest
from agent.apiserver import ApiServer
from agent.harness import AgentProcess, Node, Start, document, files
from agent.standin import Kubelet, until

WIDGET, GADGET = "example.com/widget", "example.com/gadget"
WIDGETS = "/dev/widget*"
EDGE = {"NODE_NAME": "node-1", "CONFIG_NAME": "edge", "POOL_NAME": "all", "CONFIG_UID": "0b7e6a3c-1111"}
LAB = {**EDGE, "CONFIG_NAME": "lab", "CONFIG_UID": "11111111-2222-4333-8444-555555555555"}
INVENTORY = "edge.node-1"


@pytest.fixture(autouse=True)
def widgets(node: Node) -> tuple[Path, ...]:
    return tuple(node.device(f"widget{number}") for number in range(3))


def reporting(start: Start, api: ApiServer, *arguments: str, env: dict[str, str] = EDGE) -> AgentProcess:
    return start("--report=api", f"--api-server={api.url}", *arguments, env=env)


def reasons(api: ApiServer, resource: str, inventory: str = INVENTORY) -> list[str]:
    """Why the resource's devices are withheld, '' for one that is offered."""
    devices = api.objects.get(inventory, {}).get("status", {}).get("devices", ())
    return [device.get("withheld", "") for device in devices if device["resource"] == resource]


def resource(api: ApiServer, name: str, inventory: str = INVENTORY) -> dict[str, object]:
    resources = api.objects.get(inventory, {}).get("status", {}).get("resources", ())
    return next((one for one in resources if one["name"] == name), {})


def scanned(agent: AgentProcess, more: int = 3) -> None:
    """Waits for some scans."""
    before = agent.metric("device_agent_scan_seconds_count") or 0
    until(lambda: (agent.metric("device_agent_scan_seconds_count") or 0) >= before + more, what="scans")


def test_a_second_agent_of_the_object_waits_and_takes_over_when_the_first_is_killed(
    node: Node, start: Start, kubelet: Kubelet, api: ApiServer
) -> None:
    node.configure(document(files(WIDGET, WIDGETS)))
    first = start(env=EDGE)
    ids = kubelet.wait_for(WIDGET, 3)
    kubelet.admit("pod", WIDGET, 1)
    held = kubelet.held(WIDGET)
    second = reporting(start, api)
    second.wait_said("waits for the seat")
    until(lambda: second.get("/readyz")[1].startswith("SeatTaken: "), what="not ready")
    assert second.get("/readyz")[0] == 503
    assert second.get("/healthz")[0] == 200
    first.wait_ready()
    scanned(first)
    assert (kubelet.registered(WIDGET), len(node.sockets()), api.objects) == (1, 1, {})
    first.kill()
    second.wait_said("has the seat")
    assert kubelet.wait_for(WIDGET, 3) == ids
    second.wait_ready()
    kubelet.admit("other", WIDGET, 2)
    assert kubelet.held(WIDGET) == ids > held
    until(lambda: resource(api, WIDGET).get("registered"), what="in the inventory")


def test_a_waiting_agent_ends_at_sigterm_and_leaves_the_first_alone(node: Node, start: Start, kubelet: Kubelet) -> None:
    node.configure(document(files(WIDGET, WIDGETS)))
    start()
    kubelet.wait_for(WIDGET, 3)
    second = start()
    second.wait_said("waits for the seat")
    assert second.terminate() == 0
    assert second.said("stopped")
    kubelet.admit("pod", WIDGET, 3)
    assert kubelet.registered(WIDGET) == 1


def test_two_objects_with_one_resource_name_are_served_one_after_the_other(
    node: Node, start: Start, kubelet: Kubelet, api: ApiServer
) -> None:
    node.configure(document(files(WIDGET, WIDGETS)))
    first = start(env=LAB)
    ids = kubelet.wait_for(WIDGET, 3)
    until(lambda: list((node.plugins / "device-operator" / "seats").glob("*.json")), what="its note")
    second = reporting(start, api)
    until(lambda: resource(api, WIDGET).get("reason") == "ResourceConflict", what="the reason in the inventory")
    assert "lab" in str(resource(api, WIDGET)["message"])
    assert reasons(api, WIDGET) == ["HeldAs"] * 3
    status, page = second.get("/readyz")
    assert (status, WIDGET in page, "lab" in page) == (503, True, True), page
    scanned(second)
    assert (kubelet.registered(WIDGET), len(node.sockets())) == (1, 1)
    kubelet.admit("pod", WIDGET, 1)
    first.kill()
    assert kubelet.wait_for(WIDGET, 3) == ids
    second.wait_ready()
    kubelet.admit("other", WIDGET, 2)
    until(lambda: not resource(api, WIDGET).get("reason"), what="nothing to say in the inventory")
    scanned(second)
    assert kubelet.registered(WIDGET) == 2


def test_a_device_under_two_names_is_offered_by_one_agent_and_then_by_the_other(
    node: Node, start: Start, kubelet: Kubelet, api: ApiServer
) -> None:
    config = node.root / "lab.json"
    config.write_text(json.dumps(document(files(WIDGET, "/dev/widget0", "/dev/widget1"))))
    first = start(f"--config={config}", env=LAB)
    kubelet.wait_for(WIDGET, 2)
    given = {n.host_path for n in kubelet.admit("pod", WIDGET, 1).devices}
    node.configure(document(files(GADGET, WIDGETS)))
    second = reporting(start, api)
    kubelet.wait_for(GADGET, 1)
    scanned(second)
    assert sorted(reasons(api, GADGET)) == ["", "HeldAs", "HeldAs"]
    first.kill()
    kubelet.wait_for(GADGET, 2)
    for number in range(2):
        assert {n.host_path for n in kubelet.admit(f"pod{number}", GADGET, 1).devices} != given
    kubelet.delete("pod")
    kubelet.wait_for(GADGET, 3)


@pytest.mark.parametrize("uid", [EDGE["CONFIG_UID"], LAB["CONFIG_UID"]], ids=["one object", "two objects"])
def test_of_two_agents_that_start_at_once_one_serves(node: Node, start: Start, kubelet: Kubelet, uid: str) -> None:
    node.configure(document(files(WIDGET, WIDGETS)))
    agents = [start(env=EDGE), start(env={"CONFIG_UID": uid})]
    ids = kubelet.wait_for(WIDGET, 3)
    until(lambda: any(a.said("waits for the seat") or a.said("another agent serves the resource name") for a in agents))
    kubelet.admit("pod", WIDGET, 1)
    serving = [agent for agent in agents if agent.said("registered")]
    assert len(serving) == kubelet.registered(WIDGET) == 1
    serving[0].kill()
    until(lambda: kubelet.registered(WIDGET) == 2)  # until then the kubelet may still show the list of the killed agent
    assert kubelet.wait_for(WIDGET, 3) == ids
    kubelet.admit("other", WIDGET, 2)
    assert kubelet.registered(WIDGET) == 2


def test_a_device_that_left_one_object_is_offered_by_the_other_when_no_pod_has_it(
    node: Node, start: Start, kubelet: Kubelet
) -> None:
    config = node.root / "lab.json"
    config.write_text(json.dumps(document(files(WIDGET, "/dev/widget0"))))
    start(f"--config={config}", env=LAB)
    kubelet.wait_for(WIDGET, 1)
    kubelet.admit("pod", WIDGET, 1)
    node.configure(document(files(GADGET, "/dev/widget0", "/dev/widget1")))
    second = start(env=EDGE)
    kubelet.wait_for(GADGET, 1)
    config.write_text(json.dumps(document(files(WIDGET, "/dev/widget2"))))
    kubelet.wait_for(WIDGET, 1)
    until(lambda: len(kubelet.health(WIDGET)) == 2, what="draining")
    scanned(second)
    assert len(kubelet.healthy(GADGET)) == 1
    kubelet.delete("pod")
    kubelet.wait_for(GADGET, 2)
    assert kubelet.healthy(GADGET).isdisjoint(kubelet.health(WIDGET))


HANGING_LOCKS = """
import fcntl, pathlib, time
hang, real = pathlib.Path({hang!r}), fcntl.fcntl
def lock(*arguments):
    while hang.exists():
        time.sleep(0.01)
    return real(*arguments)
fcntl.fcntl = lock
"""


def test_a_disk_that_gives_no_locks_stops_nothing(node: Node, start: Start, kubelet: Kubelet) -> None:
    hang = node.root / "hang"
    hang.touch()
    node.configure(document(files(WIDGET, WIDGETS)))
    agent = start(settings={"store_wait": 0.2, "store_retry": 0.1}, prelude=HANGING_LOCKS.format(hang=str(hang)))
    kubelet.wait_for(WIDGET, 3)
    kubelet.admit("pod", WIDGET, 1)
    agent.wait_ready()
    assert agent.wait_said("the node store gives no locks", section="seats")["error"].endswith("the disk hangs")
    hang.unlink()
    second = start()
    second.wait_said("waits for the seat")
