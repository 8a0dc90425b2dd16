"""`kubectl devices` against the real API server: what it shows, with which rights, and what it changes."""

import json
import signal
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from agents import Agent, now, ready_node
from cliruns import Answer, run, start
from conftest import Operators
from kubeapi import (
    CONFIGMAPS,
    CONFIGS,
    INVENTORIES,
    NAMESPACE,
    PODS,
    Kube,
    Object,
    Owned,
    condition,
    config,
    eventually,
    node,
)
from kubectl_devices.__main__ import complete
from localcluster import Cluster, places

RESOURCE = "example.com/lab"
INVENTORY = f"{INVENTORIES}/lab.worker-1"
DEFAULT_PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
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


def test_history_shows_what_happened_also_to_devices_that_are_gone(
    agent: Agent, kube: Kube, cli: Run, allowed: Callable[..., Run]
):
    changes = [
        {
            "time": now(ago=90_000),
            "resource": RESOURCE,
            "id": "z",
            "from": "Healthy",
            "to": "Gone",
            "reason": "Missing",
        },
        {"time": now(ago=60), "resource": RESOURCE, "id": "c", "to": "Unhealthy", "reason": "Test"},
    ]
    agent.report({"a": "Healthy", "c": "Unhealthy"}, resource=RESOURCE, history=changes)
    assert kube.get(INVENTORY)["status"]["history"] == changes
    answer = cli("history")
    assert (answer.status, answer.err) == (0, "")
    assert [row[1:] for row in answer.rows] == [
        ["worker-1", RESOURCE, "z", "Healthy", "Gone", "Missing"],
        ["worker-1", RESOURCE, "c", "-", "Unhealthy", "Test"],
    ]
    assert [row["id"] for row in cli("history", "--since", "24h", "-o", "json").json] == ["c"]
    assert cli("history", "z", "--node", "worker-1").rows == answer.rows[:1]
    assert cli("history", "a").rows == []
    unknown = cli("history", "nothing")
    assert unknown.status == 1
    assert "nothing" in unknown.err
    refused = allowed()("history")
    assert refused.status == 1
    assert "list" in refused.err
    assert "nodedeviceinventories.device-operator.io" in refused.err


@pytest.mark.usefixtures("agent")
def test_a_user_without_any_right_is_told_verb_and_resource_and_sees_no_traceback(allowed: Callable[..., Run]):
    answer = allowed()("list")
    assert answer.status == 1
    assert "nodedeviceinventories.device-operator.io" in answer.err
    assert "Traceback" not in answer.err


def pod(name: str, **meta: object) -> Object:
    container = {"name": "main", "image": "example.com/main:1", "resources": {"limits": {RESOURCE: 1}}}
    return {
        "metadata": {"name": name, **meta},
        "spec": {"containers": [container], "automountServiceAccountToken": False},
    }


@pytest.fixture
def pods(kube: Kube) -> Iterator[Callable[[Object], None]]:
    """Creates pods in the namespace default, which nothing schedules."""
    made: list[str] = []
    kube.create(ACCOUNTS, {"metadata": {"name": "default"}})

    def create(body: Object) -> None:
        made.append(kube.create(DEFAULT_PODS, body)["metadata"]["name"])

    yield create
    for name in made:
        kube.delete(f"{DEFAULT_PODS}/{name}", gracePeriodSeconds=0)
    kube.delete(f"{ACCOUNTS}/default")


@pytest.fixture
def budget(kube: Kube, pods: Callable[[Object], None]) -> Iterator[str]:
    """A ReplicaSet's pod that a disruption budget protects. No controller runs, so the budget allows nothing yet."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": "1-2-3", "controller": True}
    pods(pod("holder", labels={"app": "holder"}, ownerReferences=[owner]))
    # a pod that does not run yet may be evicted whatever its budget says
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    kube.patch(f"{DEFAULT_PODS}/holder/status", {"status": running})
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "holder"}}}
    kube.create(BUDGETS, {"metadata": {"name": "holders"}, "spec": spec})
    yield f"{BUDGETS}/holders"
    kube.delete(f"{BUDGETS}/holders")


@pytest.mark.usefixtures("agent")
def test_who_goes_from_a_device_to_its_pods_and_from_a_pod_to_its_devices(cli: Run):
    held = ["worker-1", RESOURCE, "b", "default", "holder", "main"]
    assert cli("who").rows == cli("who", "b").rows == cli("who", "pod/holder").rows == [held]
    assert cli("who", "a").rows == []
    assert cli("who", "nothing").status == 1
    assert cli("who", "pod/nothing").status == 1


def cordoned(kube: Kube) -> list[Object]:
    return list(kube.get(INVENTORY)["spec"].get("cordoned", ()))


@pytest.mark.usefixtures("agent")
def test_cordon_adds_to_what_others_cordoned_and_uncordon_takes_away_its_own(cli: Run, kube: Kube):
    kube.patch(INVENTORY, {"spec": {"cordoned": [{"id": "c", "reason": "theirs"}]}})
    assert cli("cordon", "worker-1", "a", "--reason", "swap the cable").status == 0
    assert cordoned(kube) == [{"id": "c", "reason": "theirs"}, {"id": "a", "reason": "swap the cable"}]
    assert cli("cordon", "worker-1", "a").status == 0
    assert cli("uncordon", "worker-1", "a").status == 0
    assert cordoned(kube) == [{"id": "c", "reason": "theirs"}]
    assert cli("uncordon", "worker-1", "a").status == 1
    assert cli("cordon", "worker-1", "--all").status == 0
    assert {"id": "*"} in cordoned(kube)
    assert cli("uncordon", "worker-1", "--all").status == 0
    assert cordoned(kube) == []


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize(
    ("arguments", "status"),
    [(("worker-1", "z"), 1), (("worker-9", "a"), 1), (("worker-1",), 2), (("worker-1", "a", "--all"), 2)],
)
def test_a_cordon_of_what_is_not_there_writes_nothing(cli: Run, kube: Kube, arguments: tuple[str, ...], status: int):
    answer = cli("cordon", *arguments)
    assert answer.status == status
    assert answer.err.startswith("error: ")
    assert cordoned(kube) == []


@pytest.mark.usefixtures("agent")
def test_who_may_only_read_is_told_which_right_a_cordon_needs(allowed: Callable[..., Run], kube: Kube):
    answer = allowed(("device-operator.io", "nodedeviceinventories", ["get", "list"]))("cordon", "worker-1", "a")
    assert answer.status == 1
    assert "patch nodedeviceinventories.device-operator.io" in answer.err
    assert cordoned(kube) == []


def test_drain_waits_for_the_cordon_and_for_the_disruption_budget(agent: Agent, kube: Kube, api: Cluster, budget: str):
    def report(holders: dict[str, str]) -> None:
        agent.report({"a": "Healthy", "b": "Healthy", "c": "Healthy"}, resource=RESOURCE, allocated=holders)
        devices = kube.get(INVENTORY)["status"]["devices"]
        devices[1] |= {"offered": False, "withheld": "Cordoned"}
        kube.patch(f"{INVENTORY}/status", {"status": {"devices": devices}})

    with start(api.kubeconfig, "drain", "worker-1", "b", "--timeout", "60s") as drain:
        eventually("the cordon", lambda: cordoned(kube) == [{"id": "b"}])
        report({"b": "holder"})
        assert drain.stderr is not None
        assert "default/holder" in drain.stderr.readline()  # the budget has refused
        assert kube.find(f"{DEFAULT_PODS}/holder") is not None
        allowed = {"disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1}
        kube.patch(f"{budget}/status", {"status": {**allowed, "observedGeneration": 1}})
        eventually("the eviction", lambda: kube.find(f"{DEFAULT_PODS}/holder") is None)
        report({})
        out, err = drain.communicate(timeout=60)
    assert drain.returncode == 0, err
    assert "evicting default/holder" in out
    assert cordoned(kube) == [{"id": "b"}]


def test_drain_does_not_end_a_pod_that_would_not_come_back(
    agent: Agent, kube: Kube, cli: Run, pods: Callable[[Object], None]
):
    agent.report({"b": "Unhealthy"}, resource=RESOURCE, allocated={"b": "alone"})
    pods(pod("alone"))
    assert "would evict default/alone" in cli("drain", "worker-1", "b", "--dry-run").out
    assert cordoned(kube) == []
    answer = cli("drain", "worker-1", "b")
    assert answer.status == 1
    assert "default/alone" in answer.err
    assert "--force" in answer.err
    assert kube.find(f"{DEFAULT_PODS}/alone") is not None


DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/device-operator"


@pytest.fixture
def installed(kube: Kube) -> Iterator[None]:
    """What the chart makes, with the status that controllers would write."""
    labels = {"app.kubernetes.io/part-of": "device-operator", "app.kubernetes.io/component": "operator"}
    container = {
        "name": "operator",
        "image": "example.com/operator:1",
        "args": ["run"],
        "env": [{"name": "DEVICE_OPERATOR_AGENT_IMAGE", "value": "example.com/agent:1"}],
    }
    kube.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "device-operator-agent"}})
    kube.create(
        DEPLOYMENTS,
        {
            "metadata": {"name": "device-operator", "labels": labels},
            "spec": {
                "selector": {"matchLabels": {"app": "operator"}},
                "template": {"metadata": {"labels": {"app": "operator"}}, "spec": {"containers": [container]}},
            },
        },
    )
    kube.patch(
        f"{DEPLOYMENTS}/device-operator/status", {"status": {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1}}
    )
    yield
    kube.delete(f"{DEPLOYMENTS}/device-operator")
    kube.delete(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/device-operator-agent")


def reasons(answer: Answer) -> set[str]:
    return {finding["reason"] for finding in answer.json if finding["severity"] == "PROBLEM"}


@pytest.mark.usefixtures("installed")
def test_check_finds_a_sound_installation_and_each_problem_in_it(agent: Agent, cli: Run, kube: Kube):
    assert reasons(cli("check", "-o", "json")) == {"DevicesUnhealthy"}
    agent.report({"a": "Healthy"}, resource=RESOURCE)
    answer = cli("check", "--wait", "--timeout", "30s")
    assert answer.status == 0
    agent.end()
    answer = cli("check", "-o", "json")
    assert answer.status == 1
    assert "NodesWithoutAgent" in reasons(answer)


@pytest.mark.usefixtures("installed", "agent")
def test_an_operator_that_was_killed_is_told_with_its_age(operators: Operators, cli: Run, kube: Kube):
    operators.end_shared()
    operator = operators.start()
    operator.wait_leading()
    assert "OperatorGone" not in reasons(cli("check", "-o", "json"))
    holder = kube.get(LEASE)["spec"]["holderIdentity"]
    operator.end(signal.SIGKILL)
    answer = eventually("it is told", lambda: (a := cli("check")).status and "OperatorGone" in a.out and a)
    assert holder in answer.out


@pytest.mark.usefixtures("installed", "agent")
def test_check_says_which_rights_are_missing_and_checks_the_rest(allowed: Callable[..., Run]):
    read = allowed(("device-operator.io", "devicepluginconfigs", ["list"]), ("", "nodes", ["list"]))
    answer = read("check")
    assert "DevicesUnhealthy" in answer.out
    for right in ("list pods", "get leases.coordination.k8s.io", "list customresourcedefinitions"):
        assert right in answer.err
    assert "Traceback" not in answer.err


def test_an_acknowledgement_is_written_and_the_agents_answer_decides(agent: Agent, kube: Kube, api: Cluster, cli: Run):
    since = kube.get(INVENTORY)["status"]["devices"][2]["since"]
    with start(api.kubeconfig, "acknowledge", "worker-1", "c", "--timeout", "60s") as acknowledge:
        annotation = eventually("the annotation", lambda: kube.get(INVENTORY)["metadata"].get("annotations"))
        assert annotation == {"device-operator.io/acknowledge": f"c={since}"}
        answer = f"c={since}: taken at {since}, Xid79 ended; Healthy when its checks are good"
        kube.patch(f"{INVENTORY}/status", {"status": {"acknowledgement": answer}})
        out, err = acknowledge.communicate(timeout=60)
    assert (acknowledge.returncode, err) == (0, "")
    assert out == f"{answer}\n"
    assert cli("acknowledge", "worker-1", "a").status == 1


@pytest.mark.usefixtures("agent")
def test_explain_starts_a_pod_on_the_node_says_why_it_fails_and_removes_it(kube: Kube, api: Cluster):
    arguments = ("explain", "lab", "--node", "worker-1", "--image", "example.com/agent:1")
    before = {p["metadata"]["name"] for p in kube.items(PODS)}
    with start(api.kubeconfig, *arguments) as explain:

        def scanner() -> Object | None:
            return next((p for p in kube.items(PODS) if p["metadata"]["name"] not in before), None)

        pod = eventually("the pod", scanner)
        name = pod["metadata"]["name"]
        eventually("its document", lambda: kube.find(f"{CONFIGMAPS}/{name}"))
        waiting = {"name": "agent", "image": "", "imageID": "", "ready": False, "restartCount": 0}
        waiting["state"] = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
        kube.patch(f"{PODS}/{name}/status", {"status": {"phase": "Pending", "containerStatuses": [waiting]}})
        _, err = explain.communicate(timeout=60)
    assert explain.returncode == 1
    assert "ErrImagePull" in err
    assert pod["spec"]["nodeName"] == "worker-1"
    assert kube.find(f"{CONFIGMAPS}/{name}") is None
    left = kube.find(f"{PODS}/{name}")
    assert left is None or left["metadata"]["deletionTimestamp"]


@pytest.mark.usefixtures("agent")
def test_explain_without_the_right_to_create_pods_says_so(allowed: Callable[..., Run]):
    read = allowed(("device-operator.io", "devicepluginconfigs", ["get"]), ("", "nodes", ["get"]))
    answer = read("explain", "lab", "--node", "worker-1", "--image", "example.com/agent:1")
    assert answer.status == 1
    assert "create pods" in answer.err


@pytest.mark.usefixtures("installed", "agent")
def test_a_bundle_has_objects_and_findings_and_says_what_it_lacks(
    cli: Run, allowed: Callable[..., Run], tmp_path: Path
):
    def packed(run: Run, name: str) -> dict[str, bytes]:
        assert run("bundle", "-f", str(tmp_path / name)).status == 0
        with tarfile.open(tmp_path / name) as archive:
            files = {m.name.partition("/")[2]: archive.extractfile(m) for m in archive.getmembers()}
            return {path: file.read() for path, file in files.items() if file is not None}

    files = packed(cli, "all.tar.gz")
    assert (tmp_path / "all.tar.gz").stat().st_mode & 0o077 == 0
    assert [i["metadata"]["name"] for i in json.loads(files["objects/nodedeviceinventories.json"])] == ["lab.worker-1"]
    assert "DevicesUnhealthy" in {f["reason"] for f in json.loads(files["check.json"])}
    assert files["missing.txt"] == b""
    assert any(path.startswith("logs/device-operator/lab-default") for path in files)  # no kubelet: it says so
    assert cli("bundle", "-f", str(tmp_path / "all.tar.gz")).status == 2  # nothing is overwritten
    few = packed(allowed(("device-operator.io", "devicepluginconfigs", ["list"])), "few.tar.gz")
    assert b"list pods" in few["missing.txt"]
    assert json.loads(few["objects/devicepluginconfigs.json"])


@pytest.mark.usefixtures("agent")
def test_devices_of_the_cluster_are_completed(api: Cluster, capsys: pytest.CaptureFixture[str]):
    assert complete(["cordon", "--kubeconfig", str(api.kubeconfig), "worker-1", ""]) == 0
    assert capsys.readouterr().out.splitlines() == ["a", "b", "c", ":4"]


@pytest.mark.usefixtures("agent")
def test_top_names_the_node_that_does_not_answer(cli: Run):
    answer = cli("top")
    assert answer.status == 0
    assert "worker-1" in answer.err
    assert cli("top", "worker-9").status == 1


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("command", ["list", "who", "check"])
def test_json_and_yaml_say_the_same(cli: Run, command: str):
    assert yaml.safe_load(cli(command, "-o", "yaml").out) == cli(command, "-o", "json").json


@pytest.fixture
def viewer(api: Cluster, kube: Kube) -> Iterator[Run]:
    """A user with the roles that the documentation gives for reading."""
    text = (places.CHECKOUT / "docs/kubectl-devices.md").read_text()
    roles = list(yaml.safe_load_all(text.partition("```yaml\n")[2].partition("```")[0]))
    made: list[str] = []
    for role in roles:
        meta = role["metadata"]
        root = f"{RBAC}/namespaces/{meta['namespace']}" if "namespace" in meta else RBAC
        for kind, body in (
            (role["kind"], role),
            (
                f"{role['kind']}Binding",
                {
                    "metadata": {"name": meta["name"]},
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role["kind"], "name": meta["name"]},
                    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "viewer"}],
                },
            ),
        ):
            kube.create(f"{root}/{kind.lower()}s", body)
            made.append(f"{root}/{kind.lower()}s/{meta['name']}")
    yield lambda command, *arguments: run(api.kubeconfig, command, "--as", "viewer", *arguments)
    for path in made:
        kube.delete(path)


@pytest.mark.usefixtures("agent", "installed")
def test_the_documented_rights_are_enough_to_read_and_too_few_to_change(viewer: Run, kube: Kube):
    for command in ("list", "who", "check"):
        answer = viewer(command)
        assert "you may not" not in answer.err
        assert answer.out
    assert reasons(viewer("check", "-o", "json")) == {"DevicesUnhealthy"}
    assert "patch nodedeviceinventories" in viewer("cordon", "worker-1", "a").err
    assert cordoned(kube) == []
