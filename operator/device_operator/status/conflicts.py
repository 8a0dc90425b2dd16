"""Conflicts between two objects on one node that only the reports of their agents show. Pure."""

import re
from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from functools import cache
from typing import Final

from device_operator.spec.model import ConfigRef
from device_operator.spec.placement import (
    DEVICE_CONFLICT,
    RESOURCE_CONFLICT,
    Assignment,
    OtherConfig,
    Overlap,
)
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

    The kubelet keeps the agent that registers last, and tells neither of the two. Nothing stops two objects from
    offering one device under two names either. `on_node`: inventories of all objects on a node. `agents_of`: nodes on
    which the object of that name has a pod; an inventory stays for a while after its agent has gone.
    """
    agents_of = cache(agents_of)
    names_of = {o.uid: o.name for o in others}
    told = {(o.node, o.rival, r) for o in assigned.overlaps if o.reason == RESOURCE_CONFLICT for r in o.resources}
    found: list[Overlap] = []
    for pool, nodes in assigned.nodes.items():
        for node in nodes:
            seen = {i.owner_uid: i for i in on_node(node)}
            if len(seen) < 2 or mine.uid not in seen:
                continue
            my_inventory = seen.pop(mine.uid)
            ours, my_devices = _entries(my_inventory), offered_hardware(my_inventory)
            for uid, inventory in sorted(seen.items(), key=lambda item: item[1].config):
                rival = names_of.get(uid)
                if rival is None:
                    continue
                if node not in agents_of(rival) or node not in agents_of(mine.name):
                    continue
                both = sorted(ours.keys() & _entries(inventory).keys())
                both = [name for name in both if (node, rival, ours[name]) not in told]
                if both:
                    found.append(Overlap(node, RESOURCE_CONFLICT, pool, rival, tuple(both), reported=True))
                theirs = offered_hardware(inventory) if my_devices else {}
                same = sorted(id_ for id_ in my_devices.keys() & theirs.keys() if my_devices[id_] != theirs[id_])
                if same:
                    as_what = tuple(sorted({name for id_ in same for name in (my_devices[id_], theirs[id_])}))
                    found.append(Overlap(node, DEVICE_CONFLICT, pool, rival, as_what, reported=True, device=same[0]))
    return replace(assigned, overlaps=(*assigned.overlaps, *found))


def _entries(inventory: InventoryView) -> dict[str, str]:
    """Name -> entry of the resources that have devices."""
    return {r["name"]: r.get("entry", r["name"]) for r in inventory.status.get("resources") or () if r.get("devices")}


def offered_hardware(inventory: InventoryView) -> dict[str, str]:
    """Id -> resource of the devices that pods may get; only ids that name a piece of hardware."""
    return {
        d["id"]: d.get("resource", "")
        for d in inventory.status.get("devices") or ()
        if d.get("health") != "Unhealthy" and _HARDWARE.fullmatch(d["id"])
    }
