"""Accepted, Progressing and Degraded, and when they change."""

from device_agent.contract.config_reasons import ConditionReason
from device_operator.render.manifests import render
from device_operator.spec.placement import Overlap
from device_operator.status.observed import ApplyProblem
from unit.operator_core.build import (
    KVM,
    LAB,
    SETTINGS,
    counts,
    daemonset,
    device,
    inventory,
    node,
    pod,
    pools,
    spec,
)
from unit.operator_core.statuses import CRASH, READY_BEFORE, WRONG, conditions, fleet, message, numbers, status


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
    assert numbers(found) == {
        "nodes": "3/3",
        "devices": "3/3",
        "capacity": 3,
        "allocated": 0,
        "unhealthy": 0,
        "withheld": 0,
    }
    assert found["pools"][0]["nodes"] == {"matched": 3, "settled": 3, "ready": 3, "updated": 3, "stale": 0}


def test_an_object_without_an_accepted_spec_is_not_ready():
    found = status(WRONG, nodes=(node(),))
    assert conditions(found) == {
        "Accepted": ("False", "InvalidSpec"),
        "Progressing": ("False", "InvalidSpec"),
        "Degraded": ("True", "InvalidSpec"),
        "Ready": ("False", "InvalidSpec"),
    }
    assert message(found, "Accepted") == "spec.resources[0].unit: unknown attribute 'x'"


def test_after_a_rejected_edit_the_status_describes_the_accepted_generation():
    found = status(rejected=WRONG, **fleet(2), previous=READY_BEFORE, generation=2)
    assert conditions(found)["Ready"] == ("True", "InvalidSpec")
    assert conditions(found)["Accepted"] == ("False", "InvalidSpec")
    assert "generation 1 stays in force" in message(found, "Accepted")
    assert (found["observedGeneration"], found["acceptedGeneration"]) == (2, 1)
    assert found["summary"]["nodes"] == "2/2"
    assert conditions(found)["Progressing"] == ("False", "Current")


def test_after_a_rejected_edit_write_failures_and_overlaps_are_still_reported():
    found = status(
        pools({"name": "a"}, {"name": "b"}),
        rejected=WRONG,
        nodes=(node(),),
        problems=(ApplyProblem("a", "NotOwned", "DaemonSet x belongs to somebody else"),),
        generation=2,
    )
    assert "DaemonSet x belongs to somebody else" in message(found, "Degraded")
    assert "pools a and b both match node node-1" in message(found, "Degraded")


def test_every_condition_reports_a_lost_accepted_spec_and_its_generation_stays():
    found = status(WRONG, lost="the revision is gone", previous={"acceptedGeneration": 3}, generation=4)
    assert found["acceptedGeneration"] == 3
    assert conditions(found) == {
        "Accepted": ("False", "InvalidSpec"),
        "Progressing": ("False", "AcceptedSpecLost"),
        "Degraded": ("True", "InvalidSpec"),
        "Ready": ("Unknown", "AcceptedSpecLost"),
    }
    for kind in conditions(found):
        assert "the revision is gone" in message(found, kind)


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


def test_later_overlaps_degrade_and_do_not_revoke_acceptance():
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


def test_a_missing_report_is_explained_by_the_other_pools_agent_on_the_node():
    """Of two agents on the node one waits for the other, which writes the inventory."""
    found = status(
        pools({"name": "a"}, {"name": "b"}),
        nodes=(node(),),
        pods=(pod(pool="a"), pod(pool="b")),
        inventories=(inventory(poolName="b"),),
    )
    (shown,) = found["nodes"]
    assert shown["reason"] == "PoolOverlap"
    assert "pools a and b both match node" in shown["message"]


def test_a_resource_name_that_two_objects_serve_degrades_the_object_and_its_node():
    meet = (
        Overlap(
            "node-0001", ConditionReason.RESOURCE_CONFLICT, "default", "other", ("example.com/ttyS0",), reported=True
        ),
    )
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


def test_devices_that_two_objects_offer_degrade_and_hide_no_other_fault():
    names = (KVM, "example.com/other")
    meet = tuple(
        Overlap(
            f"node-000{n}",
            ConditionReason.DEVICE_CONFLICT,
            "default",
            "other",
            names,
            reported=True,
            device="0000:3b:00.0",
        )
        for n in (0, 1)
    )
    seen = fleet(2)
    seen["inventories"] = (inventory("node-0000"), inventory("node-0001", configError="contract version 2"))
    found = status(**seen, conflicts=meet)
    assert conditions(found)["Degraded"] == ("True", "DeviceConflict")
    assert "pool default offer the same devices on nodes node-0000, node-0001" in message(found, "Degraded")
    assert "contract version 2" in message(found, "Degraded")
    assert [n["reason"] for n in found["nodes"]] == ["DeviceConflict", "ConfigError"]
    assert conditions(found)["Accepted"][0] == conditions(found)["Ready"][0] == "True"


def test_an_object_that_could_not_be_written_is_reported():
    problem = ApplyProblem("default", "NotOwned", "DaemonSet x belongs to somebody else")
    found = status(nodes=(node(),), problems=(problem,))
    assert conditions(found)["Degraded"] == ("True", "NotOwned")
    assert found["pools"][0]["message"] == problem.message
    assert found["nodes"][0]["message"] == problem.message


def test_devices_without_an_answer_degrade_and_are_not_counted_as_healthy():
    silent = [device(n, health="Unknown", reason="DriverHangs", message="NVML hangs") for n in ("a", "b")]
    seen = fleet(2)
    seen["inventories"] = (inventory("node-0000", resources=[counts(devices=3, healthy=1, unknown=2)], devices=[*silent, device("c")]),
                           inventory("node-0001"))  # fmt: skip
    found = status(**seen)
    assert conditions(found)["Degraded"] == ("True", "DevicesUnknown")
    assert message(found, "Degraded") == "2 devices Unknown on node node-0000: DriverHangs (2); a: NVML hangs"
    assert conditions(found)["Ready"] == ("True", "Serving")
    assert numbers(found) == {
        "nodes": "2/2",
        "devices": "2/4",
        "capacity": 4,
        "allocated": 0,
        "unhealthy": 0,
        "withheld": 0,
    }
    (resource,) = found["resources"]
    assert (resource["devices"], resource["healthy"], resource["unhealthy"]) == (4, 2, 0)
    first = found["nodes"][0]
    assert (first["name"], first["reason"], first["resources"][0]["healthy"]) == ("node-0000", "DevicesUnknown", 1)
    assert found["unhealthyDevices"] == []


def test_unhealthy_and_unknown_devices_are_both_reported():
    mixed = [device("a", health="Unhealthy", reason="Missing"), device("b", health="Unknown")]
    found = status(
        nodes=(node(),),
        pods=(pod(),),
        inventories=(inventory(resources=[counts(devices=2, healthy=0, unknown=1)], devices=mixed),),
    )
    assert conditions(found)["Degraded"] == ("True", "DevicesUnhealthy")
    assert message(found, "Degraded") == (
        "1 device Unhealthy on node node-1: Missing (1); 1 device Unknown on node node-1: Unknown (1)"
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
    assert message(found, "Degraded") == "2 devices Unhealthy on node node-1: Missing (2)"
    assert conditions(found)["Ready"][0] == "True"


def test_health_that_is_not_kept_is_reported_beside_unhealthy_devices():
    bad = [device(health="Unhealthy", reason="Xid79")]
    seen = inventory(healthError="could not be kept on the node: No space left on device", devices=bad)
    found = status(nodes=(node(),), pods=(pod(),), inventories=(seen,))
    assert conditions(found)["Degraded"] == ("True", "HealthNotKept")
    assert message(found, "Degraded") == (
        "Serving HealthNotKept on node node-1: could not be kept on the node: No space left on device; "
        "1 device Unhealthy on node node-1: Xid79 (1)"
    )
    assert conditions(found)["Ready"][0] == "True"


def test_before_all_lists_are_read_only_accepted_is_judged():
    found = status(**fleet(1), complete=False)
    assert {kind: s for kind, (s, _) in conditions(found).items()} == {
        "Accepted": "True",
        "Progressing": "Unknown",
        "Degraded": "Unknown",
        "Ready": "Unknown",
    }
    assert conditions(status(**fleet(1), complete=False, previous=READY_BEFORE))["Ready"] == ("True", "Serving")


def test_transition_times_change_only_with_the_status():
    before = status(**fleet(2))
    for condition in before["conditions"]:
        condition["lastTransitionTime"] = "2026-05-01T00:00:00Z"
    after = status(**fleet(1, waiting=1, **CRASH), previous=before)
    times = {c["type"]: c["lastTransitionTime"][:7] for c in after["conditions"]}
    assert times == {
        "Accepted": "2026-05",
        "Progressing": "2026-06",
        "Degraded": "2026-06",
        "Ready": "2026-06",
        "Reconciling": "2026-06",
        "Stalled": "2026-05",
    }


def test_the_same_observation_gives_the_same_status():
    first = status(**fleet(2, waiting=1))
    assert status(**fleet(2, waiting=1), previous=first) == first
