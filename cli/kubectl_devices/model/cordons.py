"""Which cordons of which inventories a command changes. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from device_agent.contract.inventory import ALL_DEVICES

from kubectl_devices import errors
from kubectl_devices.model import filters
from kubectl_devices.model.fleet import Device, Inventory

Items = tuple[Mapping[str, Any], ...]
"""`spec.cordoned` of an inventory."""


@dataclass(frozen=True, slots=True)
class Target:
    """The ids to cordon in one inventory."""

    inventory: str
    ids: tuple[str, ...]


def to_cordon(
    inventories: Iterable[Inventory], *, node: str, devices: Collection[str], everything: bool, config: str
) -> tuple[Target, ...]:
    """Where to write. A cordon is of the hardware, so a device of two configurations is cordoned in the first.

    Raises:
        errors.CliError: the node has no such device, or no inventory.
    """
    there = _of_node(inventories, node, config)
    if everything:
        return tuple(Target(i.name, (ALL_DEVICES,)) for i in there)
    wanted: dict[str, list[str]] = {}
    listed = [d for i in there for d in i.devices]
    for name in devices:
        found = filters.one_node(listed, name, node=node, config=config)
        first = found[0]
        ids = wanted.setdefault(first.inventory, [])
        if first.id not in ids:
            ids.append(first.id)
    return tuple(Target(name, tuple(ids)) for name, ids in wanted.items())


def to_uncordon(
    inventories: Iterable[Inventory], *, node: str, devices: Collection[str], everything: bool, config: str
) -> tuple[Target, ...]:
    """Every inventory of the node that has one of the cordons, also of a device that is gone.

    Raises:
        errors.CliError: a device is not cordoned there.
    """
    there = _of_node(inventories, node, config)
    if everything:
        return tuple(Target(i.name, tuple(c["id"] for c in i.cordoned)) for i in there if i.cordoned)
    wanted: dict[str, list[str]] = {}
    for name in devices:
        found = [(i.name, c["id"]) for i in there for c in i.cordoned if c["id"] in _ids(i, name)]
        if not found:
            raise errors.CliError(f"{name} is not cordoned on {node}; {_cordoned_there(there)}")
        for inventory, device in found:
            wanted.setdefault(inventory, []).append(device)
    return tuple(Target(name, tuple(ids)) for name, ids in wanted.items())


def added(items: Items, ids: Iterable[str], *, reason: str) -> Items:
    """With a cordon of each id. The reason of one that is there already is replaced, if a reason is given."""
    kept = list(items)
    for device in ids:
        entry = {"id": device, **({"reason": reason} if reason else {})}
        place = next((n for n, item in enumerate(kept) if item["id"] == device), None)
        if place is None:
            kept.append(entry)
        elif reason:
            kept[place] = entry
    return tuple(kept)


def removed(items: Items, ids: Collection[str]) -> Items:
    return tuple(item for item in items if item["id"] not in ids)


def targeted(inventories: Iterable[Inventory], targets: Iterable[Target]) -> tuple[Device, ...]:
    """The devices that the cordons withhold, under every resource name that they have in these inventories."""
    ids = {t.inventory: t.ids for t in targets}
    return tuple(
        device
        for inventory in inventories
        for device in inventory.devices
        if device.id in ids.get(inventory.name, ()) or ALL_DEVICES in ids.get(inventory.name, ())
    )


def _ids(inventory: Inventory, name: str) -> frozenset[str]:
    return frozenset({name, *(d.id for d in filters.named(inventory.devices, name))})


def _of_node(inventories: Iterable[Inventory], node: str, config: str) -> tuple[Inventory, ...]:
    every = tuple(inventories)
    there = tuple(sorted((i for i in every if i.node == node and config in ("", i.config)), key=lambda i: i.config))
    if not there:
        nodes = ", ".join(sorted({i.node for i in every})[:8]) or "none"
        of = f" of {config}" if config else ""
        raise errors.CliError(f"there is no inventory{of} for node {node}; nodes with an inventory: {nodes}")
    return there


def _cordoned_there(inventories: Iterable[Inventory]) -> str:
    ids = [c["id"] for i in inventories for c in i.cordoned]
    return f"cordoned there: {', '.join(ids)}" if ids else "nothing is"
