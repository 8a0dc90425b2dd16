"""What breaks on real nodes: kubelets that restart, agents that are killed, sockets that vanish. Cases of the upstream
suite by their numbers in test/e2e_node of Kubernetes 1.36 (device_plugin_test.go and its siblings)."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kube import NAMESPACE, Kube, Object, wait_for
from localcluster import binaries

pytestmark = pytest.mark.disruptive

RESOURCE = "example.com/disk"
KUBELET = "kubelet"


@pytest.fixture
def disks(kube: Kube) -> Iterator[str]:
    """A configuration with two exclusive devices on each node, ready on node-1."""
    resource = {
        "name": RESOURCE,
        "devices": [{"sysfs": {"subsystem": "block", "names": ["loop[01]"]}}],
        "inject": {"env": [{"name": "DISK", "value": "{name}"}]},
    }
    with kube.config("disks", {"resources": [resource]}):
        kube.wait_ready("disks")
        kube.wait_node("node-1", RESOURCE, 2, 2)
        yield "disks"


def identity(kube: Kube, pod: str) -> tuple[str, str, list[str]]:
    """What must not change: the pod's uid, its container, and the device ids that the kubelet lists for it."""
    found = kube.get("pod", pod)
    container = found["status"]["containerStatuses"][0]["containerID"]
    return found["metadata"]["uid"], container, kube.held_ids(1, resource=RESOURCE)[pod]


def unchanged(kube: Kube, pod: str, before: tuple[str, str, list[str]]) -> None:
    """A kubelet that has just started lists its pods only when it has heard of them from the API server."""
    wait_for(f"{pod} in the kubelet's list", lambda: pod in kube.held_ids(1, resource=RESOURCE))
    assert identity(kube, pod) == before


def registered_at(kube: Kube) -> str:
    (resource,) = kube.inventory("disks", "node-1")["status"]["resources"]
    return str(resource["lastRegistrationTime"])


@contextmanager
def registering_again(kube: Kube) -> Iterator[None]:
    """Waits for a new registration: the node's status keeps its old numbers and does not show that the resource is back."""
    before = wait_for("the first registration", lambda: registered_at(kube))
    yield
    wait_for("a new registration", lambda: registered_at(kube) != before, seconds=30)
    kube.wait_node("node-1", RESOURCE, 2, 2, seconds=30)


def restart_kubelet(kube: Kube, signal_number: int = signal.SIGTERM) -> None:
    with registering_again(kube):
        kube.cluster.restart_service(1, KUBELET, signal_number)


def kill_container(kube: Kube, pod: Object) -> None:
    """kill -9 of the pod's only container, from inside the node."""
    container = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    tasks = kube.cluster.run_in_node(1, str(binaries.path("ctr")), "-n", "k8s.io", "task", "ls")
    pid = next(line.split()[1] for line in tasks.splitlines() if line.startswith(container))
    kube.cluster.run_in_node(1, "kill", "-KILL", pid)


def restarted(kube: Kube, pod: str, *, times: int = 1) -> None:
    wait_for(
        f"{pod} to be restarted",
        lambda: (
            (c := kube.get("pod", pod)["status"]["containerStatuses"][0])["restartCount"] >= times
            and "running" in c["state"]
        ),
        seconds=90,
    )


def test_the_assignment_is_kept_across_a_container_restart_and_a_second_pod_gets_another(kube: Kube, disks: str):
    """Cases 1 and 3."""
    with kube.pod("first", limits={RESOURCE: 1}, node="node-1", restart="Always") as pod:
        assert len(kube.held_ids(1, resource=RESOURCE)["first"]) == 1
        before = kube.held_ids(1, resource=RESOURCE)["first"], kube.pod_env("first", "DISK")
        kill_container(kube, pod)
        restarted(kube, "first")
        assert (kube.held_ids(1, resource=RESOURCE)["first"], kube.pod_env("first", "DISK")) == before
        with kube.pod("second", limits={RESOURCE: 1}, node="node-1"):
            held = kube.held_ids(1, resource=RESOURCE)
            assert held["second"] != held["first"]
            assert kube.pod_env("second", "DISK") != before[1]


def test_a_kubelet_restart_leaves_the_pod_alone_and_the_resource_comes_back(kube: Kube, disks: str):
    """Case 4."""
    with kube.pod("steady", limits={RESOURCE: 1}, node="node-1"):
        before = identity(kube, "steady")
        restart_kubelet(kube)
        unchanged(kube, "steady", before)


def test_the_assignment_is_kept_across_container_and_kubelet_restarts(kube: Kube, disks: str):
    """Case 5."""
    with kube.pod("both", limits={RESOURCE: 1}, node="node-1", restart="Always") as pod:
        before = kube.held_ids(1, resource=RESOURCE)["both"]
        kill_container(kube, pod)
        restarted(kube, "both")
        restart_kubelet(kube, signal.SIGKILL)
        wait_for("the assignment", lambda: kube.held_ids(1, resource=RESOURCE).get("both") == before)
        assert kube.get("pod", "both")["metadata"]["uid"] == pod["metadata"]["uid"]


def test_a_finished_pod_is_not_admitted_again(kube: Kube, disks: str):
    """Case 6: Succeeded stays Succeeded when the plugin is gone and the kubelet restarts."""
    kube.apply(kube.pod_object("done", limits={RESOURCE: 1}, node="node-1", stay=False))
    try:
        wait_for("the pod to succeed", lambda: kube.get("pod", "done")["status"]["phase"] == "Succeeded")
        with away(kube, disks):
            kube.wait_node("node-1", RESOURCE, 0, 2, seconds=60)
            kube.cluster.restart_service(1, KUBELET)
            wait_for("the node to be back", lambda: node_ready(kube), seconds=60)
            assert kube.get("pod", "done")["status"]["phase"] == "Succeeded"
        kube.wait_node("node-1", RESOURCE, 2, 2, seconds=60)
    finally:
        kube("delete", "pod", "done", "--grace-period=0", "--force")


@contextmanager
def away(kube: Kube, config: str) -> Iterator[None]:
    """No agent on node-1 while the block runs: the pool does not want the node."""

    def want(term: Object) -> None:
        pools = [{"name": "default", "nodeSelectorTerms": [{"matchExpressions": [term]}]}]
        kube("patch", "dpc", config, "--type=merge", "-p", json.dumps({"spec": {"nodePools": pools}}))

    want({"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["node-1"]})
    try:
        yield
    finally:
        want({"key": "kubernetes.io/hostname", "operator": "Exists"})


def node_ready(kube: Kube) -> bool:
    conditions = kube.get("node", "node-1")["status"]["conditions"]
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def test_a_deleted_agent_comes_back_with_the_same_assignment(kube: Kube, disks: str):
    """Case 7."""
    with kube.pod("kept", limits={RESOURCE: 1}, node="node-1"):
        before = identity(kube, "kept")
        agent = kube.agent(disks, "node-1")["metadata"]
        kube("delete", "pod", agent["name"], "-n", NAMESPACE, "--grace-period=0", "--force")
        wait_for("a new agent", lambda: kube.agent(disks, "node-1")["metadata"]["uid"] != agent["uid"])
        kube.wait_node("node-1", RESOURCE, 2, 2, seconds=30)
        unchanged(kube, "kept", before)


def test_a_kubelet_restart_followed_by_an_agent_restart_changes_nothing_for_the_pod(kube: Kube, disks: str):
    """Case 8."""
    with kube.pod("calm", limits={RESOURCE: 1}, node="node-1"):
        before = identity(kube, "calm")
        restart_kubelet(kube)
        agent = kube.agent(disks, "node-1")
        with registering_again(kube):
            kube("delete", "pod", agent["metadata"]["name"], "-n", NAMESPACE)
        assert kube.agent(disks, "node-1")["metadata"]["uid"] != agent["metadata"]["uid"]
        unchanged(kube, "calm", before)


def test_a_pod_deleted_while_the_kubelet_is_down_leaves_no_stale_device(kube: Kube, disks: str):
    """Case 9."""
    kube.apply(kube.pod_object("lost", limits={RESOURCE: 1}, node="node-1"))
    wait_for("the pod to run", lambda: kube.get("pod", "lost")["status"].get("phase") == "Running")
    assert "lost" in kube.held_ids(1, resource=RESOURCE)
    with registering_again(kube):
        kube.cluster.stop_service(1, KUBELET)
        kube("delete", "pod", "lost", "--grace-period=0", "--force", "--wait=false")
        kube.cluster.start_service(1, KUBELET)
    # while a kubelet admits the first pods after its start, it still counts the pods of its checkpoint (kubelet.go,
    # syncLoopIteration: the source counts as ready after its first update was handled)
    agent = kube.agent(disks, "node-1")["metadata"]["name"]
    wait_for("the kubelet's pods", lambda: agent in kube.listed_pods(1), seconds=60)
    assert "lost" not in kube.held_ids(1, resource=RESOURCE)
    wait_for(
        "the inventory to agree",
        lambda: not any(d.get("allocatedTo") for d in kube.inventory(disks, "node-1")["status"]["devices"]),
        seconds=60,
    )
    with kube.pod("next", limits={RESOURCE: 2}, node="node-1"):
        assert len(kube.held_ids(1, resource=RESOURCE)["next"]) == 2


def test_an_agent_killed_hard_is_back_with_the_same_assignment(kube: Kube, disks: str):
    with kube.pod("survivor", limits={RESOURCE: 1}, node="node-1"):
        before = identity(kube, "survivor")
        agent = kube.agent(disks, "node-1")
        with registering_again(kube):
            kill_container(kube, agent)
        assert kube.agent(disks, "node-1")["status"]["containerStatuses"][0]["restartCount"] >= 1
        unchanged(kube, "survivor", before)
        sockets = our_sockets(kube)
        assert len(sockets) == 1, f"a stale socket was left: {sockets}"


def our_sockets(kube: Kube) -> list[str]:
    folder = kube.cluster.node_dir(1) / "device-plugins"
    return [p.name for p in folder.iterdir() if p.is_socket() and p.name != "kubelet.sock"]


def test_a_socket_of_ours_that_vanishes_is_made_again(kube: Kube, disks: str):
    folder = kube.cluster.node_dir(1) / "device-plugins"
    (name,) = our_sockets(kube)
    with registering_again(kube):
        (folder / name).unlink()
    assert len(our_sockets(kube)) == 1
    with kube.pod("after", limits={RESOURCE: 1}, node="node-1"):
        assert kube.pod_env("after", "DISK").startswith("loop")


def test_a_kubelet_socket_that_is_replaced_is_noticed_while_ours_stays(kube: Kube, disks: str):
    """A kubelet that keeps our socket: it is put back under its name as soon as the new kubelet has cleaned up."""
    folder = kube.cluster.node_dir(1) / "device-plugins"
    (name,) = our_sockets(kube)
    kept = folder / "device-operator" / "kept"
    kept.hardlink_to(folder / name)
    with registering_again(kube):
        kube.cluster.stop_service(1, KUBELET)
        kube.cluster.start_service(1, KUBELET)
        wait_for("the kubelet's socket", (folder / "kubelet.sock").is_socket, every=0.01)
        kept.replace(folder / name)
    with kube.pod("replaced", limits={RESOURCE: 1}, node="node-1"):
        assert kube.pod_env("replaced", "DISK").startswith("loop")
