"""What the agent's pods of a pool have in addition because the pool serves NVIDIA devices. Pure.

The only additions to an agent's rights there are: they appear where the configuration needs them and nowhere else.
Variables and their meaning are those of the NVIDIA container toolkit; a management CDI device is asked of its runtime
by the same variable, of its NRI plugin by a pod annotation. A runtime that is set to ignore the variable of containers
without SYS_ADMIN (accept-nvidia-visible-devices-envvar-when-unprivileged = false) takes the same request as a mount.
"""

import json
from dataclasses import dataclass
from typing import Final

from device_agent.contract import names
from device_agent.contract.document import Document

from device_operator.spec.agent_settings import AgentSettings, DeviceMetrics, DriverAccess, NodeFeatures
from device_operator.spec.caveats import serves_mig, serves_nvml

CONTAINER: Final = "agent"
"""Name of the agent's container in its pod."""
NFD_DIR: Final = "/etc/kubernetes/node-feature-discovery/features.d"
"""Where node-feature-discovery's worker reads local feature files."""
NRI_ANNOTATION: Final = f"nvidia.cdi.k8s.io/container.{CONTAINER}"
REQUESTS_DIR: Final = "/var/run/nvidia-container-devices"
"""The vendor's runtime reads what a container asks for off the mounts of /dev/null below it."""
PRIVILEGED_SELINUX_TYPE: Final = "spc_t"
"""What runtimes give privileged containers by themselves."""


@dataclass(frozen=True, slots=True)
class PodNeeds:
    """Empty values: nothing in addition. `env`: (name, value); `features`: the node's directory for NFD.

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
        """The device cgroup lets only a privileged container open device nodes that nobody allocated to it."""
        return bool(self.driver_root)

    @property
    def mounted_later(self) -> bool:
        """A driver in a container mounts its root below /run when it is ready, and again after a restart.

        /var/run is another name of /run. Elsewhere the root is a plain directory, and a node whose mounts are private
        would refuse the propagation.
        """
        return self.driver_root.startswith(("/run/", "/var/run/"))


def pod_needs(agent: AgentSettings, document: Document) -> PodNeeds:
    """Of a pool whose agents serve `document`; `agent`: all settings applied."""
    if not serves_nvml(document):
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
    own = {e.name for e in agent.env or ()}  # an admin who sets one of the runtime's variables means it
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
    """What the agent's advice to an admin is about, where there is no driver; '' when nothing is set."""
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
