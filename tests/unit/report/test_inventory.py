"""The inventory as a value: what it says, how it is cut, and that the CRD accepts it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from device_agent.contract.inventory import HistoryState, Identity, InventoryStatus, InventoryTransition, read_status
from device_agent.contract.node_reasons import NodeReason
from device_agent.kubelet.registration import RegistrationState
from device_agent.report import inventory
from device_agent.select.unit import Excluded, Grants, Unit
from device_agent.table.holders import Holder
from device_agent.table.snapshot import DeviceState, Health, ResourceState, TableSnapshot, counts_of
from hypothesis import given, settings
from hypothesis import strategies as st

CRD = yaml.safe_load((Path(__file__).parents[3] / "crds" / "nodedeviceinventories.yaml").read_text())
SCHEMA = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
WHO = inventory.AgentIdentity(node="node-1", config="lab", config_uid="uid", pool="edge", version="1.2.3")
SINCE = datetime(2026, 3, 4, 5, 6, 7, 890000, tzinfo=UTC)
LIMIT = 256 * 1024


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with unknown fields refused: the API server would drop them without a word."""
    out = {k: strict(v) if isinstance(v, dict) else v for k, v in schema.items()}
    if out.get("type") == "object" and isinstance(schema.get("properties"), dict):
        out["additionalProperties"] = False
    return out


HISTORY = tuple(
    InventoryTransition(
        time="2026-03-04T05:06:07Z", resource="e.com/a", id=str(n), from_=HistoryState.GONE, to=HistoryState.UNKNOWN
    )
    for n in range(150)
)


def device(number: int = 0, **fields: Any) -> DeviceState:
    unit = {
        "entry": "example.com/nic",
        "resource": "example.com/nic",
        "id": f"id-{number:05}",
        "value": f"id-{number:05}",
        "identity": Identity.STABLE,
        "source": "pci",
        "attributes": {"name": f"nic{number}", "driver": "none"},
        "nodes": (f"/dev/nic{number}",),
        "grants": Grants(),
        "hardware": (f"devices/nic{number}",),
    }
    state = {
        "health": Health.HEALTHY,
        "reason": "",
        "message": "",
        "since": SINCE,
        "ids": (unit["id"],),
        "holders": {},
    }
    for name, value in fields.items():
        (unit if name in unit or name == "numa_node" else state)[name] = value
    return DeviceState(unit=Unit(**unit), **state)


def snapshot(*devices: DeviceState, **fields: Any) -> TableSnapshot:
    resource = ResourceState(
        name="example.com/nic",
        entry="example.com/nic",
        devices=devices,
        capacity=sum(len(d.ids) for d in devices),
        allocated=sum(len(d.holders) for d in devices),
        counts=counts_of(devices),
        message="",
    )
    values = {"excluded": (), "refused": {}, "holders_known": True}
    return TableSnapshot(resources=(resource,), **(values | fields))


def observed(**fields: Any) -> inventory.AgentFacts:
    values = {"config_hash": "ab" * 32, "config_error": "", "registrations": {}}
    return inventory.AgentFacts(**(values | fields))


def made(*arguments: Any, limit: int = LIMIT, **fields: Any) -> InventoryStatus:
    return inventory.build(snapshot(*arguments, **fields), observed(), identity=WHO, limit=limit)


def valid(status: InventoryStatus) -> dict[str, Any]:
    """The status in JSON; the whole object as it would be written is judged by the CRD, and read back."""
    full = {**inventory.new_object(WHO), "status": inventory.patch(status, heartbeat=1e9)["status"]}
    full["status"] = {k: v for k, v in full["status"].items() if v is not None}
    jsonschema.validate(full, strict(SCHEMA))
    written = {k: v for k, v in full["status"].items() if k != "lastHeartbeatTime"}
    assert read_status(json.loads(json.dumps(written))) == status
    return written


def test_the_inventory_shows_the_table() -> None:
    state = RegistrationState(registered=True, since=1e9, message="")
    status = valid(
        inventory.build(
            snapshot(
                device(numa_node=1, holders={"id-00000": (Holder("ns", "pod", "main"),)}),
                device(1, health=Health.UNHEALTHY, reason="Missing", message="it is gone"),
            ),
            observed(registrations={"example.com/nic": state}),
            identity=WHO,
            limit=LIMIT,
        )
    )
    assert status == {
        "poolName": "edge",
        "agentVersion": "1.2.3",
        "observedConfigHash": "ab" * 32,
        "podResources": "Available",
        "summary": {
            "devices": 2,
            "healthy": 1,
            "unhealthy": 1,
            "unknown": 0,
            "withheld": 0,
            "capacity": 2,
            "allocated": 1,
        },
        "resources": [
            {
                "name": "example.com/nic",
                "entry": "example.com/nic",
                "registered": True,
                "lastRegistrationTime": "2001-09-09T01:46:40Z",
                "devices": 2,
                "healthy": 1,
                "unhealthy": 1,
                "capacity": 2,
                "allocated": 1,
            }
        ],
        "devices": [
            {
                "id": "id-00000",
                "resource": "example.com/nic",
                "health": "Healthy",
                "offered": True,
                "since": "2026-03-04T05:06:07Z",
                "identity": "Stable",
                "attributes": {"driver": "none", "name": "nic0"},
                "nodes": ["/dev/nic0"],
                "numaNode": 1,
                "allocatedTo": [{"namespace": "ns", "pod": "pod", "container": "main"}],
            },
            {
                "id": "id-00001",
                "resource": "example.com/nic",
                "health": "Unhealthy",
                "offered": False,
                "reason": "Missing",
                "message": "it is gone",
                "since": "2026-03-04T05:06:07Z",
                "identity": "Stable",
                "attributes": {"driver": "none", "name": "nic1"},
                "nodes": ["/dev/nic1"],
            },
        ],
        "excluded": [],
    }


def test_the_inventory_keeps_the_bounds_of_the_crd() -> None:
    many = {f"attr.{n:03}": "x" for n in range(300)}
    status = valid(made(device(attributes=many)))
    assert list(status["devices"][0]["attributes"]) == sorted(many)[:256]
    names = [f"e.com/{n}" for n in range(1100)]
    resources = tuple(ResourceState(name=n, entry=n, devices=(), capacity=0, allocated=0, message="") for n in names)
    shot = TableSnapshot(resources=resources, excluded=(), refused={}, holders_known=True)
    status = valid(inventory.build(shot, observed(), identity=WHO, limit=LIMIT))
    assert (len(status["resources"]), status["resourcesOmitted"]) == (1024, 76)


def test_health_errors_and_replies_are_in_the_inventory() -> None:
    told = observed(health_error="No space left on device", acknowledgement="GPU-0=x:\nno " + "x" * 3000)
    status = valid(inventory.build(snapshot(), told, identity=WHO, limit=LIMIT))
    assert status["healthError"] == "No space left on device"
    assert status["acknowledgement"].startswith("GPU-0=x: no xxx")
    assert len(status["acknowledgement"]) == 2048


def test_unknown_holders_are_reported() -> None:
    assert valid(made(holders_known=False))["podResources"] == "Unavailable"


def test_a_container_with_several_replicas_of_a_device_holds_it_once() -> None:
    holder = Holder("ns", "pod", "main")
    status = valid(made(device(ids=("a", "a::1"), holders={"a": (holder,), "a::1": (holder,)})))
    assert len(status["devices"][0]["allocatedTo"]) == 1
    assert status["resources"][0]["allocated"] == 2


def shared(number: int) -> DeviceState:
    ids = tuple(f"a::{n}" for n in range(number))
    return device(ids=ids, holders={i: (Holder("ns", f"pod-{i}", "main"),) for i in ids})


def test_every_holder_of_a_shared_device_is_named() -> None:
    status = valid(made(shared(100)))
    assert len({h["pod"] for h in status["devices"][0]["allocatedTo"]}) == 100
    assert "holdersOmitted" not in status


def test_holders_that_the_object_has_no_room_for_are_counted() -> None:
    status = valid(made(shared(10_000)))
    named = len(status["devices"][0]["allocatedTo"])
    assert named > 3000
    assert status["holdersOmitted"] == 10_000 - named


def test_a_refused_name_is_shown_with_its_reason() -> None:
    status = valid(made(refused={"example.com/gone": "too many ids"}))
    assert status["resources"][-1] == {
        "name": "example.com/gone",
        "registered": False,
        "devices": 0,
        "healthy": 0,
        "unhealthy": 0,
        "capacity": 0,
        "allocated": 0,
        "reason": "ResourceRefused",
        "message": "too many ids",
    }


def test_an_entry_that_gives_too_many_names_has_a_line_of_its_own_beside_those_that_are_served() -> None:
    entry, served = "example.com/{index}", ("example.com/0", "example.com/1")
    resources = tuple(
        ResourceState(name=n, entry=entry, devices=(), capacity=0, allocated=0, message="") for n in served
    )
    shot = TableSnapshot(resources=resources, excluded=(), refused={entry: "40 names"}, holders_known=True)
    status = valid(inventory.build(shot, observed(), identity=WHO, limit=LIMIT))
    assert {r["name"]: r.get("message", "") for r in status["resources"]} == {
        **dict.fromkeys(served, ""),
        entry: "40 names",
    }


def test_a_resource_message_has_the_registration_problem_and_the_others() -> None:
    name = "example.com/nic"
    foreign = RegistrationState(registered=False, since=None, message="theirs", reason=NodeReason.FOREIGN_PLUGIN)
    told = observed(registrations={name: foreign})
    for found, reason in (((device(),), "ForeignPlugin"), ((), "DriverUnavailable")):
        resource = replace(snapshot(*found).resources[0], message="no driver")
        shot = TableSnapshot(resources=(resource,), excluded=(), refused={}, holders_known=True)
        (row,) = valid(inventory.build(shot, told, identity=WHO, limit=LIMIT))["resources"]
        assert (row["registered"], row["reason"], row["message"]) == (False, reason, "theirs; no driver")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"refused": {"example.com/nic": "too many ids"}}, "ResourceRefused"),
        ({"notes": {"example.com/nic": "the driver hangs"}}, "DriverUnavailable"),
        ({}, None),
    ],
)
def test_a_resource_has_the_reason_code_for_its_message(fields: dict[str, Any], reason: str | None) -> None:
    text = "".join("".join(texts.values()) for texts in fields.values())
    resource = replace(snapshot().resources[0], message=text)
    shot = TableSnapshot(resources=(resource,), excluded=(), holders_known=True, **({"refused": {}} | fields))
    (row,) = valid(inventory.build(shot, observed(), identity=WHO, limit=LIMIT))["resources"]
    assert (row.get("reason"), row.get("message", "")) == (reason, text)


def test_an_entry_whose_driver_shows_nothing_gets_a_line_if_it_has_no_resource() -> None:
    status = valid(made(notes={"example.com/{model}": "the driver hangs"}))
    assert status["resources"][-1]["reason"] == "DriverUnavailable"


def test_devices_without_an_answer_are_unknown_and_counted_by_resource() -> None:
    status = valid(made(device(0), device(1, unanswered="it hangs", reason="NoAnswer", message="it hangs")))
    assert [d["health"] for d in status["devices"]] == ["Healthy", "Unknown"]
    assert (status["resources"][0]["healthy"], status["resources"][0]["unknown"]) == (1, 1)


def test_text_from_devices_is_one_bounded_line() -> None:
    status = valid(made(device(message="a\nb\t" + "x" * 5000, health=Health.UNHEALTHY, reason="Odd")))
    message = status["devices"][0]["message"]
    assert message.startswith("a b x")
    assert len(message) == inventory.MAX_TEXT


def test_the_patch_nulls_every_absent_field() -> None:
    patch = inventory.patch(InventoryStatus(pool_name="edge", holders_omitted=3), heartbeat=1e9)["status"]
    assert set(patch) == set(SCHEMA["properties"]["status"]["properties"])
    assert (patch["holdersOmitted"], patch["devices"], patch["lastHeartbeatTime"]) == (3, [], "2001-09-09T01:46:40Z")
    said = {"poolName", "agentVersion", "resources", "devices", "excluded", "holdersOmitted", "lastHeartbeatTime"}
    assert {k for k, v in patch.items() if v is not None} == said


def test_required_fields_are_present_for_an_empty_table() -> None:
    always = {"poolName", "agentVersion", "podResources", "summary", "resources", "devices", "excluded"}
    assert set(valid(made())) == always | {"observedConfigHash"}


def sized(status: InventoryStatus) -> int:
    return len(json.dumps(inventory.patch(status, heartbeat=1e9), separators=(",", ":"), ensure_ascii=False).encode())


def test_a_node_of_twenty_thousand_devices_fits_and_is_cut_from_the_end() -> None:
    devices = [
        device(n, holders={f"id-{n:05}": (Holder("namespace", f"pod-{n}", "main"),)}, attributes={"name": "n" * 40})
        for n in range(20_000)
    ]
    assert sized(made(*devices)) <= LIMIT
    status = valid(made(*devices))
    assert status["resources"][0]["devices"] == 20_000
    shown = len(status["devices"])
    assert 500 < shown < 20_000
    assert status["devicesOmitted"] == 20_000 - shown
    assert [d["id"] for d in status["devices"]] == [f"id-{n:05}" for n in range(shown)]


@pytest.mark.parametrize(
    ("limit", "whole", "cut"),
    [
        (LIMIT, "resources devices excluded attributes holders history", ""),
        (35_000, "resources devices excluded attributes holders", "history"),
        (25_000, "resources devices excluded attributes", "holders history"),
        (22_000, "resources devices excluded", "attributes holders history"),
        (15_500, "resources devices", "excluded attributes holders history"),
        (9_000, "resources", "devices excluded attributes holders history"),
    ],
)
def test_it_is_cut_in_the_order_of_what_matters_least(limit: int, whole: str, cut: str) -> None:
    devices = [
        device(n, holders={f"id-{n:05}": (Holder("namespace", f"pod-{n}", "main"),)}, attributes={"name": "n" * 60})
        for n in range(80)
    ]
    excluded = tuple(Excluded(f"x{n}", source="pci", entry="example.com/nic", reason="MaxDevices") for n in range(40))
    found = inventory.build(snapshot(*devices, excluded=excluded), observed(history=HISTORY), identity=WHO, limit=limit)
    assert sized(found) <= limit
    status = valid(found)
    shown = status.get("history", [])
    assert [t["id"] for t in shown] == [t.id for t in HISTORY][len(HISTORY) - len(shown) :]
    assert status.get("historyOmitted", 0) == len(HISTORY) - len(shown)
    assert {f for f in status if f.endswith("Omitted")} == {f"{f}Omitted" for f in cut.split()}
    assert not set(whole.split()) & set(cut.split())


def test_unhealthy_devices_are_the_last_to_be_cut() -> None:
    devices = [device(n) for n in range(100)]
    devices[90] = device(90, health=Health.UNHEALTHY, reason="Missing", message="gone")
    status = valid(made(*devices, limit=6_000))
    assert status["devicesOmitted"] > 10
    assert [d["id"] for d in status["devices"] if d["health"] == "Unhealthy"] == ["id-00090"]


def test_devices_without_an_answer_are_cut_before_unhealthy_and_after_healthy_ones() -> None:
    devices = [device(n) for n in range(98)]
    devices += [
        device(98, unanswered="it hangs"),
        device(99, health=Health.UNHEALTHY, reason="Missing", message="gone"),
    ]
    status = valid(made(*devices, limit=6_000))
    assert [d["id"] for d in status["devices"]][-2:] == ["id-00098", "id-00099"]
    assert status["devicesOmitted"] + len(status["devices"]) == 100


texts = st.text(max_size=60)


@st.composite
def devices(draw: st.DrawFn) -> Iterator[DeviceState]:
    number = draw(st.integers(0, 99_999))
    ids = tuple(f"id-{number:05}" + (f"::{n}" if n else "") for n in range(draw(st.integers(0, 4))))
    holders = st.builds(Holder, *(st.text("abc-", min_size=1, max_size=20),) * 3)
    return device(
        number,
        ids=ids,
        health=draw(st.sampled_from(Health)),
        reason=draw(st.sampled_from(["", "Missing", "HeldAs"])),
        message=draw(texts),
        attributes=draw(st.dictionaries(st.sampled_from(["name", "driver", "attr.x"]), texts)),
        nodes=tuple(draw(st.lists(texts, max_size=100))),
        numa_node=draw(st.none() | st.integers(0, 8)),
        holders={i: tuple(draw(st.lists(holders, min_size=1, max_size=3))) for i in ids},
    )


@settings(deadline=None)
@given(st.lists(devices(), max_size=30), st.integers(4_000, 20_000), texts)
def test_the_inventory_is_always_valid_and_within_its_bytes(found: list[DeviceState], limit: int, error: str) -> None:
    status = inventory.build(snapshot(*found), observed(config_error=error), identity=WHO, limit=limit)
    valid(status)
    assert sized(status) <= limit
    assert len(status.devices) + status.devices_omitted == len(found)
