"""`kubectl devices` against the real API server: what it shows, with which rights, and what it changes."""

from collections.abc import Callable, Iterator

import pytest
from agents import Agent, ready_node
from cliruns import Answer, run
from kubeapi import CONFIGS, Kube, Owned, condition, config, eventually, node
from localcluster import Cluster

RESOURCE = "example.com/lab"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
Run = Callable[..., Answer]


@pytest.fixture
def cli(api: Cluster) -> Run:
    """As the cluster's admin."""
    return lambda *arguments: run(api.kubeconfig, *arguments)


@pytest.fixture
def allowed(api: Cluster, kube: Kube) -> Iterator[Callable[..., Run]]:
    """A user who has only the rights that are given: (group, resource, verbs)."""
    made: list[str] = []

    def user(*rules: tuple[str, str, list[str]]) -> Run:
        name = f"cli-{len(made)}"
        kube.create(
            f"{RBAC}/clusterroles",
            {
                "metadata": {"name": name},
                "rules": [{"apiGroups": [group], "resources": [what], "verbs": verbs} for group, what, verbs in rules],
            },
        )
        kube.create(
            f"{RBAC}/clusterrolebindings",
            {
                "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
            },
        )
        made.append(name)
        return lambda command, *arguments: run(api.kubeconfig, command, "--as", name, *arguments)

    yield user
    for name in made:
        kube.delete(f"{RBAC}/clusterrolebindings/{name}")
        kube.delete(f"{RBAC}/clusterroles/{name}")


@pytest.fixture
def agent(operator: object, kube: Kube, owned: Owned) -> Agent:
    """The agent of worker-1, with three devices: one held, one broken."""
    ready_node(kube, node("worker-1"))
    kube.create(CONFIGS, config("lab"))
    (daemonset,) = eventually("the DaemonSet", lambda: list(owned("lab").values()))
    agent = Agent(kube, daemonset, "worker-1")
    agent.run()
    agent.report({"a": "Healthy", "b": "Healthy", "c": "Unhealthy"}, resource=RESOURCE, allocated={"b": "holder"})
    eventually(
        "it is reported", lambda: condition(kube.get(f"{CONFIGS}/lab"), "Degraded").get("reason") == "DevicesUnhealthy"
    )
    eventually("the holder too", lambda: kube.get(f"{CONFIGS}/lab")["status"]["summary"]["allocated"] == 1)
    return agent


@pytest.mark.usefixtures("agent")
def test_list_shows_every_device_with_its_health_offer_and_holder(cli: Run):
    answer = cli("list")
    assert answer.status == 0
    assert answer.err == ""
    assert answer.rows == [
        ["worker-1", RESOURCE, "a", "Healthy", "Yes", "-"],
        ["worker-1", RESOURCE, "b", "Healthy", "Yes", "default/holder"],
        ["worker-1", RESOURCE, "c", "Unhealthy", "No", "-"],
    ]
    assert [row["id"] for row in cli("list", "--health", "Unhealthy", "-o", "json").json] == ["c"]
    assert cli("list", "--held", "-o", "name").out == "worker-1 b\n"


@pytest.mark.usefixtures("agent")
def test_list_without_the_right_to_inventories_shows_what_the_configurations_say(allowed: Callable[..., Run]):
    answer = allowed(("device-operator.io", "devicepluginconfigs", ["list"]))("list")
    assert answer.status == 0
    assert [row[2] for row in answer.rows] == ["a", "b", "c"]
    (note,) = answer.err.splitlines()
    assert "list nodedeviceinventories.device-operator.io" in note


@pytest.mark.usefixtures("agent")
def test_a_user_without_any_right_is_told_verb_and_resource_and_sees_no_traceback(allowed: Callable[..., Run]):
    answer = allowed()("list")
    assert answer.status == 1
    assert "nodedeviceinventories.device-operator.io" in answer.err
    assert "Traceback" not in answer.err
