"""Presets: how an entry is merged over one, and what a container gets from each preset of the catalogue."""

import copy
from typing import Any

import pytest
from device_agent.allocate.answer import ContainerResponse, respond
from device_agent.contract.document import Resource
from device_agent.contract.inventory import Identity
from device_agent.select import grants
from device_agent.select.found import DeviceNodes, FoundDevice
from device_agent.select.unit import Unit
from device_operator.runtime.errors import InvalidSpecError
from device_operator.spec import catalogue
from device_operator.spec.parsing import parse_spec
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.operator_core.build import obj, spec

NAMES = list(catalogue.presets())
COMMON = {f"/dev/{name}" for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")}
GPUS = {
    "GPU-1": ("/dev/nvidia0",),
    "GPU-2": ("/dev/nvidia1",),
}
MIGS = {
    "MIG-1": ("/dev/nvidia-caps/nvidia-cap30", "/dev/nvidia-caps/nvidia-cap31", "/dev/nvidia0"),
    "MIG-2": ("/dev/nvidia-caps/nvidia-cap39", "/dev/nvidia-caps/nvidia-cap40", "/dev/nvidia0"),
}


def resource(preset: str, **fields: Any) -> Resource:
    (found,) = spec({"resources": [{"name": "nvidia.com/gpu", "preset": preset, **fields}]}).resources
    return found


def allocate(
    found: Resource, devices: dict[str, tuple[str, ...]], *, missing: frozenset[str] = frozenset()
) -> ContainerResponse:
    """What a container gets that has all of `devices`: UUID -> own nodes."""
    units = []
    for uuid, nodes in devices.items():
        find = FoundDevice("nvml", uuid, None, {"uuid": uuid}, nodes)
        granted, problem = grants.render(found.inject, [find], dev=DeviceNodes(exists=lambda path: path not in missing))
        assert problem is None
        unit = Unit(
            "nvidia.com/gpu",
            "nvidia.com/gpu",
            uuid,
            uuid,
            Identity.STABLE,
            "nvml",
            {"uuid": uuid},
            nodes,
            granted,
            (uuid,),
        )
        units.append((uuid, unit))
    return respond(found, units)


def paths(response: ContainerResponse) -> set[str]:
    assert all(device.host_path == device.container_path and device.permissions == "rw" for device in response.devices)
    return {device.host_path for device in response.devices}


@pytest.mark.parametrize(("preset", "devices"), [("nvidia-gpu-cdi", GPUS), ("nvidia-mig-cdi", MIGS)])
def test_cdi_names_the_devices_and_leaves_the_rest_to_the_runtime(preset: str, devices: dict[str, tuple[str, ...]]):
    response = allocate(resource(preset), devices)
    assert response == ContainerResponse(cdi_devices=tuple(f"nvidia.com/gpu={uuid}" for uuid in devices))


@pytest.mark.parametrize(("preset", "devices"), [("nvidia-gpu-env", GPUS), ("nvidia-mig-env", MIGS)])
def test_env_lists_the_devices_for_the_runtime(preset: str, devices: dict[str, tuple[str, ...]]):
    response = allocate(resource(preset), devices)
    assert response == ContainerResponse(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(devices)})


@pytest.mark.parametrize(("preset", "devices"), [("nvidia-gpu-mounts", GPUS), ("nvidia-mig-mounts", MIGS)])
def test_mounts_list_the_devices_by_the_names_of_files(preset: str, devices: dict[str, tuple[str, ...]]):
    response = allocate(resource(preset), devices)
    below = "/var/run/nvidia-container-devices"
    assert response.envs == {"NVIDIA_VISIBLE_DEVICES": below}
    assert {(m.host_path, m.container_path) for m in response.mounts} == {
        ("/dev/null", f"{below}/{u}") for u in devices
    }
    assert (response.devices, response.cdi_devices) == ((), ())


@pytest.mark.parametrize(("preset", "devices"), [("nvidia-gpu-nodes", GPUS), ("nvidia-mig-nodes", MIGS)])
def test_nodes_are_the_devices_own_and_those_of_the_driver(preset: str, devices: dict[str, tuple[str, ...]]):
    response = allocate(resource(preset), devices)
    assert paths(response) == COMMON | {node for nodes in devices.values() for node in nodes}
    assert (response.envs, response.mounts, response.cdi_devices) == ({}, (), ())


def test_nodes_that_not_every_driver_has_may_be_missing():
    absent = frozenset({"/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"})
    response = allocate(resource("nvidia-gpu-nodes"), {"GPU-1": ("/dev/nvidia0",)}, missing=absent)
    assert paths(response) == {"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"}


def test_a_driver_without_its_control_node_makes_the_device_unhealthy():
    find = FoundDevice("nvml", "GPU-1", None, {"uuid": "GPU-1"}, ("/dev/nvidia0",))
    _, problem = grants.render(
        resource("nvidia-gpu-nodes").inject, [find], dev=DeviceNodes(exists=lambda path: path != "/dev/nvidiactl")
    )
    assert problem is not None
    assert problem[0] == "CompanionMissing"
    assert "/dev/nvidiactl does not exist on the node" in problem[1]


@pytest.mark.parametrize("preset", NAMES)
def test_presets_are_described_in_a_line_and_may_be_used_as_they_are(preset: str):
    found = catalogue.presets()[preset]
    assert 20 < len(found.description) < 120
    assert "name" not in found.resource
    assert catalogue.PRESET not in found.resource
    assert resource(preset).devices


LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "maxDevices": st.integers(1, 8),
    "ownership": st.sampled_from(["Exclusive", "None"]),
    "exclude": st.just([{"attribute": "model", "values": ["*T4*"]}]),
    "sharing": st.fixed_dictionaries({}, optional={"replicas": st.integers(1, 100), "maxPerContainer": st.just(1)}),
    "allocation": st.fixed_dictionaries({}, optional={"policy": st.sampled_from(["Packed", "Spread"])}),
    "health": st.fixed_dictionaries(
        {},
        optional={
            "recoveryThreshold": st.integers(1, 1000),
            "ignoreXids": st.lists(st.integers(1, 999), max_size=3, unique=True),
        },
    ),
    "inject": st.fixed_dictionaries(
        {},
        optional={
            "env": st.just([{"name": "GPU_MODEL", "value": "{model}"}]),
            "annotations": st.just([{"name": "example.com/gpus", "value": "{uuid}"}]),
            "cdiDevices": st.just(["example.com/gpu={index}"]),
        },
    ),
}
OVERRIDES = st.fixed_dictionaries({}, optional=LEAVES)


@settings(max_examples=150, deadline=None)
@given(preset=st.sampled_from(NAMES), own=OVERRIDES)
def test_an_entry_with_a_preset_and_fields_has_both(preset: str, own: dict[str, Any]):
    base = catalogue.presets()[preset].resource
    untouched = copy.deepcopy(base)
    expanded = catalogue.expand({"name": "nvidia.com/gpu", "preset": preset, **own}, path="r")
    assert isinstance(expanded, dict)
    assert leaves(expanded) == {**leaves(base), **leaves({"name": "nvidia.com/gpu", **own})}
    assert base == untouched  # the catalogue is shared by all objects
    spec({"resources": [{"name": "nvidia.com/gpu", "preset": preset, **own}]})  # raises if it has a mistake


def leaves(fields: Any, path: str = "") -> dict[str, Any]:
    """Path -> value; a list is one leaf."""
    if not isinstance(fields, dict):
        return {path: fields}
    return {p: v for key, value in fields.items() for p, v in leaves(value, f"{path}.{key}").items()}


def test_a_list_beside_a_preset_replaces_the_presets_list():
    found = resource("nvidia-gpu-env", inject={"env": [{"name": "A", "value": "{index}"}]})
    assert [env.name for env in found.inject.env] == ["A"]
    assert found.inject.own_nodes == "None"


def test_the_agents_document_has_the_result_and_no_preset():
    found = spec({"resources": [{"name": "nvidia.com/gpu", "preset": "nvidia-gpu-cdi"}]})
    assert found.document(found.pools[0]).resources[0].inject.cdi_devices == ("nvidia.com/gpu={uuid}",)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            {"preset": "nvidia-gpu-cid"},
            "spec.resources[0].preset: 'nvidia-gpu-cid' is no preset: did you mean nvidia-gpu-cdi?",
        ),
        ({"preset": "nvidia-mig"}, "did you mean nvidia-mig-"),
        ({"preset": "NVIDIA-GPU-CDI"}, "did you mean nvidia-gpu-cdi?"),
        ({"preset": "zzz"}, "'zzz' is no preset; there are: nvidia-gpu-cdi"),
        ({"preset": 1}, "spec.resources[0].preset: must be the name of a preset"),
        ({"preset": "nvidia-gpu-cdi", "inject": []}, "spec.resources[0].inject: must be an object, not a list"),
        ({}, "spec.resources[0].devices: is missing"),
    ],
)
def test_an_invalid_preset_is_refused(entry: dict[str, Any], message: str):
    with pytest.raises(InvalidSpecError) as refused:
        parse_spec(obj({"resources": [{"name": "nvidia.com/gpu", **entry}]}))
    assert message in str(refused.value)
