"""A pod holds hardware while the agent restarts with another configuration, or for another object."""

import json
from pathlib import Path
from typing import Any

import pytest
from agent.apiserver import ApiServer
from agent.harness import AgentProcess, Node, Start, document, files
from agent.standin import Kubelet, PodRejectedError, until

OLD, NEW = "example.com/widget", "example.com/widget.shared"
UID = "0b7e6a3c-1111-4222-8333-444455556666"
ANOTHER = {"CONFIG_UID": "11111111-2222-4333-8444-555555555555"}
WIDGETS = "/dev/widget*"
SHARED: dict[str, Any] = {"sharing": {"replicas": 4, "maxPerContainer": 1}}


@pytest.fixture(autouse=True)
def widgets(node: Node) -> tuple[Path, ...]:
    return tuple(node.device(f"widget{number}") for number in range(3))


def record(node: Node, uid: str = UID) -> Path:
    return node.plugins / "device-operator" / "claims" / f"{uid}.json"


def claimed(node: Node, uid: str = UID) -> set[tuple[str, str]]:
    path = record(node, uid)
    if not path.exists():
        return set()
    return {(claim["resource"], claim["id"]) for claim in json.loads(path.read_bytes())["items"]}


def nodes_of(kubelet: Kubelet, pod: str, name: str) -> set[str]:
    return {node.host_path for node in kubelet.admit(pod, name, 1).devices}


def held_by_one(node: Node, start: Start, kubelet: Kubelet, name: str = OLD) -> tuple[AgentProcess, str, set[str]]:
    """An agent whose kubelet has given one widget to the pod `holder`."""
    node.configure(document(files(name, WIDGETS)))
    agent = start()
    kubelet.wait_for(name, 3)
    nodes = nodes_of(kubelet, "holder", name)
    (held,) = kubelet.held(name)
    return agent, held, nodes


def test_after_a_rename_and_a_kill_a_held_device_is_not_offered(node: Node, start: Start, kubelet: Kubelet) -> None:
    first, held, nodes = held_by_one(node, start, kubelet)
    node.configure(document(files(NEW, WIDGETS, **SHARED)))
    kubelet.wait_for(NEW, 8)
    first.kill()
    until(lambda: not kubelet.healthy(NEW), what="the kubelet saw it go")
    start()
    kubelet.wait_for(NEW, 8)
    until(lambda: held in kubelet.health(OLD), what="the old name registered again")
    assert kubelet.healthy(OLD) == set()
    for number in range(8):
        assert nodes_of(kubelet, f"pod{number}", NEW) != nodes
    with pytest.raises(PodRejectedError, match="Available: 0"):
        kubelet.admit("one too many", NEW, 1)
    kubelet.delete("holder")
    kubelet.wait_for(NEW, 12)
    assert nodes_of(kubelet, "next", NEW) == nodes


def test_after_a_rename_while_the_agent_is_down_a_held_device_is_not_offered(
    node: Node, start: Start, kubelet: Kubelet, api: ApiServer
) -> None:
    first, held, nodes = held_by_one(node, start, kubelet)
    first.terminate()
    node.configure(document(files(NEW, WIDGETS)))
    env = {"NODE_NAME": "node-1", "CONFIG_NAME": "lab", "CONFIG_UID": UID, "POOL_NAME": "edge"}
    start("--report=api", f"--api-server={api.url}", env=env)
    kubelet.wait_for(NEW, 2)

    def told() -> dict[str, tuple[str, str]]:
        devices = api.objects.get("lab.node-1", {}).get("status", {}).get("devices", ())
        return {d["resource"]: (d["reason"], d["message"]) for d in devices if d["id"] == held and "reason" in d}

    until(lambda: set(told()) == {OLD, NEW}, what="both in the inventory")
    assert {name: reason for name, (reason, _) in told().items()} == {OLD: "Draining", NEW: "HeldAs"}
    assert f"{held} of {OLD} by default/holder" in told()[NEW][1]
    assert {tuple(nodes_of(kubelet, f"pod{number}", NEW)) for number in range(2)}.isdisjoint({tuple(nodes)})
    kubelet.delete("holder")
    kubelet.wait_for(NEW, 3)
    until(lambda: OLD not in kubelet.clients, what="the old name let go")


def test_devices_that_pods_hold_from_a_deleted_object_are_not_offered_by_another(
    node: Node, start: Start, kubelet: Kubelet
) -> None:
    first, held, nodes = held_by_one(node, start, kubelet)
    first.terminate()
    node.configure(document(files(NEW, WIDGETS)))
    start(env=ANOTHER)
    kubelet.wait_for(NEW, 2)
    assert kubelet.registered(OLD) == 1  # nobody's, now
    assert kubelet.health(NEW)[held] == "Unhealthy"
    assert all(nodes_of(kubelet, f"pod{number}", NEW) != nodes for number in range(2))
    kubelet.delete("holder")
    kubelet.wait_for(NEW, 3)


def test_a_recreated_object_serves_the_devices_of_its_predecessor(node: Node, start: Start, kubelet: Kubelet) -> None:
    first, held, _ = held_by_one(node, start, kubelet)
    first.terminate()
    start(env=ANOTHER)
    assert held in kubelet.wait_for(OLD, 3)


def test_a_running_agent_notices_what_another_object_offers(node: Node, start: Start, kubelet: Kubelet) -> None:
    node.configure(document(files(NEW, WIDGETS)))
    start()
    kubelet.wait_for(NEW, 3)
    claims = json.loads(record(node).read_bytes())["items"]
    theirs = [{**claim, "resource": OLD, "entry": OLD, "id": f"{claim['id']}-of-theirs"} for claim in claims]
    kubelet.checkpoint.assign(("default", "holder", "main"), OLD, [theirs[0]["id"]])
    record(node, ANOTHER["CONFIG_UID"]).write_text(json.dumps({"version": 2, "items": theirs}))
    until(lambda: kubelet.health(NEW)[claims[0]["id"]] == "Unhealthy", what="seen as held by another object's pod")
    assert len(kubelet.healthy(NEW)) == 2
    kubelet.delete("holder")
    kubelet.wait_for(NEW, 3)


def test_a_name_with_a_placeholder_whose_device_vanished_is_listed_again_while_it_is_held(
    node: Node, start: Start, kubelet: Kubelet, widgets: tuple[Path, ...]
) -> None:
    node.configure(document(files("example.com/{name}", WIDGETS)))
    first = start()
    kubelet.wait_for("example.com/widget1", 1)
    kubelet.admit("holder", "example.com/widget1", 1)
    (held,) = kubelet.held("example.com/widget1")
    first.kill()
    until(lambda: not kubelet.healthy("example.com/widget1"), what="the kubelet saw it go")
    widgets[1].unlink()
    start()
    until(lambda: kubelet.registered("example.com/widget1") == 2, what="registered again")
    until(lambda: "example.com/widget1" in kubelet.clients and kubelet.clients["example.com/widget1"].listed)
    assert kubelet.health("example.com/widget1") == {held: "Unhealthy"}
    kubelet.delete("holder")
    until(lambda: "example.com/widget1" not in kubelet.clients, what="let go")


def complaints(agent: AgentProcess) -> list[str]:
    """The causes of all warnings about kept claims."""
    return [r["error"] for r in tuple(agent.log) if r.get("section") == "claims"]


@pytest.mark.parametrize("content", [b"{gar", b"", b'{"version": 99}', b'{"version":2,"items":[{"resource":1}]}'])
def test_a_damaged_record_is_logged_once_and_devices_are_offered(
    node: Node, start: Start, kubelet: Kubelet, content: bytes
) -> None:
    for uid in (UID, ANOTHER["CONFIG_UID"]):
        record(node, uid).parent.mkdir(parents=True, exist_ok=True)
        record(node, uid).write_bytes(content)
    node.configure(document(files(NEW, WIDGETS)))
    agent = start()
    kubelet.wait_for(NEW, 3)
    until(lambda: len(claimed(node)) == 3, what="its own written anew")
    scans = agent.metric("device_agent_scan_seconds_count") or 0
    until(lambda: (agent.metric("device_agent_scan_seconds_count") or 0) > scans + 3, what="some scans")
    told = complaints(agent)
    assert len(told) == len(set(told)) == 2, "the own file and the other object's, none about a write"
    assert record(node, ANOTHER["CONFIG_UID"]).read_bytes() == content


def test_without_a_writable_store_devices_are_offered_and_it_is_logged_once(
    node: Node, start: Start, kubelet: Kubelet
) -> None:
    (node.plugins / "device-operator").mkdir()
    (node.plugins / "device-operator" / "claims").write_text("in the way")
    node.configure(document(files(NEW, WIDGETS)))
    agent = start()
    kubelet.wait_for(NEW, 3)
    scans = agent.metric("device_agent_scan_seconds_count") or 0
    until(lambda: (agent.metric("device_agent_scan_seconds_count") or 0) > scans + 3, what="some scans")
    told = complaints(agent)
    assert len(told) == len(set(told)) == 2, "its own file, and the directory of all"


HANGING_DISK = """
import os, pathlib, time
real = os.fsync
def fsync(handle):
    while pathlib.Path({hang!r}).exists():
        time.sleep(0.01)
    real(handle)
os.fsync = fsync
"""


def test_a_hanging_disk_delays_an_offer_only_until_the_deadline_and_is_written_later(
    node: Node, start: Start, kubelet: Kubelet
) -> None:
    hang = node.root / "hang"
    hang.touch()
    node.configure(document(files(NEW, WIDGETS)))
    start(settings={"store_wait": 0.3}, prelude=HANGING_DISK.format(hang=str(hang)))
    kubelet.wait_for(NEW, 3)
    kubelet.admit("pod", NEW, 1)
    assert claimed(node) == set()
    hang.unlink()
    until(lambda: len(claimed(node)) == 3, what="written")


def test_devices_are_on_the_disk_before_they_are_offered(node: Node, start: Start, kubelet: Kubelet) -> None:
    hang = node.root / "hang"
    hang.touch()
    node.configure(document(files(NEW, WIDGETS)))
    agent = start(settings={"store_wait": 30}, prelude=HANGING_DISK.format(hang=str(hang)))
    until(lambda: list(record(node).parent.glob(".*")), what="the write begun")
    assert kubelet.registered(NEW) == 0
    assert agent.said("configuration in force") == []
    hang.unlink()
    kubelet.wait_for(NEW, 3)
    assert len(claimed(node)) == 3


def test_the_record_is_accessible_by_root_alone_and_written_again_after_removal(
    node: Node, start: Start, kubelet: Kubelet
) -> None:
    node.configure(document(files(NEW, WIDGETS)))
    start()
    kubelet.wait_for(NEW, 3)
    assert record(node).stat().st_mode & 0o077 == 0
    record(node).unlink()
    until(record(node).exists, what="written again")
    assert len(claimed(node)) == 3
