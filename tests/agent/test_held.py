"""A pod holds hardware while the agent restarts with another configuration, or for another object."""

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from agent.apiserver import ApiServer
from agent.harness import NO_GRACE, AgentProcess, Node, Start, document, files
from agent.standin import Kubelet, PodRejectedError, until
from device_agent.kubelet.proto import deviceplugin_pb2 as dp

OLD, NEW = "example.com/widget", "example.com/widget.shared"
UID = "0b7e6a3c-1111-4222-8333-444455556666"
ANOTHER = {"CONFIG_UID": "11111111-2222-4333-8444-555555555555"}
WIDGETS = "/dev/widget*"
SHARED: dict[str, Any] = {"sharing": {"replicas": 4, "maxPerContainer": 1}}


@pytest.fixture(autouse=True)
def widgets(node: Node) -> tuple[Path, ...]:
    return tuple(node.device(f"widget{number}") for number in range(3))


def kept(node: Node, uid: str = UID) -> Path:
    return node.plugins / "device-operator" / "grants" / f"{uid}.json"


def kept_ids(node: Node, uid: str = UID) -> set[tuple[str, str]]:
    try:
        grants = [item["grant"] for item in json.loads(kept(node, uid).read_bytes())["items"]]
    except (OSError, ValueError, KeyError):
        return set()
    return {(grant["resource"], i) for grant in grants for i in grant["ids"]}


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
        return {d["resource"]: (d["withheld"], d["message"]) for d in devices if d["id"] == held and "withheld" in d}

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


def given(*paths: str, **fields: Any) -> bytes:
    """The answer of another vendor's plugin."""
    devices = [dp.DeviceSpec(host_path=path, container_path=path, permissions="rw") for path in paths]
    return dp.ContainerAllocateResponse(devices=devices, **fields).SerializeToString()


def test_a_device_of_another_plugins_pod_is_not_offered_until_that_ends(
    node: Node, start: Start, kubelet: Kubelet, widgets: tuple[Path, ...], api: ApiServer
) -> None:
    """The day an admin replaces a vendor's plugin by this one, while its pods run."""
    kubelet.checkpoint.assign(("lab", "old"), "main", "vendor.com/widget", ["w1"], answer=given("/dev/widget1"))
    node.configure(document(files(NEW, WIDGETS)))
    env = {"NODE_NAME": "node-1", "CONFIG_NAME": "lab", "CONFIG_UID": UID, "POOL_NAME": "edge"}
    start("--report=api", f"--api-server={api.url}", env=env)
    kubelet.wait_for(NEW, 2)
    assert kubelet.health(NEW)["/dev/widget1"] == "Unhealthy"

    def told() -> list[str]:
        devices = api.objects.get("lab.node-1", {}).get("status", {}).get("devices", ())
        return [d["message"] for d in devices if d.get("withheld") == "HeldAs"]

    until(lambda: told() and "lab/old" in told()[0], what="the pod named")
    assert "w1 of vendor.com/widget" in told()[0]
    kubelet.checkpoint.assign(("lab", "new"), "main", "vendor.com/widget", ["w2"], answer=given("/dev/widget2"))
    kubelet.wait_for(NEW, 1)
    kubelet.delete("old")
    kubelet.delete("new")
    kubelet.wait_for(NEW, 3)


def test_surplus_ids_of_an_init_container_stay_listed_as_long_as_the_kubelet_keeps_them(
    node: Node, start: Start, kubelet: Kubelet
) -> None:
    node.configure(document(files(NEW, WIDGETS)))
    first = start()
    kubelet.wait_for(NEW, 3)
    kubelet.admit("pod", NEW, 2, container="init", init=True)
    surplus = kubelet.held(NEW)
    first.kill()
    until(lambda: not kubelet.healthy(NEW), what="the kubelet saw it go")
    node.configure(document(files(NEW, "/dev/nothing")))
    start()
    until(lambda: kubelet.registered(NEW) == 2, what="registered again")
    until(lambda: NEW in kubelet.clients and kubelet.clients[NEW].listed)
    assert kubelet.health(NEW) == dict.fromkeys(surplus, "Unhealthy")
    lists = kubelet.list_calls
    until(lambda: kubelet.list_calls > lists + 5, what="some more questions")
    assert kubelet.health(NEW) == dict.fromkeys(surplus, "Unhealthy")
    kubelet.delete("pod")
    until(lambda: not kubelet.health(NEW), what="let go")


@pytest.mark.parametrize("content", [None, "", '{"Data": {"PodDev'])
def test_a_kubelet_that_lost_its_record_gives_nothing_of_a_running_pod_to_another(
    node: Node, start: Start, kubelet: Kubelet, content: str | None
) -> None:
    node.configure(document(files(NEW, WIDGETS)))
    agent = start()
    kubelet.wait_for(NEW, 3)
    nodes = nodes_of(kubelet, "holder", NEW)
    (held,) = kubelet.held(NEW)
    until(lambda: kept_ids(node) == {(NEW, held)} and '"name":"holder"' in kept(node).read_text(), what="kept")
    kubelet.stop()
    kubelet.checkpoint.file.unlink()
    if content is not None:
        kubelet.checkpoint.file.write_text(content)
    kubelet.start()
    kubelet.wait_for(NEW, 2)
    assert kubelet.held(NEW) == set()
    assert all(nodes_of(kubelet, f"pod{number}", NEW) != nodes for number in range(2))
    agent.kill()
    until(lambda: not kubelet.healthy(NEW), what="the kubelet saw it go")
    start()
    kubelet.wait_for(NEW, 2)
    assert kubelet.health(NEW)[held] == "Unhealthy"
    kubelet.delete("holder")
    kubelet.wait_for(NEW, 3, seconds=30)  # the kubelet is given time to hear of its pods


def test_while_the_record_cannot_be_read_the_grants_seen_last_count(
    node: Node, start: Start, kubelet: Kubelet, api: ApiServer
) -> None:
    first, held, nodes = held_by_one(node, start, kubelet)
    until(lambda: kept_ids(node) == {(OLD, held)}, what="kept")
    first.terminate()
    kubelet.checkpoint.readable = False
    kubelet.checkpoint.write()
    node.configure(document(files(NEW, WIDGETS)))
    env = {"NODE_NAME": "node-1", "CONFIG_NAME": "lab", "CONFIG_UID": UID, "POOL_NAME": "edge"}
    agent = start("--report=api", f"--api-server={api.url}", env=env)
    kubelet.wait_for(NEW, 2)
    assert all(nodes_of(kubelet, f"pod{number}", NEW) != nodes for number in range(2))
    told = until(lambda: api.objects.get("lab.node-1", {}).get("status", {}).get("kubeletRecordError"), what="told")
    assert "form" in str(told)
    assert len(agent.said("the kubelet's record cannot be used")) == 1
    kubelet.checkpoint.readable = True
    kubelet.checkpoint.write()
    until(lambda: agent.said("the kubelet's record is readable again"), what="readable")
    kubelet.delete("holder")
    kubelet.wait_for(NEW, 3)


def test_a_device_that_the_kubelet_keeps_for_a_pod_that_is_gone_is_told(
    node: Node, start: Start, kubelet: Kubelet, api: ApiServer
) -> None:
    kubelet.checkpoint.stuck.add("holder")
    node.configure(document(files(NEW, WIDGETS)))
    env = {"NODE_NAME": "node-1", "CONFIG_NAME": "lab", "CONFIG_UID": UID, "POOL_NAME": "edge"}
    start("--report=api", f"--api-server={api.url}", env=env)
    kubelet.wait_for(NEW, 3)
    kubelet.admit("holder", NEW, 1)
    (held,) = kubelet.held(NEW)
    until(lambda: kept(node).exists() and '"name":"holder"' in kept(node).read_text(), what="the pod's name known")

    def told() -> dict[str, str]:
        devices = api.objects.get("lab.node-1", {}).get("status", {}).get("devices", ())
        return {d["id"]: d["keptFor"] for d in devices if d.get("keptFor")}

    assert told() == {}
    kubelet.delete("holder")
    until(lambda: told() == {held: "default/holder"}, what="told")
    kubelet.checkpoint.kept.clear()
    until(lambda: told() == {}, what="freed")


class Adapters:
    """USB serial adapters in the node's /sys and /dev."""

    def __init__(self, node: Node) -> None:
        self._sys, self._dev = node.host / "sys", node.host / "dev"

    def plug(self, port: int, serial: str, name: str) -> None:
        usb = self._sys / "devices" / "pci0000:00" / "usb1" / f"1-{port}"
        tty = usb / f"1-{port}:1.0" / name / "tty" / name
        tty.mkdir(parents=True)
        (usb / "serial").write_text(f"{serial}\n")
        (usb / "idVendor").write_text("0403\n")
        (usb / "idProduct").write_text("6001\n")
        (usb / "subsystem").symlink_to("/sys/bus/usb")
        minor = int(name.removeprefix("ttyUSB"))
        (tty / "dev").write_text(f"188:{minor}\n")
        (tty / "uevent").write_text(f"MAJOR=188\nMINOR={minor}\nDEVNAME={name}\n")
        (tty / "subsystem").symlink_to("/sys/class/tty")
        link = self._sys / "class" / "tty" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        (self._sys / "bus" / "usb").mkdir(parents=True, exist_ok=True)
        os.mknod(self._dev / name, 0o660 | stat.S_IFCHR, os.makedev(188, minor))
        link.symlink_to(f"/sys/{tty.relative_to(self._sys)}")

    def unplug(self, port: int, name: str) -> None:
        (self._sys / "class" / "tty" / name).unlink()
        (self._dev / name).unlink()
        shutil.rmtree(self._sys / "devices" / "pci0000:00" / "usb1" / f"1-{port}")


def serial(**fields: Any) -> dict[str, Any]:
    devices = [{"sysfs": {"subsystem": "tty", "names": ["ttyUSB*"]}}]
    return {"name": NEW, "devices": devices, "unit": "usb.serial", "health": NO_GRACE, **fields}


def test_an_adapter_that_gets_the_device_node_of_a_held_one_is_not_offered(
    node: Node, start: Start, kubelet: Kubelet
) -> None:
    adapters = Adapters(node)
    adapters.plug(1, "AAA", "ttyUSB0")
    node.configure(document(serial()))
    start()
    kubelet.wait_for(NEW, 1)
    assert nodes_of(kubelet, "a", NEW) == {"/dev/ttyUSB0"}
    adapters.unplug(1, "ttyUSB0")
    until(lambda: kubelet.health(NEW) == {"AAA": "Unhealthy"}, what="gone")
    adapters.plug(2, "CCC", "ttyUSB0")
    until(lambda: "CCC" in kubelet.health(NEW), what="found")
    assert kubelet.health(NEW) == {"AAA": "Unhealthy", "CCC": "Unhealthy"}
    kubelet.delete("a")
    assert kubelet.wait_for(NEW, 1) == {"CCC"}


def test_pods_whose_adapters_swapped_names_are_told_and_do_not_start_with_the_wrong_one(
    node: Node, start: Start, kubelet: Kubelet, api: ApiServer
) -> None:
    adapters = Adapters(node)
    adapters.plug(1, "AAA", "ttyUSB0")
    adapters.plug(2, "CCC", "ttyUSB1")
    node.configure(document(serial(onStaleGrant="Refuse")))
    env = {"NODE_NAME": "node-1", "CONFIG_NAME": "lab", "CONFIG_UID": UID, "POOL_NAME": "edge"}
    start("--report=api", f"--api-server={api.url}", env=env)
    kubelet.wait_for(NEW, 2)
    for pod in ("a", "c"):
        kubelet.admit(pod, NEW, 1)
        kubelet.start_container(pod, NEW)
    for port, name in ((1, "ttyUSB0"), (2, "ttyUSB1")):
        adapters.unplug(port, name)
    until(lambda: not kubelet.healthy(NEW), what="gone")
    adapters.plug(1, "AAA", "ttyUSB1")
    adapters.plug(2, "CCC", "ttyUSB0")

    def stale() -> dict[str, str]:
        devices = api.objects.get("lab.node-1", {}).get("status", {}).get("devices", ())
        return {d["id"]: d["staleGrant"] for d in devices if d.get("staleGrant")}

    until(lambda: set(stale()) == {"AAA", "CCC"}, what="told")
    assert not kubelet.healthy(NEW)
    for pod in ("a", "c"):
        (held,) = kubelet.ids_of(pod, NEW)
        assert f"default/{pod}" in stale()[held]
        with pytest.raises(PodRejectedError, match="is now"):
            kubelet.start_container(pod, NEW)
    kubelet.delete("a")
    kubelet.delete("c")
    kubelet.wait_for(NEW, 2)


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


@pytest.mark.parametrize("content", [b"{gar", b"", b'{"version": 99}', b'{"version":1,"items":[{"resource":1}]}'])
def test_a_damaged_file_of_the_node_store_is_logged_once_and_devices_are_offered(
    node: Node, start: Start, kubelet: Kubelet, content: bytes
) -> None:
    for uid in (UID, ANOTHER["CONFIG_UID"]):
        kept(node, uid).parent.mkdir(parents=True, exist_ok=True)
        kept(node, uid).write_bytes(content)
    node.configure(document(files(NEW, WIDGETS)))
    agent = start()
    kubelet.wait_for(NEW, 3)
    kubelet.admit("pod", NEW, 1)
    until(lambda: len(kept_ids(node)) == 1, what="its own written anew")
    scans = agent.metric("device_agent_scan_seconds_count") or 0
    until(lambda: (agent.metric("device_agent_scan_seconds_count") or 0) > scans + 3, what="some scans")
    told = [r["error"] for r in agent.log if r.get("section") == "grants" and r["level"] == "warning"]
    assert len(told) == len(set(told)) == 2
    assert kept(node, ANOTHER["CONFIG_UID"]).read_bytes() == content


HANGING_DISK = """
import os, pathlib, time
real = os.fsync
def fsync(handle):
    while pathlib.Path({hang!r}).exists():
        time.sleep(0.01)
    real(handle)
os.fsync = fsync
"""


def test_a_hanging_disk_delays_no_offer_and_is_written_later(node: Node, start: Start, kubelet: Kubelet) -> None:
    hang = node.root / "hang"
    hang.touch()
    node.configure(document(files(NEW, WIDGETS)))
    start(settings={"store_wait": 0.3}, prelude=HANGING_DISK.format(hang=str(hang)))
    kubelet.wait_for(NEW, 3)
    kubelet.admit("pod", NEW, 1)
    assert kept_ids(node) == set()
    hang.unlink()
    until(lambda: len(kept_ids(node)) == 1, what="written")


def test_the_grants_are_for_root_alone_and_written_again_after_removal(
    node: Node, start: Start, kubelet: Kubelet
) -> None:
    node.configure(document(files(NEW, WIDGETS)))
    start()
    kubelet.wait_for(NEW, 3)
    kubelet.admit("pod", NEW, 1)
    until(lambda: len(kept_ids(node)) == 1, what="written")
    assert kept(node).stat().st_mode & 0o077 == 0
    kept(node).unlink()
    kubelet.admit("another", NEW, 1)
    until(lambda: len(kept_ids(node)) == 2, what="written again")
