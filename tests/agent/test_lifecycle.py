"""The process itself: start, end, kill, and what it leaves for the next one."""

import contextlib
import errno
import json
import os
import socket
import subprocess
import sys

import pytest
from agent.apiserver import ApiServer
from agent.harness import Node, Start, document, files, simulated
from agent.standin import Kubelet, until

SIM = "example.com/sim"


def test_after_sigterm_streams_have_ended_and_no_socket_is_left(node: Node, start: Start, kubelet: Kubelet) -> None:
    node.configure(document(simulated(), simulated("example.com/other")))
    agent = start()
    clients = []
    for name in (SIM, "example.com/other"):
        kubelet.wait_for(name, 4)
        clients.append(kubelet.clients[name])
    assert agent.terminate() == 0
    assert agent.said("stopped")
    assert node.sockets() == set()
    assert all(client.ended.wait(2) for client in clients)


def test_sigterm_before_the_kubelet_came_ends_the_process_too(node: Node, start: Start) -> None:
    node.configure(document(simulated()))
    agent = start()
    agent.wait_said("configuration in force")
    assert agent.terminate() == 0


def test_a_killed_agent_leaves_a_socket_that_the_next_one_removes(node: Node, start: Start, kubelet: Kubelet) -> None:
    for number in range(3):
        node.device(f"widget{number}")
    node.configure(document(files("example.com/widget", "/dev/widget*")))
    first = start()
    ids = kubelet.wait_for("example.com/widget", 3)
    kubelet.admit("pod", "example.com/widget", 2)
    held = kubelet.held("example.com/widget")
    first.kill()
    (stale,) = node.sockets()
    until(lambda: kubelet.healthy("example.com/widget") == set(), what="the kubelet saw it go")
    start()
    assert kubelet.wait_for("example.com/widget", 3) == ids
    assert stale not in node.sockets()
    assert len(node.sockets()) == 1
    kubelet.admit("other", "example.com/widget", 1)
    assert kubelet.held("example.com/widget") == ids > held


def test_a_held_device_that_vanished_while_the_agent_was_down_stays_listed(
    node: Node, start: Start, kubelet: Kubelet
) -> None:
    paths = [node.device(f"widget{number}") for number in range(2)]
    node.configure(document(files("example.com/widget", "/dev/widget*")))
    first = start()
    ids = kubelet.wait_for("example.com/widget", 2)
    kubelet.admit("pod", "example.com/widget", 2)
    first.kill()
    paths[0].unlink()
    start()
    kept = kubelet.wait_for("example.com/widget", 1)
    # the first list already has it: the kubelet reads the entry of every assigned id
    assert set(kubelet.lists["example.com/widget"][1][1]) == ids
    kubelet.delete("pod")
    until(lambda: set(kubelet.health("example.com/widget")) == kept, what="dropped once free")


def test_after_a_restart_a_held_device_is_not_replaced_by_one_with_a_smaller_id(
    node: Node, start: Start, kubelet: Kubelet
) -> None:
    widget = "example.com/widget"
    node.device("widget1")
    node.configure(document(files(widget, "/dev/widget*", maxDevices=1)))
    first = start()
    ids = kubelet.wait_for(widget, 1)
    kubelet.admit("pod", widget, 1)
    first.kill()
    before = len(kubelet.lists[widget])
    node.device("widget0")
    start(settings={"scan_interval": 60})
    until(lambda: len(kubelet.lists[widget]) > before, what="a list of the second agent")
    assert kubelet.lists[widget][before][1] == dict.fromkeys(ids, "Healthy")


def test_sockets_of_others_are_left_alone(node: Node, start: Start, kubelet: Kubelet) -> None:
    other, foreign = "example.com/other", node.plugins / "other-plugin.sock"
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(foreign))
    node.configure(document(simulated()))
    first = start()
    kubelet.wait_for(SIM, 4)
    (ours,) = node.sockets() - {foreign.name}
    # the agent of another object on this node
    config = node.root / "other.json"
    config.write_text(json.dumps(document(simulated(other))))
    start(f"--config={config}", env={"CONFIG_UID": "11111111-2222-4333-8444-555555555555"})
    kubelet.wait_for(other, 4)
    (theirs,) = node.sockets() - {foreign.name, ours}
    kubelet.admit("while both run", SIM, 1)
    first.kill()
    again = start()
    until(lambda: kubelet.registered(SIM) == 2, what="registered again")
    assert ours not in node.sockets()
    assert {foreign.name, theirs} < node.sockets()
    kubelet.wait_for(SIM, 4)
    assert again.terminate() == 0
    assert node.sockets() == {foreign.name, theirs}
    assert kubelet.registered(other) == 1
    kubelet.admit("after the end of the first", other, 1)


HANGING_SCAN = """
import pathlib, time
from device_agent.discovery.scanner import Scanner
real = Scanner.scan
def scan(self, document, **more):
    while pathlib.Path({hang!r}).exists():
        time.sleep(0.01)
    return real(self, document, **more)
Scanner.scan = scan
"""


def test_a_scan_that_hangs_stops_neither_serving_nor_probes(node: Node, start: Start, kubelet: Kubelet) -> None:
    hang = node.root / "hang"
    node.configure(document(simulated()))
    agent = start(settings={"scan_deadline": 0.3}, prelude=HANGING_SCAN.format(hang=str(hang)))
    kubelet.wait_for(SIM, 4)
    good = agent.wait_said("configuration in force")["sha256"]
    hang.touch()
    node.configure(document(simulated(count=5)))
    agent.wait_said("the scan has a problem", error="the scan hangs; the last result stays")
    kubelet.admit("pod", SIM, 1)
    agent.wait_ready()
    assert agent.get("/healthz")[0] == 200
    assert agent.metric(f'device_agent_config_info{{hash="{good}"}}') == 1
    assert agent.metric("device_agent_scan_errors_total") >= 1
    hang.unlink()
    kubelet.wait_for(SIM, 5)


def test_sigterm_ends_the_process_while_a_scan_hangs(node: Node, start: Start, kubelet: Kubelet) -> None:
    hang = node.root / "hang"
    node.configure(document(simulated()))
    agent = start(settings={"scan_deadline": 0.3}, prelude=HANGING_SCAN.format(hang=str(hang)))
    kubelet.wait_for(SIM, 4)
    hang.touch()
    agent.wait_said("the scan has a problem", error="the scan hangs; the last result stays")
    assert agent.terminate() == 0
    assert node.sockets() == set()


UNREADABLE = """
import dataclasses
from device_agent.discovery.scanner import Scanner
real = Scanner.scan
scans = 0
def scan(self, document, **more):
    global scans
    scans += 1
    # one goes, one comes
    errors = tuple(f"/sys/{number}: Permission denied" for number in range(scans, scans + 1000))
    return dataclasses.replace(real(self, document, **more), errors=errors)
Scanner.scan = scan
"""


def test_a_thousand_unreadable_files_give_a_few_log_lines(node: Node, start: Start, kubelet: Kubelet) -> None:
    node.configure(document(simulated()))
    agent = start(prelude=UNREADABLE, settings={"scan_interval": 0.01})
    kubelet.wait_for(SIM, 4)
    until(lambda: (agent.metric("device_agent_scan_errors_total") or 0) >= 10, what="ten scans")
    scans = agent.metric("device_agent_scan_errors_total")
    assert len(agent.said("the scan has a problem")) <= 20 + scans
    assert agent.said("the scan has more problems")[0]["files"] == 980


def test_devices_come_and_go_beside_an_unreadable_one(node: Node, start: Start, kubelet: Kubelet) -> None:
    dev, name = node.host / "dev", "example.com/box"
    (dev / "box0").touch()
    (dev / "box9").symlink_to("box9")
    node.configure(document(files(name, "/dev/box*")))
    start()
    kubelet.wait_for(name, 1)
    (dev / "box1").touch()
    kubelet.wait_for(name, 2)
    (dev / "box0").unlink()
    kubelet.wait_for(name, 1)


BROKEN_DISK = """
import errno, os, pathlib, sys, time
hung, number, names = pathlib.Path({hung!r}), {number}, {names!r}
def patch(name):
    real = getattr(os, name)
    def call(first=".", *arguments, **fields):
        if "/device-operator" not in str(first) or str(first).endswith(".sock"):
            return real(first, *arguments, **fields)
        hung.touch()
        while not number:
            time.sleep(0.01)
        raise OSError(number, os.strerror(number))
    setattr(os, name, call)
for name in names:
    patch(name)
"""
"""Calls of `os` that are given a path below the node store hang (0), or fail with an error."""
ALL_CALLS = ("open", "stat", "mkdir", "chmod", "replace", "unlink", "listdir", "scandir", "utime")


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.EROFS, 0], ids=["EIO", "EACCES", "EROFS", "hangs"])
def test_a_bad_disk_at_the_start_is_reported_and_devices_are_served(
    node: Node, start: Start, kubelet: Kubelet, api: ApiServer, number: int
) -> None:
    hung = node.root / "hung"
    node.configure(document(simulated()))
    env = {"NODE_NAME": "node-1", "CONFIG_NAME": "lab", "CONFIG_UID": "0b7e6a3c-1111", "POOL_NAME": "edge"}
    agent = start(
        "--report=api",
        f"--api-server={api.url}",
        env=env,
        settings={"store_wait": 0.2, "store_retry": 0.1},
        prelude=BROKEN_DISK.format(hung=str(hung), number=number, names=ALL_CALLS),
    )
    kubelet.wait_for(SIM, 4)
    kubelet.admit("pod", SIM, 1)
    assert hung.exists()
    until(
        lambda: (
            {r["section"] for r in agent.said("the node store cannot be read")}
            == {"config", "health", "grants", "cordons", "history"}
        )
    )
    told = os.strerror(number) if number else "the disk hangs"
    until(lambda: told in api.objects.get("lab.node-1", {}).get("status", {}).get("healthError", ""), what="told")
    node.configure(document(simulated(count=5)))
    kubelet.wait_for(SIM, 5)
    assert agent.said("a task failed") == agent.said("a task failed and is restarted") == []
    assert agent.terminate() == 0


def test_a_disk_that_hangs_stops_no_scan(node: Node, start: Start, kubelet: Kubelet) -> None:
    hung = node.root / "hung"
    node.configure(document(simulated()))
    broken = BROKEN_DISK.format(hung=str(hung), number=0, names=("replace",))
    agent = start(settings={"store_wait": 0.2}, prelude=broken)
    kubelet.wait_for(SIM, 4)
    until(hung.exists, what="the disk hangs")
    node.configure(document(simulated(count=5)))
    kubelet.wait_for(SIM, 5)
    assert agent.terminate() == 0


COUNTED_BUILDS = """
import pathlib
from device_agent.report import inventory as made
real = made.build
def inventory(*arguments, **fields):
    with pathlib.Path({log!r}).open("a") as log:
        log.write("x")
    return real(*arguments, **fields)
made.build = inventory
"""


def test_the_kubelets_own_files_cause_no_work(node: Node, start: Start, kubelet: Kubelet, api: ApiServer) -> None:
    log = node.root / "builds"
    node.configure(document(simulated()))
    env = {"NODE_NAME": "node-1", "CONFIG_NAME": "lab", "POOL_NAME": "edge"}
    slow = {"scan_interval": 60.0, "holders_poll_min": 60.0, "holders_poll_max": 60.0, "directory_poll": 0.05}
    agent = start(
        "--report=api", f"--api-server={api.url}", env=env, settings=slow, prelude=COUNTED_BUILDS.format(log=str(log))
    )
    kubelet.wait_for(SIM, 4)
    agent.wait_ready()
    until(lambda: api.written and any(r["registered"] for r in api.written[-1]["resources"]), what="reported")
    before = log.stat().st_size
    checkpoint = node.plugins / "kubelet_internal_checkpoint"
    for number in range(400):
        (node.plugins / ".checkpoint").write_text(json.dumps({"Data": {"PodDeviceEntries": None}, "Checksum": number}))
        (node.plugins / ".checkpoint").rename(checkpoint)
        assert agent.get("/healthz")[0] == 200
    kubelet.restart()  # what comes after all of it
    until(lambda: kubelet.registered(SIM) == 2, what="registered anew")
    until(lambda: log.stat().st_size > before, what="told")
    assert log.stat().st_size - before < 10


def test_an_unknown_page_is_not_found(node: Node, start: Start) -> None:
    assert start().get("/nowhere") == (404, "/healthz /readyz /metrics\n")


def test_metrics_name_what_an_alert_needs(node: Node, start: Start, kubelet: Kubelet) -> None:
    sha256 = node.configure(document(simulated(count=3)))
    agent = start()
    agent.wait_ready()
    until(lambda: agent.metric(f'device_agent_devices{{health="Healthy",resource="{SIM}"}}') == 3, what="gauge")
    assert agent.metric(f'device_agent_config_info{{hash="{sha256}"}}') == 1
    assert agent.metric("device_agent_config_error") == 0
    assert agent.metric("device_agent_scan_seconds_count") >= 1
    assert agent.metric("process_resident_memory_bytes") > 0


@pytest.mark.parametrize(
    ("arguments", "env", "told"),
    [
        (["serve", "--listen", "nowhere"], {}, "must read HOST:PORT"),
        (["serve", "--set", "scan_interval"], {}, "must read NAME=NUMBER"),
        (["serve", "--set", "patience=1"], {}, "scan_interval, "),
        (["serve", "--set", "heartbeat=long"], {}, "heartbeat: 'long' is not a number"),
        (["serve", "--report", "api"], {}, "needs NODE_NAME, CONFIG_NAME, CONFIG_UID, POOL_NAME"),
        (["serve", "--report", "none"], {"LOG_LEVEL": "Loud"}, "LOG_LEVEL=Loud: must be one of Debug, Info"),
        (
            ["serve", "--report", "none"],
            {"DEVICE_METRICS": "Yes"},
            "DEVICE_METRICS=Yes: must be one of None, Prometheus",
        ),
        (["serve", "--report", "none"], {"NODE_FEATURES": "false"}, "NODE_FEATURES=false: must be one of None, NFD"),
        (["serve", "--report", "none"], {"CONFIG_UID": "no uid"}, "CONFIG_UID: 'no uid' is not an object uid"),
        (["fly"], {}, "invalid choice: 'fly'"),
        (["scan", "--config", "/nowhere.json"], {}, "/nowhere.json: No such file"),
    ],
)
def test_wrong_input_is_answered_in_one_line(arguments: list[str], env: dict[str, str], told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "device_agent", *arguments],
        env={**os.environ, **env}, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_named(node: Node) -> None:
    with contextlib.closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "device_agent", "serve", "--listen", f"127.0.0.1:{port}"],
            capture_output=True, text=True, timeout=30,
        )  # fmt: skip
    assert done.returncode == 2
    assert f"--listen 127.0.0.1:{port}: Address already in use" in done.stderr


def test_scan_loads_no_grpc() -> None:
    code = (
        "import sys\nfrom device_agent.__main__ import main\n"
        "main(['scan', '--config', '/nowhere.json'])\n"
        "sys.exit(any(name.partition('.')[0] in ('grpc', 'google') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30).returncode == 0
