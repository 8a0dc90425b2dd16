"""The one word of the status: OK, or the reason that most needs a human; and what may be missing."""

import re
from pathlib import Path
from typing import Any

import pytest
from device_agent.contract.config_reasons import ConditionReason
from device_agent.contract.node_reasons import NodeReason
from device_operator.spec.model import Spec
from device_operator.status.headline import urgency
from device_operator.status.observed import ApplyProblem, FailedCreate
from device_operator.status.pools import pool_daemonset
from unit.operator_core.build import LAB, ago, counts, device, entry, inventory, node, pod, pools, spec
from unit.operator_core.statuses import CRASH, READY_BEFORE, WRONG, conditions, fleet, message, numbers, status, word

CAMERA = "example.com/camera"
MISSPELT = "devices[0]: nothing in /sys/class/video4linus: did you mean video4linux?"
HOLDER = [{"namespace": "default", "pod": "holder", "container": "main"}]


def excluded(name: str, text: str, reason: str = "NothingFound") -> dict[str, Any]:
    return {"id": "devices[0]", "entry": name, "reason": reason, "message": text}


def two_entries(**fields: Any) -> Spec:
    return spec(resources=[entry(), entry(CAMERA, **fields)])


def half(names: tuple[str, ...] = ("node-1",), **fields: Any) -> dict[str, Any]:
    """Nodes with the device of one entry, and nothing for the other one."""
    rows = [counts(), counts(CAMERA, devices=0)]
    given = {"resources": rows, "excluded": [excluded(CAMERA, MISSPELT)], **fields}
    return {
        "nodes": tuple(map(node, names)),
        "pods": tuple(map(pod, names)),
        "inventories": tuple(inventory(name, **given) for name in names),
    }


def test_all_is_well():
    found = status(**fleet(3))
    assert word(found) == "OK"
    assert "message" not in found["summary"]


def test_an_entry_that_finds_nothing_anywhere_is_said_beside_a_good_one():
    found = status(two_entries(), **half(("node-1", "node-2")))
    assert word(found) == "NothingFound"
    assert conditions(found)["Degraded"] == ("True", "NothingFound")
    assert conditions(found)["Ready"] == ("True", "Serving")
    for part in (CAMERA, "node-1, node-2", MISSPELT, "mayBeEmpty"):
        assert part in found["summary"]["message"]


def test_an_entry_that_may_be_empty_is_ok():
    found = status(two_entries(mayBeEmpty=True), **half())
    assert word(found) == "OK"
    assert conditions(found)["Degraded"] == ("False", "AsWanted")


def test_one_node_with_a_device_is_enough():
    seen = half(("node-1", "node-2"))
    seen["inventories"] = (*seen["inventories"][:1], inventory("node-2", resources=[counts(), counts(CAMERA)]))
    assert word(status(two_entries(), **seen)) == "OK"


def test_a_device_of_an_earlier_spec_that_is_held_does_not_count():
    held = device("video0", resource=CAMERA, withheld="Draining")
    rows = [counts(), counts(CAMERA, withheld=1)]
    assert word(status(two_entries(), **half(resources=rows, devices=[device(), held]))) == "NothingFound"


def test_a_resource_whose_devices_are_all_withheld_is_a_word_and_no_fault():
    rows = [counts(), counts(CAMERA, withheld=1)]
    kept = device("video0", resource=CAMERA, offered=False, withheld="Cordoned", message="swap the cable")
    seen = half(resources=rows, devices=[device(), kept])
    found = status(two_entries(), **seen)
    assert word(found) == "AllWithheld"
    for part in (CAMERA, "1 Cordoned", "video0", "swap the cable", "uncordon"):
        assert part in found["summary"]["message"]
    assert conditions(found)["Degraded"] == ("False", "AsWanted")
    assert word(status(two_entries(mayBeEmpty=True), **seen)) == "OK"
    seen["nodes"] += (node("node-2"),)
    seen["pods"] += (pod("node-2"),)
    seen["inventories"] += (inventory("node-2", resources=[counts(), counts(CAMERA)]),)
    assert word(status(two_entries(), **seen)) == "OK", "one node offers it"


def test_an_entry_whose_devices_are_all_left_out_says_why():
    why = [
        excluded(CAMERA, "exclude[0]: path", "Excluded"),
        excluded(CAMERA, "no node has vendor 0x10de", "NotIncluded"),
    ]
    found = status(two_entries(), **half(excluded=why))
    assert word(found) == "NothingFound"
    assert "NotIncluded: no node has vendor 0x10de" in found["summary"]["message"]


@pytest.mark.parametrize(
    "other",
    [
        {"inventories": (inventory("node-2", observedConfigHash="old"),)},  # has not read the edit
        {"pods": (pod("node-2", ready=False, age=5),)},  # starts
    ],
)
def test_nothing_is_missing_before_every_agent_that_comes_has_looked(other: dict[str, Any]):
    seen = half()
    seen["nodes"] += (node("node-2"),)
    seen["pods"] += other.get("pods", (pod("node-2"),))
    seen["inventories"] += other.get("inventories", ())
    assert conditions(status(two_entries(), **seen))["Degraded"][1] != "NothingFound"


def test_an_agent_that_fails_does_not_hide_that_nothing_is_found():
    seen = half()
    seen["nodes"] += (node("node-2"),)
    seen["pods"] += (pod("node-2", ready=False, age=90, **CRASH),)
    found = status(two_entries(), **seen)
    assert word(found) == "AgentCrashes"
    assert CAMERA in message(found, "Degraded")


def test_a_restarting_agent_does_not_take_the_word_away():
    seen = half()
    seen["pods"] = (pod(ready=False, age=900, ready_changed_at=ago(5)),)
    assert word(status(two_entries(), previous=READY_BEFORE, **seen)) == "NothingFound"


def test_a_driver_that_cannot_be_reached_explains_missing_devices():
    rows = [counts(), counts(CAMERA, devices=0, registered=False, reason="DriverUnavailable", message="no driver")]
    found = status(two_entries(), **half(resources=rows))
    assert word(found) == "DriverUnavailable"
    assert "finds nothing" not in message(found, "Degraded")


def test_a_cut_inventory_may_have_the_device():
    assert word(status(two_entries(), **half(resourcesOmitted=1))) == "OK"


SELECTED = {"name": "edge", "nodeSelector": {"hardware": "Lab"}}


@pytest.mark.parametrize(
    ("labels", "told"),
    [({"hardware": "lab"}, "hardware=lab"), ({"hardwre": "Lab"}, "hardwre"), ({}, "hardware")],
)
def test_a_pool_without_nodes_is_said_with_the_label_that_may_be_meant(labels: dict[str, str], told: str):
    found = status(pools(SELECTED), nodes=(node(labels=labels),))
    assert word(found) == "NoNodes"
    assert conditions(found)["Degraded"] == ("True", "NoNodes")
    assert conditions(found)["Ready"] == ("True", "NoNodes")
    assert told in found["summary"]["message"]


def test_a_pool_that_may_be_empty_is_ok_until_it_has_nodes():
    found = status(pools({**SELECTED, "mayBeEmpty": True}), nodes=(node(),))
    assert word(found) == "OK"
    assert conditions(found)["Degraded"] == ("False", "AsWanted")


def test_one_empty_pool_of_two_is_said():
    found = status(pools({"name": "a"}, SELECTED), **lost_label(allocated=0, pool_name="a", taken=False))
    assert word(found) == "NoNodes"


def lost_label(*, allocated: int, pool_name: str = "edge", taken: bool = True) -> dict[str, Any]:
    """A node that an agent reported; `taken`: its label and its agent are gone."""
    rows = [counts(allocated=allocated)]
    held = [device(allocatedTo=HOLDER if allocated else [])]
    seen = inventory(poolName=pool_name, resources=rows, devices=held)
    if taken:
        return {"nodes": (node(),), "inventories": (seen,)}
    return {"nodes": (node(),), "pods": (pod(pool=pool_name),), "inventories": (seen,)}


def test_a_node_that_left_its_pool_while_pods_hold_devices_is_said_and_counted():
    found = status(pools(SELECTED), **lost_label(allocated=1))
    assert word(found) == "NodesLost"
    assert numbers(found)["allocated"] == 1
    assert found["resources"][0]["allocated"] == 1
    for part in ("node-1", "edge", "default/holder", "lab.node-1"):
        assert part in found["summary"]["message"]
    assert word(status(pools({**SELECTED, "mayBeEmpty": True}), **lost_label(allocated=1))) == "NodesLost"


def test_a_node_that_left_its_pool_without_holders_is_not_lost():
    assert word(status(pools({**SELECTED, "mayBeEmpty": True}), **lost_label(allocated=0))) == "OK"
    gone = lost_label(allocated=1) | {"nodes": ()}
    assert word(status(pools({**SELECTED, "mayBeEmpty": True}), **gone)) == "OK"


def test_without_a_spec_in_force_no_node_is_lost():
    assert word(status(WRONG, **lost_label(allocated=1))) == "InvalidSpec"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"rejected": WRONG, "generation": 2, **fleet(2)}, "InvalidSpec"),
        ({"problems": (ApplyProblem("default", NodeReason.NOT_OWNED, "theirs"),), **fleet(2)}, "NotOwned"),
        (fleet(1, waiting=1, **CRASH), "AgentCrashes"),
        (fleet(1, waiting=1, waiting_reason="CreateContainerConfigError"), "CreateContainerConfigError"),
        ({"nodes": (node(),), "failed_creates": (FailedCreate(pool_daemonset(LAB, "default"), "no SA", ago(5)),)}, "FailedCreate"),
        ({"nodes": (node(ready=False),)}, "NodeNotReady"),
        ({"nodes": (node(),)}, "NotApplied"),
        ({**fleet(1, waiting=1, age=5), "previous": READY_BEFORE}, "AgentsStarting"),
    ],
)  # fmt: skip
def test_the_word_for_each_kind_of_fault(given: dict[str, Any], wanted: str):
    found = status(**given)
    assert word(found) == wanted
    assert found["summary"]["message"]


def test_a_paused_object_and_one_that_is_being_updated_are_not_ok():
    assert word(status(spec(paused=True), **fleet(1))) == "Paused"
    seen = fleet(1)
    seen["inventories"] = (inventory("node-0000", observedConfigHash="old"),)
    assert word(status(**seen)) == "Updating"


def test_of_several_faults_the_most_urgent_is_shown():
    bad = [device(health="Unhealthy", reason="Missing")]
    seen = {"nodes": (node(),), "pods": (pod(),)}
    seen["inventories"] = (inventory(resources=[counts(healthy=0)], devices=bad),)
    assert word(status(**seen)) == "DevicesUnhealthy"
    assert word(status(rejected=WRONG, generation=2, **seen)) == "InvalidSpec"
    order = [ConditionReason.INVALID_SPEC, ConditionReason.NODES_LOST, NodeReason.AGENT_CRASHES,
             NodeReason.DRIVER_UNAVAILABLE, ConditionReason.NOTHING_FOUND, ConditionReason.DEVICES_UNHEALTHY,
             NodeReason.NODE_NOT_READY]  # fmt: skip
    assert sorted(order, key=urgency) == order
    assert urgency("CreateContainerError") == urgency(NodeReason.AGENT_CRASHES)


def test_while_lists_are_read_the_word_stays():
    assert word(status(**fleet(1), complete=False)) == "Observing"
    before = {**READY_BEFORE, "summary": {"status": "NothingFound", "message": "x"}}
    assert word(status(**fleet(1), complete=False, previous=before)) == "NothingFound"


def test_the_guide_has_the_order_of_urgency():
    text = (Path(__file__).parents[3] / "docs" / "troubleshooting.md").read_text()
    _, _, table = text.partition("| urgency | words |")
    table, _, _ = table.partition("\n\n")
    rows = [re.findall(r"`([A-Za-z]+)`", line.split("|")[2]) for line in table.splitlines()[2:]]
    assert [sorted({urgency(word) for word in words}) for words in rows] == [[n] for n in range(len(rows))]
    of_lines = {word for words in rows for word in words}
    assert {word for word in (*ConditionReason, *NodeReason) if urgency(word) != urgency("CreateError")} <= of_lines
