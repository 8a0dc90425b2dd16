"""kubectl patch on an inventory: the real API server and operator, a real agent, and a stand-in kubelet."""

import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agent.harness import Node, Start
from agent.standin import Kubelet, until
from agents import Agent, ready_node
from kubeapi import CONFIGS, EVENTS, INVENTORIES, Kube, Object, Owned, condition, eventually, node
from localcluster import Cluster, binaries

WIDGET = "example.com/widget"
NAME, WHERE = "lab", "worker-1"
INVENTORY = f"{NAME}.{WHERE}"


@pytest.fixture
def proxy(api: Cluster) -> Iterator[str]:
    """The API server without TLS, for the agent."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    kubectl = str(binaries.path("kubectl"))
    program = [kubectl, "--kubeconfig", str(api.kubeconfig), "proxy", f"--port={port}"]
    with subprocess.Popen(program, stdout=subprocess.DEVNULL) as process:
        yield f"http://127.0.0.1:{port}"
        process.terminate()


@pytest.fixture
def node_files() -> Iterator[Node]:
    root = Path(tempfile.mkdtemp(prefix="da-", dir="/tmp"))
    host = Node(root)
    for number in range(3):
        host.device(f"widget{number}")
    yield host
    shutil.rmtree(root)


@pytest.fixture
def kubelet(node_files: Node) -> Iterator[Kubelet]:
    kubelet = Kubelet(node_files.plugins, pod_resources=node_files.pod_resources)
    kubelet.start()
    yield kubelet
    kubelet.stop()
    assert kubelet.violations == []


@pytest.fixture
def start(node_files: Node, proxy: str) -> Iterator[Callable[[str], None]]:
    """Starts the agent of the object with this uid."""
    start = Start(node_files)
    env = {"NODE_NAME": WHERE, "CONFIG_NAME": NAME, "POOL_NAME": "default"}
    yield lambda uid: start("--report=api", f"--api-server={proxy}", env={**env, "CONFIG_UID": uid})
    for agent in start.agents:
        if agent.process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.terminate()
        assert agent.process.stderr is not None
        agent.process.stderr.close()


def config() -> Object:
    entry = {"name": WIDGET, "devices": [{"files": {"paths": ["/dev/widget*"]}}]}
    return {
        "apiVersion": "device-operator.io/v1alpha1",
        "kind": "DevicePluginConfig",
        "metadata": {"name": NAME},
        "spec": {"resources": [entry]},
    }


def document(owned: Owned) -> bytes:
    """What the operator has rendered for the node."""
    (configmap,) = owned(NAME, "configmaps").values()
    (text,) = configmap["data"].values()
    return text.encode()


@dataclass(frozen=True)
class Serving:
    """A node whose real agent serves three widgets of the configuration `lab`."""

    kube: Kube
    owned: Owned
    host: Node
    kubelet: Kubelet

    def configure(self) -> None:
        """Mounts what the operator has rendered."""
        self.host.configure(document(self.owned))


@pytest.fixture
def serving(
    node_files: Node,
    kubelet: Kubelet,
    start: Callable[[str], None],
    kube: Kube,
    owned: Owned,
) -> Serving:
    ready_node(kube, node(WHERE))
    made = kube.create(CONFIGS, config())
    (daemonset,) = eventually("the DaemonSet", lambda: list(owned(NAME).values()))
    Agent(kube, daemonset, WHERE).run()
    serving = Serving(kube, owned, node_files, kubelet)
    serving.configure()
    start(made["metadata"]["uid"])
    kubelet.wait_for(WIDGET, 3)
    eventually("it is Ready", lambda: condition(status(kube), "Ready").get("status") == "True")
    return serving


def status(kube: Kube) -> Object:
    return kube.get(f"{CONFIGS}/{NAME}")


def inventory(kube: Kube) -> dict[str, dict[str, Any]]:
    """Its devices by id."""
    return {d["id"]: d for d in kube.get(f"{INVENTORIES}/{INVENTORY}")["status"]["devices"]}


def patch(api: Cluster, kind: str, name: str, spec: Object) -> None:
    api.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps({"spec": spec}))


def warnings(kube: Kube) -> set[str]:
    events = (e for e in kube.items(EVENTS) if e.get("regarding", e.get("involvedObject", {})).get("name") == NAME)
    return {e["reason"] for e in events if e["type"] == "Warning"}


@pytest.mark.usefixtures("operator")
def test_a_held_device_is_cordoned_and_given_back_by_kubectl_patch(api: Cluster, serving: Serving):
    kube, kubelet = serving.kube, serving.kubelet
    before = warnings(kube)
    kubelet.admit("holder", WIDGET, 1)
    (held,) = kubelet.held(WIDGET)
    patch(api, "ndi", INVENTORY, {"cordoned": [{"id": held, "reason": "swap the cable"}]})
    until(lambda: held not in kubelet.healthy(WIDGET), what="withheld")
    eventually("it is counted", lambda: status(kube)["status"]["summary"].get("withheld") == 1)
    told = status(kube)
    assert told["status"]["summary"]["devices"] == "3/3"
    assert told["status"]["summary"]["unhealthy"] == 0
    assert [condition(told, kind)["status"] for kind in ("Ready", "Degraded")] == ["True", "False"]
    assert inventory(kube)[held]["withheld"] == "Cordoned"
    head, row = api.kubectl("get", "dpc", NAME, "-o", "wide").splitlines()
    assert row[head.index("WITHHELD") :].split()[0] == "1"
    assert warnings(kube) == before
    patch(api, "ndi", INVENTORY, {"cordoned": []})
    kubelet.wait_for(WIDGET, 3)
    eventually("given back", lambda: status(kube)["status"]["summary"]["withheld"] == 0)


@pytest.mark.usefixtures("operator")
def test_a_rule_of_the_configuration_and_a_cordon_outlive_the_inventory(api: Cluster, serving: Serving):
    kube, kubelet = serving.kube, serving.kubelet
    patch(api, "ndi", INVENTORY, {"cordoned": [{"id": "/dev/widget0", "reason": "recall"}]})
    kubelet.wait_for(WIDGET, 2)
    before = kube.get(f"{INVENTORIES}/{INVENTORY}")
    kube.delete(f"{INVENTORIES}/{INVENTORY}")
    again = eventually("made anew", lambda: kube.find(f"{INVENTORIES}/{INVENTORY}"))
    assert again["spec"] == before["spec"]
    assert again["metadata"]["uid"] != before["metadata"]["uid"]
    rule = {"match": {"attribute": "path", "values": ["/dev/widget1"]}, "reason": "recall"}
    patch(api, "dpc", NAME, {"cordon": [rule]})
    eventually("it is rendered", lambda: b"recall" in document(serving.owned))
    serving.configure()
    assert kubelet.wait_for(WIDGET, 1) == {"/dev/widget2"}
    eventually("both are counted", lambda: status(kube)["status"]["summary"].get("withheld") == 2)
