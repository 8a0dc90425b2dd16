"""How an admin has set up access to the driver, and what to try when it does not work. Pure.

Advice names only settings that are not set yet, and only paths of the node.
"""

import json
from typing import Final

from device_agent.contract.values import dataclass

LIBRARY: Final = "libnvidia-ml.so.1"

_INSTALL: Final = "If the node has no driver, install the NVIDIA driver"
_SET_ONE: Final = "set agent.driverAccess to {runtimeClass: nvidia}, or to {driverRoot: /}"
_TRY: Final = "run nvidia-smi on the node, and read the kernel's log there (dmesg, lines with NVRM)"


@dataclass(frozen=True, slots=True)
class Access:
    """`agent.driverAccess` of the DevicePluginConfig. A field that is not set is ''."""

    runtime_class: str = ""
    cdi_device: str = ""
    driver_root: str = ""

    def no_library(self, *, looked_in: str, directories: str) -> str:
        """The message for an admin when no library is found. `looked_in`: the root as this process sees it."""
        if self.driver_root:
            return (
                f"no driver library: {LIBRARY} is in none of the usual directories below {self.driver_root} "
                f"of the node ({directories}). Check agent.driverAccess.driverRoot: it is the directory with the "
                "driver's usr/lib or usr/lib64. It is / for a driver installed on the node, and often "
                f"/run/nvidia/driver for a driver in a container. {_INSTALL}"
            )
        if self.runtime_class or self.cdi_device:
            return f"no driver library: {self._not_handed_over()}. {_INSTALL}"
        where = "of the agent's pod" if looked_in == "/" else f"below {looked_in}"
        return (
            f"no driver library: {LIBRARY} is in none of the usual directories {where}. {_INSTALL}; "
            f"if it has one, {_SET_ONE}"
        )

    def no_node(self) -> str:
        """What to try when this process lacks the driver's device nodes, or may not open them."""
        if self.driver_root:
            return (
                "agent.driverAccess.driverRoot gives the pod privileges and the node's /dev; check whether something "
                "has changed the pod, or SELinux or AppArmor on the node refuses access"
            )
        if self.runtime_class or self.cdi_device:
            return (
                f"{self._not_handed_over()}. If it worked before, a reload of systemd removed the nodes: delete the pod"
            )
        return _SET_ONE

    def _not_handed_over(self) -> str:
        if self.cdi_device and not self.runtime_class:
            return (
                f"nothing has injected the CDI device {self.cdi_device} of agent.driverAccess into the agent's pod. "
                "The node needs NVIDIA's NRI plugin, or NVIDIA's runtime as its default (or set runtimeClass too), "
                "and a CDI specification with this device (nvidia-ctk cdi list)"
            )
        also = f" with a CDI specification of {self.cdi_device} (nvidia-ctk cdi list)" if self.cdi_device else ""
        return (
            "the container runtime did not give the driver to the agent's pod. Check on the node that nvidia-smi works "
            f"and that the handler of RuntimeClass {self.runtime_class} is NVIDIA's runtime{also}"
        )


NOTHING_SET: Final = Access()


def parse(text: str) -> Access:
    """Reads the variable that the operator sets. Any value other than a JSON object of strings counts as not set."""
    try:
        values = json.loads(text) if text else {}
    except ValueError:
        return NOTHING_SET
    if not isinstance(values, dict):
        return NOTHING_SET
    names = {"runtime_class": "runtimeClass", "cdi_device": "cdiDevice", "driver_root": "driverRoot"}
    return Access(**{field: str(values.get(name) or "") for field, name in names.items()})


def does_not_start(error: object) -> str:
    """The message when NvmlInit fails although the pod can open the driver's nodes."""
    return f"NVML does not start: {error}. The agent's pod can open the driver's nodes: {_TRY}"
