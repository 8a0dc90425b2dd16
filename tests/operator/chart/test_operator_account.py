"""The operator itself with the token of the chart's account: its roles suffice for a whole round of work."""

import json

import pytest
from operator_process import OperatorProcess

API_VERSION = "device-operator.io/v1alpha1"
CONFIGS = f"/apis/{API_VERSION}/devicepluginconfigs"
INVENTORIES = f"/apis/{API_VERSION}/nodedeviceinventories"
NAMESPACE = "devices"
OPERATOR = "do-device-operator"
DAEMONSETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/device-operator"
CONFIGMAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


@pytest.fixture
def operator(release, tmp_path):
    config = json.loads(release.cluster.kubeconfig.read_text())
    token = release.token(OPERATOR, pod=release.pod("edge-1", account=OPERATOR))
    config["users"][0]["user"] = {"token": token}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.touch(0o600)
    kubeconfig.write_text(json.dumps(config))
    process = OperatorProcess(
        kubeconfig=kubeconfig,
        namespace=NAMESPACE,
        log=tmp_path / "log",
        log_format="json",
        agent_service_account="do-device-operator-agent",
        inventory_grace_seconds=0.1,
    )
    try:
        process.wait_leading()
        yield process
    finally:
        process.end()


def items(release, path):
    answer = release.admin("GET", path)
    assert answer.code == 200, answer.message
    return answer.body["items"]


def test_a_whole_round_of_work_meets_no_forbidden_request(release, operator):
    node = {"metadata": {"name": "edge-1", "labels": {"kubernetes.io/os": "linux"}}}
    assert release.admin("POST", "/api/v1/nodes", node).code == 201
    created = release.admin("POST", CONFIGS, release.config("work"))
    assert created.code == 201, created.message
    try:
        release.eventually("a DaemonSet", lambda: len(items(release, DAEMONSETS)) == 1)
        [daemon_set] = items(release, DAEMONSETS)
        assert daemon_set["spec"]["template"]["spec"]["serviceAccountName"] == "do-device-operator-agent"
        release.eventually("a ConfigMap", lambda: len(items(release, CONFIGMAPS)) >= 1)

        def status():
            return release.admin("GET", f"{CONFIGS}/work").body.get("status", {})

        release.eventually("a status", lambda: status().get("observedGeneration") == 1)
        release.eventually(
            "an Event in the namespace default",
            lambda: any(
                e["involvedObject"]["name"] == "work" for e in items(release, "/api/v1/namespaces/default/events")
            ),
        )

        added = {"spec": {"resources": [{"name": "example.com/other", "devices": [{"simulated": {"count": 1}}]}]}}
        before = {o["metadata"]["name"]: o["data"] for o in items(release, CONFIGMAPS)}
        assert release.admin("PATCH", f"{CONFIGS}/work", added).code == 200
        release.eventually(
            "the ConfigMap is updated",
            lambda: {o["metadata"]["name"]: o["data"] for o in items(release, CONFIGMAPS)} != before,
        )

        owner = release.owner("work", uid=created.body["metadata"]["uid"])
        inventory = release.inventory("gone", config="work", ownerReferences=[owner])
        assert release.admin("POST", INVENTORIES, inventory).code == 201
        release.eventually(
            "the inventory of a node that is gone is deleted",
            lambda: release.admin("GET", f"{INVENTORIES}/work.gone").code == 404,
        )
        refused = [line for line in operator.text.splitlines() if "forbidden" in line.lower() or '"code": 403' in line]
        assert refused == []
        assert release.admin("GET", LEASE).body["spec"]["holderIdentity"]
        assert operator.end() == 0
    finally:
        operator.end()
        release.admin("DELETE", LEASE)
        release.admin("DELETE", f"{CONFIGS}/work")
        release.admin("DELETE", "/api/v1/nodes/edge-1")
        for path in (DAEMONSETS, CONFIGMAPS):
            release.admin("DELETE", path)
        release.admin("DELETE", f"{INVENTORIES}/work.gone")
