"""Events about conditions and devices."""

from dataclasses import replace
from typing import Any

from device_agent.contract.status import read_config_status
from device_operator.status.notices import MAX_NAMED, Notice, health_transitions, stale_grants, transitions
from device_operator.status.observed import InventoryView
from unit.operator_core.build import (
    KVM,
    counts,
    device,
    inventory,
    node,
    pod,
)
from unit.operator_core.statuses import CRASH, WRONG, conditions, fleet, status


def notices(old: dict[str, Any], new: dict[str, Any]) -> list[tuple[str, str]]:
    return [(n.type, n.reason) for n in told_of(old, new)]


def told_of(old: dict[str, Any], new: dict[str, Any]) -> tuple[Notice, ...]:
    return transitions(read_config_status(old), read_config_status(new))


def test_the_first_status_gives_events_for_accepted_and_ready():
    assert notices({}, status(**fleet(1))) == [("Normal", "Accepted"), ("Normal", "Ready")]
    assert notices({}, status(WRONG)) == [
        ("Warning", "InvalidSpec"),
        ("Warning", "InvalidSpec"),
        ("Warning", "NotReady"),
    ]


def test_an_unchanged_status_gives_no_event():
    found = status(**fleet(1))
    assert notices(found, status(**fleet(1), previous=found)) == []


def test_a_fault_and_its_end_give_one_event_each():
    good = status(**fleet(2))
    bad = status(**fleet(1, waiting=1, **CRASH), previous=good)
    assert notices(good, bad) == [("Normal", "Updating"), ("Warning", "AgentCrashes"), ("Warning", "NotReady")]
    mended = status(**fleet(2), previous=bad)
    assert notices(bad, mended) == [("Normal", "Updated"), ("Normal", "Recovered"), ("Normal", "Ready")]


def test_each_rejected_edit_gives_an_event():
    first = status(WRONG)
    again = status(WRONG, previous=first, generation=2)
    assert notices(first, again) == [("Warning", "InvalidSpec")]
    assert told_of({}, first)[0].key != told_of(first, again)[0].key


def told(old: list[InventoryView], new: list[InventoryView]) -> list[tuple[str, str]]:
    return [(n.reason, n.message) for n in health_transitions(old, new)]


def test_each_change_of_a_devices_health_gives_an_event():
    good = inventory(devices=[device("a"), device("b")])
    bad = inventory(devices=[device("a", health="Unhealthy", reason="Missing", message="unplugged"), device("b")])
    assert told([good], [bad]) == [("DeviceUnhealthy", f"{KVM} a on node node-1 is Unhealthy: Missing: unplugged")]
    assert told([bad], [good]) == [("DeviceHealthy", f"{KVM} a on node node-1 is Healthy again")]
    assert told([bad], [bad]) == []
    assert told([good], [inventory(devices=[device("b")])]) == []
    hangs = inventory(devices=[device("a", health="Unknown", message="NVML hangs"), device("b")])
    assert told([good], [hangs]) == [("DeviceUnknown", f"{KVM} a on node node-1 is Unknown: NVML hangs")]


def test_a_device_that_a_cut_list_omits_gives_no_event():
    bad = inventory(devices=[device("a", health="Unhealthy", reason="Missing"), device("b")])
    cut = inventory(devices=[device("b")], devicesOmitted=1)
    assert told([bad], [cut]) == []
    assert told([cut], [bad]) == [("DeviceUnhealthy", f"{KVM} a on node node-1 is Unhealthy: Missing")]


def test_an_unreadable_inventory_gives_no_event():
    bad = inventory(devices=[device("a", health="Unhealthy")])
    assert told([bad], [replace(bad, status=None, unreadable="status.devices: must be a list")]) == []


def test_a_new_unhealthy_device_gives_one_event_whose_key_stays():
    bad = inventory(devices=[device("a", health="Unhealthy"), device("b")])
    (first,) = health_transitions([], [bad])
    (again,) = health_transitions([], [bad])
    assert first.key == again.key
    later = inventory(devices=[device("a", health="Unhealthy", since="2026-05-09T00:00:00Z"), device("b")])
    assert health_transitions([], [later])[0].key != first.key


def broken(*ids: str, reason: str = "SimulatedFault") -> list[dict[str, Any]]:
    return [device(i, health="Unhealthy", reason=reason) for i in ids]


def withheld(*ids: str, word: str = "HeldAs", **fields: Any) -> list[dict[str, Any]]:
    return [device(i, offered=False, withheld=word, **fields) for i in ids]


def many(number: int) -> list[str]:
    return [f"d{i:02}" for i in range(number)]


def test_many_devices_of_one_reason_share_an_event_and_one_of_another_has_its_own():
    good = inventory(devices=[device(i) for i in (*many(30), "x")])
    bad = inventory(devices=[*broken(*many(30)), *broken("x", reason="Missing")])
    summary, single = health_transitions([good], [bad])
    assert (summary.type, summary.reason) == ("Warning", "DeviceUnhealthy")
    assert summary.message.startswith("30 devices are Unhealthy: SimulatedFault on node node-1: ")
    assert f"{KVM} x on node" in single.message
    assert summary.kind != single.kind
    (again,) = health_transitions([inventory(devices=broken(*many(30)))], [good])
    assert (again.type, again.reason) == ("Normal", "DeviceHealthy")


def test_a_planned_change_is_one_normal_event():
    """Eight devices are renamed, three of them are held."""
    old = inventory(devices=[device(i) for i in many(8)])
    held = withheld("d00", "d01", "d02", word="Draining")
    renamed = withheld("n0", "n1", "n2")
    new = inventory(devices=[*held, *renamed, *(device(f"n{i}") for i in range(3, 8))])
    (notice,) = health_transitions([old], [new])
    assert (notice.type, notice.reason) == ("Normal", "DevicesChanged")
    assert "3 devices Draining, 3 devices HeldAs" in notice.message
    freed = inventory(devices=[device(f"n{i}") for i in range(8)])
    (notice,) = health_transitions([new], [freed])
    assert (notice.type, notice.reason) == ("Normal", "DevicesChanged")
    assert health_transitions([new], [new]) == ()


def test_a_device_that_breaks_while_it_is_withheld_is_told():
    before = inventory(devices=withheld("a", "b"))
    bad = inventory(devices=[*withheld("a", health="Unhealthy", reason="Missing"), *withheld("b")])
    (notice,) = health_transitions([before], [bad])
    assert (notice.type, notice.reason) == ("Warning", "DeviceUnhealthy")
    assert "Missing" in notice.message


def moved(id_: str = "AAA", *, pod: str = "default/a", now: str = "CCC", path: str = "/dev/ttyUSB0") -> dict[str, Any]:
    """A device whose pod has a node that is another's by now. `pod` '': not known yet."""
    namespace, _, name = pod.partition("/")
    holders = [{"namespace": namespace, "pod": name, "container": "main"}] if pod else []
    text = f"{pod or 'a pod'}: {path}, which its container was given, is now {now} of {KVM}"
    return device(id_, staleGrant=text, allocatedTo=holders)


def test_a_pod_whose_device_node_is_anothers_by_now_gives_one_event():
    good, bad = inventory(devices=[device("AAA")]), inventory(devices=[moved()])
    (notice,) = stale_grants([good], [bad])
    assert (notice.type, notice.reason) == ("Warning", "StaleGrant")
    for fact in ("default/a", KVM, "AAA", "node-1", "/dev/ttyUSB0", "CCC", "delete the pod"):
        assert fact in notice.message
    assert stale_grants([], [bad]) == (notice,)
    assert stale_grants([bad], [bad]) == stale_grants([bad], [good]) == ()
    assert health_transitions([good], [bad]) == ()


def test_a_wrong_device_node_is_told_again_only_when_another_pod_has_it():
    bad = inventory(devices=[moved()])
    assert stale_grants([bad], [inventory(devices=[moved(now="DDD")])]) == ()
    (first,) = stale_grants([], [bad])
    (other,) = stale_grants([bad], [inventory(devices=[moved(pod="default/b")])])
    assert other.key != first.key
    assert other.kind == first.kind
    assert "default/b" in other.message


def test_a_wrong_device_node_is_told_when_its_pod_is_known():
    good, nameless = inventory(devices=[device("AAA")]), inventory(devices=[moved(pod="")])
    assert stale_grants([good], [nameless]) == ()
    (notice,) = stale_grants([nameless], [inventory(devices=[moved()])])
    assert "default/a" in notice.message


def test_many_wrong_device_nodes_share_an_event_of_a_kind_of_its_own():
    good = inventory(devices=[device(i) for i in many(30)])
    few = stale_grants([good], [inventory(devices=[moved(i, pod=f"default/{i}") for i in many(MAX_NAMED)])])
    assert len({notice.key for notice in few}) == MAX_NAMED
    (shared,) = stale_grants([good], [inventory(devices=[moved(i, pod=f"default/{i}") for i in many(30)])])
    assert shared.kind != few[0].kind
    assert "30 grants" in shared.message
    assert f"default/{many(30)[0]}" in shared.message
    assert len(shared.message) <= 1024


def test_a_long_text_about_a_wrong_device_node_keeps_what_to_do():
    long = inventory(devices=[moved("x" * 253, pod=f"{'n' * 63}/{'p' * 253}", path="/dev/" + "y" * 100)])
    (notice,) = stale_grants([], [long])
    assert "delete the pod" in notice.message
    assert len(notice.message) <= 1024


def test_planned_devices_do_not_make_an_object_degraded():
    """Eight loop devices are renamed and three of them are held: no Warning, not Degraded, nothing Unhealthy."""
    devices = [
        *map(device, many(5)),
        *withheld("b", "c"),
        *withheld("d", word="Draining"),
        *withheld("e", word="Cordoned"),
    ]
    seen = inventory(devices=devices, resources=[counts(KVM, 9, 9, withheld=4)])
    found = status(nodes=(node(),), pods=(pod(),), inventories=(seen,))
    assert conditions(found)["Degraded"][0] == "False"
    assert (found["summary"]["devices"], found["summary"]["unhealthy"], found["summary"]["withheld"]) == ("9/9", 0, 4)
    assert found["unhealthyDevices"] == []
    assert (found["nodes"][0]["state"], found["nodes"][0]["reason"]) == ("Serving", "Serving")
    assert found["nodes"][0]["resources"][0]["withheld"] == found["resources"][0]["withheld"] == 4
    assert {d["withheld"] for d in found["nodes"][0]["devices"] if "withheld" in d} == {
        "HeldAs",
        "Draining",
        "Cordoned",
    }


def test_the_first_status_of_an_object_whose_agents_start_is_no_warning():
    found = status(nodes=(node(),), pods=(pod(ready=False, age=1),))
    assert conditions(found)["Ready"][0] == "False"
    assert notices({}, found) == [("Normal", "Accepted")]
