"""What the chart's accounts and pods may do: no more than the programs need."""

import itertools
from typing import Any

import pytest

EVERY_ROLE = {"operator": {"serviceAccount": {"create": True}}, "metrics": {"serviceMonitor": {"enabled": True}}}
VERBS = {"create", "delete", "get", "list", "patch", "update", "watch"}


@pytest.fixture(scope="module")
def roles(chart) -> list[dict[str, Any]]:
    return [o for o in chart.template(EVERY_ROLE) if o["kind"] in {"Role", "ClusterRole"}]


def granted(role: dict[str, Any]) -> set[tuple[str, str, str]]:
    """(group, resource, verb) of each right."""
    return {
        right
        for rule in role["rules"]
        for right in itertools.product(rule["apiGroups"], rule["resources"], rule["verbs"])
    }


def by_name(roles: list[dict[str, Any]], kind: str, name: str) -> set[tuple[str, str, str]]:
    [role] = [r for r in roles if r["kind"] == kind and r["metadata"]["name"] == name]
    return granted(role)


def test_no_role_has_a_wildcard(roles):
    for role in roles:
        assert "*" not in itertools.chain(*granted(role)), role["metadata"]["name"]
        assert all("nonResourceURLs" not in rule for rule in role["rules"])
        assert {verb for _, _, verb in granted(role)} <= VERBS


def test_no_role_reaches_secrets_or_what_would_give_more_rights(roles):
    reached = {resource for role in roles for _, resource, _ in granted(role)}
    forbidden = {"secrets", "serviceaccounts", "serviceaccounts/token", "roles", "clusterroles", "pods/exec"}
    assert reached.isdisjoint(forbidden)
    assert not any(
        resource.startswith("nodes") and verb not in {"list", "watch"}
        for role in roles
        for _, resource, verb in granted(role)
    )


def test_no_role_is_aggregated(roles):
    for role in roles:
        assert not any(label.startswith("rbac.authorization.k8s.io/aggregate") for label in role["metadata"]["labels"])
        assert "aggregationRule" not in role


def test_the_agent_writes_inventories_and_nothing_else(roles):
    group = "device-operator.io"
    assert by_name(roles, "ClusterRole", "do-device-operator-agent") == {
        (group, "nodedeviceinventories", "create"),
        (group, "nodedeviceinventories", "get"),
        (group, "nodedeviceinventories/status", "patch"),
    }


def test_the_operator_never_writes_a_configuration_or_an_inventory(roles):
    rights = by_name(roles, "ClusterRole", "do-device-operator")
    writes = {(resource, verb) for _, resource, verb in rights if verb not in {"get", "list", "watch"}}
    assert writes == {
        ("devicepluginconfigs/status", "patch"),
        ("devicepluginconfigs/finalizers", "update"),  # blockOwnerDeletion, see the template
        ("nodedeviceinventories", "delete"),
    }


def test_workloads_are_written_in_the_own_namespace_only(roles):
    for role in roles:
        resources = {resource for _, resource, _ in granted(role)}
        if resources & {"daemonsets", "configmaps", "pods", "leases"}:
            assert role["kind"] == "Role"
            assert role["metadata"]["namespace"] == "devices"


def test_the_lease_is_limited_to_its_name(roles):
    [role] = [r for r in roles if r["kind"] == "Role" and r["metadata"]["name"] == "do-device-operator"]
    rules = [rule for rule in role["rules"] if rule["resources"] == ["leases"]]
    named = {verb for rule in rules if rule.get("resourceNames") == ["device-operator"] for verb in rule["verbs"]}
    anywhere = {verb for rule in rules if "resourceNames" not in rule for verb in rule["verbs"]}
    assert anywhere == {"create"}  # a name cannot be checked before there is an object
    assert {"get", "update"} <= named


def pod_specs(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    pods = [o["spec"] for o in objects if o["kind"] == "Pod"]
    return pods + [o["spec"]["template"]["spec"] for o in objects if o["kind"] == "Deployment"]


def test_pods_pass_the_restricted_pod_security_standard(objects):
    """Clause by clause; what is forbidden by absence is checked by the fields that are there."""
    assert len(pod_specs(objects)) == 2
    for pod in pod_specs(objects):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 65532
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC", "volumes", "initContainers"} & set(pod)
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert "privileged" not in context
            assert all("hostPort" not in port for port in container.get("ports", ()))


def test_every_container_has_requests_and_a_memory_limit(objects):
    for pod in pod_specs(objects):
        for container in pod["containers"]:
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])
            assert "memory" in container["resources"]["limits"]


def test_the_operators_account_gives_its_token_to_the_operator_alone(objects):
    accounts = {o["metadata"]["name"]: o for o in objects if o["kind"] == "ServiceAccount"}
    assert accounts["do-device-operator"]["automountServiceAccountToken"] is False
    [deployment] = [o for o in objects if o["kind"] == "Deployment"]
    assert deployment["spec"]["template"]["spec"]["automountServiceAccountToken"] is True


def test_policies_deny_and_those_that_guard_nodes_fail_closed(objects):
    policies = {o["metadata"]["name"]: o["spec"] for o in objects if o["kind"] == "ValidatingAdmissionPolicy"}
    bindings = [o["spec"] for o in objects if o["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert {b["policyName"] for b in bindings} == set(policies)
    assert all(b["validationActions"] == ["Deny"] for b in bindings)
    assert {name: p["failurePolicy"] for name, p in policies.items()} == {
        "do-device-operator-agent-node": "Fail",
        "do-device-operator-agent-image": "Fail",
        "do-device-operator-requests": "Ignore",
    }


def test_the_node_policy_is_about_the_agents_account(chart):
    rendered = chart.template({"agent": {"serviceAccount": {"name": "hw"}}, "namespaceOverride": "edge"})
    [policy] = [
        o for o in rendered if o["kind"] == "ValidatingAdmissionPolicy" and o["metadata"]["name"].endswith("agent-node")
    ]
    [condition] = policy["spec"]["matchConditions"]
    assert condition["expression"] == "request.userInfo.username == 'system:serviceaccount:edge:hw'"


def test_allowing_image_overrides_takes_the_policy_away(chart):
    names = {o["metadata"]["name"] for o in chart.template({"agent": {"allowImageOverride": True}})}
    assert "do-device-operator-agent-image" not in names
    assert "do-device-operator-agent-node" in names
