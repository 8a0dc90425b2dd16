"""What the status says of containers and drivers of NVIDIA devices."""

from typing import Any

import pytest
from device_operator.spec.model import Spec
from unit.operator_core.build import (
    counts,
    device,
    inventory,
    node,
    pod,
    spec,
)
from unit.operator_core.statuses import GPU, MIG, WRONG, conditions, message, status


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
def test_a_container_that_lost_the_value_of_a_variable_is_named(held: list[tuple[str, str, str]]):
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


def test_the_message_of_accepted_has_the_warnings():
    text = message(gpus(), "Accepted")
    assert text.startswith(
        "generation 1 is in force: 2 resources, 1 pool; pool default: the agents have the capability"
    )
    assert "nvidia.com/gpu, nvidia.com/mig-{profile} set NVIDIA_VISIBLE_DEVICES" in text
    assert "the agents run privileged" in message(gpus(access="driverRoot"), "Accepted")


def after_a_rejected_edit(found: Spec, **seen: Any) -> dict[str, Any]:
    """The status after an edit was rejected, while `found` is in force."""
    return status(found, rejected=WRONG, nodes=(node(),), pods=(pod(),), generation=2, **seen)


def test_a_rejected_edit_does_not_hide_lost_variables():
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
    silent = inventory(resources=[counts(GPU, healthy=0, reason="DriverUnavailable", message="driver not loaded")])
    (only,) = after_a_rejected_edit(found, inventories=(silent,))["nodes"]
    assert only["reason"] == "DriverUnavailable"
