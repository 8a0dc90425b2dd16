"""Who holds what: devices to pods and pods to devices. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from device_agent.contract.inventory import InventoryHolder
from device_agent.discovery.likeness import meant

from kubectl_devices.model import filters
from kubectl_devices.model.fleet import Device


@dataclass(frozen=True, slots=True)
class Holding:
    device: Device
    holder: InventoryHolder


def holdings(devices: Iterable[Device]) -> tuple[Holding, ...]:
    """Every container that holds one of the devices."""
    return tuple(Holding(device, holder) for device in devices for holder in device.holders)


def of_pod(devices: Iterable[Device], namespace: str, pod: str) -> tuple[Holding, ...]:
    found = holdings(devices)
    return tuple(h for h in found if (h.holder.namespace, h.holder.pod) == (namespace, pod))


def of_device(devices: Iterable[Device], name: str, *, node: str) -> tuple[Device, ...]:
    """The devices that `name` means, on every node or on one."""
    return filters.named((d for d in devices if node in ("", d.node)), name)


def why_nothing(pod: Mapping[str, Any], *, resources: Iterable[str]) -> str:
    """Why a pod that exists holds no device. `resources`: the names that are served somewhere."""
    served = set(resources)
    limits = sorted(
        name
        for part in ("initContainers", "containers")
        for container in pod["spec"].get(part) or ()
        for name in container.get("resources", {}).get("limits", {})
    )
    asked = [name for name in limits if name in served]
    if unknown := [name for name in limits if name not in served and "/" in name]:
        return f"it asks for {unknown[0]}, which no DevicePluginConfig serves{meant(unknown, sorted(served))}"
    if not asked:
        return "it asks for no device: none of its containers has a limit for one"
    status = pod.get("status", {})
    phase = status.get("phase", "")
    if phase in ("Succeeded", "Failed"):
        why = f", {status['reason']}" if status.get("reason") else ""
        return f"it has ended ({phase}{why})"
    if not pod["spec"].get("nodeName"):
        waits = [c.get("message", "") for c in status.get("conditions") or () if c.get("type") == "PodScheduled"]
        return f"it waits for a node with {', '.join(asked)}: {next(filter(None, waits), 'it is not scheduled yet')}"
    return f"its node {pod['spec']['nodeName']} has not reported it yet; try again in a few seconds"
