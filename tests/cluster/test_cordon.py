"""A cordon on a real kubelet: what the scheduler and the holder see of it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kube import NAMESPACE, Kube, Object, device_plugin_config, wait_for

RESOURCE = "example.com/cordoned"
INVENTORY = "cordons.node-1"


DISKS = {"name": RESOURCE, "devices": [{"sysfs": {"subsystem": "block", "names": ["loop[0-2]"]}}]}
SPEC = {"resources": [{**DISKS, "inject": {"env": [{"name": "DISK", "value": "{name}"}]}}]}


@pytest.fixture
def serving(kube: Kube) -> Iterator[None]:
    with kube.config("cordons", SPEC):
        kube.wait_ready("cordons")
        kube.wait_node("node-1", RESOURCE, 3, 3)
        yield


def cordon(kube: Kube, *items: Object) -> None:
    kube("patch", "ndi", INVENTORY, "--type=merge", "-p", json.dumps({"spec": {"cordoned": list(items)}}))


def device(kube: Kube, device_id: str) -> Object:
    rows = kube.inventory("cordons", "node-1")["status"]["devices"]
    return next(row for row in rows if row["id"] == device_id)


def summary(kube: Kube) -> dict[str, Any]:
    return kube.get("dpc", "cordons")["status"]["summary"]


def test_a_held_device_that_is_cordoned_lowers_allocatable_and_the_holder_runs_on(kube: Kube, serving: None):
    with kube.pod("holder", limits={RESOURCE: 1}, node="node-1") as holder:
        held = kube.pod_env("holder", "DISK")
        cordon(kube, {"id": held, "reason": "swap the cable"})
        kube.wait_node("node-1", RESOURCE, 2, 3)
        assert wait_for("it to be told", lambda: device(kube, held).get("withheld")) == "Cordoned"
        assert device(kube, held)["health"] == "Healthy"
        wait_for("it to be counted", lambda: summary(kube)["withheld"] == 1)
        assert summary(kube)["unhealthy"] == 0
        assert kube.conditions("cordons")["Degraded"]["status"] == "False"
        again = kube.get("pod", "holder", namespace="default")
        assert again["metadata"]["uid"] == holder["metadata"]["uid"]
        assert again["status"]["phase"] == "Running"
        # the holder's request still counts, so one of the two free devices can be had
        with kube.pod("next", limits={RESOURCE: 1}, node="node-1"):
            assert kube.pod_env("next", "DISK") != held
    cordon(kube)
    kube.wait_node("node-1", RESOURCE, 3, 3)


@pytest.mark.disruptive
@pytest.mark.timeout(400)
def test_a_cordon_of_a_held_device_outlives_the_agent_the_object_and_the_node(kube: Kube, serving: None):
    def still_cordoned() -> None:
        kube.wait_node("node-1", RESOURCE, 2, 3, seconds=120)
        # an agent that starts first finds the hardware in the hands of the object before it
        wait_for("it to be told", lambda: device(kube, held).get("withheld") == "Cordoned", seconds=60)
        assert kube.inventory("cordons", "node-1")["spec"]["cordoned"] == [{"id": held, "reason": "swap the cable"}]

    kube.apply(kube.pod_object("holder", limits={RESOURCE: 1}, node="node-1", restart="Always"))
    try:
        held = wait_for("the holder to run", lambda: kube.pod_env("holder", "DISK"))
        cordon(kube, {"id": held, "reason": "swap the cable"})
        still_cordoned()
        agent = kube.agent("cordons", "node-1")["metadata"]["name"]
        kube("delete", "pod", agent, "-n", NAMESPACE, "--grace-period=0", "--force", "--wait=true")
        wait_for("another agent", lambda: kube.agent("cordons", "node-1")["metadata"]["name"] != agent)
        still_cordoned()
        kube.remove_config("cordons")
        kube.apply(device_plugin_config("cordons", SPEC))
        still_cordoned()
        kube.cluster.stop_node(1)
        kube.cluster.up(nodes=2)
        still_cordoned()
        # a kubelet that starts after a reboot admits its pods anew, and takes only ids that are healthy
        wait_for("the holder to fail", lambda: kube.get("pod", "holder")["status"]["phase"] == "Failed", seconds=60)
        assert kube.get("pod", "holder")["status"]["reason"] == "UnexpectedAdmissionError"
        cordon(kube)
        kube.wait_node("node-1", RESOURCE, 3, 3)
    finally:
        kube("delete", "pod", "holder", "--ignore-not-found", "--grace-period=0", "--force", "--wait=true")
