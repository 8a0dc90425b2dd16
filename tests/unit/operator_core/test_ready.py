"""Ready: which nodes it counts, and what makes it False."""

from typing import Any

import pytest
from device_operator.status.observed import FailedCreate, PodWarning
from device_operator.status.pools import pool_daemonset
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.operator_core.build import (
    KVM,
    LAB,
    ago,
    counts,
    inventory,
    node,
    pod,
    pools,
    spec,
)
from unit.operator_core.statuses import CRASH, GPU, READY_BEFORE, conditions, fleet, message, status


def test_without_nodes_the_object_is_ready_with_a_reason():
    found = status(pools({"name": "edge", "nodeSelector": {"hardware": "edge"}}), nodes=(node(),))
    assert conditions(found)["Ready"] == ("True", "NoNodes")
    assert conditions(found)["Progressing"] == ("False", "NoNodes")
    assert message(found, "Ready") == "no node belongs to pool edge"
    assert found["pools"][0]["message"] == "no node matches"


def test_without_devices_the_object_is_ready_with_a_reason():
    empty = inventory(resources=[counts(devices=0)], devices=[])
    found = status(nodes=(node(),), pods=(pod(),), inventories=(empty,))
    assert conditions(found)["Ready"] == ("True", "NoDevices")
    assert found["nodes"][0]["state"] == "NoDevices"
    assert conditions(found)["Degraded"] == ("True", "NothingFound")
    assert message(found, "Ready").startswith("1 of 1 settled nodes served; ")


def test_ready_refers_to_degraded_if_a_driver_shows_no_devices():
    found = spec({"resources": [{"name": GPU, "preset": "nvidia-gpu-cdi"}]})
    silent = inventory(
        resources=[counts(GPU, devices=0, registered=False, reason="DriverUnavailable", message="no driver")],
        devices=[],
    )
    found = status(found, nodes=(node(),), pods=(pod(),), inventories=(silent,))
    assert conditions(found)["Ready"] == ("True", "NoDevices")
    assert message(found, "Ready").endswith("(DriverUnavailable: see Degraded)")
    assert conditions(found)["Degraded"] == ("True", "DriverUnavailable")


@pytest.mark.parametrize(
    ("max_unavailable", "serving", "failing", "ready"),
    [
        ("10%", 9, 1, True),
        ("10%", 8, 2, False),
        ("10%", 8, 1, False),
        ("10%", 18, 2, True),
        (1, 2, 1, True),
        (2, 1, 2, True),
        (2, 0, 2, False),  # no node is served: maxUnavailable does not allow that
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
        "pod lab-default-node-0001: ErrImagePull (correct agent.image or agent.imagePullSecrets, or see to the registry): "
        "no such image"
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


def test_the_first_node_of_an_empty_pool_does_not_end_ready():
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
def test_after_ready_is_true_only_a_node_with_a_fault_makes_it_false(waiting_pod: dict[str, Any], *, ready: bool):
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
def test_every_condition_reports_a_replaced_agent_that_cannot_start(
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
        assert "FailedCreatePodSandBox (install this runtime on the node" in message(found, kind)
        assert 'no runtime for "nvidia"' in message(found, kind)
    assert found["pools"][0]["nodes"]["updated"] == 0


def test_an_agent_that_fails_after_it_was_ready_is_not_progressing():
    seen = fleet(1)
    seen["pods"] = (pod("node-0000", ready=False, age=1800, ready_changed_at=ago(600), **CRASH),)
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
        "restarts": {"ready": False, "age": 900, "ready_changed_at": ago(5)},
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


def test_ready_is_unknown_if_no_matched_node_is_ready():
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
        pods=(pod("a-1", pool="a"), pod("b-1", pool="b", ready_changed_at=ago(5)), pod("b-2", pool="b")),
        inventories=(inventory("a-1", poolName="a"), inventory("b-1", poolName="b"), inventory("b-2", poolName="b")),
    )
    assert conditions(found)["Ready"] == ("True", "Serving")
    assert message(found, "Ready") == "1 of 1 settled nodes served; no node of pool b is Ready (nodes b-1, b-2)"
    assert found["summary"]["nodes"] == "1/3"
    assert conditions(found)["Degraded"] == ("True", "NodeNotReady")
