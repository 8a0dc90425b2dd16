"""The complete status of an object, from what is in force and what was observed. Pure.

`nodes` has the state of each node, `conditions` the state of the object. This module counts, and puts the parts
together within a limit of bytes: etcd refuses an object that is too big.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, TypeVar

from device_agent.contract.codec import encode
from device_agent.contract.config_reasons import ConditionReason
from device_agent.contract.document import Resource
from device_agent.contract.inventory import InventoryDevice, InventoryStatus
from device_agent.contract.node_reasons import NodeReason, NodeState
from device_agent.contract.reasons import DeviceHealth
from device_agent.contract.status import (
    ConditionStatus,
    ConditionType,
    ConfigCondition,
    ConfigStatus,
    FleetDevice,
    NodeDevice,
    NodeResource,
    NodeStatus,
    PoolNodes,
    PoolStatus,
    ResourceTotals,
    StatusSummary,
)

from device_operator.render.manifests import Manifest
from device_operator.spec.acceptance import AcceptedState
from device_operator.spec.model import Spec
from device_operator.spec.placement import Assignment, describe
from device_operator.spec.wording import clip, name_nodes, rfc3339
from device_operator.status import conditions
from device_operator.status.emptiness import all_withheld, gaps, lost_nodes
from device_operator.status.faults import failing, faults
from device_operator.status.headline import headline
from device_operator.status.nodes import NodeReport, StatusSettings, node_reports
from device_operator.status.observed import InventoryView, Observed
from device_operator.status.pools import PoolView, as_rendered, pool_views
from device_operator.status.rollout import Rollout
from device_operator.status.situation import BrokenDevices, Computed, Fault, Situation

T = TypeVar("T")

MAX_RESOURCES: Final = 128
MAX_UNHEALTHY: Final = 4096
MAX_NODES: Final = 8192
MAX_DEVICES: Final = 1024
"""Devices of one node. These four limits are the CRD's maxItems. The limit of bytes is almost always reached first."""
MAX_HOLDERS: Final = 2
MAX_HEADLINE: Final = 512
"""Characters of the message beside the one word."""


def compute(
    standing: AcceptedState,
    *,
    observed: Observed,
    previous: ConfigStatus,
    assigned: Assignment,
    manifests: Iterable[Manifest] = (),
    settings: StatusSettings | None = None,
    rollout: Rollout | None = None,
) -> Computed:
    """The complete status.

    `assigned` (`placement.assignment`), `manifests` (`manifests.render`): of the spec in force; empty without one.
    `previous`: the present status. `rollout`: which pools still wait for the spec in force.
    """
    settings = settings or StatusSettings()
    before = previous.by_type
    in_force = standing.in_force
    pools: tuple[PoolView, ...] = ()
    if in_force:
        pools = pool_views(standing.ref, in_force.spec, observed=observed, assigned=assigned, manifests=manifests)
    reports = _reports(standing, pools, observed, assigned, before=before, settings=settings)
    broken = {health: _broken(health, reports) for health in (DeviceHealth.UNHEALTHY, DeviceHealth.UNKNOWN)}
    lost = lost_nodes(observed.nodes, observed.inventories, assigned) if in_force and observed.complete else ()
    situation = Situation(
        standing=standing,
        reports=reports,
        overlaps=assigned.overlaps,
        problems=observed.problems,
        broken=broken,
        devices=sum(i.totals.devices for i in _inventories(reports)),
        previous=before,
        complete=observed.complete,
        applied=as_rendered(pools, observed.daemonsets),
        rollout=rollout,
        gaps=_gaps(in_force.spec, reports, observed, assigned, lost) if in_force else (),
    )
    found = faults(situation)
    concluded = conditions.conclude(situation, found)
    now = rfc3339(observed.now)
    status = ConfigStatus(
        observed_generation=standing.generation,
        last_update_time=now,
        accepted_generation=_accepted_generation(standing, previous),
        earlier_spec=standing.earlier,
        summary=_with_headline(
            _summary(reports, broken[DeviceHealth.UNHEALTHY], lost),
            headline(found, concluded, withheld=lambda: all_withheld(in_force.spec, reports) if in_force else None)
            if observed.complete
            else _told_before(previous),
        ),
        conditions=conditions.with_times(concluded, previous=before, standing=standing, now=now),
        pools=tuple(_pool(pool, reports, assigned, rollout) for pool in pools),
    )
    totals = _resources(reports, in_force.spec.resources if in_force else (), lost)
    filled = _filled(status, reports, totals, broken[DeviceHealth.UNHEALTHY], limit=settings.max_bytes)
    if not observed.complete:
        return Computed(filled, (), ())
    return Computed(filled, tuple(fault.reason for fault in found), tuple(failing(situation)))


def _reports(
    standing: AcceptedState,
    pools: Iterable[PoolView],
    observed: Observed,
    assigned: Assignment,
    *,
    before: Mapping[str, ConfigCondition],
    settings: StatusSettings,
) -> tuple[NodeReport, ...]:
    return node_reports(
        standing.ref,
        pools,
        observed,
        settings=settings,
        paused=standing.in_force is not None and standing.in_force.spec.paused,
        progressing_since=_since(before.get(ConditionType.PROGRESSING)),
        conflicts={
            o.node: (o.reason, describe([o]))
            for o in reversed(assigned.overlaps)
            if o.reported or o.reason is ConditionReason.POOL_OVERLAP
        },
    )


def _gaps(
    spec: Spec,
    reports: Sequence[NodeReport],
    observed: Observed,
    assigned: Assignment,
    lost: Sequence[InventoryView],
) -> Sequence[Fault]:
    """None are known before all lists were read."""
    if not observed.complete:
        return ()
    return gaps(spec, reports=reports, nodes=observed.nodes, assigned=assigned, lost=lost)


def _told_before(previous: ConfigStatus) -> tuple[str, str]:
    if previous.summary is None or not previous.summary.status:
        return ConditionReason.OBSERVING, ""
    return previous.summary.status, previous.summary.message


def _with_headline(summary: StatusSummary, told: tuple[str, str]) -> StatusSummary:
    return replace(summary, status=told[0], message=clip(told[1], MAX_HEADLINE))


def _accepted_generation(standing: AcceptedState, previous: ConfigStatus) -> int:
    """A generation whose spec is lost stays in the status, because it still runs."""
    if standing.in_force:
        return standing.in_force.generation
    return previous.accepted_generation if standing.lost else 0


def _inventories(reports: Iterable[NodeReport]) -> list[InventoryStatus]:
    return [r.inventory.status for r in reports if r.inventory and r.inventory.status]


def _summary(reports: Sequence[NodeReport], unhealthy: BrokenDevices, lost: Iterable[InventoryView]) -> StatusSummary:
    """Counts over all nodes. The totals include devices that an inventory had no room to list. Of `lost` nodes only
    what pods hold counts.

    `healthy` leaves out devices of a node that is not served, and devices whose last check had no answer.
    """
    totals = [inventory.totals for inventory in _inventories(reports)]
    devices = sum(t.devices for t in totals)
    healthy = sum(i.totals.healthy for i in _inventories(r for r in reports if r.served or r.grace))
    return StatusSummary(
        nodes=f"{sum(r.served for r in reports)}/{len(reports)}",
        devices=f"{healthy}/{devices}",
        capacity=sum(t.capacity for t in totals),
        allocated=sum(t.allocated for t in totals) + sum(i.status.totals.allocated for i in lost if i.status),
        unhealthy=max(unhealthy.number, sum(t.unhealthy for t in totals)),
        withheld=sum(t.withheld for t in totals),
    )


def _since(condition: ConfigCondition | None) -> datetime | None:
    if condition is None or condition.status is not ConditionStatus.TRUE:
        return None
    return datetime.fromisoformat(condition.last_transition_time)


def _pool(pool: PoolView, reports: Sequence[NodeReport], assigned: Assignment, rollout: Rollout | None) -> PoolStatus:
    ours = [r for r in reports if r.pool == pool.name]
    said = [pool.problem.message] if pool.problem else []
    if rollout and pool.name in rollout.waiting:
        kept = rollout.turns[pool.name].generation
        spec = f"the spec of generation {kept}" if kept else "its earlier spec"
        said.append(f"keeps {spec} until pool {rollout.behind} has the new one")
    if mine := [o for o in assigned.overlaps if o.pool == pool.name]:
        said.append(describe(mine))
    said += sorted({r.message for r in ours if r.reason == NodeReason.FAILED_CREATE})
    if unchecked := sorted({r.name for r in ours} & set(assigned.unchecked)):
        said.append(
            f"the inventories of {name_nodes(unchecked)} do not list all devices: "
            "another DevicePluginConfig may offer a device that is not listed"
        )
    if not ours and not said:
        said.append("no node matches")
    return PoolStatus(
        name=pool.name,
        nodes=PoolNodes(
            matched=len(ours),
            settled=sum(r.settled for r in ours),
            ready=sum(r.served for r in ours),
            updated=sum(r.updated for r in ours),
            stale=sum(r.state is NodeState.STALE for r in ours),
        ),
        config_hash=pool.config_hash,
        message=clip("; ".join(said)),
    )


def _resources(
    reports: Iterable[NodeReport], entries: Iterable[Resource], lost: Iterable[InventoryView]
) -> list[ResourceTotals]:
    """Counts by resource name. `healthy` and `lost` are counted as in `_summary`. `entries`: of the spec in force.

    The chart's admission policy reads from here what a container may ask for.
    """
    by_name = {entry.name: entry for entry in entries}
    found: dict[str, ResourceTotals] = {}
    for report in reports:
        for r in report.inventory.status.resources if report.inventory and report.inventory.status else ():
            total = found.get(r.name) or _no_devices(r.name, r.entry_name, by_name.get(r.entry_name))
            found[r.name] = replace(
                total,
                nodes=total.nodes + bool(r.devices),
                devices=total.devices + r.devices,
                healthy=total.healthy + (r.healthy if report.served or report.grace else 0),
                unhealthy=total.unhealthy + r.unhealthy,
                withheld=total.withheld + r.withheld,
                capacity=total.capacity + r.capacity,
                allocated=total.allocated + r.allocated,
            )
    for r in (r for inventory in lost if inventory.status for r in inventory.status.resources if r.allocated):
        total = found.get(r.name) or _no_devices(r.name, r.entry_name, by_name.get(r.entry_name))
        found[r.name] = replace(total, allocated=total.allocated + r.allocated)
    return [found[name] for name in sorted(found)]


def _no_devices(name: str, entry_name: str, entry: Resource | None) -> ResourceTotals:
    if entry is None:
        return ResourceTotals(name=name, entry=entry_name)
    return ResourceTotals(
        name=name,
        entry=entry_name,
        max_per_container=entry.sharing.max_per_container,
        counts=entry.allocation.counts,
    )


def _broken(health: DeviceHealth, reports: Iterable[NodeReport]) -> BrokenDevices:
    """The devices of this health, the oldest first, and how many the inventories had no room to list."""
    listed, cut = [], 0
    for report in reports:
        if report.inventory is None or report.inventory.status is None:
            continue
        cut += report.inventory.status.cut(health)
        listed += [
            FleetDevice(
                node=report.name,
                resource=d.resource,
                id=d.id,
                health=d.health,
                reason=d.reason,
                message=clip(d.message),
                since=d.since,
            )
            for d in report.inventory.status.listed(health)
        ]
    return BrokenDevices(tuple(sorted(listed, key=lambda d: (d.since or "9999", d.node, d.id))), cut)


def _filled(
    status: ConfigStatus,
    reports: Sequence[NodeReport],
    all_resources: Sequence[ResourceTotals],
    unhealthy: BrokenDevices,
    *,
    limit: int,
) -> ConfigStatus:
    """Adds the lists, the most useful first. Each is cut to the room that is left, with a count of the rest."""
    room = _Room(limit - size(encode(status)) - 512)  # names and counts of the lists
    resources = room.take(all_resources, most=MAX_RESOURCES)
    # half of the room at most: when every device is broken, the nodes must still be listed
    shown = room.take(unhealthy.listed, most=MAX_UNHEALTHY, keep=room.left // 2)
    order = sorted(reports, key=lambda r: (not r.problem, r.name))
    nodes = room.take((_node(r) for r in order), most=MAX_NODES)
    full = [_with_devices(node, report, room) for node, report in zip(nodes, order, strict=False)]
    known = sum(len(i.devices) + i.devices_omitted for i in _inventories(reports))
    number = status.summary.unhealthy if status.summary else unhealthy.number
    return replace(
        status,
        resources=resources,
        unhealthy_devices=shown,
        nodes=tuple(full),
        resources_omitted=max(len(all_resources) - len(resources), 0),
        unhealthy_devices_omitted=max(number - len(shown), 0),
        nodes_omitted=len(reports) - len(nodes),
        devices_omitted=max(known - sum(len(node.devices) for node in full), 0),
    )


def _node(report: NodeReport) -> NodeStatus:
    inventory = report.inventory.status if report.inventory else None
    return NodeStatus(
        name=report.name,
        pool=report.pool,
        state=report.state,
        reason=report.reason,
        message=report.message,
        resources=tuple(
            NodeResource(
                name=r.name,
                devices=r.devices,
                healthy=r.healthy,
                withheld=r.withheld,
                capacity=r.capacity,
                allocated=r.allocated,
            )
            for r in (inventory.resources if inventory else ())
        ),
    )


def _with_devices(node: NodeStatus, report: NodeReport, room: "_Room") -> NodeStatus:
    devices = report.inventory.status.devices if report.inventory and report.inventory.status else ()
    if not devices or room.left <= 0:
        return node
    taken = room.take((_device(d) for d in devices), most=MAX_DEVICES, around='"devices": []')
    return replace(node, devices=taken)


def _device(device: InventoryDevice) -> NodeDevice:
    return NodeDevice(
        id=device.id,
        resource=device.resource,
        health=device.health,
        reason=device.reason,
        withheld=device.withheld,
        allocated_to=device.allocated_to[:MAX_HOLDERS],
    )


class _Room:
    """The bytes that a status may still use."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, items: Iterable[T], *, most: int, keep: int = 0, around: str = "") -> tuple[T, ...]:
        """The first items, up to the first that does not fit.

        `keep`: bytes that must stay free; `around`: text around the items.
        """
        self.left -= len(around)
        taken: list[T] = []
        for item in items:
            needed = size(encode(item)) + 2
            if needed > self.left - keep or len(taken) >= most:
                break
            self.left -= needed
            taken.append(item)
        return tuple(taken)


def size(value: Any) -> int:
    """Bytes of a value as JSON. The result may be too high: the API server stores no spaces and fewer escapes.

    Go's encoder writes each of <, > and & as six characters.
    """
    text = json.dumps(value)
    return len(text) + 5 * sum(map(text.count, "<>&"))
