"""The NodeDeviceInventory has the same fields in the CRD and in the dataclasses. Others would be dropped or refused."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from device_agent.contract.codec import ShapeError, encode
from device_agent.contract.inventory import (
    InventoryDevice,
    InventoryHolder,
    InventoryResource,
    InventorySpec,
    InventoryStatus,
    read_status,
)
from device_agent.contract.node_reasons import NodeReason
from device_agent.contract.reasons import DeviceHealth, ExclusionReason
from device_agent.report import history
from device_agent.report import inventory as bounds
from unit.contract.schemas import differences

CRD = yaml.safe_load((Path(__file__).parents[3] / "crds" / "nodedeviceinventories.yaml").read_text())
FIELDS = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
STATUS = FIELDS["status"]["properties"]
CHANGE = STATUS["history"]["items"]["properties"]
DEVICE = STATUS["devices"]["items"]["properties"]


@pytest.mark.parametrize(("part", "cls"), [("spec", InventorySpec), ("status", InventoryStatus)])
def test_the_crd_and_the_dataclasses_have_the_same_fields(part: str, cls: type):
    assert differences(cls, FIELDS[part], part) == []


def test_the_agents_limits_are_those_of_the_crd():
    assert STATUS["resources"]["maxItems"] == bounds.MAX_RESOURCES
    assert STATUS["history"]["maxItems"] == history.MAX_ITEMS
    assert CHANGE["id"]["maxLength"] == history.MAX_ID
    assert CHANGE["resource"]["maxLength"] == history.MAX_RESOURCE
    assert CHANGE["reason"]["maxLength"] == history.MAX_REASON
    assert DEVICE["nodes"]["maxItems"] == bounds.MAX_NODES
    assert DEVICE["attributes"]["maxProperties"] == bounds.MAX_ATTRIBUTES
    assert DEVICE["allocatedTo"]["maxItems"] == bounds.MAX_HOLDERS
    assert DEVICE["message"]["maxLength"] >= bounds.MAX_TEXT
    assert STATUS["configError"]["maxLength"] >= bounds.MAX_STATUS_TEXT


def test_every_reason_fits_into_its_field():
    most = min(row["items"]["properties"]["reason"]["maxLength"] for row in (STATUS["devices"], STATUS["excluded"]))
    assert max(map(len, [*NodeReason, *ExclusionReason])) <= most


def test_a_written_status_is_read_back():
    device = InventoryDevice(
        id="a",
        resource="e.com/x",
        health=DeviceHealth.UNKNOWN,
        attributes={"name": "a"},
        numa_node=0,
        allocated_to=(InventoryHolder("ns", "pod", "main"),),
    )
    status = InventoryStatus(
        pool_name="p", resources=(InventoryResource(name="e.com/x", registered=False),), devices=(device,)
    )
    assert read_status(encode(status)) == status


def test_unknown_fields_are_skipped_and_unknown_reasons_kept():
    row = {"id": "a", "resource": "e.com/x", "health": "Unhealthy", "reason": "Cordoned", "trend": 3}
    status = read_status({"poolName": "p", "trend": {"x": 1}, "devices": [row]})
    assert status.devices == (
        InventoryDevice(id="a", resource="e.com/x", health=DeviceHealth.UNHEALTHY, reason="Cordoned"),
    )


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"devices": [{"id": "a", "resource": "e.com/x"}]}, "status.devices[0].health: is missing"),
        ({"devices": [{"id": "a", "resource": "e.com/x", "health": 3}]}, "status.devices[0].health: must be one"),
        ({"devices": [{"resource": "e.com/x", "health": "Healthy"}]}, "status.devices[0].id: is missing"),
        ({"resources": [{}]}, "status.resources[0].name: is missing"),
        ({"resources": {}}, "status.resources: must be a list"),
        ({"summary": {"devices": "3"}}, "status.summary.devices: must be a whole number"),
        ([], "status: must be an object"),
    ],
)
def test_an_unreadable_field_is_named_by_its_path(given: Any, path: str):
    with pytest.raises(ShapeError) as error:
        read_status(given)
    assert str(error.value).startswith(path)


def test_totals_include_what_was_cut_from_the_lists():
    row = {"name": "e.com/x", "devices": 2}
    assert read_status({"resources": [row]}).totals.devices == 2
    assert read_status({"resources": [row], "resourcesOmitted": 1, "summary": {"devices": 9}}).totals.devices == 9


def test_the_number_of_devices_cut_from_the_list_follows_from_the_counts():
    row = {"name": "e.com/x", "devices": 9, "healthy": 4, "unhealthy": 3, "unknown": 2}
    device = {"id": "a", "resource": "e.com/x", "health": "Unhealthy"}
    status = read_status({"resources": [row], "devices": [device], "devicesOmitted": 8})
    assert {health: status.cut(health) for health in DeviceHealth} == {"Unhealthy": 2, "Unknown": 2, "Healthy": 4}
    whole = read_status({"resources": [row], "devices": [device]})
    assert [whole.cut(health) for health in DeviceHealth] == [0, 0, 0]
