"""What `kubectl get dpc` tells: from nodes, agent pods and inventories to counts, conditions and Events."""

from typing import Any

from agents import Agent, now, ready_node
from conftest import Operators
from kubeapi import (
    CONFIGS,
    DAEMONSETS,
    EVENTS,
    INVENTORIES,
    NAMESPACE,
    NODES,
    Kube,
    Object,
    Owned,
    both,
    condition,
    config,
    eventually,
    node,
    pool,
)
from operator_process import OperatorProcess

RESOURCE = "example.com/dev"


def apply(kube: Kube, name: str, owned: Owned, *nodes: str, **spec: Any) -> tuple[Object, list[Agent]]:
    """A config with one pool `edge` on `nodes`, and their agents, not running yet."""
    for each in nodes:
        ready_node(kube, node(each, pool=name))
    kube.create(CONFIGS, config(name, resource=RESOURCE, nodePools=[pool("edge", pool=name)], **spec))
    _, daemonset = both(owned, name)
    return daemonset, [Agent(kube, daemonset, each) for each in nodes]


def warn(kube: Kube, kind: str, name: str, reason: str, message: str) -> None:
    """An Event about an object in our namespace."""
    about = {"apiVersion": "v1" if kind == "Pod" else "apps/v1", "kind": kind, "name": name, "namespace": NAMESPACE}
    event = {"reason": reason, "message": message, "type": "Warning", "firstTimestamp": now(), "lastTimestamp": now()}
    meta = {"name": f"{name}.1", "namespace": NAMESPACE}
    kube.create(f"/api/v1/namespaces/{NAMESPACE}/events", {"metadata": meta, "involvedObject": about, **event})


def status_of(kube: Kube, name: str) -> Object:
    return kube.get(f"{CONFIGS}/{name}").get("status", {})


def events_about(kube: Kube, name: str) -> list[tuple[str, str]]:
    """(reason, message), oldest first."""
    found = [e for e in kube.items(EVENTS) if e["involvedObject"]["name"] == name]
    found.sort(key=lambda e: int(e["metadata"]["resourceVersion"]))
    return [(e["reason"], e["message"]) for e in found]


def reaches(kube: Kube, name: str, kind: str, value: str) -> Object:
    """The condition once it has the value."""
    return eventually(
        f"{kind}={value}",
        lambda: (found := condition(kube.get(f"{CONFIGS}/{name}"), kind)).get("status") == value and found,
    )


def test_counts_and_holders_come_from_the_agents_reports(operator: OperatorProcess, kube: Kube, owned: Owned) -> None:
    _, agents = apply(kube, "counts", owned, "counts-1", "counts-2")
    for agent in agents:
        agent.run()
    agents[0].report({"a": "Healthy", "b": "Healthy"}, resource=RESOURCE, allocated={"a": "trainer"})
    agents[1].report({"c": "Healthy"}, resource=RESOURCE)

    expected = {"nodes": "2/2", "devices": "3/3", "capacity": 3, "allocated": 1, "unhealthy": 0, "withheld": 0}
    expected["status"] = "OK"
    eventually("the summary", lambda: status_of(kube, "counts").get("summary") == expected)
    reaches(kube, "counts", "Ready", "True")
    status = status_of(kube, "counts")
    (resource,) = status["resources"]
    assert (resource["name"], resource["nodes"], resource["devices"]) == (RESOURCE, 2, 3)
    first = next(n for n in status["nodes"] if n["name"] == "counts-1")
    assert first["state"] == "Serving"
    held = next(d for d in first["devices"] if d["id"] == "a")
    assert held["allocatedTo"] == [{"namespace": "default", "pod": "trainer", "container": "main"}]
    assert operator.metric("devices", config="counts", resource=RESOURCE, health="Healthy") == 3
    assert operator.metric("config_condition", config="counts", type="Ready", status="True") == 1
    assert operator.metric("config_status", config="counts", status="OK") == 1
    assert operator.metric("node_failed", config="counts") + operator.metric("config_fault", config="counts") == 0


def test_every_condition_is_set_from_the_first_visit(operator: OperatorProcess, kube: Kube, owned: Owned) -> None:
    kube.create(CONFIGS, config("early", nodePools=[pool("edge", pool="none")]))
    both(owned, "early")

    conditions = eventually("a status", lambda: status_of(kube, "early").get("conditions"))
    ours, for_kstatus = {"Accepted", "Progressing", "Degraded", "Ready"}, {"Reconciling", "Stalled"}
    assert {c["type"] for c in conditions} == ours | for_kstatus
    assert all(c["reason"] and c["observedGeneration"] == 1 for c in conditions)


def test_a_node_that_does_not_keep_health_is_degraded_and_says_why(
    operator: OperatorProcess, kube: Kube, owned: Owned
) -> None:
    _, (agent,) = apply(kube, "unkept", owned, "unkept-1")
    agent.run()
    told = {"healthError": "could not be kept: No space left on device", "acknowledgement": "a=x: must read …"}
    agent.report({"a": "Healthy"}, resource=RESOURCE, **told)
    assert told.items() <= kube.get(f"{INVENTORIES}/{agent.inventory}")["status"].items()

    def told_as() -> Object:
        return condition(kube.get(f"{CONFIGS}/unkept"), "Degraded")

    # a pass may come between the agent's start and its report
    eventually("the reason", lambda: told_as().get("reason") == "HealthNotKept")
    degraded = told_as()
    assert "unkept-1: could not be kept: No space left on device" in degraded["message"]
    assert condition(kube.get(f"{CONFIGS}/unkept"), "Ready")["status"] == "True"
    assert operator.metric("node_failed", config="unkept", node="unkept-1", reason="HealthNotKept") == 1
    agent.report({"a": "Unhealthy"}, resource=RESOURCE, healthError=None, acknowledgement=None)
    reaches(kube, "unkept", "Degraded", "True")
    eventually("the device", lambda: operator.metric("devices_not_healthy", config="unkept", node="unkept-1") == 1)
    agent.report({"a": "Healthy"}, resource=RESOURCE)
    reaches(kube, "unkept", "Degraded", "False")
    assert (
        operator.metric("node_failed", config="unkept") + operator.metric("devices_not_healthy", config="unkept") == 0
    )


def test_a_device_that_fails_degrades_the_object_and_gives_one_event(
    operators: Operators, kube: Kube, owned: Owned
) -> None:
    operators.shared()
    _, (agent,) = apply(kube, "fails", owned, "fails-1")
    agent.run()
    agent.report({"a": "Healthy", "b": "Healthy"}, resource=RESOURCE)
    reaches(kube, "fails", "Ready", "True")

    agent.report({"a": "Healthy", "b": "Unhealthy"}, resource=RESOURCE)
    (unhealthy,) = eventually("it is named", lambda: status_of(kube, "fails").get("unhealthyDevices"))
    assert "fails-1" in reaches(kube, "fails", "Degraded", "True")["message"]
    assert (unhealthy["node"], unhealthy["id"], unhealthy["reason"]) == ("fails-1", "b", "Test")
    told = eventually(
        "an Event", lambda: (found := events_about(kube, "fails")) and "DeviceUnhealthy" in str(found) and found
    )

    operators.end_shared()
    again = operators.start()
    again.wait_leading()
    eventually("a pass", lambda: again.metric("reconcile_seconds_count", result="accepted") >= 1)
    agent.report({"a": "Healthy", "b": "Healthy"}, resource=RESOURCE)
    eventually("its recovery is told", lambda: "DeviceHealthy" in str(events_about(kube, "fails")))
    assert events_about(kube, "fails")[: len(told)] == told
    reasons = [reason for reason, _ in events_about(kube, "fails")]
    assert reasons.count("DeviceUnhealthy") == 1


def test_a_pod_whose_device_node_is_anothers_by_now_is_told_once_also_after_a_restart(
    operators: Operators, kube: Kube, owned: Owned
) -> None:
    operators.shared()
    _, (agent,) = apply(kube, "moved", owned, "moved-1")
    agent.run()
    devices = {"a": "Healthy", "b": "Healthy"}
    agent.report(devices, resource=RESOURCE, allocated={"a": "pod-1"})
    reaches(kube, "moved", "Ready", "True")

    def told() -> list[str]:
        """Those about the grant itself: the condition Degraded has the same reason."""
        events = [message for reason, message in events_about(kube, "moved") if reason == "StaleGrant"]
        return [message for message in events if message.startswith(f"{RESOURCE} a on node")]

    def wrong(pod: str, now: str) -> None:
        text = f"default/{pod}: /dev/ttyUSB0, which its container was given, is now {now} of {RESOURCE}"
        agent.report(devices, resource=RESOURCE, allocated={"a": pod}, stale={"a": text})

    wrong("pod-1", "b")
    (first,) = eventually("an Event", told)
    for fact in ("default/pod-1", RESOURCE, "moved-1", "/dev/ttyUSB0"):
        assert fact in first
    assert reaches(kube, "moved", "Degraded", "True")["reason"] == "StaleGrant"

    operators.end_shared()
    again = operators.start()
    again.wait_leading()
    eventually("a pass", lambda: again.metric("reconcile_seconds_count", result="accepted") >= 1)
    wrong("pod-1", "another")
    eventually("what is there now", lambda: "is now another" in str(status_of(kube, "moved").get("nodes")))
    assert told() == [first]
    wrong("pod-2", "another")
    eventually("the other pod's", lambda: len(told()) == 2)
    assert first in told()


def test_an_agent_that_stops_being_ready_makes_its_node_stale(operators: Operators, kube: Kube, owned: Owned) -> None:
    operators.start(pod_stale_seconds=1.0).wait_leading()
    _, (agent,) = apply(kube, "stale", owned, "stale-1")
    agent.run()
    agent.report({"a": "Healthy"}, resource=RESOURCE)
    reaches(kube, "stale", "Ready", "True")

    agent.set_ready(ready=False, ago=0)
    ready = reaches(kube, "stale", "Ready", "False")
    assert "stale-1" in ready["message"]
    assert status_of(kube, "stale")["nodes"][0]["state"] == "Stale"


def test_a_missing_heartbeat_is_noticed_without_an_event(operators: Operators, kube: Kube, owned: Owned) -> None:
    operator = operators.start(heartbeat_stale_seconds=2.0)
    operator.wait_leading()
    _, (agent,) = apply(kube, "beat", owned, "beat-1")
    agent.run()
    agent.report({"a": "Healthy"}, resource=RESOURCE)
    reaches(kube, "beat", "Ready", "True")

    reaches(kube, "beat", "Ready", "False")
    assert status_of(kube, "beat")["nodes"][0]["reason"] == "NoHeartbeat"
    agent.report({"a": "Healthy"}, resource=RESOURCE, lastHeartbeatTime=now(ago=-5))
    reaches(kube, "beat", "Ready", "True")


def test_a_node_without_a_pod_names_the_taint_or_the_failed_creation(
    operator: OperatorProcess, kube: Kube, owned: Owned
) -> None:
    daemonset, _ = apply(kube, "without", owned, "without-1")
    message = "pods is forbidden: violates PodSecurity"
    warn(kube, "DaemonSet", daemonset["metadata"]["name"], "FailedCreate", message)
    eventually("the cause in the node's message", lambda: message in str(status_of(kube, "without").get("nodes")))
    assert status_of(kube, "without")["nodes"][0]["state"] == "Pending"

    kube.patch(
        f"{CONFIGS}/without",
        {"spec": {"nodePools": [{**pool("edge", pool="without"), "tolerations": []}]}},
    )
    kube.patch(
        f"{NODES}/without-1", {"spec": {"taints": [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]}}
    )
    eventually("the taint", lambda: "dedicated" in str(status_of(kube, "without").get("nodes")))


def test_an_agent_that_cannot_start_has_the_kubelets_message_and_is_progressing(
    operators: Operators, kube: Kube, owned: Owned
) -> None:
    operators.start(pod_stale_seconds=6.0).wait_leading()
    _, (agent,) = apply(kube, "handler", owned, "handler-1")
    agent.run()
    agent.report({"a": "Healthy"}, resource=RESOURCE)
    reaches(kube, "handler", "Ready", "True")
    reaches(kube, "handler", "Progressing", "False")

    seen = now()
    eventually("a later second, as pods have no finer times", lambda: now() > seen)
    agent.end()
    agent.run()
    agent.wait_for("ContainerCreating")
    warn(kube, "Pod", agent.pod, "FailedCreatePodSandBox", 'no runtime for "nvidia" is configured')
    told = "no runtime for"
    eventually("what the kubelet says", lambda: told in str(status_of(kube, "handler").get("nodes")))
    before = {c["type"]: (c["status"], c["reason"]) for c in status_of(kube, "handler")["conditions"]}
    assert before["Progressing"] == ("True", "Updating")
    if before["Ready"][0] == "True":  # its first moments
        assert before["Ready"][1] == before["Degraded"][1] == "AgentsStarting"
    ready = reaches(kube, "handler", "Ready", "False")
    assert told in ready["message"]
    assert told in reaches(kube, "handler", "Degraded", "True")["message"]
    assert told in str(status_of(kube, "handler")["nodes"])


def test_a_deleted_node_leaves_the_status_and_then_its_inventory_goes(
    operators: Operators, kube: Kube, owned: Owned
) -> None:
    operator = operators.start(inventory_grace_seconds=1.5)
    operator.wait_leading()
    _, agents = apply(kube, "leaving", owned, "leaving-1", "leaving-2")
    for agent in agents:
        agent.run()
        agent.report({"a": "Healthy"}, resource=RESOURCE)
    eventually("both", lambda: status_of(kube, "leaving").get("summary", {}).get("nodes") == "2/2")

    agents[0].end()
    kube.delete(f"{NODES}/leaving-1")
    eventually("one", lambda: status_of(kube, "leaving")["summary"]["nodes"] == "1/1")
    eventually("its inventory is deleted", lambda: kube.find(f"{INVENTORIES}/leaving.leaving-1") is None)
    assert kube.find(f"{INVENTORIES}/leaving.leaving-2")

    kube.patch(f"{NODES}/leaving-2", {"metadata": {"labels": {"pool": "another"}}})
    agents[1].end()  # as the DaemonSet's controller does
    eventually("so is that of a node that left the pool", lambda: kube.find(f"{INVENTORIES}/leaving.leaving-2") is None)


def test_a_forged_status_is_put_right(operator: OperatorProcess, kube: Kube, owned: Owned) -> None:
    apply(kube, "forged", owned, "forged-1")
    eventually("a status", lambda: status_of(kube, "forged").get("pools"))
    kube.patch(f"{CONFIGS}/forged/status", {"status": {"summary": {"nodes": "99/99"}, "pools": []}})
    kube.patch(f"{NODES}/forged-1", {"metadata": {"labels": {"any": "pass"}}})
    eventually("it is put right", lambda: status_of(kube, "forged")["summary"]["nodes"] == "0/1")
    assert status_of(kube, "forged")["pools"]


def test_deletion_needs_no_operator(operators: Operators, kube: Kube, owned: Owned) -> None:
    operators.shared()
    daemonset, _ = apply(kube, "deleted", owned, "deleted-1")
    operators.end_shared()

    kube.delete(f"{CONFIGS}/deleted")
    assert kube.find(f"{CONFIGS}/deleted") is None, "a finalizer keeps it"
    # the garbage collector uses this; it does not run here
    (owner,) = kube.get(f"{DAEMONSETS}/{daemonset['metadata']['name']}")["metadata"]["ownerReferences"]
    assert owner["kind"] == "DevicePluginConfig"
    assert owner["controller"] is True
