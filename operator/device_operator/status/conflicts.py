"""Finds conflicts between two objects on one node that the specs do not show, from the reports of agents. Pure."""

import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from device_agent.contract.config_reasons import ConditionReason

from device_operator.spec.model import ConfigRef
from device_operator.spec.placement import Assignment, OtherConfig, Overlap
from device_operator.status.observed import InventoryView

_HARDWARE: Final = re.compile(
    r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
)
"""Ids that name one piece of hardware in every report: UUIDs of NVIDIA devices, PCI addresses."""


def with_reported(
    assigned: Assignment,
    *,
    others: Iterable[OtherConfig],
    on_node: Callable[[str], Iterable[InventoryView]],
    mine: ConfigRef,
    agents_of: Callable[[str], Container[str | None]],
) -> Assignment:
    """Adds the conflicts that the specs do not show: a name with placeholders may be the name of another object.

    The kubelet keeps the agent that registers last, and tells neither agent. Two objects may also offer one device
    under two names. `on_node`: inventories of all objects on a node. `agents_of`: nodes on which the object of that
    name has a pod. An inventory alone does not show that, because it stays for a while after its agent. A node is
    `unchecked` if an inventory does not list all devices and no conflict was found.
    """
    agents_of = cache(agents_of)
    names_of = {o.uid: o.name for o in others}
    told = {
        (o.node, o.rival, r)
        for o in assigned.overlaps
        if o.reason is ConditionReason.RESOURCE_CONFLICT
        for r in o.resources
    }
    found: list[Overlap] = []
    unchecked: set[str] = set()
    for pool, nodes in assigned.nodes.items():
        for node in nodes:
            seen = {i.owner_uid: i for i in on_node(node)}
            if len(seen) < 2 or mine.uid not in seen:
                continue
            my_inventory = seen.pop(mine.uid)
            ours, mine_here = _entries(my_inventory), offered_hardware(my_inventory)
            for uid, inventory in sorted(seen.items(), key=lambda item: item[1].config):
                rival = names_of.get(uid)
                if rival is None:
                    continue
                if node not in agents_of(rival) or node not in agents_of(mine.name):
                    continue
                if conflict := _resource_conflict(node, pool, rival, ours=ours, theirs=_entries(inventory), told=told):
                    found.append(conflict)
                theirs = offered_hardware(inventory)
                if conflict := _device_conflict(node, pool, rival, mine=mine_here, theirs=theirs):
                    found.append(conflict)
                elif not (mine_here.complete and theirs.complete):
                    unchecked.add(node)
    return replace(assigned, overlaps=(*assigned.overlaps, *found), unchecked=tuple(sorted(unchecked)))


def _resource_conflict(
    node: str,
    pool: str,
    rival: str,
    *,
    ours: Mapping[str, str],
    theirs: Mapping[str, str],
    told: Container[tuple[str, str, str]],
) -> Overlap | None:
    both = sorted(name for name in ours.keys() & theirs.keys() if (node, rival, ours[name]) not in told)
    if not both:
        return None
    return Overlap(node, ConditionReason.RESOURCE_CONFLICT, pool, rival, tuple(both), reported=True)


def _device_conflict(node: str, pool: str, rival: str, *, mine: "Hardware", theirs: "Hardware") -> Overlap | None:
    same = sorted(
        i for i in mine.resources.keys() & theirs.resources.keys() if mine.resources[i] != theirs.resources[i]
    )
    if not same:
        return None
    as_what = tuple(sorted({name for i in same for name in (mine.resources[i], theirs.resources[i])}))
    return Overlap(node, ConditionReason.DEVICE_CONFLICT, pool, rival, as_what, reported=True, device=same[0])


def _entries(inventory: InventoryView) -> dict[str, str]:
    """Name -> entry of the resources that have devices."""
    return {r.name: r.entry_name for r in inventory.status.resources if r.devices} if inventory.status else {}


@dataclass(frozen=True, slots=True)
class Hardware:
    """The hardware that pods may get, as an inventory lists it. `resources`: id -> resource name.

    `complete`: the inventory lists all devices. If False, the agent may offer devices that `resources` lacks.
    """

    resources: Mapping[str, str]
    complete: bool = True


def offered_hardware(inventory: InventoryView) -> Hardware:
    """The devices that pods may get, if their id names a piece of hardware."""
    if inventory.status is None:
        return Hardware({}, complete=not inventory.unreadable)
    return Hardware(
        resources={d.id: d.resource for d in inventory.status.devices if d.offered and _HARDWARE.fullmatch(d.id)},
        complete=not inventory.status.devices_omitted,
    )
