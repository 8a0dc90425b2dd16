"""How an admin has set up the way to the driver, and what to try when it leads nowhere. Pure.

Advice never names what is set already, nor a path inside the agent's container.
"""

import json
from typing import Final

from device_agent.contract.values import dataclass

LIBRARY: Final = "libnvidia-ml.so.1"

_INSTALL: Final = "install the NVIDIA driver on the node"
_SET_ONE: Final = "set agent.driverAccess to {runtimeClass: nvidia}, or to {driverRoot: /}"
_TRY: Final = "see whether nvidia-smi works on the node, and what the kernel's log (dmesg, lines with NVRM) says"


@dataclass(frozen=True, slots=True)
class Access:
    """`agent.driverAccess` of the DevicePluginConfig. A field that is not set is ''."""

    runtime_class: str = ""
    cdi_device: str = ""
    driver_root: str = ""

    def no_library(self, *, looked_in: str, directories: str) -> str:
        """What to say when no library is found. `looked_in`: the root as this process has it."""
        if self.driver_root:
            return (
                f"no driver library: {LIBRARY} is in none of the usual directories below {self.driver_root} "
                f"of the node ({directories}): is agent.driverAccess.driverRoot right? It is the directory that the "
                "driver's usr/lib or usr/lib64 lies in: / where the driver is installed on the node, often "
                f"/run/nvidia/driver where it is in a container; else {_INSTALL}"
            )
        if self.runtime_class or self.cdi_device:
            return f"no driver library: {self._not_handed_over()}; where there is no driver, {_INSTALL}"
        where = "of the agent's pod" if looked_in == "/" else f"below {looked_in}"
        return (
            f"no driver library: {LIBRARY} is in none of the usual directories {where}; {_INSTALL}; where it is "
            f"installed, {_SET_ONE}"
        )

    def no_node(self) -> str:
        """What to try when this process has no device nodes of the driver, or may not open them."""
        if self.driver_root:
            return (
                "agent.driverAccess.driverRoot makes the pod a privileged one with the node's /dev: has something "
                "changed the pod, or does SELinux or AppArmor on the node refuse it?"
            )
        if self.runtime_class or self.cdi_device:
            return f"{self._not_handed_over()}; a pod that once could lost them to a reload of systemd: delete the pod"
        return _SET_ONE

    def _not_handed_over(self) -> str:
        if self.cdi_device and not self.runtime_class:
            return (
                f"nothing has injected the CDI device {self.cdi_device} of agent.driverAccess into the agent's pod: "
                "that takes NVIDIA's NRI plugin on the node, or NVIDIA's runtime as its default one (or runtimeClass "
                "beside it), and a CDI specification that has it (nvidia-ctk cdi list)"
            )
        also = f" with a CDI specification of {self.cdi_device} (nvidia-ctk cdi list)" if self.cdi_device else ""
        return (
            f"the container runtime did not hand the driver over: is the handler of RuntimeClass {self.runtime_class} "
            f"NVIDIA's runtime on this node{also}, and does nvidia-smi work there?"
        )


NOTHING_SET: Final = Access()


def parse(text: str) -> Access:
    """The variable that the operator sets. A value that is no JSON object of strings counts as nothing set."""
    try:
        values = json.loads(text) if text else {}
    except ValueError:
        return NOTHING_SET
    if not isinstance(values, dict):
        return NOTHING_SET
    names = {"runtime_class": "runtimeClass", "cdi_device": "cdiDevice", "driver_root": "driverRoot"}
    return Access(**{field: str(values.get(name) or "") for field, name in names.items()})


def does_not_start(error: object) -> str:
    """What to say when NvmlInit fails although the pod can open the driver's nodes."""
    return f"NVML does not start: {error}. The agent's pod can open the driver's nodes: {_TRY}"
