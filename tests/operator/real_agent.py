"""A node for tests of the operator whose agent is real: the agent's process, and a stand-in kubelet."""

import contextlib
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from agent.harness import Node, Start
from agent.standin import Kubelet
from agents import Agent, ready_node
from kubeapi import CONFIGS, Kube, Object, Owned, condition, eventually, node
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
def start(node_files: Node, proxy: str) -> Iterator[Callable[..., None]]:
    """Starts the agent of the object with this uid, which is `lab` unless a name is given."""
    start = Start(node_files)
    env = {"NODE_NAME": WHERE, "POOL_NAME": "default"}

    def begin(uid: str, *, name: str = NAME) -> None:
        start("--report=api", f"--api-server={proxy}", env={**env, "CONFIG_NAME": name, "CONFIG_UID": uid})

    yield begin
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


def document(owned: Owned, name: str = NAME) -> bytes:
    """What the operator has rendered for the node."""
    (configmap,) = owned(name, "configmaps").values()
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
    start: Callable[..., None],
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
