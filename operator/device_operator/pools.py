"""Which node belongs to which pool, and whether an object may be accepted beside the others. Pure.

A generation is judged against the nodes and objects of the moment. Once accepted it stays so: nodes that come to
overlap later are told by `assignment` and degrade the object, because one mislabelled node must not freeze a fleet.
A rejected generation is judged again at every pass, so that a mended label or a deleted rival lets it in.
What an object runs counts as its own beside what its spec says: a refused or paused edit changes no agent.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Final

from device_operator import scheduling
from device_operator.errors import InvalidSpecError
from device_operator.model import DaemonSetView, Identity, InventoryView, NodeView, OtherConfig
from device_operator.spec import Pool, Spec

INVALID_SPEC: Final = "InvalidSpec"
POOL_OVERLAP: Final = "PoolOverlap"
RESOURCE_CONFLICT: Final = "ResourceConflict"
DEVICE_CONFLICT: Final = "DeviceConflict"

_HARDWARE: Final = re.compile(
    r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
)
"""Ids that are one piece of hardware whoever reports them: UUIDs of NVIDIA devices, PCI addresses."""
NAMED_NODES: Final = 5
"""Nodes that a message names; the others are counted."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """One node that is wanted twice. `reason`: PoolOverlap, ResourceConflict or DeviceConflict.

    `pool`: ours that the node belongs to all the same. `rival`: the other pool of this object, or the other object.
    `resources`: what both would serve, for a conflict of names; of devices, under which names both offer them.
    `reported`: by agents, not as written. `device`: one of those that both offer.
    """

    node: str
    reason: str
    pool: str
    rival: str
    resources: tuple[str, ...] = ()
    reported: bool = False
    device: str = ""


@dataclass(frozen=True, slots=True)
class Assignment:
    """`nodes`: pool name -> names of its nodes, sorted; a node that two pools match is the first one's."""

    nodes: Mapping[str, tuple[str, ...]]
    overlaps: tuple[Overlap, ...] = ()


@dataclass(frozen=True, slots=True)
class Accepted:
    spec: Spec


@dataclass(frozen=True, slots=True)
class Rejected:
    """`reason`: InvalidSpec, PoolOverlap or ResourceConflict."""

    reason: str
    message: str

    @classmethod
    def invalid(cls, error: InvalidSpecError) -> "Rejected":
        return cls(INVALID_SPEC, str(error))


def matches(pool: Pool, node: NodeView) -> bool:
    """Whether the pool's DaemonSet would place a pod on the node, taints aside."""
    return node.os == "linux" and scheduling.selects(
        selector=pool.node_selector, terms=pool.node_selector_terms, name=node.name, labels=node.labels
    )


def running(daemonsets: Iterable[DaemonSetView]) -> Spec | None:
    """What an object's DaemonSets stand for, as far as pools go (`resources` is empty); None: there are none."""
    views = sorted(daemonsets, key=lambda view: view.pool)
    if not views:
        return None
    pools = (Pool(v.pool, node_selector_terms=v.terms, tolerations=v.tolerations, serves=v.serves) for v in views)
    return Spec(resources=(), pools=tuple(pools), max_unavailable=views[0].max_unavailable)


def accept(
    identity: Identity,
    spec: Spec,
    *,
    nodes: Iterable[NodeView],
    others: Iterable[OtherConfig],
    created: datetime,
    already: bool,
) -> Accepted | Rejected:
    """Judges a generation.

    `already`: this generation was accepted before (`status.was_accepted`), which is never taken back.
    `created`: of this object; between two objects that are both new the older one wins.
    """
    if already:
        return Accepted(spec)
    order = (created, identity.name)
    earlier = [replace(o, accepted=True) if o.accepted is None and (o.created, o.name) < order else o for o in others]
    found = assignment(spec, nodes=nodes, others=earlier)
    for reason in (POOL_OVERLAP, RESOURCE_CONFLICT):
        hits = [overlap for overlap in found.overlaps if overlap.reason == reason]
        if hits:
            return Rejected(reason, describe(hits))
    return Accepted(spec)


def assignment(spec: Spec, *, nodes: Iterable[NodeView], others: Iterable[OtherConfig]) -> Assignment:
    """The nodes of each pool, with every overlap there is now.

    `others` count with what they run, and with their spec once it is accepted.
    """
    rivals = [(o.name, pool) for o in others for pool in _held(o)]
    taken: dict[str, list[str]] = {pool.name: [] for pool in spec.pools}
    overlaps: list[Overlap] = []
    for node in sorted(nodes, key=lambda n: n.name):
        ours = [pool for pool in spec.pools if matches(pool, node)]
        if not ours:
            continue
        first = ours[0]
        taken[first.name].append(node.name)
        overlaps += (Overlap(node.name, POOL_OVERLAP, first.name, pool.name) for pool in ours[1:])
        met: dict[Overlap, None] = {}  # what is accepted and what runs are the same most of the time
        for other, pool in rivals:
            shared = tuple(name for name in first.serves if name in pool.serves)
            if shared and matches(pool, node):
                met[Overlap(node.name, RESOURCE_CONFLICT, first.name, other, shared)] = None
        overlaps += met
    return Assignment({name: tuple(found) for name, found in taken.items()}, tuple(overlaps))


def _held(other: OtherConfig) -> tuple[Pool, ...]:
    accepted = other.spec.pools if other.accepted and other.spec is not None else ()
    return (*accepted, *other.running)


def with_reported(
    assigned: Assignment,
    *,
    others: Iterable[OtherConfig],
    on_node: Callable[[str], Iterable[InventoryView]],
    mine: Identity,
    agents_of: Callable[[str], Container[str | None]],
) -> Assignment:
    """With the conflicts that no written name shows: what placeholders came to on a node may be another's name.

    The kubelet keeps the agent that registers last, and tells neither of them. Nor does anybody stop two objects that
    offer one device under two names: agents know nothing of each other's devices. `on_node`: inventories of all objects
    on a node; `agents_of`: nodes on which the object of that name has a pod, because an inventory stays for a while
    after its agent.
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
    """Id -> resource of the devices that pods may get, as far as the id tells which piece of hardware it is."""
    return {
        d["id"]: d.get("resource", "")
        for d in inventory.status.get("devices") or ()
        if d.get("health") != "Unhealthy" and _HARDWARE.fullmatch(d["id"])
    }


def describe(overlaps: Iterable[Overlap]) -> str:
    """One sentence for each pair of rivals, with how to mend it; up to five nodes are named."""
    groups: defaultdict[tuple[str, str, str, tuple[str, ...]], list[Overlap]] = defaultdict(list)
    for o in overlaps:
        groups[o.reason, o.pool, o.rival, o.resources].append(o)
    return "; ".join(_sentence(*key, found) for key, found in groups.items())


def _sentence(reason: str, pool: str, rival: str, resources: tuple[str, ...], found: list[Overlap]) -> str:
    where = name_nodes(o.node for o in found)
    if reason == DEVICE_CONFLICT:
        return (
            f"DevicePluginConfig {rival} offers devices that pool {pool} offers too, on {where}, such as "
            f"{found[0].device}, as {_some(resources)}: a pod may get what another one holds; put such devices into "
            "one object, keep them apart by include and exclude, or make the pools exclude each other"
        )
    if reason == POOL_OVERLAP:
        return (
            f"pools {pool} and {rival} both match {where}: a node may belong to one pool of an object; "
            "make their nodeSelector or nodeSelectorTerms exclude each other"
        )
    return (
        f"DevicePluginConfig {rival} serves {_some(resources)} on {where}, which pool {pool} matches too: "
        "a resource may be served by one object on a node; rename the resource, or make the pools exclude each other"
    )


def name_nodes(nodes: Iterable[str]) -> str:
    """`node a`, `nodes a, b`, or `nodes a, b, c, d, e and 7 more`."""
    found = sorted(set(nodes))
    return f"node{'s' if len(found) > 1 else ''} {_some(found)}"


def _some(names: Iterable[str]) -> str:
    found = list(names)
    more = len(found) - NAMED_NODES
    return ", ".join(found[:NAMED_NODES]) + (f" and {more} more" if more > 0 else "")
