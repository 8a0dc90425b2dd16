"""What an admin sees within 30 seconds of a mistake has the facts that lead to the cure, as docs/mistakes.md shows it.

With the environment variable UPDATE_MISTAKES=1 the tests write the page anew.
"""

import copy
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import mistakes
import pytest
import yaml
from agent.harness import Node, Start
from agent.standin import Kubelet
from agents import Agent, ready_node
from cliruns import run
from conftest import Operators, install_crds
from device_agent.kubelet.allocatable import foreign_message
from kubeapi import CONFIGS, NAMESPACE, NODES, Kube, Object, Owned, eventually, node
from localcluster import Cluster, LocalClusterError, places
from mistakes import FOUND, NIC, REFUSED, ROWS, RUNNING, Mistake
from real_agent import NAME, Serving, document
from test_green import WITHIN, row
from test_status import warn
from unit.discovery.tree import ROOT, HostTreeBuilder

PAGE = places.CHECKOUT / "docs" / "mistakes.md"
SHOWN = ("NAME", "READY", "STATUS", "NODES", "DEVICES", "MESSAGE")
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/device-operator"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
PRODUCTION = {"failed_create_seconds": 10, "status_seconds": 5, "coalesce_seconds": 1, "node_settle_seconds": 0.001}
"""The paces of an operator in production, where they decide how soon something is seen."""


def of(mistake: Mistake) -> str:
    return mistake.did


def lab(spec: Object, *, name: str = NAME) -> Object:
    return {
        "apiVersion": "device-operator.io/v1alpha1",
        "kind": "DevicePluginConfig",
        "metadata": {"name": name},
        "spec": spec,
    }


def seen_as(mistake: Mistake, look: Callable[[], str]) -> None:
    """Looks until the output has all facts, and compares it with the page."""
    begun = time.monotonic()
    last = [""]

    def complete() -> str:
        last[0] = look()
        missing = [fact for fact in mistake.facts if fact not in " ".join(last[0].split())]
        assert not missing, f"{missing} not in: {last[0]}"
        return last[0]

    output = mistakes.wrapped(eventually(mistake.did, complete, seconds=WITHIN))
    print(f"{time.monotonic() - begun:5.1f} s  {mistake.did}")
    known = mistakes.outputs(PAGE.read_text()) if PAGE.exists() else {}
    if os.environ.get("UPDATE_MISTAKES"):
        every = {m.did: "" for _, those in mistakes.GROUPS.values() for m in those}
        PAGE.write_text(mistakes.page({**every, **known, mistake.did: output}))
    else:
        assert mistakes.plain(known[mistake.did]) == mistakes.plain(output)


def shown_row(api: Cluster, name: str = NAME) -> str:
    found = row(api, name, "-o", "wide")
    widths = {column: max(len(column), len(found[column])) for column in SHOWN}
    return "\n".join(
        "   ".join(text.ljust(widths[column]) for column, text in line).rstrip()
        for line in ([(c, c) for c in SHOWN], [(c, found[c]) for c in SHOWN])
    )


def test_the_page_is_made_of_the_catalogue():
    text = PAGE.read_text()
    known = mistakes.outputs(text)
    assert all(known.get(m.did) for _, those in mistakes.GROUPS.values() for m in those)
    assert text == mistakes.page(known)
    assert sum(len(those) for _, those in mistakes.GROUPS.values()) >= 30


@pytest.fixture
def refused(api: Cluster, tmp_path: Path) -> Callable[[Object], str]:
    def applied(obj: Object) -> str:
        file = tmp_path / "lab.yaml"
        file.write_text(yaml.safe_dump(obj))
        try:
            return "not refused: " + api.kubectl("apply", "-f", str(file))
        except LocalClusterError as error:
            said = str(error).replace(str(file), "lab.yaml")
            return said[
                said.index("The DevicePluginConfig") if "The DevicePluginConfig" in said else said.index("Error") :
            ]

    return applied


@pytest.mark.parametrize("mistake", REFUSED, ids=of)
def test_a_file_that_the_api_server_refuses(mistake: Mistake, refused: Callable[[Object], str]) -> None:
    seen_as(mistake, lambda: refused(lab(mistake.spec)))


@pytest.mark.parametrize("mistake", ROWS, ids=of)
def test_a_file_that_the_operator_judges(mistake: Mistake, operators: Operators, api: Cluster, kube: Kube) -> None:
    operators.shared()
    ready_node(kube, node("worker-1", hardware="lab", zone="a"))
    ready_node(kube, node("worker-2", zone="b"))
    kube.create(CONFIGS, lab(mistake.spec))
    seen_as(mistake, lambda: shown_row(api))


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("mistake", FOUND, ids=of)
def test_a_file_that_a_nodes_agent_tries(mistake: Mistake, api: Cluster, kube: Kube, serving: Serving) -> None:
    """The agent serves something else before, as in a cluster at work."""
    host = HostTreeBuilder(serving.host.host)
    host.pci("0000:00:05.0", "10de:1eb8", pci_class="030200", driver="vfio-pci")
    host.usb(f"{ROOT}/usb1/1-1", vendor="046d", product="0825")
    host.obj("devices/virtual/video4linux/video0", "video4linux")
    before = document(serving.owned)
    kube.patch(f"{CONFIGS}/{NAME}", {"spec": mistake.spec})
    eventually("it is rendered", lambda: document(serving.owned) != before)
    serving.configure()
    seen_as(mistake, lambda: shown_row(api))


# In a running installation. The test does what controllers, kubelets and agents would do.


@pytest.fixture
def lab_agent(operators: Operators, kube: Kube, owned: Owned) -> Agent:
    """An agent of the object `lab` on worker-1, with one device. The operator has the paces of production."""
    operators.start(**PRODUCTION).wait_leading()
    return serving(kube, owned)


def serving(kube: Kube, owned: Owned, *, name: str = NAME, **spec: object) -> Agent:
    if kube.find(f"{NODES}/worker-1") is None:
        ready_node(kube, node("worker-1", hardware="lab"))
    pools = [{"name": "edge", "nodeSelector": {"hardware": "lab"}}]
    kube.create(CONFIGS, lab({"resources": [nic()], "nodePools": pools, **spec}, name=name))
    (daemonset,) = eventually("the DaemonSet", lambda: list(owned(name).values()))
    agent = Agent(kube, daemonset, "worker-1")
    agent.run()
    agent.report({"eth0": "Healthy"}, resource=NIC)
    return agent


def nic(**fields: object) -> Object:
    return {"name": NIC, "devices": [{"simulated": {"count": 1}}], **fields}


def made(did: str) -> Mistake:
    (found,) = (m for m in RUNNING if m.did.startswith(did))
    return found


@pytest.mark.usefixtures("lab_agent")
def test_an_edit_that_nobody_looked_at(api: Cluster, kube: Kube) -> None:
    eventually("it serves", lambda: row(api, NAME)["READY"] == "True")
    wrong = nic(devices=[{"pci": {}}], inject={"env": [{"name": "A", "value": "{pci.adress}"}]})
    kube.patch(f"{CONFIGS}/{NAME}", {"spec": {"resources": [wrong]}})
    seen_as(made("an edit with a mistake"), lambda: shown_row(api))


def test_two_objects_that_serve_one_resource(operators: Operators, api: Cluster, kube: Kube, owned: Owned) -> None:
    operators.start(**PRODUCTION).wait_leading()
    serving(kube, owned, name="first")
    kube.create(CONFIGS, lab({"resources": [nic()]}))
    seen_as(made("two objects"), lambda: shown_row(api))


def test_a_taint_that_the_pool_does_not_tolerate(lab_agent: Agent, api: Cluster, kube: Kube) -> None:
    pools = [{"name": "edge", "nodeSelector": {"hardware": "lab"}, "tolerations": []}]
    kube.patch(f"{CONFIGS}/{NAME}", {"spec": {"nodePools": pools}})
    taint = {"key": "hardware", "value": "fpga", "effect": "NoSchedule"}
    kube.patch(f"{NODES}/worker-1", {"spec": {"taints": [taint]}})
    lab_agent.end()
    seen_as(made("a taint"), lambda: shown_row(api))


def test_an_image_that_does_not_exist(lab_agent: Agent, api: Cluster) -> None:
    lab_agent.wait_for("ImagePullBackOff", 'Back-off pulling image "registry.example.com/device-agnet:1"')
    seen_as(made("an image"), lambda: shown_row(api))


@pytest.mark.parametrize(
    ("did", "text"),
    [
        ("the operator's namespace", 'violates PodSecurity "baseline:latest": hostPath volumes'),
        ("the agents' ServiceAccount", "error looking up service account device-operator/agent: not found"),
        ("a ResourceQuota", "exceeded quota: small, requested: pods=1, used: pods=5, limited: pods=5"),
    ],
)
def test_pods_that_the_api_server_refuses(did: str, text: str, lab_agent: Agent, api: Cluster, kube: Kube) -> None:
    lab_agent.end()
    daemonset = lab_agent.pod.removesuffix("-worker-1")
    warn(kube, "DaemonSet", daemonset, "FailedCreate", f'pods "{daemonset}-" is forbidden: {text}')
    seen_as(made(did), lambda: shown_row(api))


@pytest.mark.usefixtures("lab_agent")
def test_paused_and_forgotten(api: Cluster, kube: Kube) -> None:
    kube.patch(f"{CONFIGS}/{NAME}", {"spec": {"paused": True}})
    seen_as(made("`paused: true`"), lambda: shown_row(api))


def test_a_label_taken_off(lab_agent: Agent, api: Cluster, kube: Kube) -> None:
    lab_agent.report({"eth0": "Healthy"}, resource=NIC, allocated={"eth0": "trainer"})
    eventually("it is held", lambda: row(api, NAME)["ALLOCATED"] == "1")
    kube.patch(f"{NODES}/worker-1", {"metadata": {"labels": {"hardware": None}}})
    lab_agent.end()
    seen_as(made("the label taken off"), lambda: shown_row(api))


def test_a_wrong_directory_of_the_kubelet(lab_agent: Agent, api: Cluster) -> None:
    lab_agent.report({"eth0": "Healthy"}, resource=NIC, podResources="Unavailable")
    seen_as(made("a wrong `kubeletRootDir`"), lambda: shown_row(api))


def test_another_plugin_left_running(lab_agent: Agent, api: Cluster) -> None:
    told = {"registered": False, "reason": "ForeignPlugin", "message": foreign_message(NIC, ["eth0"])}
    counts = {"name": NIC, "entry": NIC, "devices": 1, "healthy": 1, "unhealthy": 0, "capacity": 1, "allocated": 0}
    lab_agent.report({"eth0": "Healthy"}, resource=NIC, resources=[{**counts, **told}])
    seen_as(made("a vendor's own plugin"), lambda: shown_row(api))


@pytest.mark.usefixtures("lab_agent")
def test_a_pod_that_asks_for_what_nobody_serves(api: Cluster, kube: Kube) -> None:
    container = {"name": "main", "image": "x", "resources": {"limits": {f"{NIC}k": "1"}}}
    pods = "/api/v1/namespaces/default/pods"
    spec = {"containers": [container], "automountServiceAccountToken": False}
    account = "/api/v1/namespaces/default/serviceaccounts"
    kube.create(account, {"metadata": {"name": "default"}})
    kube.create(pods, {"metadata": {"name": "trainer"}, "spec": spec})
    try:
        seen_as(made("a pod that asks"), lambda: devices(api, "who", "pod/trainer"))
    finally:
        kube.delete(f"{pods}/trainer", gracePeriodSeconds=0)
        kube.delete(f"{account}/default")


def devices(api: Cluster, *command: str) -> str:
    answer = run(api.kubeconfig, *command)
    return answer.out + answer.err


def test_a_device_that_another_object_has(  # noqa: PLR0917 fixtures
    operators: Operators, api: Cluster, kube: Kube, owned: Owned, node_files: Node, kubelet: Kubelet, proxy: str
) -> None:
    """Two real agents on one node."""
    operators.start(**PRODUCTION).wait_leading()
    ready_node(kube, node("worker-1"))
    start = {name: Start(beside(node_files, name)) for name in ("first", NAME)}
    try:
        for name, resource in (("first", NIC), (NAME, f"{NIC}-2")):
            entry = {"name": resource, "devices": [{"files": {"paths": ["/dev/widget0"]}}]}
            uid = kube.create(CONFIGS, lab({"resources": [entry]}, name=name))["metadata"]["uid"]
            (daemonset,) = eventually("the DaemonSet", lambda n=name: list(owned(n).values()))
            Agent(kube, daemonset, "worker-1").run()
            beside(node_files, name).configure(document(owned, name))
            env = {"NODE_NAME": "worker-1", "POOL_NAME": "default", "CONFIG_NAME": name, "CONFIG_UID": uid}
            start[name]("--report=api", f"--api-server={proxy}", env=env)
            if name == "first":
                kubelet.wait_for(resource, 1)
                kubelet.admit("trainer", resource, 1)
        seen_as(made("a second object"), lambda: devices(api, "list", "--withheld", "-o", "wide"))
    finally:
        for agents in start.values():
            for agent in agents.agents:
                agent.terminate()
                agent.process.stderr.close()


def beside(host: Node, name: str) -> Node:
    """The same node, with another mounted configuration."""
    other = copy.copy(host)
    other.mount = host.root / f"config-{name}"
    other.mount.mkdir(exist_ok=True)
    return other


@pytest.fixture
def deployment(kube: Kube) -> Iterator[str]:
    """The operator's Deployment, as the chart makes it, with the status that controllers would write."""
    labels = {"app.kubernetes.io/part-of": "device-operator", "app.kubernetes.io/component": "operator"}
    template = {
        "metadata": {"labels": {"app": "operator"}},
        "spec": {"containers": [{"name": "operator", "image": "example.com/operator:1", "args": ["run"]}]},
    }
    spec = {"selector": {"matchLabels": {"app": "operator"}}, "template": template}
    kube.create(DEPLOYMENTS, {"metadata": {"name": "device-operator", "labels": labels}, "spec": spec})
    path = f"{DEPLOYMENTS}/device-operator"
    kube.patch(f"{path}/status", {"status": {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1}})
    yield path
    kube.delete(path)


def check(api: Cluster, reason: str) -> str:
    """The finding of `kubectl devices check` that has this reason."""
    lines = devices(api, "check").splitlines()
    begins = [i for i, line in enumerate(lines) if not line.startswith(" ")]
    for begin, end in zip(begins, [*begins[1:], len(lines)], strict=True):
        if f" {reason}:" in lines[begin]:
            return "\n".join(lines[begin:end])
    return "\n".join(lines)


def test_the_operator_scaled_down(operators: Operators, deployment: str, api: Cluster, kube: Kube) -> None:
    operators.end_shared()
    kube.patch(deployment, {"spec": {"replicas": 0}})
    seen_as(made("the operator scaled"), lambda: check(api, "OperatorScaledDown"))


@pytest.mark.usefixtures("deployment")
def test_the_operator_killed(operators: Operators, api: Cluster, kube: Kube) -> None:
    operator = operators.start()
    operator.wait_leading()
    holder = kube.get(LEASE)["spec"]["holderIdentity"]
    operator.end(signal.SIGKILL)
    pod = "device-operator-6d9f7c-x2x4k"
    seen_as(made("the operator's process"), lambda: check(api, "OperatorGone").replace(holder, pod))


@pytest.mark.usefixtures("deployment")
def test_a_kind_deleted(operators: Operators, api: Cluster) -> None:
    operators.shared()
    try:
        api.kubectl("delete", "crd", "nodedeviceinventories.device-operator.io")
        seen_as(made("a CustomResourceDefinition"), lambda: check(api, "KindMissing"))
    finally:
        install_crds(api)
