"""The chart's roles on a real API server: each account may do its work, and nothing else."""

import json
import re

import pytest

API_VERSION = "device-operator.io/v1alpha1"
INVENTORIES = f"/apis/{API_VERSION}/nodedeviceinventories"
CONFIGS = f"/apis/{API_VERSION}/devicepluginconfigs"
NAMESPACE = "devices"
OPERATOR = "do-device-operator"
AGENT = "do-device-operator-agent"
GROUP = "device-operator.io"

READ = ("get", "list", "watch")
WRITE = ("create", "update", "patch", "delete", "deletecollection")


def may(release, account, verb, resource, *, group="", namespace="", name=""):
    """What the API server's authorizer says, as `kubectl auth can-i --as` asks it."""
    resource, _, subresource = resource.partition("/")
    attributes = {
        "verb": verb,
        "group": group,
        "resource": resource,
        "subresource": subresource,
        "namespace": namespace,
        "name": name,
    }
    user = f"system:serviceaccount:{NAMESPACE}:{account}"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"]
    review = {"spec": {"user": user, "groups": groups, "resourceAttributes": attributes}}
    answer = release.admin("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    assert answer.code == 201, answer.message
    return answer.body["status"]["allowed"]


def described_rights():
    """The rights that the operator's own command line names, so that program and chart cannot drift apart.

    "cluster  nodes list,watch; …" as (where, resource, verb).
    """
    import device_operator.__main__ as program

    text = program.__doc__.partition("Permissions that `run` needs:")[2]
    text = re.sub(r"\n {8,}", " ", text)
    for where, rights in re.findall(r"^ {4}(cluster|its namespace|namespace default) +(.+)$", text, re.MULTILINE):
        for right in filter(None, (part.strip() for part in rights.split(";"))):
            resource, verbs = right.split()
            for verb in verbs.split(","):
                yield where, resource, verb


GROUPS = {
    "devicepluginconfigs": GROUP,
    "devicepluginconfigs/status": GROUP,
    "devicepluginconfigs/finalizers": GROUP,
    "nodedeviceinventories": GROUP,
    "controllerrevisions": "apps",
    "daemonsets": "apps",
    "leases": "coordination.k8s.io",
}


def test_the_operator_may_do_what_it_says_it_needs(release):
    rights = set(described_rights())
    assert len(rights) > 20
    namespaces = {"cluster": "", "its namespace": NAMESPACE, "namespace default": "default"}
    missing = [
        right
        for right in rights
        for where, resource, verb in [right]
        if not may(
            release,
            OPERATOR,
            verb,
            resource,
            group=GROUPS.get(resource, ""),
            namespace=namespaces[where],
            name="device-operator" if resource == "leases" and verb != "create" else "",
        )
    ]
    assert missing == []


@pytest.mark.parametrize("account", [OPERATOR, AGENT])
@pytest.mark.parametrize("namespace", ["", NAMESPACE, "default", "kube-system"])
def test_nobody_reaches_secrets_or_more_rights(release, account, namespace):
    for verb in (*READ, *WRITE):
        assert not may(release, account, verb, "secrets", namespace=namespace)
    for resource in ("roles", "rolebindings", "clusterroles", "clusterrolebindings"):
        for verb in (*WRITE, "bind", "escalate"):
            assert not may(release, account, verb, resource, group="rbac.authorization.k8s.io", namespace=namespace)
    for resource in ("serviceaccounts/token", "pods/exec", "pods/ephemeralcontainers", "nodes/proxy"):
        assert not may(release, account, "create", resource, namespace=namespace)
    assert not may(release, account, "impersonate", "users")


def test_the_operator_writes_workloads_in_its_own_namespace_only(release):
    for namespace in ("", "default", "kube-system"):
        for resource, group in (("daemonsets", "apps"), ("configmaps", ""), ("pods", "")):
            for verb in (*READ, *WRITE):
                assert not may(release, OPERATOR, verb, resource, group=group, namespace=namespace), (verb, resource)
    assert not may(release, OPERATOR, "create", "pods", namespace=NAMESPACE)
    assert not may(release, OPERATOR, "delete", "pods", namespace=NAMESPACE)


def test_the_operator_changes_no_node_no_configuration_and_no_report(release):
    for verb in WRITE:
        assert not may(release, OPERATOR, verb, "nodes")
        assert not may(release, OPERATOR, verb, "devicepluginconfigs", group=GROUP)
        assert not may(release, OPERATOR, verb, "nodedeviceinventories/status", group=GROUP)
    for verb in ("create", "update", "patch"):
        assert not may(release, OPERATOR, verb, "nodedeviceinventories", group=GROUP)


def test_the_operator_has_no_say_over_other_leases(release):
    for verb in ("get", "update", "patch", "delete"):
        lease = {"group": "coordination.k8s.io", "namespace": NAMESPACE, "name": "somebody-elses"}
        assert not may(release, OPERATOR, verb, "leases", **lease)


def test_a_maintainer_cordons_devices_and_changes_nothing_else(release):
    """A ServiceAccount stands for the people to whom an admin gives the role."""
    kubectl, account = release.cluster.kubectl, "maintainers"
    kubectl("create", "serviceaccount", account, "-n", NAMESPACE)
    binding = ("clusterrolebinding", account)
    kubectl("create", *binding, f"--clusterrole={OPERATOR}-maintainer", f"--serviceaccount={NAMESPACE}:{account}")
    agent, path = release.agent_on("edge-1"), f"{INVENTORIES}/lab.edge-1"
    assert agent("POST", INVENTORIES, release.inventory("edge-1")).code == 201
    person = release.with_token(release.token(account))
    try:
        release.eventually("the role is in force", lambda: person("GET", path).code == 200)
        item = {"id": "0000:3b:00.0", "reason": "swap the cable"}
        answer = person("PATCH", path, {"spec": {"cordoned": [item]}})
        assert answer.code == 200, answer.message
        assert agent("GET", path).body["spec"]["cordoned"] == [item]
        assert "only spec.cordoned may change" in person("PATCH", path, {"spec": {"nodeName": "edge-2"}}).message
        assert person("PATCH", f"{path}/status", {"status": {"poolName": "forged"}}).code == 403
        assert person("DELETE", path).code == 403
        assert person("GET", CONFIGS).code == 200
        assert person("POST", CONFIGS, release.config("lab")).code == 403
        assert agent("PATCH", path, {"spec": {"cordoned": []}}).code == 403
    finally:
        release.admin("DELETE", path)
        kubectl("delete", *binding)
        kubectl("delete", "serviceaccount", account, "-n", NAMESPACE)


def test_the_agent_has_three_rights(release):
    kinds = ("devicepluginconfigs", "nodedeviceinventories")
    allowed = {
        (resource, verb)
        for resource in (*kinds, *(f"{kind}/status" for kind in kinds))
        for verb in (*READ, *WRITE)
        if may(release, AGENT, verb, resource, group=GROUP)
    }
    assert allowed == {
        ("nodedeviceinventories", "create"),
        ("nodedeviceinventories", "get"),
        ("nodedeviceinventories/status", "patch"),
    }
    for resource, group in (("pods", ""), ("nodes", ""), ("configmaps", ""), ("daemonsets", "apps"), ("events", "")):
        for verb in (*READ, *WRITE):
            assert not may(release, AGENT, verb, resource, group=group, namespace=NAMESPACE), (verb, resource)


@pytest.mark.parametrize("role", ["view", "edit", "admin"])
def test_the_clusters_own_roles_do_not_include_our_kinds(release, role):
    rules = release.admin("GET", f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}").body.get("rules") or []
    assert not any(GROUP in rule.get("apiGroups", ()) for rule in rules)


def test_the_operators_token_is_good_for_its_work(release):
    """One request of each kind with a real token. Most other tests only ask the authorizer."""
    operator = release.with_token(release.token(OPERATOR, pod=release.pod("edge-1", account=OPERATOR)))
    assert operator("GET", "/api/v1/secrets").code == 403
    assert operator("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets").code == 403
    assert operator("GET", "/api/v1/nodes").code == 200
    assert operator("GET", CONFIGS).code == 200
    created = release.admin("POST", CONFIGS, release.config("rounds"))
    assert created.code == 201, created.message
    try:
        owner = {
            "apiVersion": API_VERSION,
            "kind": "DevicePluginConfig",
            "name": "rounds",
            "uid": created.body["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        document = {"metadata": {"name": "rounds", "ownerReferences": [owner]}, "data": {"a": "b"}}
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
        answer = operator("POST", path, document)
        assert answer.code == 201, answer.message
        assert operator("PUT", f"{path}/rounds", {**answer.body, "data": {"a": "c"}}).code == 200
        assert operator("DELETE", f"{path}/rounds").code == 200
        assert operator("POST", "/api/v1/namespaces/default/configmaps", document).code == 403
        assert operator("PATCH", f"{CONFIGS}/rounds", {"spec": {"paused": True}}).code == 403
        status = operator("PATCH", f"{CONFIGS}/rounds/status", {"status": {"observedGeneration": 1}})
        assert status.code == 200, status.message
        lease = {"metadata": {"name": "device-operator"}, "spec": {"holderIdentity": "one"}}
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
        taken = operator("POST", leases, lease)
        assert taken.code == 201, taken.message
        assert operator("PUT", f"{leases}/device-operator", taken.body).code == 200
    finally:
        release.admin("DELETE", f"{CONFIGS}/rounds")


def test_reading_needs_a_token_of_ours(release):
    stranger = release.with_token("not-a-token")
    assert stranger("GET", INVENTORIES).code == 401
    assert json.dumps(stranger("GET", CONFIGS).body)
