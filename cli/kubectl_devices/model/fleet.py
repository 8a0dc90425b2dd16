"""All devices of all nodes: from the inventories, or where these are not readable, from the status of the
configurations. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from device_agent.contract.codec import ShapeError
from device_agent.contract.inventory import InventoryDevice, InventoryHolder, InventoryStatus, read_status
from device_agent.contract.reasons import DeviceHealth
from device_agent.contract.status import NodeDevice, read_config_status

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One physical device under one resource name on one node. `inventory`: its name, '' if it was not readable."""

    node: str
    config: str
    inventory: str = ""
    facts: InventoryDevice

    @property
    def id(self) -> str:
        return self.facts.id

    @property
    def resource(self) -> str:
        return self.facts.resource

    @property
    def holders(self) -> tuple[InventoryHolder, ...]:
        return self.facts.allocated_to

    @property
    def offer(self) -> str:
        """Yes, or in one word why not."""
        if self.facts.withheld:
            return self.facts.withheld
        return "Yes" if self.facts.offered and self.facts.health is not DeviceHealth.UNHEALTHY else "No"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """One NodeDeviceInventory. `status` None: no agent has written it, or it is `unreadable`."""

    name: str
    node: str
    config: str
    status: InventoryStatus | None
    cordoned: tuple[Mapping[str, str], ...] = ()
    unreadable: str = ""
    version: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def devices(self) -> tuple[Device, ...]:
        listed = self.status.devices if self.status else ()
        return tuple(Device(node=self.node, config=self.config, inventory=self.name, facts=d) for d in listed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """`remarks`: what is missing here, one line each."""

    devices: tuple[Device, ...]
    remarks: tuple[str, ...] = ()


def read_inventory(raw: Object) -> Inventory:
    meta, spec = raw["metadata"], raw.get("spec", {})
    status, unreadable = None, ""
    if raw.get("status"):
        try:
            status = read_status(raw["status"])
        except ShapeError as error:
            unreadable = str(error)
    return Inventory(
        name=meta["name"],
        node=spec.get("nodeName", ""),
        config=spec.get("configName", ""),
        status=status,
        cordoned=tuple(spec.get("cordoned") or ()),
        unreadable=unreadable,
        version=meta.get("resourceVersion", ""),
        annotations=meta.get("annotations", {}),
    )


def from_inventories(inventories: Iterable[Inventory]) -> Fleet:
    """In the order of nodes, configurations, and of each inventory."""
    devices: list[Device] = []
    remarks: list[str] = []
    for inventory in sorted(inventories, key=lambda i: (i.node, i.config)):
        devices += inventory.devices
        remarks += _remarks(inventory)
    return Fleet(devices=tuple(devices), remarks=tuple(remarks))


def _remarks(inventory: Inventory) -> Iterable[str]:
    status = inventory.status
    if inventory.unreadable:
        yield f"{inventory.name} cannot be read: {inventory.unreadable}; use a plugin of the agents' release"
    elif status is None:
        yield f"{inventory.name} has no status yet: its agent has not reported"
    elif status.devices_omitted:
        yield f"{inventory.name} lists {len(status.devices)} devices; {status.devices_omitted} more did not fit"
    elif status.holders_omitted:
        yield f"{inventory.name} does not list all holders; {status.holders_omitted} more did not fit"


def from_configs(configs: Iterable[Object]) -> Fleet:
    """What the status of the DevicePluginConfigs has: less detail, and at most two holders of each device."""
    devices: list[Device] = []
    remarks: list[str] = []
    for raw in sorted(configs, key=lambda c: str(c["metadata"]["name"])):
        name = raw["metadata"]["name"]
        status = read_config_status(raw.get("status"))
        devices += (
            Device(node=node.name, config=name, facts=_facts(device))
            for node in status.nodes
            for device in node.devices
        )
        if status.nodes_omitted or status.devices_omitted:
            remarks.append(
                f"the status of {name} leaves out {status.nodes_omitted} nodes and {status.devices_omitted} devices; "
                "with the right to list nodedeviceinventories.device-operator.io all are shown"
            )
    return Fleet(devices=tuple(sorted(devices, key=lambda d: d.node)), remarks=tuple(remarks))


def _facts(device: NodeDevice) -> InventoryDevice:
    known = device.health in list(DeviceHealth)
    health = DeviceHealth(device.health) if known else DeviceHealth.UNKNOWN  # type: ignore[call-arg]
    return InventoryDevice(
        id=device.id,
        resource=device.resource,
        health=health,
        offered=health is not DeviceHealth.UNHEALTHY and not device.withheld,
        reason=device.reason,
        withheld=device.withheld,
        allocated_to=device.allocated_to,
    )
