"""The additional needs of agent pods that serve NVIDIA devices. Pure.

These are the only additions to an agent's rights. They appear only where the configuration needs them.
The variables are those of the NVIDIA container toolkit. Its runtime reads the request for a management CDI device from
the same variable. Its NRI plugin reads the request from a pod annotation. A runtime can be configured to ignore the
variable of containers without SYS_ADMIN (accept-nvidia-visible-devices-envvar-when-unprivileged = false). Such a
runtime reads the request from a mount.
"""

import json
from dataclasses import dataclass
from typing import Final

from device_agent.contract import names
from device_agent.contract.document import Document

from device_operator.spec.agent_settings import AgentSettings, DeviceMetrics, DriverAccess, NodeFeatures
from device_operator.spec.caveats import nvml_entries, serves_mig

CONTAINER: Final = "agent"
"""Name of the agent's container in its pod."""
NFD_DIR: Final = "/etc/kubernetes/node-feature-discovery/features.d"
"""Where node-feature-discovery's worker reads local feature files."""
NRI_ANNOTATION: Final = f"nvidia.cdi.k8s.io/container.{CONTAINER}"
REQUESTS_DIR: Final = "/var/run/nvidia-container-devices"
"""Mounts of /dev/null below this directory tell NVIDIA's runtime which devices a container asks for."""
PRIVILEGED_SELINUX_TYPE: Final = "spc_t"
"""The SELinux type that runtimes give to privileged containers."""


@dataclass(frozen=True, slots=True)
class PodNeeds:
    """An empty value: nothing is needed. `env`: (name, value); `features`: directory of the node for NFD.

    `request`: path in the container of the mount that asks the runtime for the devices.
    """

    runtime_class: str = ""
    env: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    capabilities: tuple[str, ...] = ()
    driver_root: str = ""
    request: str = ""
    features: str = ""

    @property
    def privileged(self) -> bool:
        """Only a privileged container may open device nodes that were not allocated to it (device cgroup)."""
        return bool(self.driver_root)

    @property
    def mounted_later(self) -> bool:
        """Whether the driver's root may be mounted after the agent started.

        A driver in a container mounts its root below /run (or /var/run, the same directory) when it is ready. Elsewhere
        the root is a plain directory, and a node with private mounts would refuse the propagation.
        """
        return self.driver_root.startswith(("/run/", "/var/run/"))


def pod_needs(agent: AgentSettings, document: Document) -> PodNeeds:
    """The needs of a pool whose agents serve `document`. `agent`: with all defaults applied."""
    if not nvml_entries(document):
        return PodNeeds()
    access = agent.driver_access or DriverAccess()
    mig = serves_mig(document)
    env: list[tuple[str, str]] = []
    annotations: list[tuple[str, str]] = []
    if access.cdi_device is not None:
        env.append(("NVIDIA_VISIBLE_DEVICES", access.cdi_device))
        if access.runtime_class is None:
            annotations.append((NRI_ANNOTATION, access.cdi_device))
    elif access.runtime_class is not None:
        env += [("NVIDIA_VISIBLE_DEVICES", "all"), ("NVIDIA_DRIVER_CAPABILITIES", "utility")]
        if mig:
            env.append(("NVIDIA_MIG_MONITOR_DEVICES", "all"))
    if access.driver_root is not None:
        env.append((names.ENV_DRIVER_ROOT, names.DRIVER_ROOT_DIR))
    if told := _told(access):
        env.append((names.ENV_DRIVER_ACCESS, told))
    if agent.device_metrics is DeviceMetrics.PROMETHEUS:
        env.append((names.ENV_DEVICE_METRICS, DeviceMetrics.PROMETHEUS))
    features = agent.node_features is NodeFeatures.NFD
    if features:
        env.append((names.ENV_NODE_FEATURES, NodeFeatures.NFD))
    own = {e.name for e in agent.env or ()}  # a variable that the admin sets wins
    return PodNeeds(
        runtime_class=access.runtime_class or "",
        env=tuple((name, str(value)) for name, value in env if name not in own),
        annotations=tuple(annotations),
        capabilities=("SYS_ADMIN",) if access.sys_admin(mig=mig) else (),
        driver_root=access.driver_root or "",
        request="" if "NVIDIA_VISIBLE_DEVICES" in own else _request(access),
        features=NFD_DIR if features else "",
    )


def _told(access: DriverAccess) -> str:
    """The settings as JSON, for the advice of an agent that finds no driver; empty if none is set."""
    values = {"runtimeClass": access.runtime_class, "cdiDevice": access.cdi_device, "driverRoot": access.driver_root}
    values = {name: value for name, value in values.items() if value is not None}
    return json.dumps(values) if values else ""


def _request(access: DriverAccess) -> str:
    if access.runtime_class is None:
        return ""
    if access.cdi_device is None:
        return f"{REQUESTS_DIR}/all"
    # a mount's path may have no colon
    return "" if ":" in access.cdi_device else f"{REQUESTS_DIR}/cdi/{access.cdi_device.replace('=', '/')}"
