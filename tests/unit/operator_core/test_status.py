"""Conditions, counts, lists and their bounds, Events."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from device_operator.render.manifests import render
from device_operator.runtime.errors import InvalidSpecError
from device_operator.spec.acceptance import Accepted, Rejected
from device_operator.spec.model import Spec
from device_operator.spec.placement import NodeView, Overlap, assignment
from device_operator.status.conditions import was_accepted
from device_operator.status.nodes import StatusSettings, rfc3339
from device_operator.status.notices import health_transitions, transitions
from device_operator.status.observed import ApplyProblem, FailedCreate, InventoryView, Observed, PodWarning
from device_operator.status.pools import pool_daemonset
from device_operator.status.summary import compute, size
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.operator_core.build import (
    KVM,
    LAB,
    NOW,
    SETTINGS,
    ago,
    counts,
    daemonset,
    device,
    inventory,
    node,
    pod,
    pools,
    spec,
)

CRD = yaml.safe_load((Path(__file__).parents[3] / "crds" / "devicepluginconfigs.yaml").read_text())
SCHEMA = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
WRONG = Rejected.invalid(InvalidSpecError(("spec.resources[0].unit: unknown attribute 'x'",)))
READY_BEFORE = {
    "conditions": [
        {"type": "Ready", "status": "True", "reason": "Serving", "message": "", "observedGeneration": 1}
        | {"lastTransitionTime": "2026-05-01T00:00:00Z"}
    ]
}


GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-{profile}"


def strict(schema: Any) -> Any:
    """The schema as the API server means it: what is not declared would be dropped."""
    if isinstance(schema, dict):
        closed = {k: strict(v) for k, v in schema.items()}
        if "properties" in schema and schema.get("type") == "object":
            closed["additionalProperties"] = False
        return closed
    return [strict(item) for item in schema] if isinstance(schema, list) else schema


def status(
    found: Spec | Rejected | None = None,
    *,
    nodes: tuple[NodeView, ...] = (),
    previous: dict[str, Any] | None = None,
    generation: int = 1,
    limits: StatusSettings | None = None,
    validate: bool = True,
    conflicts: tuple[Overlap, ...] = (),
    **seen: Any,
) -> dict[str, Any]:
    """The status; pods and inventories are on the current template and configuration unless they say else."""
    found = found or spec()
    assigned, manifests = None, ()
    if isinstance(found, Spec):
        assigned = assignment(found, nodes=nodes, others=[])
        assigned = dataclasses.replace(assigned, overlaps=(*assigned.overlaps, *conflicts))
        manifests = render(LAB, found, SETTINGS)
        current = {m.pool: m for m in manifests}
        seen["pods"] = tuple(
            dataclasses.replace(p, template_hash=p.template_hash or current[p.pool].template_hash)
            for p in seen.get("pods", ())
        )
        seen["inventories"] = tuple(
            dataclasses.replace(i, status={"observedConfigHash": current[i.status["poolName"]].config_hash, **i.status})
            for i in seen.get("inventories", ())
        )
    found = compute(
        LAB,
        generation=generation,
        verdict=Accepted(found) if isinstance(found, Spec) else found,
        observed=Observed(now=NOW, nodes=nodes, **seen),
        previous=previous or {},
        assigned=assigned,
        manifests=manifests,
        settings=limits,
    )
    if validate:
        jsonschema.validate(found, strict(SCHEMA))
    return found


def conditions(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in found["conditions"]}


def message(found: dict[str, Any], kind: str) -> str:
    return next(str(c["message"]) for c in found["conditions"] if c["type"] == kind)


def fleet(serving: int, *, waiting: int = 0, node_age: float = 3600, **waiting_pod: Any) -> dict[str, Any]:
    """Nodes of which the first ones serve; the others have a pod as said."""
    names = [f"node-{i:04}" for i in range(serving + waiting)]
    return {
        "nodes": tuple(node(name, age=node_age) for name in names),
        "pods": tuple(pod(name) for name in names[:serving])
        + tuple(pod(name, ready=False, **waiting_pod) for name in names[serving:]),
        "inventories": tuple(inventory(name) for name in names[:serving]),
    }


# ---- conditions


def test_all_conditions_are_set_from_the_first_visit():
    found = status(nodes=(node(),))
    assert conditions(found) == {
        "Accepted": ("True", "Accepted"),
        "Progressing": ("True", "Updating"),
        "Degraded": ("False", "AgentsStarting"),
        "Ready": ("False", "NotApplied"),
    }
    for condition in found["conditions"]:
        assert condition["message"]
        assert condition["observedGeneration"] == 1
        assert condition["lastTransitionTime"] == "2026-06-01T12:00:00Z"


def test_a_fleet_that_is_served_is_ready_and_current():
    found = status(**fleet(3))
    assert conditions(found) == {
        "Accepted": ("True", "Accepted"),
        "Progressing": ("False", "Current"),
        "Degraded": ("False", "AsWanted"),
        "Ready": ("True", "Serving"),
    }
    assert message(found, "Ready") == "3 of 3 settled nodes served"
    assert found["summary"] == {"nodes": "3/3", "devices": "3/3", "capacity": 3, "allocated": 0, "unhealthy": 0}
    assert found["pools"][0]["nodes"] == {"matched": 3, "settled": 3, "ready": 3, "updated": 3, "stale": 0}


def test_no_node_is_ready_with_a_reason():
    found = status(pools({"name": "edge", "nodeSelector": {"hardware": "edge"}}), nodes=(node(),))
    assert conditions(found)["Ready"] == ("True", "NoNodes")
    assert conditions(found)["Progressing"] == ("False", "NoNodes")
    assert message(found, "Ready") == "no node belongs to pool edge"
    assert found["pools"][0]["message"] == "no node matches"


def test_no_device_is_ready_with_a_reason():
    empty = inventory(resources=[counts(devices=0)], devices=[])
    found = status(nodes=(node(),), pods=(pod(),), inventories=(empty,))
    assert conditions(found)["Ready"] == ("True", "NoDevices")
    assert found["nodes"][0]["state"] == "NoDevices"
    assert conditions(found)["Degraded"][0] == "False"
    assert message(found, "Ready") == "1 of 1 settled nodes served; they have no devices"


def test_ready_points_at_degraded_where_a_driver_keeps_the_devices_away():
    found = spec({"resources": [{"name": GPU, "preset": "nvidia-gpu-cdi"}]})
    silent = inventory(resources=[counts(GPU, devices=0, registered=False, message="no driver")], devices=[])
    found = status(found, nodes=(node(),), pods=(pod(),), inventories=(silent,))
    assert conditions(found)["Ready"] == ("True", "NoDevices")
    assert message(found, "Ready").endswith("they have no devices (DriverUnavailable: see Degraded)")
    assert conditions(found)["Degraded"] == ("True", "DriverUnavailable")


CRASH = {"waiting_reason": "CrashLoopBackOff", "exit_code": 1}


@pytest.mark.parametrize(
    ("max_unavailable", "serving", "failing", "ready"),
    [
        ("10%", 9, 1, True),
        ("10%", 8, 2, False),
        ("10%", 8, 1, False),
        ("10%", 18, 2, True),
        (1, 2, 1, True),
        (2, 1, 2, True),
        (2, 0, 2, False),  # nothing at all is served: the tolerance is no licence for that
        (1, 0, 1, False),
    ],
)
def test_ready_tolerates_max_unavailable_rounded_down(
    max_unavailable: object, serving: int, failing: int, *, ready: bool
):
    found = status(spec(updateStrategy={"maxUnavailable": max_unavailable}), **fleet(serving, waiting=failing, **CRASH))
    assert conditions(found)["Ready"] == (("True", "Serving") if ready else ("False", "AgentCrashes"))
    assert conditions(found)["Degraded"] == ("True", "AgentCrashes")


def test_the_message_names_nodes_and_causes():
    seen = fleet(1, waiting=2, waiting_reason="ErrImagePull", waiting_message="no such image")
    found = status(**seen)
    assert message(found, "Ready") == (
        "1 of 3 settled nodes served; Failed ImagePullFailed on nodes node-0001, node-0002: "
        "pod lab-default-node-0001: ErrImagePull: no such image"
    )


def test_on_a_fresh_cluster_ready_waits_for_the_agents():
    young = fleet(1, waiting=1, node_age=30)
    found = status(**young)
    assert conditions(found)["Ready"][0] == "False"
    assert message(found, "Ready").startswith("1 of 2 nodes served, none of them is settled yet; ")
    assert conditions(status(**fleet(2, node_age=30)))["Ready"] == ("True", "Serving")
    assert conditions(status(nodes=(node(age=30),)))["Ready"][0] == "False"


def test_a_node_that_joins_a_settled_fleet_changes_no_condition():
    seen = fleet(2)
    seen["nodes"] += (node("new", age=30),)
    found = status(**seen)
    assert [status for status, _ in conditions(found).values()] == ["True", "False", "False", "True"]
    assert message(found, "Ready") == "2 of 2 settled nodes served, 1 node joining"


def test_the_first_node_of_a_pool_that_was_empty_does_not_take_ready_away():
    found = status(nodes=(node(age=30),), previous=READY_BEFORE)
    assert conditions(found)["Ready"][0] == "True"
    assert message(found, "Ready").startswith("0 of 1 nodes served")


@pytest.mark.parametrize(
    ("waiting_pod", "ready"),
    [
        ({"age": 10}, True),  # a rollout: the new pod starts
        ({"age": 10, "waiting_reason": "ContainerCreating"}, True),
        ({"age": 90}, False),
        ({"age": 10, "waiting_reason": "ErrImagePull"}, False),
    ],
)
def test_once_ready_only_a_node_with_a_cause_takes_it_away(waiting_pod: dict[str, Any], *, ready: bool):
    seen = fleet(2, waiting=1, **waiting_pod)
    assert (conditions(status(**seen, previous=READY_BEFORE))["Ready"][0] == "True") == ready
    assert conditions(status(**seen))["Ready"][0] == "False"


def test_an_edit_does_not_flip_ready():
    seen = fleet(3)
    before = status(**seen)
    edited = spec(
        resources=[{"name": KVM, "devices": [{"files": {"paths": ["/dev/kvm"]}}], "sharing": {"replicas": 2}}]
    )
    old = {i.node: before["pools"][0]["configHash"] for i in seen["inventories"]}
    seen["inventories"] = tuple(inventory(n, observedConfigHash=h) for n, h in old.items())
    found = status(edited, **seen, previous=before, generation=2)
    assert conditions(found)["Progressing"] == ("True", "Updating")
    assert message(found, "Progressing") == (
        "0 of 3 settled nodes on the current configuration and pod template; "
        "waiting for nodes node-0000, node-0001, node-0002"
    )
    assert conditions(found)["Ready"] == ("True", "Serving")


NO_HANDLER = PodWarning("lab-default-node-0000", "FailedCreatePodSandBox", 'no runtime for "nvidia"', ago(2))
CREATING = {"phase": "Pending", "waiting_reason": "ContainerCreating"}


@pytest.mark.parametrize(
    ("age", "progressing", "degraded", "ready"),
    [
        (20, ("True", "Updating"), ("False", "AgentsStarting"), ("True", "AgentsStarting")),
        (80, ("True", "Updating"), ("True", "ContainerCreating"), ("False", "ContainerCreating")),
    ],
)
def test_a_rolled_agent_that_cannot_start_is_told_by_every_condition(
    age: float, progressing: tuple[str, str], degraded: tuple[str, str], ready: tuple[str, str]
):
    """Its inventory is still the one of the pod before, with the right configuration."""
    seen = fleet(1)
    seen["pods"] = (pod("node-0000", ready=False, age=age, **CREATING),)
    seen["inventories"] = (inventory("node-0000", heard=age + 30),)
    found = status(**seen, previous=READY_BEFORE, pod_warnings=(NO_HANDLER,))
    said = conditions(found)
    assert (said["Progressing"], said["Degraded"], said["Ready"]) == (progressing, degraded, ready)
    assert message(found, "Progressing").startswith("0 of 1 settled nodes on the current configuration and pod templ")
    for kind in ("Degraded", "Ready"):
        assert 'FailedCreatePodSandBox: no runtime for "nvidia"' in message(found, kind)
    assert found["pools"][0]["nodes"]["updated"] == 0


def test_an_agent_that_broke_after_it_had_been_up_is_no_update_in_progress():
    seen = fleet(1)
    seen["pods"] = (pod("node-0000", ready=False, age=1800, ready_since=ago(600), **CRASH),)
    found = status(**seen, previous=READY_BEFORE)
    assert conditions(found)["Progressing"] == ("False", "Current")
    assert conditions(found)["Degraded"] == ("True", "AgentCrashes")
    assert conditions(found)["Ready"] == ("False", "AgentCrashes")


def test_a_pod_that_is_refused_degrades_on_a_young_node_too():
    refused = FailedCreate(pool_daemonset(LAB, "default"), 'RuntimeClass "nvidia" not found', ago(5))
    for previous in ({}, READY_BEFORE):
        found = status(nodes=(node(age=30),), failed_creates=(refused,), previous=previous)
        assert conditions(found)["Degraded"] == ("True", "FailedCreate")
        assert conditions(found)["Ready"] == ("False", "FailedCreate")


@settings(max_examples=200, deadline=None)
@given(
    young=st.booleans(),
    was_ready=st.booleans(),
    agents=st.lists(
        st.sampled_from(["serves", "starts", "creates", "stuck", "crashes", "none", "restarts"]), min_size=1, max_size=4
    ),
)
def test_the_conditions_never_contradict_each_other(agents: list[str], *, young: bool, was_ready: bool):
    pods_of: dict[str, dict[str, Any]] = {
        "serves": {},
        "starts": {"ready": False, "age": 5},
        "creates": {"ready": False, "age": 20, **CREATING},
        "stuck": {"ready": False, "age": 90, **CREATING},
        "crashes": {"ready": False, "age": 90, **CRASH},
        "restarts": {"ready": False, "age": 900, "ready_since": ago(5)},
    }
    names = [f"node-{i}" for i in range(len(agents))]
    found = status(
        nodes=tuple(node(name, age=200 if young else 3600) for name in names),
        pods=tuple(pod(name, **pods_of[agent]) for name, agent in zip(names, agents, strict=True) if agent != "none"),
        inventories=tuple(inventory(name, heard=100) for name in names),
        previous=READY_BEFORE if was_ready else {},
    )
    said, served = conditions(found), sum(n["state"] == "Serving" for n in found["nodes"])
    if said["Ready"] == ("True", "Serving"):
        assert served
    if said["Progressing"][0] == "False":
        assert not {"starts", "creates", "stuck", "none"} & set(agents)
    if said["Degraded"] == ("False", "AsWanted"):
        assert set(agents) == {"serves"}
        assert said["Ready"] == ("True", "Serving")
    if said["Ready"][0] == "False":
        assert said["Degraded"][1] != "AsWanted"


def test_no_matched_node_being_ready_is_unknown():
    found = status(nodes=(node(ready=False),))
    assert conditions(found)["Ready"] == ("Unknown", "NoReadyNodes")
    assert conditions(found)["Degraded"] == ("True", "NodeNotReady")


def test_a_pool_without_a_ready_node_is_named_in_readys_message():
    found = status(
        pools(
            {"name": "a", "nodeSelector": {"p": "a"}},
            {"name": "b", "nodeSelector": {"p": "b"}},
        ),
        nodes=(node("a-1", labels={"p": "a"}), *(node(n, labels={"p": "b"}, ready=False) for n in ("b-1", "b-2"))),
        pods=(pod("a-1", pool="a"), pod("b-1", pool="b", ready_since=ago(5)), pod("b-2", pool="b")),
        inventories=(inventory("a-1", poolName="a"), inventory("b-1", poolName="b"), inventory("b-2", poolName="b")),
    )
    assert conditions(found)["Ready"] == ("True", "Serving")
    assert message(found, "Ready") == "1 of 1 settled nodes served; no node of pool b is Ready (nodes b-1, b-2)"
    assert found["summary"]["nodes"] == "1/3"
    assert conditions(found)["Degraded"] == ("True", "NodeNotReady")


def test_an_object_that_is_not_accepted_and_runs_nothing_is_not_ready():
    found = status(WRONG, nodes=(node(),))
    assert conditions(found) == {
        "Accepted": ("False", "InvalidSpec"),
        "Progressing": ("False", "InvalidSpec"),
        "Degraded": ("True", "InvalidSpec"),
        "Ready": ("False", "InvalidSpec"),
    }
    assert message(found, "Accepted") == "spec.resources[0].unit: unknown attribute 'x'"


def test_an_edit_that_is_not_accepted_leaves_what_runs_and_says_so():
    seen = fleet(2)
    seen["daemonsets"] = (daemonset(),)
    found = status(WRONG, **seen, previous=READY_BEFORE, generation=2)
    assert conditions(found)["Ready"] == ("True", "InvalidSpec")
    assert message(found, "Ready") == "what ran before the edit goes on: 2 of 2 settled nodes served"
    assert message(found, "Accepted").endswith("; what ran before goes on")
    assert found["summary"]["nodes"] == "2/2"


def test_paused_changes_nothing_and_says_so():
    paused = spec(paused=True)
    seen = fleet(1)
    seen["inventories"] = (inventory("node-0000", observedConfigHash="old"),)
    found = status(paused, **seen)
    assert conditions(found)["Progressing"] == ("False", "Paused")
    assert message(found, "Accepted") == "generation 1 is accepted, but paused: not applied; 1 resource, 1 pool"
    (made,) = (m for m in render(LAB, paused, SETTINGS) if m.kind == "DaemonSet")
    runs = daemonset(config_hash=made.config_hash, template_hash=made.template_hash)
    edited = daemonset(config_hash="before", template_hash=made.template_hash)
    seen["nodes"] += (node("new", age=30),)  # without an agent yet, which is no edit
    assert message(status(paused, **seen, daemonsets=(runs,)), "Accepted").startswith("generation 1 is in force")
    assert "paused: not applied" in message(status(paused, **seen, daemonsets=(edited,)), "Accepted")
    assert conditions(found)["Ready"][0] == "True"
    assert status(paused, nodes=(node(),))["nodes"][0]["reason"] == "Paused"


def test_later_overlaps_degrade_and_do_not_revoke():
    found = status(
        pools({"name": "a"}, {"name": "b"}),
        nodes=(node(),),
        pods=(pod(pool="a"),),
        inventories=(inventory(poolName="a"),),
    )
    assert conditions(found)["Accepted"][0] == "True"
    assert conditions(found)["Degraded"] == ("True", "PoolOverlap")
    assert "pools a and b both match node node-1" in message(found, "Degraded")
    assert "pools a and b" in found["pools"][0]["message"]


def test_a_name_that_another_objects_agent_serves_too_degrades_and_is_told_on_the_node():
    meet = (Overlap("node-0001", "ResourceConflict", "default", "other", ("example.com/ttyS0",), reported=True),)
    seen = fleet(2)
    seen["inventories"] = (inventory("node-0000"), inventory("node-0001", resources=[counts(registered=False)]))
    found = status(**seen, conflicts=meet)
    sentence = "DevicePluginConfig other serves example.com/ttyS0 on node node-0001"
    assert conditions(found)["Degraded"] == ("True", "ResourceConflict")
    assert message(found, "Degraded").count(sentence) == 1
    assert (found["nodes"][0]["name"], found["nodes"][0]["reason"]) == ("node-0001", "ResourceConflict")
    assert found["nodes"][0]["message"].startswith(sentence)
    assert sentence in found["pools"][0]["message"]
    assert conditions(found)["Ready"][0] == "True"


def test_devices_that_another_object_offers_too_degrade_and_hide_no_other_fault():
    names = (KVM, "example.com/other")
    meet = tuple(
        Overlap(f"node-000{n}", "DeviceConflict", "default", "other", names, reported=True, device="0000:3b:00.0")
        for n in (0, 1)
    )
    seen = fleet(2)
    seen["inventories"] = (inventory("node-0000"), inventory("node-0001", configError="contract version 2"))
    found = status(**seen, conflicts=meet)
    assert conditions(found)["Degraded"] == ("True", "DeviceConflict")
    assert "offers devices that pool default offers too, on nodes node-0000, node-0001" in message(found, "Degraded")
    assert "contract version 2" in message(found, "Degraded")
    assert [n["reason"] for n in found["nodes"]] == ["DeviceConflict", "ConfigError"]
    assert conditions(found)["Accepted"][0] == conditions(found)["Ready"][0] == "True"


def test_what_could_not_be_applied_is_told():
    problem = ApplyProblem("default", "NotOwned", "DaemonSet x belongs to somebody else")
    found = status(nodes=(node(),), problems=(problem,))
    assert conditions(found)["Degraded"] == ("True", "NotOwned")
    assert found["pools"][0]["message"] == problem.message
    assert found["nodes"][0]["message"] == problem.message


def test_devices_without_an_answer_degrade_and_are_not_counted_as_healthy():
    silent = [device(n, health="Unknown", reason="DriverHangs", message="NVML hangs") for n in ("a", "b")]
    seen = fleet(2)
    seen["inventories"] = (inventory("node-0000", resources=[counts(devices=3)], devices=[*silent, device("c")]),
                           inventory("node-0001"))  # fmt: skip
    found = status(**seen)
    assert conditions(found)["Degraded"] == ("True", "DevicesUnknown")
    assert message(found, "Degraded") == "2 devices Unknown on node node-0000: DriverHangs 2"
    assert conditions(found)["Ready"] == ("True", "Serving")
    assert found["summary"] == {"nodes": "2/2", "devices": "2/4", "capacity": 4, "allocated": 0, "unhealthy": 0}
    (resource,) = found["resources"]
    assert (resource["devices"], resource["healthy"], resource["unhealthy"]) == (4, 2, 0)
    first = found["nodes"][0]
    assert (first["name"], first["reason"], first["resources"][0]["healthy"]) == ("node-0000", "DevicesUnknown", 1)
    assert found["unhealthyDevices"] == []


def test_unhealthy_and_unknown_devices_are_both_told():
    mixed = [device("a", health="Unhealthy", reason="Missing"), device("b", health="Unknown")]
    found = status(
        nodes=(node(),),
        pods=(pod(),),
        inventories=(inventory(resources=[counts(devices=2, healthy=1)], devices=mixed),),
    )
    assert conditions(found)["Degraded"] == ("True", "DevicesUnhealthy")
    assert message(found, "Degraded") == (
        "1 device Unhealthy on node node-1: Missing 1; 1 device Unknown on node node-1: Unknown 1"
    )
    assert found["summary"]["devices"] == "0/2"


def test_unhealthy_devices_degrade_by_name():
    bad = [
        device("a", health="Unhealthy", reason="Missing"),
        device("b", health="Unhealthy", reason="Missing"),
        device("c"),
    ]
    found = status(
        nodes=(node(),), pods=(pod(),), inventories=(inventory(resources=[counts(devices=3, healthy=1)], devices=bad),)
    )
    assert conditions(found)["Degraded"] == ("True", "DevicesUnhealthy")
    assert message(found, "Degraded") == "2 devices Unhealthy on node node-1: Missing 2"
    assert conditions(found)["Ready"][0] == "True"


def test_health_that_is_not_kept_degrades_beside_the_devices_that_it_concerns():
    bad = [device(health="Unhealthy", reason="Xid79")]
    seen = inventory(healthError="could not be kept on the node: No space left on device", devices=bad)
    found = status(nodes=(node(),), pods=(pod(),), inventories=(seen,))
    assert conditions(found)["Degraded"] == ("True", "HealthNotKept")
    assert message(found, "Degraded") == (
        "Serving HealthNotKept on node node-1: could not be kept on the node: No space left on device; "
        "1 device Unhealthy on node node-1: Xid79 1"
    )
    assert conditions(found)["Ready"][0] == "True"


def test_before_all_lists_are_read_nothing_is_claimed():
    found = status(**fleet(1), complete=False)
    assert {kind: s for kind, (s, _) in conditions(found).items()} == {
        "Accepted": "True",
        "Progressing": "Unknown",
        "Degraded": "Unknown",
        "Ready": "Unknown",
    }
    assert conditions(status(**fleet(1), complete=False, previous=READY_BEFORE))["Ready"] == ("True", "Serving")


def test_transition_times_move_with_the_status_alone():
    before = status(**fleet(2))
    for condition in before["conditions"]:
        condition["lastTransitionTime"] = "2026-05-01T00:00:00Z"
    after = status(**fleet(1, waiting=1, **CRASH), previous=before)
    times = {c["type"]: c["lastTransitionTime"][:7] for c in after["conditions"]}
    assert times == {"Accepted": "2026-05", "Progressing": "2026-06", "Degraded": "2026-06", "Ready": "2026-06"}


def test_the_same_observation_gives_the_same_status():
    first = status(**fleet(2, waiting=1))
    assert status(**fleet(2, waiting=1), previous=first) == first


@pytest.mark.parametrize(
    ("given", "accepted"),
    [
        ({"metadata": {"generation": 1}}, False),
        ({"metadata": {"generation": 1}, "status": status()}, True),
        ({"metadata": {"generation": 2}, "status": status()}, False),
        ({"metadata": {"generation": 1}, "status": status(WRONG)}, False),
    ],
)
def test_acceptance_is_of_a_generation(given: dict[str, Any], *, accepted: bool):
    assert was_accepted(given) == accepted


# ---- counts and lists


def test_resources_are_counted_over_the_nodes():
    other = "example.com/sim"
    seen = fleet(2)
    seen["inventories"] = (
        inventory("node-0000", resources=[counts(capacity=10, allocated=3), counts(other, devices=4, healthy=3)]),
        inventory("node-0001", resources=[counts(capacity=10, allocated=1), counts(other, devices=0)]),
    )
    found = status(**seen)
    assert found["resources"] == [
        {"name": KVM, "entry": KVM, "nodes": 2, "devices": 2, "healthy": 2, "unhealthy": 0, "capacity": 20, "allocated": 4},
        {"name": other, "entry": other, "nodes": 1, "devices": 4, "healthy": 3, "unhealthy": 1, "capacity": 4, "allocated": 0},
    ]  # fmt: skip
    assert found["summary"] == {"nodes": "2/2", "devices": "5/6", "capacity": 24, "allocated": 4, "unhealthy": 1}


def test_devices_of_a_node_whose_agent_is_gone_are_known_and_not_healthy():
    found = status(nodes=(node(),), pods=(pod(ready=False, ready_since=ago(100)),), inventories=(inventory(),))
    assert found["summary"] == {"nodes": "0/1", "devices": "0/1", "capacity": 1, "allocated": 0, "unhealthy": 0}
    assert found["pools"][0]["nodes"]["stale"] == 1


def test_unhealthy_devices_stand_oldest_first():
    seen = fleet(2)
    seen["inventories"] = (
        inventory("node-0000", devices=[device("a", health="Unhealthy", since="2026-05-03T00:00:00Z", reason="R", message="m")]),
        inventory("node-0001", devices=[device("b", health="Unhealthy", since="2026-05-02T00:00:00Z"), device("c")]),
    )  # fmt: skip
    found = status(**seen)["unhealthyDevices"]
    assert [(d["node"], d["id"]) for d in found] == [("node-0001", "b"), ("node-0000", "a")]
    assert found[1] == {
        "node": "node-0000",
        "resource": KVM,
        "id": "a",
        "health": "Unhealthy",
        "reason": "R",
        "message": "m",
        "since": "2026-05-03T00:00:00Z",
    }


def test_a_refused_edit_keeps_maxunavailable_and_the_nodes_without_a_pod():
    seen = fleet(9)
    seen["nodes"] = (*seen["nodes"], node("node-9999"))
    found = status(WRONG, **seen, daemonsets=(daemonset(max_unavailable="10%"),), previous=READY_BEFORE, generation=2)
    assert conditions(found)["Ready"] == ("True", "InvalidSpec")
    assert found["summary"]["nodes"] == "9/10"
    found = status(WRONG, **seen, daemonsets=(daemonset(max_unavailable="9%"),), generation=2)
    assert conditions(found)["Ready"] == ("False", "AwaitingPod")


def test_nodes_with_problems_stand_first():
    seen = fleet(3)
    seen["pods"] = (seen["pods"][0], seen["pods"][1], pod("node-0002", ready=False, **CRASH))
    found = status(**seen)["nodes"]
    assert [n["name"] for n in found] == ["node-0002", "node-0000", "node-0001"]
    assert found[0]["state"] == "Failed"
    assert found[1]["resources"] == [{"name": KVM, "devices": 1, "healthy": 1, "capacity": 1, "allocated": 0}]


def test_a_device_shows_two_of_its_holders():
    holders = [{"namespace": "default", "pod": f"p{i}", "container": "main"} for i in range(3)]
    found = status(nodes=(node(),), pods=(pod(),), inventories=(inventory(devices=[device(allocatedTo=holders)]),))
    assert found["nodes"][0]["devices"][0]["allocatedTo"] == holders[:2]


def test_a_status_that_could_not_be_written_is_told_by_the_same_events_later():
    before = status(nodes=(node(),))
    after = status(**fleet(1), previous=before)
    later = json.loads(json.dumps(after).replace(rfc3339(NOW), "2026-06-01T12:00:09Z"))
    assert later != after
    assert transitions(before, later) == transitions(before, after) != ()
    assert {n.key for n in transitions({}, later)} == {n.key for n in transitions({}, after)}


# ---- bounds


def test_a_big_fleet_is_cut_in_order_and_counted():
    names = [f"node-{i:05}" for i in range(5000)]
    bad = device("bad", health="Unhealthy", reason="Missing")
    devices = [*(device(f"d{i}") for i in range(7)), bad]
    found = status(
        nodes=tuple(node(n) for n in names),
        pods=tuple(pod(n) for n in names),
        inventories=tuple(inventory(n, resources=[counts(devices=8, healthy=7)], devices=devices) for n in names),
    )
    assert size(found) <= 384 * 1024
    assert found["summary"]["unhealthy"] == 5000
    assert found["unhealthyDevicesOmitted"] == 5000 - len(found["unhealthyDevices"])
    assert found["nodesOmitted"] == 5000 - len(found["nodes"])
    shown = sum(len(n.get("devices", ())) for n in found["nodes"])
    assert found["devicesOmitted"] == 40_000 - shown
    assert found["summary"]["devices"] == "35000/40000"


def test_a_failure_of_every_device_does_not_hide_the_nodes():
    seen = fleet(2000)
    bad = [device(f"d{i}", health="Unhealthy", message="x" * 300) for i in range(8)]
    seen["inventories"] = tuple(inventory(n.name, devices=bad) for n in seen["nodes"])
    found = status(**seen)
    assert size(found["unhealthyDevices"]) < 200 * 1024
    assert len(found["nodes"]) > 300


def test_a_small_fleet_is_not_cut():
    found = status(**fleet(20))
    assert not [key for key in found if key.endswith("Omitted")]
    assert len(found["nodes"]) == 20
    assert all(len(n["devices"]) == 1 for n in found["nodes"])


def test_what_an_inventory_left_out_is_counted():
    seen = {"nodes": (node(),), "pods": (pod(),), "inventories": (inventory(devicesOmitted=41),)}
    assert status(**seen)["devicesOmitted"] == 41


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=600)


@settings(max_examples=80, deadline=None)
@given(
    text=TEXTS,
    nodes=st.integers(0, 40),
    devices=st.integers(0, 60),
    limit=st.integers(24 * 1024, 64 * 1024),
    health=st.sampled_from(["Healthy", "Unhealthy"]),
    crash=st.booleans(),
)
def test_whatever_is_observed_the_status_stays_within_its_bytes(
    text: str, nodes: int, devices: int, limit: int, health: str, *, crash: bool
):
    names = [f"node-{i}" for i in range(nodes)]
    listed = [
        device(f"d{i}", health=health, reason="R", message=text, allocatedTo=[{"namespace": "n", "pod": text[:60]}])
        for i in range(devices)
    ]
    healthy = devices if health == "Healthy" else 0
    found = status(
        nodes=tuple(node(n) for n in names),
        pods=tuple(pod(n, ready=not crash, waiting_reason="Odd" if crash else "", waiting_message=text) for n in names),
        inventories=tuple(
            inventory(n, resources=[counts(devices=devices, healthy=healthy, message=text)], devices=listed)
            for n in names
        ),
        limits=StatusSettings(max_bytes=limit),
        validate=len(names) < 4,  # it is the slow part
    )
    stored = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    for char in "<>&":
        stored = stored.replace(char, f"\\u{ord(char):04x}")
    # the conditions and pools are the base that is never cut
    base = {k: found[k] for k in ("observedGeneration", "summary", "conditions", "pools")}
    assert len(stored.encode()) <= max(limit, size(base) + 1024)
    shown = sum(len(n.get("devices", ())) for n in found["nodes"])
    assert shown + found.get("devicesOmitted", 0) == nodes * devices
    assert len(found["nodes"]) + found.get("nodesOmitted", 0) == nodes


# ---- Events


def notices(old: dict[str, Any], new: dict[str, Any]) -> list[tuple[str, str]]:
    return [(n.type, n.reason) for n in transitions(old, new)]


def test_a_first_visit_tells_acceptance_and_readiness():
    assert notices({}, status(**fleet(1))) == [("Normal", "Accepted"), ("Normal", "Ready")]
    assert notices({}, status(WRONG)) == [
        ("Warning", "InvalidSpec"),
        ("Warning", "InvalidSpec"),
        ("Warning", "NotReady"),
    ]


def test_an_unchanged_status_tells_nothing():
    found = status(**fleet(1))
    assert notices(found, status(**fleet(1), previous=found)) == []


def test_a_fault_and_its_end_are_told_once_each():
    good = status(**fleet(2))
    bad = status(**fleet(1, waiting=1, **CRASH), previous=good)
    assert notices(good, bad) == [("Normal", "Updating"), ("Warning", "AgentCrashes"), ("Warning", "NotReady")]
    mended = status(**fleet(2), previous=bad)
    assert notices(bad, mended) == [("Normal", "Updated"), ("Normal", "Recovered"), ("Normal", "Ready")]


def test_each_refused_edit_is_told():
    first = status(WRONG)
    again = status(WRONG, previous=first, generation=2)
    assert notices(first, again) == [("Warning", "InvalidSpec")]
    assert transitions({}, first)[0].key != transitions(first, again)[0].key


def told(old: list[InventoryView], new: list[InventoryView]) -> list[tuple[str, str]]:
    return [(n.reason, n.message) for n in health_transitions(old, new)]


def test_health_transitions_are_told_by_device():
    good = inventory(devices=[device("a"), device("b")])
    bad = inventory(devices=[device("a", health="Unhealthy", reason="Missing", message="unplugged"), device("b")])
    assert told([good], [bad]) == [("DeviceUnhealthy", f"{KVM} a on node node-1 is Unhealthy: Missing: unplugged")]
    assert told([bad], [good]) == [("DeviceHealthy", f"{KVM} a on node node-1 is Healthy again")]
    assert told([bad], [bad]) == []
    assert told([good], [inventory(devices=[device("b")])]) == []
    hangs = inventory(devices=[device("a", health="Unknown", message="NVML hangs"), device("b")])
    assert told([good], [hangs]) == [("DeviceUnknown", f"{KVM} a on node node-1 is Unknown: NVML hangs")]


def test_a_device_that_is_unhealthy_at_first_sight_is_told_under_a_key_that_stays():
    bad = inventory(devices=[device("a", health="Unhealthy"), device("b")])
    (first,) = health_transitions([], [bad])
    (again,) = health_transitions([], [bad])
    assert first.key == again.key
    later = inventory(devices=[device("a", health="Unhealthy", since="2026-05-09T00:00:00Z"), device("b")])
    assert health_transitions([], [later])[0].key != first.key


def gpus(*held: tuple[str, str, str], access: str = "runtimeClass") -> dict[str, Any]:
    """The status of a node whose GPUs are held: (id, resource, pod)."""
    found = spec(
        {
            "resources": [{"name": GPU, "preset": "nvidia-gpu-env"}, {"name": MIG, "preset": "nvidia-mig-env"}],
            "agent": {"driverAccess": {access: "nvidia" if access == "runtimeClass" else "/"}},
        }
    )
    small = "nvidia.com/mig-1g.10gb"
    devices = [
        device(id_, resource=resource, allocatedTo=[{"namespace": "ml", "pod": pod_, "container": "train"}])
        for id_, resource, pod_ in held
    ]
    resources = [counts(GPU, 4), counts(small, 7, entry=MIG), counts("nvidia.com/mig-2g.20gb", 3, entry=MIG)]
    return status(found, nodes=(node(),), pods=(pod(),), inventories=(inventory(resources=resources, devices=devices),))


CLASHES = {
    "two entries": [("GPU-1", GPU, "a"), ("MIG-1", "nvidia.com/mig-1g.10gb", "a")],
    "two names of one entry": [("MIG-1", "nvidia.com/mig-1g.10gb", "a"), ("MIG-2", "nvidia.com/mig-2g.20gb", "a")],
}


@pytest.mark.parametrize("held", CLASHES.values(), ids=CLASHES)
def test_a_container_that_lacks_the_value_of_a_variable_is_named(held: list[tuple[str, str, str]]):
    found = gpus(*held)
    (only,) = found["nodes"]
    assert (only["state"], only["reason"]) == ("Serving", "EnvCollision")
    both = " and ".join(sorted(resource for _, resource, _ in held))
    assert only["message"].startswith(
        f"container train of pod ml/a holds {both}, which each set NVIDIA_VISIBLE_DEVICES"
    )
    assert conditions(found)["Degraded"] == ("True", "EnvCollision")
    assert conditions(found)["Ready"][0] == "True"


def test_containers_that_hold_one_such_resource_are_no_collision():
    found = gpus(("GPU-1", GPU, "a"), ("GPU-2", GPU, "a"), ("MIG-1", "nvidia.com/mig-1g.10gb", "b"))
    assert found["nodes"][0]["reason"] == "Serving"
    assert conditions(found)["Degraded"][0] == "False"


def test_several_containers_with_a_collision_are_counted():
    found = gpus(
        ("GPU-1", GPU, "a"),
        ("M-1", "nvidia.com/mig-1g.10gb", "a"),
        ("GPU-2", GPU, "b"),
        ("M-2", "nvidia.com/mig-1g.10gb", "b"),
    )
    assert found["nodes"][0]["message"].endswith(", and 1 more container")


def test_what_an_admin_should_know_stands_in_the_message_of_accepted():
    text = message(gpus(), "Accepted")
    assert text.startswith(
        "generation 1 is in force: 2 resources, 1 pool; pool default: the agents have the capability"
    )
    assert "nvidia.com/gpu, nvidia.com/mig-{profile} set NVIDIA_VISIBLE_DEVICES" in text
    assert "the agents run privileged" in message(gpus(access="driverRoot"), "Accepted")


def after_a_rejected_edit(found: Spec, **seen: Any) -> dict[str, Any]:
    """The status of an object that ran `found` when an edit was refused."""
    (made,) = (m for m in render(LAB, found, SETTINGS) if m.kind == "DaemonSet")
    notes = made.body["metadata"]["annotations"]
    runs = daemonset(serves=tuple(r.name for r in found.resources), annotations=notes)
    return status(WRONG, nodes=(node(),), pods=(pod(),), daemonsets=(runs,), generation=2, **seen)


def test_a_rejected_edit_does_not_hide_what_containers_lack():
    found = spec({"resources": [{"name": GPU, "preset": "nvidia-gpu-env"}, {"name": MIG, "preset": "nvidia-mig-env"}]})
    both = [{"namespace": "ml", "pod": "a", "container": "train"}]
    small = "nvidia.com/mig-1g.10gb"
    holding = inventory(
        resources=[counts(GPU), counts(small, entry=MIG)],
        devices=[device("GPU-1", resource=GPU, allocatedTo=both), device("MIG-1", resource=small, allocatedTo=both)],
    )
    (only,) = after_a_rejected_edit(found, inventories=(holding,))["nodes"]
    assert only["reason"] == "EnvCollision"
    assert "NVIDIA_VISIBLE_DEVICES" in only["message"]


def test_a_rejected_edit_does_not_make_a_missing_driver_a_refusal():
    found = spec({"resources": [{"name": GPU, "preset": "nvidia-gpu-cdi"}]})
    silent = inventory(resources=[counts(GPU, healthy=0, message="driver not loaded")])
    (only,) = after_a_rejected_edit(found, inventories=(silent,))["nodes"]
    assert only["reason"] == "DriverUnavailable"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"env": [], "nvml": 5}', '{"env": {"A": ["x"]}}'])
def test_a_note_that_somebody_wrote_over_is_no_note(text: str):
    seen = fleet(1)
    seen["daemonsets"] = (daemonset(annotations={"device-operator.io/judged-by": text}),)
    assert status(WRONG, **seen)["nodes"][0]["reason"] == "Serving"
