"""Warnings about an accepted spec: variables that resources overwrite, settings without effect, rights of agents."""

from typing import Any

import pytest
from device_operator.spec import catalogue
from device_operator.spec.caveats import caveats, env_clashes
from unit.operator_core.build import entry, spec

GPU = {"name": "nvidia.com/gpu", "preset": "nvidia-gpu-env"}
MIG = {"name": "nvidia.com/mig", "preset": "nvidia-mig-env"}
MIXED = {"name": "nvidia.com/mig-{profile}", "preset": "nvidia-mig-env"}


def with_env(name: str, *env: tuple[str, str], **fields: Any) -> dict[str, Any]:
    return entry(name, inject={"env": [{"name": n, "value": v} for n, v in env]}, **fields)


def names(*resources: dict[str, Any]) -> list[str]:
    found = spec({"resources": list(resources)})
    return [clash.name for clash in env_clashes(found.document(found.pools[0]))]


@pytest.mark.parametrize(
    ("resources", "clashing"),
    [
        ([with_env("a.b/c", ("A", "1"))], []),
        ([with_env("a.b/c", ("A", "1")), with_env("a.b/d", ("A", "1"))], []),
        ([with_env("a.b/c", ("A", "1")), with_env("a.b/d", ("B", "1"))], []),
        ([with_env("a.b/c", ("A", "1")), with_env("a.b/d", ("A", "2"))], ["A"]),
        ([with_env("a.b/c", ("A", "{name}")), with_env("a.b/d", ("A", "{name}"))], ["A"]),
        ([with_env("a.b/{name}", ("A", "1"))], []),
        ([with_env("a.b/{name}", ("A", "{path}"))], ["A"]),
        ([GPU, MIG], ["NVIDIA_VISIBLE_DEVICES"]),
        ([MIXED], ["NVIDIA_VISIBLE_DEVICES"]),
        ([{**GPU, "preset": "nvidia-gpu-mounts"}, {**MIG, "preset": "nvidia-mig-mounts"}], []),
        ([{**GPU, "preset": "nvidia-gpu-cdi"}, {**MIG, "preset": "nvidia-mig-cdi"}], []),
        ([{**GPU, "preset": "nvidia-gpu-nodes"}, {**MIG, "preset": "nvidia-mig-nodes"}], []),
        ([GPU, {**MIG, "preset": "nvidia-mig-mounts"}], ["NVIDIA_VISIBLE_DEVICES"]),
    ],
)
def test_two_resources_may_not_set_one_variable_to_two_values(resources: list[dict[str, Any]], clashing: list[str]):
    assert names(*resources) == clashing


def test_paths_of_device_nodes_count_as_values_of_a_variable():
    node = {"deviceNodes": [{"own": "kvm", "env": "NODE"}]}
    assert names(entry("a.b/c", inject=node), entry("a.b/d", inject=node)) == ["NODE"]


def test_a_value_that_depends_on_the_size_of_a_request_clashes():
    sized = [{"name": "A", "value": "1", "counts": [1]}, {"name": "A", "value": "2", "counts": [2]}]
    assert names(entry("a.b/c", inject={"env": sized})) == []
    assert names(entry("a.b/c", inject={"env": sized}), with_env("a.b/d", ("A", "1"))) == ["A"]


def test_resources_of_different_pools_never_meet():
    pools = [{"name": "a", "nodeSelector": {"x": "a"}, "serves": ["nvidia.com/gpu"]}]
    pools += [{"name": "b", "nodeSelector": {"x": "b"}, "serves": ["nvidia.com/mig"]}]
    agent = {"driverAccess": {"cdiDevice": "management.nvidia.com/gpu=all"}}
    assert caveats(spec({"resources": [GPU, MIG], "nodePools": pools, "agent": agent})) == ()


def test_a_clash_needs_two_entries_with_different_values_in_one_container():
    found = spec(
        {"resources": [with_env("a.b/c", ("A", "1")), with_env("a.b/d", ("A", "1")), with_env("a.b/e", ("A", "2"))]}
    )
    (clash,) = env_clashes(found.document(found.pools[0]))
    assert not clash.between(["a.b/c", "a.b/d"])
    assert not clash.between(["a.b/e", "other.com/x"])
    assert clash.between(["a.b/c", "a.b/e"])


def texts(access: dict[str, Any] | None, *resources: dict[str, Any]) -> str:
    agent = {} if access is None else {"driverAccess": access}
    return "; ".join(caveats(spec({"resources": list(resources) or [GPU], "agent": agent})))


def test_without_driver_access_the_admin_is_warned():
    assert texts(None).startswith(
        "pool default: agent.driverAccess is not set, so the agents find the NVIDIA driver only"
    )


def test_a_privileged_agent_is_a_warning():
    assert "pool default: the agents run privileged, because agent.driverAccess.driverRoot is set" in texts(
        {"driverRoot": "/"}
    )


def test_an_agent_with_sys_admin_is_a_warning():
    assert texts({"runtimeClass": "nvidia"}) == ""
    assert "pool default: the agents have the capability SYS_ADMIN" in texts({"runtimeClass": "nvidia"}, MIG)
    assert texts({"runtimeClass": "nvidia", "cdiDevice": "management.nvidia.com/gpu=all"}, MIG) == ""


def test_the_warning_about_a_clash_says_what_to_do():
    text = texts({"runtimeClass": "nvidia"}, GPU, {**MIG, "preset": "nvidia-gpu-env"})
    assert "nvidia.com/gpu, nvidia.com/mig set NVIDIA_VISIBLE_DEVICES to different values" in text
    assert "-cdi or -nodes" in text


def test_pools_without_nvidia_devices_have_no_warnings():
    assert caveats(spec(agent={"deviceMetrics": "None", "nodeFeatures": "None"})) == ()


@pytest.mark.parametrize(
    ("agent", "named"),
    [
        ({"driverAccess": {"driverRoot": "/"}}, "agent.driverAccess has no effect"),
        ({"deviceMetrics": "Prometheus"}, "agent.deviceMetrics has no effect"),
        (
            {"nodeFeatures": "NFD", "deviceMetrics": "Prometheus"},
            "agent.deviceMetrics, agent.nodeFeatures have no effect",
        ),
    ],
)
def test_nvidia_settings_without_effect_are_a_warning(agent: dict[str, Any], named: str):
    (text,) = caveats(spec(agent=agent))
    assert text == f"pool default: {named}, because the pool serves no nvml devices"


def test_common_nvidia_settings_are_no_warning_if_one_pool_uses_them():
    pools = [
        {"name": n, "nodeSelector": {"x": n}, "serves": [r]} for n, r in (("gpu", GPU["name"]), ("kvm", "a.b/kvm"))
    ]
    agent = {"driverAccess": {"runtimeClass": "nvidia"}, "deviceMetrics": "Prometheus"}
    given = {"resources": [GPU, entry("a.b/kvm")], "nodePools": pools}
    assert caveats(spec({**given, "agent": agent})) == ()
    pools[1]["agent"] = {"nodeFeatures": "NFD"}
    (text,) = caveats(spec({**given, "agent": agent}))
    assert text == "pool kvm: agent.nodeFeatures has no effect, because the pool serves no nvml devices"


REACHES_NOBODY = "nvidia.com/gpu: containers get no device,"
UNUSABLE = "nvidia.com/gpu: containers get device nodes without /dev/nvidiactl"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"preset": "nvidia-gpu-env", "inject": {"env": [{"name": "NVIDIA_GDS", "value": "enabled"}]}}, REACHES_NOBODY),
        (
            {"preset": "nvidia-gpu-env", "inject": {"env": [{"name": "GPU", "value": "{model} {position}"}]}},
            REACHES_NOBODY,
        ),
        (
            {"preset": "nvidia-gpu-mounts", "inject": {"mounts": [{"hostPath": "/opt", "containerPath": "/opt"}]}},
            REACHES_NOBODY,
        ),
        ({"preset": "nvidia-gpu-cdi", "inject": {"cdiDevices": ["nvidia.com/gds=all"]}}, REACHES_NOBODY),
        ({"preset": "nvidia-gpu-nodes", "inject": {"ownNodes": "None"}}, REACHES_NOBODY),
        ({"preset": "nvidia-gpu-nodes", "inject": {"deviceNodes": [{"hostPath": "/dev/nvidia-fs0"}]}}, UNUSABLE),
        ({"devices": [{"nvml": {"kind": "GPU"}}]}, UNUSABLE),
        ({"preset": "nvidia-gpu-env", "inject": {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "{index}"}]}}, ""),
        (
            {
                "preset": "nvidia-gpu-env",
                "inject": {"ownNodes": "All", "deviceNodes": [{"hostPath": "/dev/nvidiactl"}]},
            },
            "",
        ),
        ({"preset": "nvidia-gpu-env", "inject": {"mounts": [{"hostPath": "/opt", "containerPath": "/opt"}]}}, ""),
        ({"preset": "nvidia-gpu-cdi", "inject": {"env": [{"name": "NVIDIA_GDS", "value": "enabled"}]}}, ""),
        ({"preset": "nvidia-mig-cdi", "inject": {"cdiDevices": ["nvidia.com/gpu={parentUuid}-{gi}"]}}, ""),
        ({"preset": "nvidia-gpu-nodes", "inject": {"deviceNodes": [{"hostPath": "/dev/nvidiactl"}]}}, ""),
    ],
)
def test_a_list_that_removes_the_device_of_a_preset_is_a_warning(fields: dict[str, Any], told: str):
    text = texts({"cdiDevice": "management.nvidia.com/gpu=all"}, {"name": "nvidia.com/gpu", **fields})
    assert text.startswith(f"pool default: {told}") if told else text == ""


@pytest.mark.parametrize("preset", catalogue.presets())
def test_unchanged_presets_have_no_warning(preset: str):
    found = texts({"cdiDevice": "management.nvidia.com/gpu=all"}, {"name": "nvidia.com/gpu", "preset": preset})
    assert found == ""


def test_the_warning_about_one_entry_is_in_the_singular():
    agent = {"cdiDevice": "management.nvidia.com/gpu=all"}
    assert "nvidia.com/mig-{profile} sets NVIDIA_VISIBLE_DEVICES" in texts(agent, MIXED)
    assert "nvidia.com/gpu, nvidia.com/mig set NVIDIA_VISIBLE_DEVICES" in texts(agent, GPU, MIG)


def test_equal_caveats_of_pools_are_one_sentence():
    pools = [{"name": n, "nodeSelector": {"x": n}} for n in ("a", "b")]
    (text,) = caveats(spec({"resources": [GPU], "nodePools": pools, "agent": {"driverAccess": {"driverRoot": "/"}}}))
    assert text.startswith("pools a, b: the agents run privileged")
