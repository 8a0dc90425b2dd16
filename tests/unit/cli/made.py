"""Objects as the API server has them, for tests of the pure parts."""

from typing import Any

from device_agent.contract.inventory import InventoryDevice, InventoryHolder
from device_agent.contract.reasons import DeviceHealth
from kubectl_devices.model.fleet import Device, Inventory, read_inventory


def raw_inventory(node: str = "n1", config: str = "lab", **more: Any) -> dict[str, Any]:
    """`devices`: as in the status; `cordoned`, `annotations`: as in the object; the rest are fields of the status."""
    meta = {"name": f"{config}.{node}", "resourceVersion": "7", "annotations": more.pop("annotations", {})}
    spec = {"nodeName": node, "configName": config, "cordoned": more.pop("cordoned", [])}
    devices = [{"resource": "example.com/lab", "health": "Healthy", **d} for d in more.pop("devices", [])]
    status = {"poolName": "default", "agentVersion": "1", "devices": devices, **more}
    return {"metadata": meta, "spec": spec, "status": status}


def inventory(node: str = "n1", config: str = "lab", **more: Any) -> Inventory:
    return read_inventory(raw_inventory(node, config, **more))


def device(id: str, *, node: str = "n1", config: str = "lab", pods: tuple[str, ...] = (), **facts: Any) -> Device:  # noqa: A002
    given = {"resource": "example.com/lab", "health": DeviceHealth.HEALTHY, **facts}
    holders = tuple(InventoryHolder("default", name, "main") for name in pods)
    return Device(
        node=node,
        config=config,
        inventory=f"{config}.{node}",
        facts=InventoryDevice(id=id, allocated_to=holders, **given),
    )
