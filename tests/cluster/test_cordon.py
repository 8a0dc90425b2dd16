"""A cordon on a real kubelet: what the scheduler and the holder see of it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kube import Kube, Object, wait_for

RESOURCE = "example.com/cordoned"
INVENTORY = "cordons.node-1"


@pytest.fixture
def serving(kube: Kube) -> Iterator[None]:
    disks = {"name": RESOURCE, "devices": [{"sysfs": {"subsystem": "block", "names": ["loop[0-2]"]}}]}
    entry = {**disks, "inject": {"env": [{"name": "DISK", "value": "{name}"}]}}
    with kube.config("cordons", {"resources": [entry]}):
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
