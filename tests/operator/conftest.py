"""A real kube-apiserver and etcd, the CRDs of the checkout, and the operator as a process beside them.

There are no controllers: what the DaemonSet controller, a kubelet or an agent would write, a test writes. Objects of
one test are gone before the next; the operator goes on running unless a test wants one of its own.
"""

import contextlib
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `operator` is the standard library's: this folder cannot be a package

from kubeapi import CONFIGS, EVENTS, INVENTORIES, NAMESPACE, NODES, Kube, Object, Owned, eventually
from localcluster import Cluster, Profile, places
from operator_process import OperatorProcess
from real_agent import kubelet, node_files, proxy, serving, start  # noqa: F401 fixtures

CRDS = places.CHECKOUT / "crds"
AUDITED = "audited"
"""A ServiceAccount. What it writes is in the API server's audit log, its leases apart."""
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "resources": [{"group": "coordination.k8s.io"}]},
        {
            "level": "RequestResponse",
            "users": [f"system:serviceaccount:{NAMESPACE}:{AUDITED}"],
            "verbs": ["create", "update", "patch", "delete"],
        },
        {"level": "None"},
    ],
}
_AUDIT_LOG = "audit.log"


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # one for each checkout: another's run on this machine must not sweep this one away
    name = f"operator-{hashlib.sha256(str(places.CHECKOUT).encode()).hexdigest()[:6]}"
    policy = tmp_path_factory.mktemp("audit") / "policy.json"
    policy.write_text(json.dumps(_AUDIT))
    audit = (f"--audit-policy-file={policy}", f"--audit-log-path={_AUDIT_LOG}")
    cluster = Cluster(
        Profile(name=name, nodes=0, control_plane_only=True, controller_manager=False, apiserver_args=audit)
    )
    cluster.clean()
    cluster.up()
    try:
        cluster.kubectl("create", "namespace", NAMESPACE)
        cluster.kubectl("create", "serviceaccount", "default", "-n", NAMESPACE)
        install_crds(cluster)
        yield cluster
    finally:
        cluster.clean()


def audited(cluster: Cluster) -> list[Object]:
    """The successful writes of the account AUDITED, oldest first."""
    lines = (cluster.state / _AUDIT_LOG).read_text().splitlines()
    found = [json.loads(line) for line in lines if line.endswith("}")]  # a killed server leaves half a line
    return [w for w in found if w["responseStatus"]["code"] < 300 and "dryRun" not in w["requestURI"]]


def install_crds(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-f", str(CRDS))
    # `kubectl wait` and jsonpath fail for a kind that has no status yet
    eventually("the kinds are established", lambda: established(cluster) == ["True", "True"])


def established(cluster: Cluster) -> list[str]:
    kinds = json.loads(cluster.kubectl("get", "-f", str(CRDS), "-o", "json"))["items"]
    conditions = (c for kind in kinds for c in kind.get("status", {}).get("conditions") or ())
    return [c["status"] for c in conditions if c["type"] == "Established"]


@pytest.fixture(scope="session")
def kube(api: Cluster) -> Iterator[Kube]:
    kube = Kube(api.kubeconfig)
    yield kube
    kube.close()


class Operators:
    """At most one runs at a time unless a test starts more: DevicePluginConfigs belong to the whole cluster."""

    def __init__(self, cluster: Cluster, log: Path) -> None:
        self._cluster = cluster
        self._log = log
        self._shared: OperatorProcess | None = None
        self._own: list[OperatorProcess] = []

    def shared(self) -> OperatorProcess:
        if self._shared is None or self._shared.process.poll() is not None:
            self._shared = self._start()
            self._shared.wait_leading()
        return self._shared

    def start(self, **settings: object) -> OperatorProcess:
        """An operator with settings of its own; it ends with the test."""
        self.end_shared()
        self._own.append(self._start(**settings))
        return self._own[-1]

    def end_shared(self) -> None:
        if self._shared is not None:
            self._shared.end()
            self._shared = None

    def end_own(self) -> None:
        for operator in self._own:
            operator.end()
        self._own.clear()

    def _start(self, **settings: object) -> OperatorProcess:
        given = {"kubeconfig": self._cluster.kubeconfig, "namespace": NAMESPACE, **settings}
        return OperatorProcess(log=self._log, **given)


@pytest.fixture(scope="session")
def _operators(api: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operators]:
    operators = Operators(api, tmp_path_factory.mktemp("operator") / "operator.log")
    yield operators
    operators.end_own()
    operators.end_shared()


@pytest.fixture
def operators(_operators: Operators, kube: Kube) -> Iterator[Operators]:
    """For tests that start, stop and kill operators of their own."""
    _sweep(kube)
    yield _operators
    _operators.end_own()
    _sweep(kube)


@pytest.fixture
def operator(operators: Operators) -> OperatorProcess:
    """The operator that keeps running from test to test."""
    return operators.shared()


@pytest.fixture
def label(request: pytest.FixtureRequest) -> str:
    """A DNS label of the test's own."""
    return re.sub(r"[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_"))[:40].strip("-")


@pytest.fixture
def owned(kube: Kube) -> Owned:
    """Objects of a kind with the label of a config, by pool."""

    def find(config: str, kind: str = "daemonsets") -> dict[str, Object]:
        root = f"/apis/apps/v1/namespaces/{NAMESPACE}" if kind == "daemonsets" else f"/api/v1/namespaces/{NAMESPACE}"
        found = kube.items(f"{root}/{kind}?labelSelector=device-operator.io/config={config}")
        return {o["metadata"]["labels"]["device-operator.io/pool"]: o for o in found}

    return find


def _sweep(kube: Kube) -> None:
    """Deletes what a test left. No garbage collector runs here."""
    for path in (CONFIGS, INVENTORIES, NODES):
        for item in kube.items(path):
            kube.delete(f"{path}/{item['metadata']['name']}")
    eventually("no objects are left", lambda: not kube.items(CONFIGS))
    for root, kinds in (
        (f"/apis/apps/v1/namespaces/{NAMESPACE}", ["daemonsets", "controllerrevisions"]),
        (f"/api/v1/namespaces/{NAMESPACE}", ["configmaps", "events", "pods"]),
    ):
        for kind in kinds:
            for item in kube.items(f"{root}/{kind}"):
                kube.delete(f"{root}/{kind}/{item['metadata']['name']}", gracePeriodSeconds=0)
    for item in kube.items(EVENTS):
        with contextlib.suppress(Exception):
            kube.delete(f"{EVENTS}/{item['metadata']['name']}")
