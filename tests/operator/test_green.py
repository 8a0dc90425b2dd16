"""Green means green: the row of `kubectl get dpc`, the real `kubectl wait`, and what kstatus concludes (Flux, Argo CD)."""

import json
from typing import Any

import pytest
from agents import Agent, ready_node
from conftest import Operators
from kubeapi import CONFIGS, INVENTORIES, NODES, Kube, Object, Owned, both, condition, config, eventually, node, pool
from localcluster import Cluster, LocalClusterError
from real_agent import INVENTORY, NAME, WIDGET, Serving
from test_status import RESOURCE, apply, reaches, status_of, warn

CAMERA = "example.com/camera"
WITHIN = 30.0
"""Seconds in which every cause must be a word of the row."""
WRONG = {"env": [{"name": "A", "value": "{pci.adress}"}]}


def row(api: Cluster, name: str, *options: str) -> dict[str, str]:
    """Column -> value. The last column of `-o wide` has spaces."""
    head, line = api.kubectl("get", "dpc", name, *options).splitlines()
    starts = [head.index(column) for column in head.split()]
    ends = [*starts[1:], None]
    return {head[a:b].strip(): line[a:b].strip() for a, b in zip(starts, ends, strict=True)}


def says(api: Cluster, name: str, word: str) -> dict[str, str]:
    """The row, once its column STATUS has the word. The operator runs with its own pace of Events alone changed."""
    return eventually(
        f"{name}: {word}", lambda: (found := row(api, name, "-o", "wide"))["STATUS"] == word and found, seconds=WITHIN
    )


def kstatus(obj: Object) -> str:
    """The rules of kstatus for a kind that it does not know (cli-utils, pkg/kstatus/status/{generic,core}.go)."""
    status, generation = obj.get("status", {}), obj["metadata"]["generation"]
    if "deletionTimestamp" in obj["metadata"]:
        return "Terminating"
    if status.get("observedGeneration", generation) != generation:
        return "InProgress"
    for found in status.get("conditions", []):
        if (found["type"], found["status"]) == ("Reconciling", "True"):
            return "InProgress"
        if (found["type"], found["status"]) == ("Stalled", "True"):
            return "Failed"
    ready = condition(obj, "Ready").get("status")
    return "Current" if ready in (None, "True") else "InProgress"


def waits(api: Cluster, name: str, what: str, *, seconds: int) -> bool:
    """Whether the real `kubectl wait` returns in that time."""
    try:
        api.kubectl("wait", f"dpc/{name}", f"--for={what}", f"--timeout={seconds}s")
    except LocalClusterError:
        return False
    return True


def serving(kube: Kube, name: str, owned: Owned, *nodes: str, **spec: Any) -> list[Agent]:
    _, agents = apply(kube, name, owned, *nodes, **spec)
    for agent in agents:
        agent.run()
        agent.report({"a": "Healthy"}, resource=RESOURCE)
    return agents


def edit(kube: Kube, name: str, change: dict[str, Any]) -> None:
    spec = kube.get(f"{CONFIGS}/{name}")["spec"]
    spec["resources"][0] |= change
    kube.patch(f"{CONFIGS}/{name}", {"spec": spec})


def judged(kube: Kube, name: str) -> Object:
    def found() -> Object | None:
        obj = kube.get(f"{CONFIGS}/{name}")
        return obj if obj.get("status", {}).get("observedGeneration") == obj["metadata"]["generation"] else None

    return eventually("the generation is judged", found)


def test_a_rejected_edit_is_seen_at_a_glance_and_stops_whoever_waits(
    operators: Operators, api: Cluster, kube: Kube, owned: Owned
) -> None:
    operators.shared()
    (agent,) = serving(kube, "rejected", owned, "rejected-1")
    found = says(api, "rejected", "OK")
    assert list(found)[:7] == ["NAME", "READY", "STATUS", "NODES", "DEVICES", "ALLOCATED", "UPDATED"]
    assert {"AGE", "MESSAGE", "WITHHELD"} <= set(found)
    assert (found["READY"], found["NODES"], found["DEVICES"], found["ALLOCATED"]) == ("True", "1/1", "1/1", "0")
    assert kstatus(judged(kube, "rejected")) == "Current"

    edit(kube, "rejected", {"inject": WRONG})
    assert waits(api, "rejected", "condition=Stalled", seconds=20)
    obj = judged(kube, "rejected")
    assert kstatus(obj) == "Failed"
    assert condition(obj, "Stalled")["reason"] == "InvalidSpec"
    assert condition(obj, "Reconciling")["status"] == "False"
    assert (condition(obj, "Ready")["status"], condition(obj, "Ready")["observedGeneration"]) == ("True", 1)
    assert obj["metadata"]["generation"] == 2
    assert not waits(api, "rejected", "condition=Ready", seconds=1), "Ready is about generation 1"
    assert not waits(api, "rejected", "condition=Progressing=False", seconds=1)
    assert "pci.adress" in says(api, "rejected", "InvalidSpec")["MESSAGE"]

    edit(kube, "rejected", {"inject": {"env": [{"name": "A", "value": "{name}"}]}})
    eventually("it is taken", lambda: condition(judged(kube, "rejected"), "Stalled")["status"] == "False")
    assert kstatus(judged(kube, "rejected")) == "InProgress"
    agent.end()  # as the DaemonSet controller does
    agent.run()
    agent.report({"a": "Healthy"}, resource=RESOURCE)
    assert waits(api, "rejected", "condition=Ready", seconds=20)
    says(api, "rejected", "OK")
    assert kstatus(judged(kube, "rejected")) == "Current"


def test_a_first_spec_that_is_rejected_has_failed(operators: Operators, api: Cluster, kube: Kube, owned: Owned) -> None:
    operators.shared()
    first = config("first")
    first["spec"]["resources"][0]["inject"] = WRONG
    kube.create(CONFIGS, first)
    says(api, "first", "InvalidSpec")
    obj = judged(kube, "first")
    assert (kstatus(obj), condition(obj, "Ready")["status"]) == ("Failed", "False")


@pytest.mark.parametrize("may_be_empty", [False, True])
def test_an_entry_that_finds_nothing_anywhere(
    operators: Operators, api: Cluster, kube: Kube, owned: Owned, *, may_be_empty: bool
) -> None:
    operator = operators.shared()
    ready_node(kube, node("nothing-1", pool="nothing"))
    made = config("nothing", resource=RESOURCE, nodePools=[pool("edge", pool="nothing")])
    camera = {"name": CAMERA, "devices": [{"sysfs": {"subsystem": "video4linus"}}], "mayBeEmpty": may_be_empty}
    made["spec"]["resources"].append(camera)
    kube.create(CONFIGS, made)
    configmap, daemonset = both(owned, "nothing")
    assert "mayBeEmpty" not in str(configmap["data"]), "agents of an older release must read it"
    agent = Agent(kube, daemonset, "nothing-1")
    agent.run()
    text = "devices[0]: nothing in /sys/class/video4linus: did you mean video4linux?"
    left_out = [{"id": "devices[0]", "source": "sysfs", "entry": CAMERA, "reason": "NothingFound", "message": text}]
    agent.report({"a": "Healthy"}, resource=RESOURCE, excluded=left_out)
    if may_be_empty:
        says(api, "nothing", "OK")
        assert operator.metric("config_condition", config="nothing", type="Degraded", status="True") == 0
    else:
        found = says(api, "nothing", "NothingFound")
        assert "did you mean video4linux?" in found["MESSAGE"]
        assert found["READY"] == "True"


@pytest.mark.usefixtures("operator")
def test_a_real_agent_says_which_path_may_be_meant(api: Cluster, kube: Kube, serving: Serving) -> None:
    wrong = {"name": CAMERA, "devices": [{"files": {"paths": ["/dev/wigdet0"]}}]}
    entries = kube.get(f"{CONFIGS}/{NAME}")["spec"]["resources"]
    kube.patch(f"{CONFIGS}/{NAME}", {"spec": {"resources": [*entries, wrong]}})
    judged(kube, NAME)
    eventually("it is rendered", lambda: CAMERA in str(serving.owned(NAME, "configmaps")))
    serving.configure()
    assert "did you mean /dev/widget0?" in says(api, NAME, "NothingFound")["MESSAGE"]
    serving.host.device("wigdet0")
    says(api, NAME, "OK")


@pytest.mark.usefixtures("operator")
def test_every_holder_of_a_shared_device_is_named(kube: Kube, serving: Serving) -> None:
    edit(kube, NAME, {"sharing": {"replicas": 20}})
    judged(kube, NAME)
    eventually("it is rendered", lambda: '"replicas": 20' in str(serving.owned(NAME, "configmaps")))
    serving.configure()
    serving.kubelet.wait_for(WIDGET, 60)
    for number in range(60):
        serving.kubelet.admit(f"pod-{number}", WIDGET, 1)

    def holders() -> list[int]:
        found = kube.get(f"{INVENTORIES}/{INVENTORY}")["status"]["devices"]
        return [len({h["pod"] for h in d.get("allocatedTo", [])}) for d in found]

    eventually("all are named", lambda: holders() == [20, 20, 20], seconds=60)


@pytest.mark.parametrize("may_be_empty", [False, True])
def test_a_pool_that_matches_no_node(
    operators: Operators, api: Cluster, kube: Kube, owned: Owned, *, may_be_empty: bool
) -> None:
    operators.shared()
    ready_node(kube, node("lonely-1", hardware="lab"))
    selected = {**pool("edge", hardware="Lab"), "mayBeEmpty": may_be_empty}
    kube.create(CONFIGS, config("lonely", nodePools=[selected]))
    found = says(api, "lonely", "OK" if may_be_empty else "NoNodes")
    assert ("hardware=lab" in found["MESSAGE"]) == (not may_be_empty)


def test_a_label_is_taken_off_a_node_whose_pods_hold_devices(
    operators: Operators, api: Cluster, kube: Kube, owned: Owned
) -> None:
    operators.start(inventory_grace_seconds=0.1).wait_leading()
    _, agents = apply(kube, "lost", owned, "lost-1", "lost-2")
    for agent, held in zip(agents, ({"a": "trainer"}, {}), strict=True):
        agent.run()
        agent.report({"a": "Healthy"}, resource=RESOURCE, allocated=held)
    says(api, "lost", "OK")

    for agent in agents:
        kube.patch(f"{NODES}/{agent.node}", {"metadata": {"labels": {"pool": None}}})
        agent.end()  # as the DaemonSet controller does
    found = says(api, "lost", "NodesLost")
    assert "default/trainer" in found["MESSAGE"]
    assert found["ALLOCATED"] == "1"
    eventually("that without holders goes", lambda: kube.find(f"{INVENTORIES}/lost.lost-2") is None)
    assert reaches(kube, "lost", "Degraded", "True")["reason"] == "NodesLost"
    assert kube.find(f"{INVENTORIES}/lost.lost-1")
    kube.delete(f"{INVENTORIES}/lost.lost-1")  # an admin has ended the pod
    says(api, "lost", "NoNodes")


def test_agents_that_cannot_be_made_are_a_word(operators: Operators, api: Cluster, kube: Kube, owned: Owned) -> None:
    """With the pace of an operator in production: a missing ServiceAccount is told by the DaemonSet's Event alone."""
    operators.start(failed_create_seconds=10, status_seconds=5, coalesce_seconds=1).wait_leading()
    (agent,) = serving(kube, "without-sa", owned, "without-sa-1")
    says(api, "without-sa", "OK")
    agent.end()
    (daemonset,) = owned("without-sa").values()
    text = 'pods "x" is forbidden: error looking up service account device-operator/agent: not found'
    warn(kube, "DaemonSet", daemonset["metadata"]["name"], "FailedCreate", text)
    assert "service account" in says(api, "without-sa", "FailedCreate")["MESSAGE"]


def test_without_an_operator_the_age_of_the_status_grows(
    operators: Operators, api: Cluster, kube: Kube, owned: Owned
) -> None:
    operators.start(status_refresh_seconds=1).wait_leading()
    serving(kube, "gone", owned, "gone-1")
    says(api, "gone", "OK")
    before = status_of(kube, "gone")["lastUpdateTime"]
    eventually("it is written again", lambda: status_of(kube, "gone")["lastUpdateTime"] != before)
    operators.end_own()
    path = f"{CONFIGS}/gone/status"
    kube.patch(path, {"status": {"lastUpdateTime": "2026-01-01T00:00:00Z"}})
    assert row(api, "gone")["UPDATED"].endswith(("d", "y")), json.dumps(row(api, "gone"))
