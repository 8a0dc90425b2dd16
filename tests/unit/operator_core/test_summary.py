"""Counts and lists of a status, and its bound in bytes."""

import json
from typing import Any

from device_agent.contract.status import read_config_status
from device_operator.spec.wording import rfc3339
from device_operator.status.nodes import StatusSettings
from device_operator.status.notices import transitions
from device_operator.status.observed import InventoryView
from device_operator.status.summary import size
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.operator_core.build import (
    KVM,
    NOW,
    ago,
    counts,
    device,
    inventory,
    node,
    pod,
    spec,
)
from unit.operator_core.statuses import CRASH, READY_BEFORE, WRONG, conditions, fleet, message, numbers, status


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
    assert numbers(found) == {
        "nodes": "2/2",
        "devices": "5/6",
        "capacity": 24,
        "allocated": 4,
        "unhealthy": 1,
        "withheld": 0,
    }


def test_a_resource_says_what_a_container_may_ask_for_by_the_spec_in_force():
    entry = {"name": "example.com/{name}", "devices": [{"files": {"paths": ["/dev/kvm*"]}}]}
    entry |= {"sharing": {"maxPerContainer": 4}, "allocation": {"counts": [1, 4]}}
    seen = fleet(1)
    rows = [counts("example.com/kvm", entry="example.com/{name}"), counts("example.com/gone", entry="example.com/gone")]
    seen["inventories"] = (inventory("node-0000", resources=rows),)
    for rejected in (None, WRONG):
        gone, kvm = status(spec({"resources": [entry]}), rejected=rejected, **seen)["resources"]
        assert (kvm["maxPerContainer"], kvm["counts"]) == (4, [1, 4])
        assert not {"maxPerContainer", "counts"} & gone.keys(), "a name of an earlier spec"


def test_devices_of_a_node_whose_agent_is_gone_are_known_and_not_healthy():
    found = status(nodes=(node(),), pods=(pod(ready=False, ready_changed_at=ago(100)),), inventories=(inventory(),))
    assert numbers(found) == {
        "nodes": "0/1",
        "devices": "0/1",
        "capacity": 1,
        "allocated": 0,
        "unhealthy": 0,
        "withheld": 0,
    }
    assert found["pools"][0]["nodes"]["stale"] == 1


def test_unhealthy_devices_are_sorted_oldest_first():
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
    tenth, less = (spec(updateStrategy={"maxUnavailable": percent}) for percent in ("10%", "9%"))
    found = status(tenth, rejected=WRONG, **seen, previous=READY_BEFORE, generation=2)
    assert conditions(found)["Ready"] == ("True", "InvalidSpec")
    assert found["summary"]["nodes"] == "9/10"
    found = status(less, rejected=WRONG, **seen, generation=2)
    assert conditions(found)["Ready"] == ("False", "NotApplied")


def test_nodes_with_problems_are_listed_first():
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


def test_a_failed_status_write_gives_the_same_events_again():
    before = status(nodes=(node(),))
    after = status(**fleet(1), previous=before)
    later = json.loads(json.dumps(after).replace(rfc3339(NOW), "2026-06-01T12:00:09Z"))
    assert later != after
    none, first, second, third = map(read_config_status, ({}, before, later, after))
    assert transitions(first, second) == transitions(first, third) != ()
    assert {n.key for n in transitions(none, second)} == {n.key for n in transitions(none, third)}


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


def cut(on: str = "node-1", **status: Any) -> InventoryView:
    """An inventory of 2,000 devices that lists two of them, one Unhealthy and one Unknown."""
    return inventory(
        on,
        resources=[counts(devices=2000, healthy=1600, unknown=300)],
        devices=[device("a", health="Unhealthy", reason="Missing"), device("b", health="Unknown", reason="NoAnswer")],
        devicesOmitted=1998,
        **status,
    )


def test_devices_omitted_from_a_list_are_still_counted():
    found = status(nodes=(node(),), pods=(pod(),), inventories=(cut(),))
    assert found["summary"]["devices"] == "1600/2000"
    assert found["summary"]["unhealthy"] == 100
    assert (len(found["unhealthyDevices"]), found["unhealthyDevicesOmitted"]) == (1, 99)
    (only,) = found["nodes"]
    assert (only["state"], only["reason"]) == ("Serving", "DevicesUnhealthy")
    assert only["message"].startswith("100 of 2000 devices Unhealthy: a (Missing)")
    assert conditions(found)["Degraded"] == ("True", "DevicesUnhealthy")
    degraded = message(found, "Degraded")
    assert "100 devices Unhealthy on node node-1: Missing (1); 99 of them are not listed" in degraded
    assert "300 devices Unknown on node node-1: NoAnswer (1); 299 of them are not listed" in degraded


def test_broken_devices_of_an_empty_cut_list_are_still_reported():
    gone = inventory(resources=[counts(devices=9, healthy=2)], devices=[], devicesOmitted=9)
    found = status(nodes=(node(),), pods=(pod(),), inventories=(gone,))
    assert (found["nodes"][0]["reason"], found["summary"]["unhealthy"]) == ("DevicesUnhealthy", 7)
    assert conditions(found)["Degraded"] == ("True", "DevicesUnhealthy")
    assert found["unhealthyDevicesOmitted"] == 7


def test_resources_that_were_cut_are_in_the_counts_and_their_node_is_not_without_devices():
    totals = {"devices": 5, "healthy": 4, "unhealthy": 1, "capacity": 50, "allocated": 6}
    seen = inventory(resources=[], devices=[], summary=totals, resourcesOmitted=2, devicesOmitted=5)
    found = status(nodes=(node(),), pods=(pod(),), inventories=(seen,))
    assert numbers(found) == {
        "nodes": "1/1",
        "devices": "4/5",
        "capacity": 50,
        "allocated": 6,
        "unhealthy": 1,
        "withheld": 0,
    }
    assert found["nodes"][0]["state"] == "Serving"


def test_cut_holders_do_not_hide_a_listed_collision():
    both = [{"namespace": "ml", "pod": "a", "container": "train"}]
    gpus = spec({"resources": [{"name": n, "preset": "nvidia-gpu-env"} for n in ("e.com/a", "e.com/b")]})
    seen = inventory(
        resources=[counts("e.com/a"), counts("e.com/b")],
        devices=[device(n, resource=n, allocatedTo=both) for n in ("e.com/a", "e.com/b")],
        holdersOmitted=40,
    )
    found = status(gpus, nodes=(node(),), pods=(pod(),), inventories=(seen,))
    assert found["nodes"][0]["reason"] == "EnvCollision"


def test_the_message_of_a_pool_names_its_unchecked_nodes():
    found = status(nodes=(node(),), pods=(pod(),), inventories=(inventory(),), unchecked=("node-1", "elsewhere"))
    assert "the inventories of node node-1 do not list all devices" in found["pools"][0]["message"]
    assert conditions(found)["Degraded"][0] == "False"


def test_what_an_inventory_omits_is_counted():
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
def test_the_status_never_exceeds_its_bytes(
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
