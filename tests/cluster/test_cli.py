"""`kubectl devices` on a real cluster: a pod's device, a drain, and a scan of a node."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from kube import NAMESPACE, Kube, Object, wait_for
from localcluster import places

RESOURCE = "example.com/drained"
DISKS = {"name": RESOURCE, "devices": [{"sysfs": {"subsystem": "block", "names": ["loop[0-2]"]}}]}
SPEC = {"resources": [{**DISKS, "inject": {"env": [{"name": "DISK", "value": "{name}"}]}}]}
SOURCES = os.pathsep.join(str(places.CHECKOUT / folder) for folder in ("cli", "operator", "plugin_agent"))


def devices(kube: Kube, command: str, *arguments: str, status: int = 0) -> str:
    """What the command prints; it must end with this exit status."""
    done = subprocess.run(
        [sys.executable, "-m", "kubectl_devices", command, "--kubeconfig", str(kube.cluster.kubeconfig), *arguments],
        env={**os.environ, "PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == status, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def serving(kube: Kube) -> Iterator[None]:
    with kube.config("drains", SPEC):
        kube.wait_ready("drains")
        kube.wait_node("node-1", RESOURCE, 3, 3)
        yield


def owned(kube: Kube, name: str) -> Object:
    """A pod that has a controller, which makes no other one in its place."""
    pod = kube.pod_object(name, limits={RESOURCE: 1}, node="node-1")
    node = kube.get("node", "node-1")["metadata"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": node["uid"], "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    return pod


def test_a_device_goes_from_its_holder_to_nobody_by_a_drain(kube: Kube, serving: None):
    kube.apply(owned(kube, "holder"))
    try:
        held = wait_for("the holder to run", lambda: kube.pod_env("holder", "DISK"))
        wait_for("it to be reported", lambda: "holder" in devices(kube, "who", held, "--node", "node-1"))
        (row,) = json.loads(devices(kube, "list", "node-1", "--resource", RESOURCE, "--held", "-o", "json"))
        assert (row["id"], row["health"]) == (held, "Healthy")
        assert "evicting default/holder" in devices(
            kube, "drain", "node-1", held, "--config", "drains", "--timeout", "90s"
        )
        kube.wait_node("node-1", RESOURCE, 2, 3)
        (row,) = json.loads(devices(kube, "list", "node-1", "--config", "drains", "--withheld", "-o", "json"))
        assert (row["id"], row["withheld"], row.get("allocatedTo", [])) == (held, "Cordoned", [])
        devices(kube, "uncordon", "node-1", held, "--config", "drains")
        kube.wait_node("node-1", RESOURCE, 3, 3)
    finally:
        kube("delete", "pod", "holder", "--ignore-not-found", "--grace-period=0", "--force", "--wait=true")


def test_a_node_is_scanned_by_a_pod_that_leaves_nothing(kube: Kube, serving: None):
    scan = json.loads(devices(kube, "explain", "drains", "--node", "node-1", "-o", "json"))
    assert {d["id"] for d in scan["devices"]} == {"loop0", "loop1", "loop2"}
    entries = json.loads(devices(kube, "hardware", "node-1", "-o", "json"))
    assert entries
    left = "device-operator.io/purpose=scan"
    wait_for("the pods to go", lambda: not kube.every("pods", namespace=NAMESPACE, labels=left))


def test_the_installation_is_sound(kube: Kube, serving: None):
    assert "No problems found" in devices(kube, "check", "--wait", "--timeout", "60s")
