"""What is missing although the spec asks for it: resources without devices, pools without nodes, lost nodes. Pure.

A resource or pool with `mayBeEmpty` is never missing.
"""

import difflib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from device_agent.contract.config_reasons import ConditionReason
from device_agent.contract.document import Resource
from device_agent.contract.inventory import InventoryStatus
from device_agent.contract.node_reasons import NodeReason
from device_agent.contract.reasons import ExclusionReason, Withheld

from device_operator.spec.model import Pool, Spec
from device_operator.spec.placement import Assignment, NodeView
from device_operator.spec.wording import name_nodes, name_some
from device_operator.status.nodes import NodeReport
from device_operator.status.observed import InventoryView
from device_operator.status.situation import Fault, on_its_way

_ASIDE = (ExclusionReason.EXCLUDED, ExclusionReason.OWNED_BY_EARLIER_ENTRY, ExclusionReason.MAX_DEVICES)
"""Reasons that the spec asks for. They explain an empty resource less than others do."""


def gaps(
    spec: Spec,
    *,
    reports: Sequence[NodeReport],
    nodes: Sequence[NodeView],
    assigned: Assignment,
    lost: Sequence[InventoryView],
) -> list[Fault]:
    """The faults, the most urgent first. `nodes`: all of the cluster; `lost`: by `lost_nodes`."""
    return [*_lost(lost), *_without_nodes(spec, nodes, assigned), *_without_devices(spec, reports)]


def lost_nodes(
    nodes: Iterable[NodeView], inventories: Iterable[InventoryView], assigned: Assignment
) -> tuple[InventoryView, ...]:
    """Inventories of nodes that no pool matches any more, while pods hold devices there. No agent watches these."""
    matched = {name for names in assigned.nodes.values() for name in names}
    left = {node.name for node in nodes if not node.deleting} - matched
    return tuple(
        inventory
        for inventory in inventories
        if inventory.node in left and inventory.status is not None and inventory.status.totals.allocated
    )


def _lost(lost: Sequence[InventoryView]) -> Iterator[Fault]:
    by_pool: defaultdict[str, list[InventoryView]] = defaultdict(list)
    for inventory in lost:
        by_pool[inventory.status.pool_name if inventory.status else ""].append(inventory)
    for pool, found in sorted(by_pool.items()):
        pods = sorted({pod for inventory in found for pod in _pods(inventory)})
        yield Fault(
            ConditionReason.NODES_LOST,
            f"{name_nodes(i.node for i in found)} left pool {pool} while pods hold devices there"
            f"{f' ({name_some(pods)})' if pods else ''}, and no agent watches them: give the node its labels back, or "
            f"end these pods and then kubectl delete ndi {name_some(sorted(i.name for i in found))}",
        )


def _pods(inventory: InventoryView) -> Iterator[str]:
    for device in inventory.status.devices if inventory.status else ():
        for holder in device.allocated_to:
            yield f"{holder.namespace}/{holder.pod}"


def _without_nodes(spec: Spec, nodes: Sequence[NodeView], assigned: Assignment) -> Iterator[Fault]:
    twice = {o.rival for o in assigned.overlaps if o.reason is ConditionReason.POOL_OVERLAP}
    for pool in spec.pools:
        if not (assigned.nodes.get(pool.name) or pool.may_be_empty or pool.name in twice):
            why = _with_cure(f"pool {pool.name} has no node: {why_no_node(pool, nodes)}", "correct the pool")
            yield Fault(ConditionReason.NO_NODES, why)


def _with_cure(why: str, cure: str) -> str:
    """`why` may end with a question."""
    cure = f"{cure}, or set its mayBeEmpty: true"
    return f"{why} {cure[0].upper()}{cure[1:]}" if why.endswith("?") else f"{why}; {cure}"


def why_no_node(pool: Pool, nodes: Sequence[NodeView]) -> str:
    """The first label of the selector that no node has, and the label that may be meant."""
    values: defaultdict[str, set[str]] = defaultdict(set)
    for node in nodes:
        for key, value in node.labels.items():
            values[key].add(value)
    for key, value in pool.node_selector.items():
        if key not in values:
            return f"no node has the label {key}{_meant(key, values)}"
        if value not in values[key]:
            near = _near(value, values[key])
            return f"no node has the label {key}={value}{f': did you mean {key}={near}?' if near else ''}"
    if not nodes:
        return "the cluster has no node"
    return "no Linux node matches its nodeSelector and nodeSelectorTerms together"


def _meant(text: str, known: Iterable[str]) -> str:
    near = _near(text, known)
    return f": did you mean {near}?" if near else ""


def _near(text: str, known: Iterable[str]) -> str:
    by_folded = {name.casefold(): name for name in sorted(known)}
    near = difflib.get_close_matches(text.casefold(), list(by_folded), n=1, cutoff=0.7)
    return by_folded[near[0]] if near else ""


def _without_devices(spec: Spec, reports: Sequence[NodeReport]) -> Iterator[Fault]:
    """An entry that no node of any pool finds, once every node that counts has looked with the spec in force."""
    by_pool: defaultdict[str, list[NodeReport]] = defaultdict(list)
    for report in reports:
        by_pool[report.pool].append(report)
    with_devices = {entry for r in reports if r.reported for entry in found_entries(_status(r))}
    explained = {entry for r in reports if r.reported for entry in _explained(_status(r))}
    for entry in spec.resources:
        if entry.may_be_empty or entry.name in with_devices or entry.name in explained:
            continue
        nodes = [r for pool in spec.pools if entry.name in pool.serves for r in by_pool[pool.name]]
        counted = [r for r in nodes if r.settled] or [r for r in nodes if r.young]
        looked = [r for r in counted if r.reported]
        uncertain = any(_will_look(r) for r in counted) or any(_status(r).resources_omitted for r in nodes)
        if looked and not uncertain:
            yield Fault(ConditionReason.NOTHING_FOUND, _nothing(entry, looked))


def all_withheld(spec: Spec, reports: Iterable[NodeReport]) -> Fault | None:
    """The first entry of which no node offers a device, because all are withheld by plan."""
    held: defaultdict[str, list[NodeReport]] = defaultdict(list)
    offered: set[str] = set()
    for report in reports:
        for r in _status(report).resources:
            if r.devices > r.withheld:
                offered.add(r.entry_name)
            elif r.devices:
                held[r.entry_name].append(report)
    for entry in spec.resources:
        if entry.name in held and entry.name not in offered and not entry.may_be_empty:
            return Fault(ConditionReason.ALL_WITHHELD, _withheld(entry.name, held[entry.name]))
    return None


def _withheld(entry: str, reports: Sequence[NodeReport]) -> str:
    names = {r.name for report in reports for r in _status(report).resources if r.entry_name == entry}
    devices = [d for report in reports for d in _status(report).devices if d.resource in names and d.withheld]
    words = Counter(d.withheld for d in devices).most_common()
    text = f"no device of {entry} is offered on {name_nodes(r.name for r in reports)}"
    if not devices:
        return f"{text}: all are withheld"
    first = next(d for d in devices if d.withheld == words[0][0])
    cure = "; kubectl devices uncordon ends a cordon" if first.withheld == Withheld.CORDONED else ""
    return f"{text}: {', '.join(f'{number} {word}' for word, number in words)}; {first.id}: {first.message}{cure}"


def _will_look(report: NodeReport) -> bool:
    return not report.reported and (on_its_way(report) or (report.served and report.reason != NodeReason.CONFIG_ERROR))


def _status(report: NodeReport) -> InventoryStatus:
    return report.inventory.status if report.inventory and report.inventory.status else InventoryStatus()


def found_entries(status: InventoryStatus) -> Iterator[str]:
    """The entries with devices, whatever their health. What is draining was found for an earlier spec."""
    draining: Mapping[str, int] | None = None
    for r in status.resources:
        if r.devices > r.withheld:
            yield r.entry_name
        elif r.devices:
            if draining is None:
                draining = Counter(d.resource for d in status.devices if d.withheld == Withheld.DRAINING)
            if r.devices > draining[r.name]:
                yield r.entry_name


def _explained(status: InventoryStatus) -> Iterator[str]:
    """The entries whose nodes have a reason of their own, such as DriverUnavailable."""
    return (r.entry_name for r in status.resources if r.reason)


def _nothing(entry: Resource, looked: Sequence[NodeReport]) -> str:
    """The message of most nodes. One that has a suggestion comes first."""
    told = Counter(text for r in looked if (text := _told(entry.name, _status(r))))
    common = sorted(told.items(), key=lambda item: ("did you mean" not in item[0], -item[1], item[0]))
    why = f": {common[0][0]}" if common else ""
    return _with_cure(f"{entry.name} finds nothing on {name_nodes(r.name for r in looked)}{why}", "correct the entry")


def _told(entry: str, status: InventoryStatus) -> str:
    """Why the node has no device of the entry, as its agent says."""
    mine = [e for e in status.excluded if e.entry == entry]
    nothing = [e.message for e in mine if e.reason == ExclusionReason.NOTHING_FOUND]
    if nothing:
        return "; ".join(nothing)
    left_out = sorted(mine, key=lambda e: e.reason in _ASIDE)
    return f"what it finds is left out: {left_out[0].reason}: {left_out[0].message}" if left_out else ""
