"""Who holds what: devices to pods and pods to devices. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from device_agent.contract.inventory import InventoryHolder
from device_agent.contract.reasons import Withheld
from device_agent.discovery.likeness import meant
from device_operator.spec.wording import count

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


def why_nothing(pod: Mapping[str, Any], devices: Collection[Device]) -> str:
    """Why a pod that exists holds no device. `devices`: all of the fleet."""
    status, node = pod.get("status", {}), pod["spec"].get("nodeName")
    asked = sorted(
        name
        for part in ("initContainers", "containers")
        for container in pod["spec"].get(part) or ()
        for name in container.get("resources", {}).get("limits", {})
        if "/" in name
    )
    if not asked:
        return "it asks for no device: none of its containers has a limit for one"
    phase = status.get("phase", "")
    if phase in ("Succeeded", "Failed"):
        why = f", {status['reason']}" if status.get("reason") else ""
        return f"it has ended ({phase}{why})"
    served = {device.resource for device in devices}
    unserved = [_unserved(name, served) for name in asked if name not in served]
    if unserved:
        return "; ".join(unserved)
    if node:
        return f"its node {node} has not reported it yet; try again in a few seconds"
    waits = [c.get("message", "") for c in status.get("conditions") or () if c.get("type") == "PodScheduled"]
    told = [text for name in asked if (text := _none_free(name, devices))]
    told.append(next(filter(None, waits), "it is not scheduled yet"))
    return f"it waits for a node with {', '.join(asked)}: {'; '.join(told)}"


def _unserved(name: str, served: Collection[str]) -> str:
    what = f"it asks for {name}, and no DevicePluginConfig has a device of that name"
    if hint := meant([name], sorted(served)):
        return what + hint
    return f"{what}; kubectl devices list shows the names, kubectl get dpc what is wrong"


def _none_free(name: str, devices: Iterable[Device]) -> str:
    """What keeps pods from all devices of the resource; '' if one is offered that nobody holds."""
    mine = [device for device in devices if device.resource == name]
    offered = [device for device in mine if device.offer == "Yes"]
    if offered:
        held = all(device.holders for device in offered)
        return f"each device of {name} has a holder, which kubectl devices who shows" if held else ""
    ways = Counter(device.facts.withheld or "Unhealthy" for device in mine)
    text = f"none of {count(len(mine), 'device')} of {name} is offered: "
    text += ", ".join(f"{number} {way}" for way, number in sorted(ways.items()))
    cordoned = sorted({device.node for device in mine if device.facts.withheld == Withheld.CORDONED})
    return text + (f"; kubectl devices uncordon {cordoned[0]} --all ends a cordon" if cordoned else "")
