"""Requests that no node can grant are refused where an admin or a user sees it: at `kubectl apply`."""

from collections.abc import Iterator
from typing import Any

import pytest

CONFIGS = "/apis/device-operator.io/v1alpha1/devicepluginconfigs"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PATHS = {
    "Pod": ("v1", "/api/v1/namespaces/devices/pods"),
    "ReplicationController": ("v1", "/api/v1/namespaces/devices/replicationcontrollers"),
    "Deployment": ("apps/v1", "/apis/apps/v1/namespaces/devices/deployments"),
    "StatefulSet": ("apps/v1", "/apis/apps/v1/namespaces/devices/statefulsets"),
    "DaemonSet": ("apps/v1", "/apis/apps/v1/namespaces/devices/daemonsets"),
    "ReplicaSet": ("apps/v1", "/apis/apps/v1/namespaces/devices/replicasets"),
    "Job": ("batch/v1", "/apis/batch/v1/namespaces/devices/jobs"),
    "CronJob": ("batch/v1", "/apis/batch/v1/namespaces/devices/cronjobs"),
}
ONE, EVEN, FREE, ELSEWHERE = "example.com/one", "example.com/even", "example.com/free", "example.com/elsewhere"


def asks(name: str, amount: object) -> dict[str, Any]:
    return {"name": "main", "image": "a", "resources": {"limits": {name: amount}}}


def workload(kind: str, *containers: dict[str, Any], init: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    version, _ = PATHS[kind]
    pod: dict[str, Any] = {
        "containers": list(containers),
        "restartPolicy": "Never" if kind in ("Job", "CronJob") else "Always",
    }
    pod["serviceAccountName"] = "do-device-operator"  # without controllers there is no account `default`
    if init:
        pod["initContainers"] = list(init)
    labels = {"app": "tried"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec: dict[str, Any] = {"selector": {"matchLabels": labels}, "template": template}
    if kind == "Pod":
        spec = pod
    elif kind == "Job":
        spec = {"template": template}
    elif kind == "CronJob":
        spec = {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": template}}}
    elif kind == "ReplicationController":
        spec = {"selector": labels, "template": template}
    elif kind == "StatefulSet":
        spec["serviceName"] = "tried"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "tried"}, "spec": spec}


def tried(release: Any, kind: str, *containers: dict[str, Any], init: tuple[dict[str, Any], ...] = ()) -> Any:
    return release.admin("POST", f"{PATHS[kind][1]}?dryRun=All", workload(kind, *containers, init=init))


@pytest.fixture(scope="module")
def accepted(release: Any) -> Iterator[None]:
    """Two objects of one domain, as the operator leaves their status."""
    totals = {
        "first": [{"name": ONE, "maxPerContainer": 1}, {"name": FREE}],
        "second": [{"name": EVEN, "maxPerContainer": 4, "counts": [2, 4]}],
    }
    for name, resources in totals.items():
        assert release.admin("POST", CONFIGS, release.config(name)).code == 201
        answer = release.admin("PATCH", f"{CONFIGS}/{name}/status", {"status": {"resources": resources}})
        assert answer.code == 200, answer.message
    release.eventually("the numbers are in force", lambda: tried(release, "Pod", asks(ONE, 2)).code == 422)
    release.eventually("those of the second", lambda: tried(release, "Pod", asks(EVEN, 3)).code == 422)
    yield
    release.cluster.kubectl("delete", "dpc", *totals, "--ignore-not-found")


@pytest.mark.parametrize("kind", PATHS)
def test_too_many_for_a_container_are_refused_with_the_number_and_the_object(release, accepted, kind):
    answer = tried(release, kind, asks(ONE, 2))
    assert answer.code == 422
    for fact in ("DevicePluginConfig first", "container main", f"2 of {ONE}", "at most 1", "sharing.maxPerContainer"):
        assert fact in answer.message
    assert tried(release, kind, asks(ONE, 1)).code == 201


@pytest.mark.parametrize(("amount", "code"), [(1, 422), (2, 201), (3, 422), (4, 201), (6, 422), (0, 201), ("2k", 422)])
def test_a_number_outside_of_counts_is_refused_with_those_that_work(release, accepted, amount, code):
    answer = tried(release, "Deployment", asks(EVEN, amount))
    assert answer.code == code
    if code == 422:
        assert "2 or 4" in answer.message
        assert "allocation.counts" in answer.message


def test_every_container_is_judged_by_itself_init_containers_too(release, accepted):
    assert tried(release, "Pod", asks(ONE, 1), {**asks(ONE, 1), "name": "second"}).code == 201
    answer = tried(release, "Pod", asks(ONE, 1), init=({**asks(ONE, 3), "name": "first-of-all"},))
    assert answer.code == 422
    assert "container first-of-all asks for 3" in answer.message


def test_what_no_object_limits_passes(release, accepted):
    for name in (FREE, ELSEWHERE, "cpu"):
        assert tried(release, "Pod", asks(name, 7)).code == 201
    assert tried(release, "Pod", {"name": "main", "image": "a"}).code == 201


def test_a_workload_made_before_can_be_scaled_but_not_given_another_wrong_template(release, accepted):
    path = PATHS["Deployment"][1]
    resources = f"{CONFIGS}/first/status"
    made = workload("Deployment", asks(ELSEWHERE, 2))
    assert release.admin("POST", path, made).code == 201
    try:
        limited = [{"name": ONE, "maxPerContainer": 1}, {"name": ELSEWHERE, "maxPerContainer": 1}]
        assert release.admin("PATCH", resources, {"status": {"resources": limited}}).code == 200
        release.eventually("the new limit", lambda: tried(release, "Pod", asks(ELSEWHERE, 2)).code == 422)
        assert release.admin("PATCH", f"{path}/tried", {"spec": {"replicas": 3}}).code == 200
        assert release.admin("PATCH", f"{path}/tried", {"metadata": {"labels": {"a": "b"}}}).code == 200
        wrong = {"spec": {"template": {"spec": {"containers": [asks(ELSEWHERE, 3)]}}}}
        assert release.admin("PATCH", f"{path}/tried", wrong).code == 422
        right = {"spec": {"template": {"spec": {"containers": [asks(ELSEWHERE, 1)]}}}}
        assert release.admin("PATCH", f"{path}/tried", right).code == 200
    finally:
        release.admin("DELETE", f"{path}/tried")


def test_many_limits_and_containers_are_still_judged(release, accepted):
    resources = [{"name": f"example.com/r{i}", "maxPerContainer": 1} for i in range(128)]
    assert release.admin("POST", CONFIGS, release.config("many")).code == 201
    try:
        assert release.admin("PATCH", f"{CONFIGS}/many/status", {"status": {"resources": resources}}).code == 200
        release.eventually("the limits", lambda: tried(release, "Pod", asks("example.com/r127", 2)).code == 422)
        limits = {f"example.com/r{i}": 1 for i in range(8)}
        containers = [{"name": f"c{i}", "image": "a", "resources": {"limits": limits}} for i in range(40)]
        assert tried(release, "Pod", *containers).code == 201
        wrong = {**containers[0], "name": "wrong", "resources": {"limits": {"example.com/r100": 2}}}
        assert tried(release, "Pod", *containers, wrong).code == 422
    finally:
        release.admin("DELETE", f"{CONFIGS}/many")


def test_nothing_is_refused_when_the_policy_is_switched_off(release, accepted):
    release.helm("upgrade", "requestPolicy.enabled=false")
    try:
        release.eventually("the policy is gone", lambda: tried(release, "Pod", asks(ONE, 2)).code == 201)
    finally:
        release.helm("upgrade")
    release.eventually("it is back", lambda: tried(release, "Pod", asks(ONE, 2)).code == 422)


def test_nothing_is_refused_when_the_definition_of_its_parameters_is_gone(release, accepted):
    definition = f"{CRDS}/devicepluginconfigs.device-operator.io"
    assert release.admin("DELETE", definition).code == 200
    try:
        release.eventually("all pods pass", lambda: tried(release, "Pod", asks(ONE, 2)).code == 201)
        # the API server forgets the objects one after the other
        release.eventually("workloads too", lambda: tried(release, "Deployment", asks(EVEN, 3)).code == 201)
    finally:
        release.eventually("it is gone", lambda: release.admin("GET", definition).code == 404)
        release.helm("upgrade")
        kubectl = release.cluster.kubectl
        kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/devicepluginconfigs.device-operator.io")
