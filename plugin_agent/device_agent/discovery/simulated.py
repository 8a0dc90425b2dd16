"""Devices without hardware, to try out a configuration. They are the same on every scan and boot."""

import hashlib

from device_agent.contract.attributes import SIMULATED
from device_agent.contract.document import DeviceEntry
from device_agent.contract.reasons import DeviceReason
from device_agent.select.found import FoundDevice


class SimulatedDevices:
    """The source `simulated`.

    Names depend on the entry: the kubelet looks devices up by their id alone, over all resources of the node (kubelet
    pkg/kubelet/cm/devicemanager/pod_devices.go).
    """

    def scan(self, entry: DeviceEntry, *, owner: str, wanted: frozenset[str]) -> tuple[FoundDevice, ...]:  # noqa: ARG002 no files
        source = entry.simulated
        assert source is not None
        prefix = f"sim-{hashlib.sha256(owner.encode()).hexdigest()[:6]}"
        unhealthy = frozenset(source.unhealthy)
        found = []
        for index in range(source.count):
            name = f"{prefix}-{index}"
            numa = index * source.numa_nodes // source.count if source.numa_nodes else None
            values = {"name": name, "index": str(index)}
            if numa is not None:
                values["numaNode"] = str(numa)
            problem = (DeviceReason.SIMULATED_FAULT, f"index {index} is listed in simulated.unhealthy")
            found.append(
                FoundDevice(
                    source=SIMULATED,
                    name=name,
                    sysfs_path=None,
                    attributes=values,
                    numa_node=numa,
                    problem=problem if index in unhealthy else None,
                    stable_name=True,
                )
            )
        return tuple(found)

    def nothing(self, entry: DeviceEntry) -> str:  # noqa: ARG002 a count of 0 is what was asked for
        return ""
