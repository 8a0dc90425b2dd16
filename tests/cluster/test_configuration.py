"""Changing the configuration: without restarts, one generation at a time, and never to something broken."""

import json
import shutil
from pathlib import Path

import pytest
from hardware import announce, loops, make_node, remove_loop
from kube import NAMESPACE, Kube, device_plugin_config, operator_stopped, wait_for

FUSE = "example.com/fuse"
LOOP = "example.com/loop"


def fuse(replicas: int = 1) -> dict:
    return {"name": FUSE, "devices": [{"files": {"paths": ["/dev/fuse"]}}], "sharing": {"replicas": replicas}}


def test_an_edit_reaches_the_agents_without_a_restart_while_ready_stays_true(kube: Kube):
    with kube.config("edit", {"resources": [fuse(2)]}):
        before = kube.wait_ready("edit")["status"]
        kube.wait_node("node-1", FUSE, 2, 2)
        pods = {kube.agent("edit", n)["metadata"]["uid"] for n in ("node-1", "node-2")}
        seen: set[tuple[str, str]] = set()

        def current() -> bool:
            status = kube.get("dpc", "edit")["status"]
            conditions = {c["type"]: c["status"] for c in status["conditions"]}
            seen.add((conditions["Progressing"], conditions["Ready"]))
            hashes = {kube.inventory("edit", n)["status"]["observedConfigHash"] for n in ("node-1", "node-2")}
            wanted = status["pools"][0]["configHash"]
            return (
                wanted != before["pools"][0]["configHash"]
                and hashes == {wanted}
                and conditions["Progressing"] == "False"
            )

        kube.apply(device_plugin_config("edit", {"resources": [fuse(4)]}))
        wait_for("the new configuration on every node", current, seconds=90, every=0.1)
        kube.wait_node("node-1", FUSE, 4, 4)
        assert ("True", "True") in seen, "Progressing was never seen as True"
        assert {ready for _, ready in seen} == {"True"}
        assert {kube.agent("edit", n)["metadata"]["uid"] for n in ("node-1", "node-2")} == pods
        restarts = [
            kube.agent("edit", n)["status"]["containerStatuses"][0]["restartCount"] for n in ("node-1", "node-2")
        ]
        assert restarts == [0, 0]


def test_a_spec_that_only_the_operator_can_refuse_leaves_what_runs_alone(kube: Kube):
    with kube.config("refused", {"resources": [fuse(2)]}):
        kube.wait_ready("refused")
        kube.wait_node("node-1", FUSE, 2, 2)
        labels = "device-operator.io/config=refused"

        def versions() -> dict[str, str]:
            objects = kube.every("daemonsets,configmaps", namespace=NAMESPACE, labels=labels)
            return {o["metadata"]["name"]: json.dumps(o.get("spec", o.get("data"))) for o in objects}

        running = versions()
        broken = fuse(3) | {"inject": {"env": [{"name": "A", "value": "{pci.adress}"}]}}
        kube.apply(device_plugin_config("refused", {"resources": [broken]}))

        def refused() -> dict | None:
            accepted = kube.conditions("refused")["Accepted"]
            return accepted if accepted["status"] == "False" else None

        accepted = wait_for("Accepted=False", refused)
        assert accepted["reason"] == "InvalidSpec"
        assert "pci.adress" in accepted["message"]
        assert "did you mean 'pci.address'?" in accepted["message"]
        assert versions() == running
        assert kube.node_has("node-1", FUSE) == (2, 2)
        kube.apply(device_plugin_config("refused", {"resources": [fuse(3)]}))
        kube.wait_ready("refused")
        kube.wait_node("node-1", FUSE, 3, 3)


def test_an_agent_keeps_its_last_good_configuration_and_says_why(kube: Kube):
    with kube.config("lastgood", {"resources": [fuse(2)]}):
        kube.wait_ready("lastgood")
        kube.wait_node("node-1", FUSE, 2, 2)
        good = kube.inventory("lastgood", "node-1")["status"]["observedConfigHash"]
        # The operator would repair the ConfigMap: it stands aside while the document is broken.
        with operator_stopped(kube):
            (config_map,) = kube.every("configmaps", namespace=NAMESPACE, labels="device-operator.io/config=lastgood")
            name = config_map["metadata"]["name"]
            patch = json.dumps({"data": {"config.json": '{"contractVersion": 1, "resorces": []}'}})
            kube("patch", "configmap", name, "-n", NAMESPACE, "--type=merge", "-p", patch)

            def told() -> str:
                return str(kube.inventory("lastgood", "node-1")["status"]["configError"])

            assert "resorces" in wait_for("the agent to say what is wrong", told, seconds=90)
            assert kube.inventory("lastgood", "node-1")["status"]["observedConfigHash"] == good
            assert kube.node_has("node-1", FUSE) == (2, 2)
        wait_for(
            "the operator to repair it",
            lambda: not kube.inventory("lastgood", "node-1")["status"].get("configError"),
            seconds=120,
        )


def test_two_objects_that_serve_one_resource_on_a_node_are_told_apart_by_age(kube: Kube):
    with kube.config("older", {"resources": [fuse()]}):
        kube.wait_ready("older")
        with kube.config("younger", {"resources": [fuse()]}):

            def conflict() -> dict | None:
                accepted = kube.conditions("younger").get("Accepted", {})
                return accepted if accepted.get("status") == "False" else None

            accepted = wait_for("the conflict", conflict)
            assert accepted["reason"] == "ResourceConflict"
            assert "older" in accepted["message"]
            assert FUSE in accepted["message"]
            assert kube.conditions("older")["Ready"]["status"] == "True"


def test_a_rendered_name_stays_with_the_object_that_serves_it(kube: Kube):
    """Names as written differ, so both are accepted; only on the node they turn out to be the same."""
    with kube.config("serves", {"resources": [fuse(3)]}):
        kube.wait_ready("serves")
        kube.wait_node("node-1", FUSE, 3, 3)
        greedy = {"name": "example.com/{name}", "devices": [{"files": {"paths": ["/dev/fuse"]}}]}
        kube.apply(device_plugin_config("greedy", {"resources": [greedy]}))
        try:

            def held_back() -> bool:
                (resource,) = kube.inventory("greedy", "node-1")["status"]["resources"]
                assert not resource["registered"]
                return bool(resource.get("reason") == "ResourceConflict")

            wait_for("the agent to hold back", held_back)
            reason = wait_for(
                "both to be Degraded",
                lambda: (
                    {kube.conditions(name)["Degraded"]["status"] for name in ("serves", "greedy")} == {"True"}
                    and kube.conditions("serves")["Degraded"]["reason"]
                ),
            )
            assert reason == "ResourceConflict"
            assert kube.node_has("node-1", FUSE) == (3, 3)
        finally:
            kube.remove_config("greedy")
        wait_for("it to be no longer Degraded", lambda: kube.conditions("serves")["Degraded"]["status"] == "False")


def test_a_loop_device_that_is_added_is_offered_at_once(kube: Kube):
    devices = [{"sysfs": {"subsystem": "block", "names": ["loop13[0-9]"]}}]
    spec = {"resources": [{"name": LOOP, "devices": devices, "health": {"removalGraceSeconds": 0}}]}
    with loops(130, 131), kube.config("hotplug", spec):
        kube.wait_ready("hotplug")
        kube.wait_node("node-1", LOOP, 2, 2)
        with loops(132):
            kube.wait_node("node-1", LOOP, 3, 3, seconds=15)
            kube.wait_node("node-2", LOOP, 3, 3, seconds=15)
        kube.wait_node("node-1", LOOP, 2, 2, seconds=60)


def test_a_device_removed_while_a_pod_holds_it_stays_listed_until_the_pod_ends(kube: Kube):
    devices = [{"sysfs": {"subsystem": "block", "names": ["loop14[0-9]"]}}]
    spec = {"resources": [{"name": LOOP, "devices": devices, "health": {"removalGraceSeconds": 0}}]}
    with loops(140), kube.config("unplug", spec):
        kube.wait_ready("unplug")
        kube.wait_node("node-1", LOOP, 1, 1)
        with kube.pod("holder", limits={LOOP: 1}, node="node-1"):
            wait_for("the holder", lambda: kube.inventory("unplug", "node-1")["status"]["devices"][0]["allocatedTo"])
            remove_loop(140)
            kube.wait_node("node-1", LOOP, 0, 1)

            def listed() -> dict:
                (device,) = kube.inventory("unplug", "node-1")["status"]["devices"]
                assert device["health"] == "Unhealthy"
                return device

            device = wait_for("the inventory to list it as Unhealthy", listed)
            assert device["reason"] == "Missing"
            assert device["allocatedTo"][0]["pod"] == "holder"
            wait_for(
                "the status to name it",
                lambda: any(d["node"] == "node-1" for d in kube.get("dpc", "unplug")["status"]["unhealthyDevices"]),
            )
            assert kube.get("pod", "holder")["status"]["phase"] == "Running"
        wait_for(
            "the device to go", lambda: not kube.inventory("unplug", "node-1")["status"].get("devices"), seconds=90
        )
        kube.wait_node("node-1", LOOP, 0, 0, seconds=30)


@pytest.fixture
def four_nodes(kube: Kube):
    """Four device files, each with a companion whose absence makes it unhealthy; a pool that serves them."""
    folder = Path("/dev/device-operator-test")
    shutil.rmtree(folder, ignore_errors=True)  # what an interrupted run has left
    for i in range(4):
        make_node(folder / f"unit{i}")
        make_node(folder / f"unit{i}.power")
    resource = {
        "name": "example.com/unit",
        "devices": [{"files": {"paths": [f"{folder}/unit?"]}}],
        "inject": {"deviceNodes": [{"hostPath": "/dev/device-operator-test/{name}.power", "permissions": "r"}]},
    }
    try:
        with kube.config("units", {"resources": [resource]}):
            kube.wait_ready("units")
            kube.wait_node("node-1", "example.com/unit", 4, 4)
            yield folder
    finally:
        shutil.rmtree(folder)


def power(folder: Path, units: tuple[int, ...], *, on: bool) -> None:
    for i in units:
        path = folder / f"unit{i}.power"
        make_node(path) if on else path.unlink()
    announce()


def test_devices_that_turn_unhealthy_and_back_are_counted_each_time(kube: Kube, four_nodes: Path):
    """Cases 13 and 15 of the upstream suite."""
    steps = [((0,), False, 3), ((0,), True, 4), ((1, 2), False, 2), ((1,), True, 3), ((2,), True, 4)]
    for units, on, healthy in steps:
        power(four_nodes, units, on=on)
        kube.wait_node("node-1", "example.com/unit", healthy, 4)


def test_a_pod_goes_on_while_its_device_is_unhealthy(kube: Kube, four_nodes: Path):
    """Case 14 of the upstream suite."""
    with kube.pod("unlucky", limits={"example.com/unit": 4}, node="node-1"):
        power(four_nodes, (0,), on=False)
        kube.wait_node("node-1", "example.com/unit", 3, 4)
        assert kube.get("pod", "unlucky")["status"]["phase"] == "Running"
        found = wait_for(
            "the cause in the status", lambda: kube.get("dpc", "units")["status"]["unhealthyDevices"], seconds=30
        )
        assert found[0]["reason"] == "CompanionMissing"
    kube.wait_node("node-1", "example.com/unit", 3, 4)
