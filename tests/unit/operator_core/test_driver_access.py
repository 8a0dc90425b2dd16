"""What an agent's pod gets for NVIDIA devices with each way to the driver; other pods get nothing."""

from typing import Any

import kubernetes_validate
import pytest
from device_operator.render.manifests import RenderSettings, render
from device_operator.spec.driver_access import NFD_DIR
from unit.operator_core.build import LAB, SETTINGS, entry, spec

GPU = {"name": "nvidia.com/gpu", "preset": "nvidia-gpu-cdi"}
MIG = {"name": "nvidia.com/mig-{profile}", "preset": "nvidia-mig-cdi"}
MANAGEMENT = "management.nvidia.com/gpu=all"
EVERYTHING = {
    "driverAccess": {"driverRoot": "/run/nvidia/driver"},
    "deviceMetrics": "Prometheus",
    "nodeFeatures": "NFD",
}


def template(*resources: dict[str, Any], settings: RenderSettings = SETTINGS, **agent: Any) -> dict[str, Any]:
    _, daemon_set = render(LAB, spec({"resources": list(resources), "agent": agent}), settings)
    for version in ("1.32", "1.37"):
        kubernetes_validate.validate(daemon_set.body, version, strict=True)
    found: dict[str, Any] = daemon_set.body["spec"]["template"]
    return found


def added(*resources: dict[str, Any], **agent: Any) -> dict[str, Any]:
    """Fields in which the pod differs from the pod of an agent for /dev/kvm. None: the pod lacks the field."""
    plain, rich = flat(template(entry())), flat(template(*resources, **agent))
    return {key: rich.get(key) for key in rich.keys() | plain.keys() if rich.get(key) != plain.get(key)}


def flat(found: dict[str, Any]) -> dict[str, Any]:
    pod = found["spec"]
    (container,) = pod["containers"]
    return {
        **{f"annotation {k}": v for k, v in found["metadata"]["annotations"].items() if "device-operator" not in k},
        **{f"env {e['name']}": e.get("value", "") for e in container["env"]},
        **{f"security {k}": v for k, v in container["securityContext"].items()},
        **{
            f"mount {m['mountPath']}": {k: v for k, v in m.items() if k != "mountPath"}
            for m in container["volumeMounts"]
        },
        **{f"volume {v['name']}": v["hostPath"] for v in pod["volumes"] if "hostPath" in v},
        **{f"pod {k}": v for k, v in pod.items() if k not in ("containers", "volumes")},
        "terminationMessagePath": container.get("terminationMessagePath"),
    }


ASKED = "/var/run/nvidia-container-devices"
"""Where the vendor's runtime looks for the names of devices."""


def asks(name: str) -> dict[str, Any]:
    return {
        f"mount {ASKED}/{name}": {"name": "asks-runtime", "readOnly": True},
        "volume asks-runtime": {"path": "/dev/null", "type": "CharDevice"},
    }


RUNTIME = {
    **asks("all"),
    "pod runtimeClassName": "nvidia",
    "env NVIDIA_VISIBLE_DEVICES": "all",
    "env NVIDIA_DRIVER_CAPABILITIES": "utility",
    "env DRIVER_ACCESS": '{"runtimeClass": "nvidia"}',
}
PRIVILEGED = {
    "env DRIVER_ROOT": "/driver-root",
    "env DRIVER_ACCESS": '{"driverRoot": "/"}',
    "security privileged": True,
    "security allowPrivilegeEscalation": None,
    "security capabilities": None,
    "volume driver-root": {"path": "/", "type": "DirectoryOrCreate"},
    "mount /driver-root": {"name": "driver-root", "readOnly": True},
    "mount /dev": {"name": "dev"},
    "terminationMessagePath": "/tmp/termination-log",
}


@pytest.mark.parametrize(
    ("resource", "access", "expected"),
    [
        (GPU, None, {}),
        (GPU, {"runtimeClass": "nvidia"}, RUNTIME),
        (
            MIG,
            {"runtimeClass": "nvidia"},
            {
                **RUNTIME,
                "env NVIDIA_MIG_MONITOR_DEVICES": "all",
                "security capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]},
            },
        ),
        (
            MIG,
            {"runtimeClass": "nvidia", "cdiDevice": MANAGEMENT},
            {
                **asks("cdi/management.nvidia.com/gpu/all"),
                "pod runtimeClassName": "nvidia",
                "env NVIDIA_VISIBLE_DEVICES": MANAGEMENT,
                "env DRIVER_ACCESS": f'{{"runtimeClass": "nvidia", "cdiDevice": "{MANAGEMENT}"}}',
            },
        ),
        (
            MIG,
            {"cdiDevice": MANAGEMENT},
            {
                "annotation nvidia.cdi.k8s.io/container.agent": MANAGEMENT,
                "env NVIDIA_VISIBLE_DEVICES": MANAGEMENT,
                "env DRIVER_ACCESS": f'{{"cdiDevice": "{MANAGEMENT}"}}',
            },
        ),
    ],
)
def test_what_the_runtime_is_asked_for(
    resource: dict[str, Any], access: dict[str, Any] | None, expected: dict[str, Any]
):
    assert added(resource, **({} if access is None else {"driverAccess": access})) == expected


@pytest.mark.parametrize("resource", [GPU, MIG])
def test_a_driver_root_is_mounted_read_only_in_a_privileged_container(resource: dict[str, Any]):
    found = added(resource, driverAccess={"driverRoot": "/"})
    security = found.pop("pod securityContext")
    assert security["seLinuxOptions"] == {"type": "spc_t"}
    assert found == PRIVILEGED


@pytest.mark.parametrize("root", ["/run/nvidia/driver", "/var/run/nvidia/driver"])
def test_a_driver_that_its_own_container_mounts_later_is_seen(root: str):
    found = added(GPU, driverAccess={"driverRoot": root})
    assert found["mount /driver-root"]["mountPropagation"] == "HostToContainer"
    assert found["volume driver-root"]["path"] == root


@pytest.mark.parametrize("root", ["/", "/home/kubernetes/bin/nvidia", "/runtime/driver"])
def test_a_driver_elsewhere_is_a_plain_directory(root: str):
    assert "mountPropagation" not in added(GPU, driverAccess={"driverRoot": root})["mount /driver-root"]


def test_device_metrics_are_a_variable():
    assert added(GPU, deviceMetrics="Prometheus") == {"env DEVICE_METRICS": "Prometheus"}
    assert added(GPU, deviceMetrics="None") == {}


def test_node_features_are_a_directory_that_the_agent_may_write():
    assert added(GPU, nodeFeatures="NFD") == {
        "env NODE_FEATURES": "NFD",
        "volume features": {"path": NFD_DIR, "type": "DirectoryOrCreate"},
        "mount /features.d": {"name": "features"},
    }
    assert added(GPU, nodeFeatures="None") == {}


def test_pools_without_nvidia_devices_get_no_additions():
    assert template(entry(), **EVERYTHING) == template(entry())


def test_only_the_pool_that_serves_them_has_the_rights():
    pools = [
        {"name": n, "nodeSelector": {"x": n}, "serves": [r]}
        for n, r in (("gpu", "nvidia.com/gpu"), ("kvm", "example.com/kvm"))
    ]
    found = spec({"resources": [GPU, entry()], "nodePools": pools, "agent": EVERYTHING})
    privileged = {
        m.pool: m.body["spec"]["template"]["spec"]["containers"][0]["securityContext"]["privileged"]
        for m in render(LAB, found, SETTINGS)
        if m.kind == "DaemonSet"
    }
    assert privileged == {"gpu": True, "kvm": False}


def test_a_pool_replaces_the_way_as_a_whole():
    pool = {"name": "gpu", "agent": {"driverAccess": {"driverRoot": "/"}}}
    found = spec({"resources": [GPU], "nodePools": [pool], "agent": {"driverAccess": {"runtimeClass": "nvidia"}}})
    pod = render(LAB, found, SETTINGS)[1].body["spec"]["template"]["spec"]
    assert "runtimeClassName" not in pod
    assert pod["containers"][0]["securityContext"]["privileged"] is True


def test_a_variable_that_the_admin_sets_is_not_set_twice():
    env = template(
        GPU, driverAccess={"runtimeClass": "nvidia"}, env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    )
    given = [(e["name"], e.get("value")) for e in env["spec"]["containers"][0]["env"]]
    assert [value for name, value in given if name == "NVIDIA_VISIBLE_DEVICES"] == ["void"]
    assert "asks-runtime" not in [v["name"] for v in env["spec"]["volumes"]]


def test_a_cdi_name_that_cannot_be_a_mount_path_is_requested_by_variable_alone():
    access = {"runtimeClass": "nvidia", "cdiDevice": "management.nvidia.com/gpu=0:1"}
    assert added(GPU, driverAccess=access) == {
        "pod runtimeClassName": "nvidia",
        "env NVIDIA_VISIBLE_DEVICES": "management.nvidia.com/gpu=0:1",
        "env DRIVER_ACCESS": '{"runtimeClass": "nvidia", "cdiDevice": "management.nvidia.com/gpu=0:1"}',
    }
