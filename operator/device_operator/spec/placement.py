"""Assigns nodes to pools, and finds the nodes that two pools or two objects want. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from device_agent.contract.reasons import ConditionReason

from device_operator.spec import scheduling
from device_operator.spec.model import Pool, Spec
from device_operator.spec.scheduling import OS_LABEL, Taint
from device_operator.spec.wording import name_nodes, name_some


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """`ready_changed_at`: last transition of the condition Ready; None if the node never reported it.

    `why_not_ready`: in words, for a node that is NotReady.
    """

    name: str
    labels: Mapping[str, str]
    created: datetime
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    ready_changed_at: datetime | None = None
    why_not_ready: str = "its kubelet does not report"
    deleting: bool = False

    @property
    def os(self) -> str:
        """From the label that the scheduler uses. The kubelet always sets it."""
        return self.labels.get(OS_LABEL, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherConfig:
    """Another DevicePluginConfig. `held`: pools of its accepted specs, in force or still running while it is paused.

    `wanted`: pools of the present generation; empty if it was rejected.
    """

    name: str
    uid: str
    created: datetime
    held: tuple[Pool, ...] = ()
    wanted: tuple[Pool, ...] = ()


@dataclass(frozen=True, slots=True)
class Overlap:
    """One node that is wanted twice. `reason`: PoolOverlap, ResourceConflict or DeviceConflict.

    `pool`: the pool of this object to which the node belongs. `rival`: the other pool, or the other object.
    `resources`: for ResourceConflict the names that both serve; for DeviceConflict the names under which they offer
    one device. `reported`: seen in the reports of agents, not in the specs. `device`: an example.
    """

    node: str
    reason: ConditionReason
    pool: str
    rival: str
    resources: tuple[str, ...] = ()
    reported: bool = False
    device: str = ""


@dataclass(frozen=True, slots=True)
class Assignment:
    """`nodes`: pool name -> names of its nodes, sorted. A node that two pools match belongs to the first.

    `unchecked`: nodes with agents of two objects, where not all devices of the two could be compared.
    """

    nodes: Mapping[str, tuple[str, ...]]
    overlaps: tuple[Overlap, ...] = ()
    unchecked: tuple[str, ...] = ()


def matches(pool: Pool, node: NodeView) -> bool:
    """Whether the pool's DaemonSet would place a pod on the node, taints aside."""
    return node.os == "linux" and scheduling.selects(
        selector=pool.node_selector, terms=pool.node_selector_terms, name=node.name, labels=node.labels
    )


def assignment(spec: Spec, *, nodes: Iterable[NodeView], others: Iterable[OtherConfig]) -> Assignment:
    """The nodes of each pool, with every present overlap. For `others` only the held pools count."""
    rivals = [(o.name, pool) for o in others for pool in o.held]
    taken: dict[str, list[str]] = {pool.name: [] for pool in spec.pools}
    overlaps: list[Overlap] = []
    for node in sorted(nodes, key=lambda n: n.name):
        ours = [pool for pool in spec.pools if matches(pool, node)]
        if not ours:
            continue
        first = ours[0]
        taken[first.name].append(node.name)
        overlaps += (Overlap(node.name, ConditionReason.POOL_OVERLAP, first.name, pool.name) for pool in ours[1:])
        met: dict[Overlap, None] = {}  # two specs of one object may have the same pool
        for other, pool in rivals:
            shared = tuple(name for name in first.serves if name in pool.serves)
            if shared and matches(pool, node):
                met[Overlap(node.name, ConditionReason.RESOURCE_CONFLICT, first.name, other, shared)] = None
        overlaps += met
    return Assignment({name: tuple(found) for name, found in taken.items()}, tuple(overlaps))


def describe(overlaps: Iterable[Overlap]) -> str:
    """One sentence for each pair of rivals: which nodes (up to five names), and what to do."""
    groups: defaultdict[tuple[ConditionReason, str, str, tuple[str, ...]], list[Overlap]] = defaultdict(list)
    for o in overlaps:
        groups[o.reason, o.pool, o.rival, o.resources].append(o)
    return "; ".join(_sentence(*key, found) for key, found in groups.items())


def _sentence(reason: ConditionReason, pool: str, rival: str, resources: tuple[str, ...], found: list[Overlap]) -> str:
    where = name_nodes(o.node for o in found)
    if reason is ConditionReason.DEVICE_CONFLICT:
        return (
            f"DevicePluginConfig {rival} and pool {pool} offer the same devices on {where}, such as "
            f"{found[0].device}, as {name_some(resources)}: two pods may get the same device; put such devices "
            "into one object, keep them apart by include and exclude, or make the pools exclude each other"
        )
    if reason is ConditionReason.POOL_OVERLAP:
        return (
            f"pools {pool} and {rival} both match {where}: a node may belong to only one pool of an object; "
            "make their nodeSelector or nodeSelectorTerms exclude each other"
        )
    return (
        f"DevicePluginConfig {rival} serves {name_some(resources)} on {where}, which pool {pool} matches too: "
        "only one object may serve a resource on a node; rename the resource, or make the pools exclude each other"
    )
