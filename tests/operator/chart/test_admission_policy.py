"""The chart's admission policies, tried with tokens that are bound to pods, as the kubelet's are."""

import base64
import json
import subprocess
from typing import Any

import pytest

API_VERSION = "device-operator.io/v1alpha1"
INVENTORIES = f"/apis/{API_VERSION}/nodedeviceinventories"
CONFIGS = f"/apis/{API_VERSION}/devicepluginconfigs"
AGENT = "do-device-operator-agent"
NAMESPACE = "devices"


@pytest.fixture(scope="module")
def agent(release):
    """The agent of node edge-1."""
    return release.agent_on("edge-1")


@pytest.fixture
def foreign(release):
    """An inventory of another node that its own agent has made."""
    other = release.agent_on("edge-2")
    answer = other("POST", INVENTORIES, release.inventory("edge-2"))
    assert answer.code == 201, answer.message
    yield answer.body
    release.admin("DELETE", f"{INVENTORIES}/lab.edge-2")


# ---- an agent and the inventories


def test_an_agent_creates_and_reports_its_own_inventory(release, agent):
    created = agent("POST", INVENTORIES, release.inventory("edge-1"))
    assert created.code == 201, created.message
    path = f"{INVENTORIES}/lab.edge-1"
    try:
        patched = agent("PATCH", f"{path}/status", {"status": {"poolName": "default", "agentVersion": "0.1.0"}})
        assert patched.code == 200, patched.message
        assert agent("GET", path).body["status"]["poolName"] == "default"
    finally:
        release.admin("DELETE", path)


def test_one_agent_may_serve_several_configurations_of_its_node(release, agent):
    for name in ("lab", "cameras"):
        answer = agent("POST", f"{INVENTORIES}?dryRun=All", release.inventory("edge-1", config=name))
        assert answer.code == 201, answer.message


def test_an_agent_creates_its_inventory_with_the_cordons_of_its_node_store(release, agent):
    inventory = release.inventory("edge-1")
    inventory["spec"]["cordoned"] = [{"id": "a", "reason": "recall"}, {"id": "*"}]
    answer = agent("POST", f"{INVENTORIES}?dryRun=All", inventory)
    assert answer.code == 201, answer.message
    assert answer.body["spec"] == inventory["spec"]


@pytest.mark.parametrize("node", ["edge-2", "edge-10", "edge", "edge-1.example"])
def test_an_agent_cannot_create_the_inventory_of_another_node(release, agent, node):
    answer = agent("POST", INVENTORIES, release.inventory(node))
    assert answer.code == 403
    assert f"this token belongs to node edge-1, spec.nodeName is {node}" in answer.message


def test_an_agent_cannot_report_for_another_node(release, agent, foreign):
    answer = agent("PATCH", f"{INVENTORIES}/lab.edge-2/status", {"status": {"poolName": "forged"}})
    assert answer.code == 403
    assert "own node only" in answer.message
    assert "status" not in release.admin("GET", f"{INVENTORIES}/lab.edge-2").body


def test_an_agent_cannot_take_another_nodes_inventory_by_patching_its_spec(release, agent, foreign):
    """The specification cannot be written through /status, so a patched nodeName does not deceive the policy."""
    patch = {"spec": {"nodeName": "edge-1"}, "status": {"poolName": "forged"}}
    answer = agent("PATCH", f"{INVENTORIES}/lab.edge-2/status", patch)
    assert answer.code == 403
    assert release.admin("GET", f"{INVENTORIES}/lab.edge-2").body["spec"]["nodeName"] == "edge-2"


@pytest.mark.parametrize("name", ["lab.edge-2", "lab-edge-1", "other.edge-1", "edge-1"])
def test_an_agent_cannot_create_its_inventory_under_another_name(release, agent, name):
    answer = agent("POST", INVENTORIES, release.inventory("edge-1", name=name))
    assert answer.code == 422
    assert "<spec.configName>.<spec.nodeName>" in answer.message


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"finalizers": ["example.com/keep"]}, "leave metadata.finalizers out"),
        ({"ownerReferences": []}, "set exactly that one in metadata.ownerReferences"),
        ({"ownerReferences": [{"config": "other"}]}, "set exactly that one"),
        ({"ownerReferences": [{"config": "lab"}, {"config": "lab", "uid": "u-2"}]}, "set exactly that one"),
        ({"ownerReferences": [{"config": "lab", "kind": "Node", "apiVersion": "v1"}]}, "set exactly that one"),
        ({"ownerReferences": [{"config": "lab", "kind": "NodeDeviceInventory"}]}, "set exactly that one"),
        ({"ownerReferences": [{"config": "lab", "apiVersion": "example.com/v1"}]}, "set exactly that one"),
    ],
)
def test_an_agent_cannot_give_an_inventory_other_owners_or_finalizers(release, agent, metadata, said):
    if "ownerReferences" in metadata:
        metadata = {"ownerReferences": [release.owner(**reference) for reference in metadata["ownerReferences"]]}
    answer = agent("POST", INVENTORIES, release.inventory("edge-1", **metadata))
    assert answer.code == 422
    assert said in answer.message


def test_metadata_cannot_be_changed_through_status(release, agent):
    """So the policy checks metadata only in other writes."""
    path = f"{INVENTORIES}/lab.edge-1"
    assert agent("POST", INVENTORIES, release.inventory("edge-1")).code == 201
    try:
        patch = {"metadata": {"finalizers": ["example.com/keep"], "ownerReferences": []}, "status": {"poolName": "a"}}
        answer = agent("PATCH", f"{path}/status", patch)
        assert answer.code == 200, answer.message
        assert "finalizers" not in answer.body["metadata"]
        assert [owner["name"] for owner in answer.body["metadata"]["ownerReferences"]] == ["lab"]
    finally:
        release.admin("DELETE", path)


def test_a_report_goes_on_when_somebody_else_has_put_a_finalizer_on_the_inventory(release, agent):
    path = f"{INVENTORIES}/lab.edge-1"
    assert release.admin("POST", INVENTORIES, release.inventory("edge-1", finalizers=["example.com/keep"])).code == 201
    try:
        answer = agent("PATCH", f"{path}/status", {"status": {"poolName": "a"}})
        assert answer.code == 200, answer.message
    finally:
        release.admin("PATCH", path, {"metadata": {"finalizers": None}})
        release.admin("DELETE", path)


def test_the_policy_holds_even_where_another_role_lets_agents_update(release, agent):
    """Somebody's broader role must not undo it: the whole object is covered, not only its status."""
    rules = [
        {"apiGroups": ["device-operator.io"], "resources": ["nodedeviceinventories"], "verbs": ["patch", "update"]}
    ]
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    release.admin("POST", f"{rbac}/clusterroles", {"metadata": {"name": "broad"}, "rules": rules})
    binding = {
        "metadata": {"name": "broad"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "broad"},
        "subjects": [{"kind": "ServiceAccount", "name": AGENT, "namespace": NAMESPACE}],
    }
    release.admin("POST", f"{rbac}/clusterrolebindings", binding)
    path = f"{INVENTORIES}/lab.edge-1"
    assert agent("POST", INVENTORIES, release.inventory("edge-1")).code == 201
    try:
        labels = {"metadata": {"labels": {"a": "b"}}}
        release.eventually("the broad role counts", lambda: agent("PATCH", path, labels).code == 200)
        answer = agent("PATCH", path, {"metadata": {"finalizers": ["example.com/keep"]}})
        assert answer.code == 422
        assert "finalizers" in answer.message
        answer = release.agent_on("edge-2")("PATCH", path, labels)
        assert answer.code == 403
        assert "own node only" in answer.message
    finally:
        release.admin("DELETE", path)
        release.admin("DELETE", f"{rbac}/clusterrolebindings/broad")
        release.admin("DELETE", f"{rbac}/clusterroles/broad")


def test_a_token_that_is_bound_to_no_pod_is_refused(release):
    unbound = release.with_token(release.token(AGENT))
    answer = unbound("POST", INVENTORIES, release.inventory("edge-1"))
    assert answer.code == 403
    assert "the token names no node" in answer.message


def test_a_token_from_a_secret_is_refused(release):
    """A legacy token, signed as the controller manager would: it lives as long as its Secret and names no node."""
    account = release.admin("GET", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{AGENT}").body["metadata"]
    claims = {
        "iss": "kubernetes/serviceaccount",
        "sub": f"system:serviceaccount:{NAMESPACE}:{AGENT}",
        "kubernetes.io/serviceaccount/namespace": NAMESPACE,
        "kubernetes.io/serviceaccount/secret.name": "legacy",
        "kubernetes.io/serviceaccount/service-account.name": AGENT,
        "kubernetes.io/serviceaccount/service-account.uid": account["uid"],
    }
    token = signed(claims, key=release.cluster.state / "pki" / "service-accounts.key")
    secret = {
        "metadata": {
            "name": "legacy",
            "annotations": {
                "kubernetes.io/service-account.name": AGENT,
                "kubernetes.io/service-account.uid": account["uid"],
            },
        },
        "type": "kubernetes.io/service-account-token",
        "stringData": {"token": token, "ca.crt": "-", "namespace": NAMESPACE},
    }
    secrets = f"/api/v1/namespaces/{NAMESPACE}/secrets"
    assert release.admin("POST", secrets, secret).code == 201
    try:
        legacy = release.with_token(token)
        release.eventually("the token is known", lambda: legacy("GET", f"{INVENTORIES}/absent").code == 404)
        answer = legacy("POST", INVENTORIES, release.inventory("edge-1"))
        assert answer.code == 403
        assert "the token names no node" in answer.message
    finally:
        release.admin("DELETE", f"{secrets}/legacy")


def test_the_policy_is_about_agents_alone(release):
    """An admin can repair what is broken."""
    answer = release.admin("POST", f"{INVENTORIES}?dryRun=All", release.inventory("edge-9", finalizers=["a.example/b"]))
    assert answer.code == 201, answer.message


def signed(claims: dict[str, Any], *, key: Any) -> str:
    """An ES256 token: JOSE wants the two numbers of the signature bare, openssl gives them as DER."""
    head = encoded(json.dumps({"alg": "ES256", "typ": "JWT"}).encode())
    text = f"{head}.{encoded(json.dumps(claims).encode())}"
    der = subprocess.run(
        ["openssl", "dgst", "-sha256", "-sign", str(key)], input=text.encode(), capture_output=True, check=True
    ).stdout
    numbers, at = b"", 2
    for _ in range(2):
        length = der[at + 1]
        numbers += der[at + 2 : at + 2 + length].lstrip(b"\0").rjust(32, b"\0")
        at += 2 + length
    return f"{text}.{encoded(numbers)}"


def encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


# ---- what a DevicePluginConfig may say about agents


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"agent": {"image": "example.com/mine:1"}}, "leave out spec.agent.image"),
        ({"agent": {"env": [{"name": "PYTHONPATH", "value": "/mine"}]}}, "leave out spec.agent.env"),
        ({"nodePools": [{"name": "a"}, {"name": "b", "agent": {"image": "mine"}}]}, "spec.nodePools[].agent.image"),
        ({"nodePools": [{"name": "a", "agent": {"env": [{"name": "A", "value": "b"}]}}]}, "spec.nodePools[].agent.env"),
    ],
)
def test_image_and_env_of_agents_are_refused_by_default(release, spec, said):
    answer = release.admin("POST", f"{CONFIGS}?dryRun=All", release.config("mine", **spec))
    assert answer.code == 422
    assert said in answer.message
    assert "agent.allowImageOverride" in answer.message


def test_every_other_setting_of_agents_is_free(release):
    agent = {"priorityClassName": "system-node-critical", "logLevel": "Debug", "imagePullPolicy": "Always"}
    spec = {"agent": agent, "nodePools": [{"name": "a", "agent": {"logLevel": "Info"}}, {"name": "b"}]}
    answer = release.admin("POST", f"{CONFIGS}?dryRun=All", release.config("mine", **spec))
    assert answer.code == 201, answer.message


def test_an_image_cannot_come_in_by_an_edit(release):
    assert release.admin("POST", CONFIGS, release.config("mine")).code == 201
    try:
        answer = release.admin("PATCH", f"{CONFIGS}/mine", {"spec": {"agent": {"image": "mine"}}})
        assert answer.code == 422
        assert "agent.allowImageOverride" in answer.message
    finally:
        release.admin("DELETE", f"{CONFIGS}/mine")


def test_an_image_from_before_stays_until_the_specification_is_edited(release):
    """Otherwise nobody could label the object, or remove a finalizer from it so that it can be deleted."""
    path = f"{CONFIGS}/old"
    release.helm("upgrade", "agent.allowImageOverride=true")
    try:
        release.wait_for_image_policy(refuses=False)
        created = release.admin("POST", CONFIGS, release.config("old", agent={"image": "mine"}))
        assert created.code == 201, created.message
    finally:
        release.helm("upgrade")
        release.wait_for_image_policy(refuses=True)
    labelled = {"metadata": {"labels": {"a": "b"}, "finalizers": ["example.com/keep"]}}
    assert release.admin("PATCH", path, labelled).code == 200
    assert release.admin("PATCH", path, {"spec": {"paused": True}}).code == 422
    mended = release.admin("PATCH", f"{path}?dryRun=All", {"spec": {"paused": True, "agent": {"image": None}}})
    assert mended.code == 200, mended.message
    assert release.admin("DELETE", path).code == 200
    assert release.admin("PATCH", path, {"metadata": {"finalizers": None}}).code == 200
    release.eventually("it is gone", lambda: release.admin("GET", path).code == 404)
