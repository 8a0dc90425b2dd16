"""What may come between two steps of a pass: edits, rivals, slow answers, time."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from agents import Agent, now, ready_node
from conftest import Operators
from inprocess import Operator, eventually_in_loop, started
from kubeapi import (
    CONFIGS,
    DAEMONSETS,
    INVENTORIES,
    NAMESPACE,
    NODES,
    PODS,
    Kube,
    Object,
    condition,
    config,
    node,
    pool,
)

POOLS = [pool("default", test="passes")]
GPU = "0000:3b:00.0"
ENTRY = {"name": "example.com/x", "devices": [{"simulated": {"count": 1}}]}


@pytest.fixture
async def operator(operators: Operators, kube: Kube) -> AsyncIterator[Operator]:
    operators.end_shared()
    ready_node(kube, node("node-1", test="passes"))
    async with started(kube.kubeconfig, kube) as found:
        await found.caught_up()
        yield found


def apply(operator: Operator, name: str, *, resource: str = "example.com/x", told: bool = True, **spec: Any) -> Object:
    """As kubectl does; `told`: kopf's event has come."""
    given = config(name, resource=resource, **{"nodePools": POOLS, **spec})
    path = f"{CONFIGS}/{name}"
    if live := operator.kube.find(path):
        made = operator.kube("PUT", path, {**given, "metadata": live["metadata"]})
    else:
        made = operator.kube.create(CONFIGS, given)
    if told:
        operator.hear(name)
    return made


def agent(operator: Operator, name: str) -> Agent:
    """The running agent of a config on node-1."""
    found = operator.kube.items(f"{DAEMONSETS}?labelSelector=device-operator.io/config={name}")
    made = Agent(operator.kube, found[0], "node-1")
    made.run()
    return made


async def test_an_edit_before_the_status_write_gets_a_pass_at_once(operator: Operator) -> None:
    apply(operator, "a")
    edits: list[Object] = []
    operator.client.before["status", "devicepluginconfigs"] = lambda: edits.append(
        apply(operator, "a", told=False, agent={"logLevel": "Debug"})
    )
    done = await operator.reconcile("a")
    # kopf's event of the edit is older than the answer to our write, so it changes nothing
    assert not operator.configs.put(edits[0])
    assert done.again == 0.0 or "a" in operator.enqueued
    await operator.reconcile("a")
    status = operator.kube.get(f"{CONFIGS}/a")["status"]
    assert (status["observedGeneration"], status["acceptedGeneration"]) == (2, 2)


async def test_two_objects_with_one_rendered_name_both_report_it(operator: Operator) -> None:
    apply(operator, "a", resource="example.com/{name}")
    apply(operator, "b", resource="example.com/x")
    for name in ("a", "b"):
        await operator.reconcile(name)
    agent(operator, "a").report({"one": "Healthy"}, resource="example.com/x")
    await operator.reconcile("a")
    assert operator.condition("a", "Degraded")[1] != "ResourceConflict"
    second = agent(operator, "b")
    await operator.caught_up()
    operator.enqueued.clear()
    second.report({"two": "Healthy"}, resource="example.com/x")
    await eventually_in_loop("both are enqueued", lambda: {"a", "b"} <= set(operator.enqueued))
    for name in ("a", "b"):
        await operator.reconcile(name)
        assert operator.condition(name, "Degraded") == ("True", "ResourceConflict")


async def test_two_objects_with_one_device_both_report_it(operator: Operator) -> None:
    agents = {}
    for name, device in (("a", GPU), ("b", "0000:3c:00.0")):
        apply(operator, name, resource=f"example.com/{name}")
        await operator.reconcile(name)
        agents[name] = agent(operator, name)
        agents[name].report({device: "Healthy"}, resource=f"example.com/{name}")
    for name in ("a", "b"):
        await operator.reconcile(name)
        assert operator.condition(name, "Degraded")[1] != "DeviceConflict"
    operator.enqueued.clear()
    agents["b"].report({"0000:3c:00.0": "Healthy", GPU: "Healthy"}, resource="example.com/b")
    await eventually_in_loop("both are enqueued", lambda: {"a", "b"} <= set(operator.enqueued))
    for name in ("a", "b"):
        await operator.reconcile(name)
        assert operator.condition(name, "Degraded") == ("True", "DeviceConflict")


async def test_an_acceptance_counts_for_others_before_the_api_server_has_answered(operator: Operator) -> None:
    apply(operator, "b")
    step = ("create", "controllerrevisions")
    operator.client.held[step] = asyncio.Event()
    first = asyncio.create_task(operator.reconcile("b"))
    await eventually_in_loop("it waits", lambda: operator.client.waiting == [step])
    apply(operator, "a")
    await operator.reconcile("a")
    operator.client.held.pop(step).set()
    await first
    assert operator.condition("b", "Accepted") == ("True", "Accepted")
    assert operator.condition("a", "Accepted") == ("False", "ResourceConflict")


@pytest.mark.parametrize(
    "edit",
    [
        {"resources": [{**ENTRY, "inject": {"env": [{"name": "X", "value": "{nosuch}"}]}}]},
        {"resource": "example.com/y", "nodePools": [*POOLS, pool("two", test="passes")]},
    ],
    ids=["cannot be parsed", "overlaps itself"],
)
async def test_the_spec_in_force_still_conflicts_after_a_rejected_edit(
    operator: Operator, edit: dict[str, Any]
) -> None:
    apply(operator, "a")
    await operator.reconcile("a")
    apply(operator, "a", **edit)
    await operator.reconcile("a")
    assert operator.condition("a", "Accepted")[0] == "False"

    apply(operator, "b")
    await operator.reconcile("b")
    assert operator.condition("b", "Accepted") == ("False", "ResourceConflict")

    apply(operator, "a")
    await operator.reconcile("a")
    assert operator.condition("a", "Accepted") == ("True", "Accepted")


async def test_nodes_that_come_to_overlap_later_take_no_acceptance_away(operator: Operator) -> None:
    ready_node(operator.kube, node("node-2", other="passes"))
    apply(operator, "a")
    apply(operator, "b", nodePools=[pool("default", other="passes")])
    for name in ("a", "b"):
        await operator.reconcile(name)
    before = {d["metadata"]["name"]: d["spec"] for d in operator.kube.items(DAEMONSETS)}

    operator.kube.patch(f"{NODES}/node-2", {"metadata": {"labels": {"test": "passes"}}})
    await eventually_in_loop("the watch has it", lambda: "test" in operator.cache.nodes.views["node-2"].labels)
    for name in ("a", "b"):
        await operator.reconcile(name)
        assert operator.condition(name, "Accepted") == ("True", "Accepted")
        assert operator.condition(name, "Degraded") == ("True", "ResourceConflict")
        found = condition(operator.kube.get(f"{CONFIGS}/{name}"), "Degraded")["message"]
        assert "node-2" in found
        assert "node-1" not in found
    assert {d["metadata"]["name"]: d["spec"] for d in operator.kube.items(DAEMONSETS)} == before

    # an edit is judged anew, and would take what the other serves
    apply(operator, "a", agent={"logLevel": "Debug"})
    await operator.reconcile("a")
    assert operator.condition("a", "Accepted") == ("False", "ResourceConflict")
    assert operator.kube.get(f"{CONFIGS}/a")["status"]["acceptedGeneration"] == 1


async def test_a_rejected_object_is_judged_again_when_the_rival_is_gone(operator: Operator) -> None:
    apply(operator, "a")
    await operator.reconcile("a")
    apply(operator, "b")
    await operator.reconcile("b")
    assert operator.condition("b", "Accepted") == ("False", "ResourceConflict")
    apply(operator, "a", resource="example.com/y")
    await operator.caught_up()
    operator.enqueued.clear()
    await operator.reconcile("a")
    await eventually_in_loop("the other is enqueued", lambda: "b" in operator.enqueued)
    await operator.reconcile("b")
    assert operator.condition("b", "Accepted") == ("True", "Accepted")


async def test_an_object_that_lost_its_owner_is_named(operator: Operator) -> None:
    apply(operator, "a")
    await operator.reconcile("a")
    (made,) = operator.kube.items(DAEMONSETS)
    operator.kube.patch(f"{DAEMONSETS}/{made['metadata']['name']}", {"metadata": {"ownerReferences": None}})
    ref = operator.configs.get("a").ref  # type: ignore[union-attr]
    await eventually_in_loop("the watch has it", lambda: not operator.cache.daemonsets_of(ref))
    await operator.reconcile("a")
    assert operator.condition("a", "Degraded") == ("True", "NotOwned")


# ---- Events of pods that do not come


def starting(operator: Operator, name: str, *numbers: int) -> None:
    """Pods of a config that wait for their container."""
    labels = {"device-operator.io/config": name, "device-operator.io/pool": "default"}
    for number in numbers:
        pod = f"{name}-pod-{number}"
        spec = {"nodeName": f"node-{number}", "containers": [{"name": "agent", "image": "example.com/agent:1"}]}
        operator.kube.create(
            PODS, {"metadata": {"name": pod, "labels": labels}, "spec": {**spec, "automountServiceAccountToken": False}}
        )
        waiting = {"name": "agent", "image": "", "imageID": "", "ready": False, "restartCount": 0}
        waiting["state"] = {"waiting": {"reason": "ContainerCreating"}}
        operator.kube.patch(f"{PODS}/{pod}/status", {"status": {"containerStatuses": [waiting]}})


def complain(operator: Operator, pod: str, reason: str, message: str, *, ago: float = 0.0) -> None:
    event = {"reason": reason, "message": message, "type": "Warning", "lastTimestamp": now(ago=ago)}
    about = {"apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": NAMESPACE}
    meta = {"name": f"{pod}.{reason.lower()}", "namespace": NAMESPACE}
    path = f"/api/v1/namespaces/{NAMESPACE}/events"
    operator.kube.create(path, {"metadata": meta, "involvedObject": about, **event})


async def creating(operator: Operator, name: str, number: int) -> None:
    """The watch knows that so many pods of the config wait."""
    pods = operator.cache.pods_of
    await eventually_in_loop(
        "the pods wait", lambda: sum(p.waiting_reason == "ContainerCreating" for p in pods(name)) == number
    )


async def test_events_are_read_for_a_few_starting_pods_and_not_again_soon(operator: Operator) -> None:
    apply(operator, "a")
    starting(operator, "a", *range(1, 9))
    complain(operator, "a-pod-1", "FailedCreatePodSandBox", f'sandbox "{"0c" * 32}": no runtime for "nvidia"')
    complain(operator, "a-pod-1", "FailedMount", "older", ago=8)
    await operator.caught_up()
    await creating(operator, "a", 8)
    done = await operator.reconcile("a")
    asked = [f"involvedObject.kind=Pod,involvedObject.name=a-pod-{n},type=Warning" for n in range(1, 6)]
    assert operator.client.lists == asked
    (told,) = operator.kube.get(f"{CONFIGS}/a")["status"]["nodes"]
    assert "FailedCreatePodSandBox" in told["message"]
    assert told["message"].endswith('sandbox "…": no runtime for "nvidia"')
    assert done.again is not None
    assert done.again <= 10.0  # nothing else tells of the next Event
    operator.clock = 9.0
    await operator.reconcile("a")
    assert operator.client.lists == asked
    operator.clock = 11.0
    await operator.reconcile("a")
    assert operator.client.lists == [*asked, *asked]


async def test_a_slow_answer_about_events_while_another_pass_asks_harms_neither(operator: Operator) -> None:
    """An answer of the first pass expires while that pass waits for the next answer. The second pass drops it."""
    apply(operator, "a")
    apply(operator, "b", resource="example.com/b")
    starting(operator, "a", 1, 2)
    complain(operator, "a-pod-1", "FailedMount", "of the first")
    await operator.caught_up()
    await creating(operator, "a", 2)
    await operator.reconcile("a")
    starting(operator, "a", 3)
    starting(operator, "b", 1)  # the pool's only node has a pod, so the pass asks nothing about the DaemonSet
    await operator.caught_up()
    await creating(operator, "a", 3)
    await creating(operator, "b", 1)

    step = ("list", "events")
    operator.clock = 9.0  # the answers about the first two pods are still valid
    operator.client.held[step] = asyncio.Event()
    slow = asyncio.create_task(operator.reconcile("a"))
    await eventually_in_loop("the first waits", lambda: operator.client.waiting == [step])
    operator.clock = 60.0
    other = asyncio.create_task(operator.reconcile("b"))
    await eventually_in_loop("the second waits", lambda: operator.client.waiting == [step, step])
    operator.client.held.pop(step).set()
    await asyncio.gather(slow, other)
    assert "of the first" in str(operator.kube.get(f"{CONFIGS}/a")["status"]["nodes"])


# ---- inventories of nodes that are in no pool


async def orphan(operator: Operator, *, written: timedelta) -> str:
    """An inventory of `a` on a node that is in no pool. A new leader finds it; it was last written `written` ago."""
    made = apply(operator, "a", nodePools=[pool("gpu", hardware="gpu")])
    owner = {
        "kind": "DevicePluginConfig",
        "apiVersion": made["apiVersion"],
        "name": "a",
        "uid": made["metadata"]["uid"],
    }
    body = {
        "apiVersion": made["apiVersion"],
        "kind": "NodeDeviceInventory",
        "metadata": {"name": "a.node-1", "ownerReferences": [owner]},
        "spec": {"nodeName": "node-1", "configName": "a"},
    }
    operator.kube.create(INVENTORIES, body)
    operator.kube.patch(f"{INVENTORIES}/a.node-1/status", {"status": {"poolName": "gpu", "lastHeartbeatTime": now()}})
    await eventually_in_loop("the watch has it", lambda: any(i.status for i in operator.cache.inventories_of("a")))
    operator.ahead = written
    return f"{INVENTORIES}/a.node-1"


async def test_an_inventory_that_nobody_has_written_for_the_grace_goes_at_once(operator: Operator) -> None:
    path = await orphan(operator, written=timedelta(minutes=41))
    await operator.reconcile("a")
    assert operator.kube.find(path) is None


async def test_an_inventory_of_a_node_that_has_just_left_the_pool_stays_for_the_grace(operator: Operator) -> None:
    path = await orphan(operator, written=timedelta(minutes=5))
    done = await operator.reconcile("a")
    assert operator.kube.find(path)
    assert done.again is not None
    assert done.again <= 300
    operator.clock = 1790.0
    done = await operator.reconcile("a")
    assert operator.kube.find(path)
    assert done.again is not None
    assert done.again <= 10
    operator.clock = 1801.0
    await operator.reconcile("a")
    assert operator.kube.find(path) is None


async def test_an_inventory_stays_while_its_agents_pod_is_there(operator: Operator) -> None:
    """A pod that is being deleted does not count: on a dead node it never goes."""
    path = await orphan(operator, written=timedelta(hours=4))
    starting(operator, "a", 1)
    await operator.caught_up()
    await operator.reconcile("a")
    assert operator.kube.find(path)
    # no kubelet is there to end it
    operator.kube.patch(f"{PODS}/a-pod-1", {"metadata": {"finalizers": ["example.com/dead-node"]}})
    operator.kube.delete(f"{PODS}/a-pod-1", gracePeriodSeconds=0)
    try:
        await eventually_in_loop("it is going", lambda: all(p.deleting for p in operator.cache.pods_of("a")))
        await operator.reconcile("a")
        assert operator.kube.find(path) is None
    finally:
        operator.kube.patch(f"{PODS}/a-pod-1", {"metadata": {"finalizers": None}})
