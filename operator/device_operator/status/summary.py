"""What an object's status says: spec and observations in, the complete status out. Pure.

`nodes` judges each node, `conditions` the whole; here the parts are counted and put together within the byte bound:
an object that outgrew etcd's limit could not be written at all.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from device_operator.render.manifests import Manifest
from device_operator.spec.acceptance import Accepted, Rejected
from device_operator.spec.model import ConfigRef
from device_operator.spec.placement import Assignment, assignment, describe
from device_operator.status import conditions
from device_operator.status.conditions import PROGRESSING, Situation, by_type
from device_operator.status.nodes import NodeReport, StatusSettings, clip, judge, rfc3339
from device_operator.status.observed import Observed
from device_operator.status.pools import PoolView, as_rendered, running, running_pools, wanted_pools

MAX_RESOURCES: Final = 128
MAX_UNHEALTHY: Final = 4096
MAX_NODES: Final = 8192
MAX_DEVICES: Final = 1024
"""Of one node. These four are the CRD's maxItems; the byte bound is nearly always reached first."""
MAX_HOLDERS: Final = 2

_COUNTS: Final = ("devices", "healthy", "capacity", "allocated")


def compute(
    ref: ConfigRef,
    *,
    generation: int,
    verdict: Accepted | Rejected,
    observed: Observed,
    previous: Mapping[str, Any],
    assigned: Assignment | None = None,
    manifests: Iterable[Manifest] = (),
    settings: StatusSettings | None = None,
) -> dict[str, Any]:
    """The complete status.

    `assigned` (`placement.assignment`; None: made here, without rivals): of the accepted spec, or after a rejection of
    what runs (`pools.running`), which the status then tells of. `manifests` (`render.render`): of the accepted spec.
    `previous`: the status as it stands, {} at first.
    """
    settings = settings or StatusSettings()
    before = by_type(previous)
    accepted = isinstance(verdict, Accepted)
    in_force = verdict.spec if isinstance(verdict, Accepted) else running(observed.daemonsets)
    if assigned is None:
        assigned = assignment(in_force, nodes=observed.nodes, others=()) if in_force else Assignment({})
    pools: tuple[PoolView, ...] = ()
    if isinstance(verdict, Accepted):
        pools = wanted_pools(ref, verdict, observed=observed, assigned=assigned, manifests=manifests)
    elif in_force is not None:
        pools = running_pools(in_force, observed=observed, assigned=assigned)
    reports = judge(
        ref,
        pools,
        observed,
        settings=settings,
        paused=isinstance(verdict, Accepted) and verdict.spec.paused,
        progressing_since=_since(before.get(PROGRESSING, {})),
        conflicts={o.node: (o.reason, describe([o])) for o in reversed(assigned.overlaps) if o.reported},
    )
    overlaps = assigned.overlaps if accepted else ()
    unhealthy, unknown = _with_health("Unhealthy", reports), _with_health("Unknown", reports)
    resources = _resources(reports)
    total = {count: sum(r[count] for r in resources) for count in _COUNTS}
    bad = max(len(unhealthy), sum(r["unhealthy"] for r in resources))  # an inventory's list may be cut, its counts not
    judged = conditions.judge(
        Situation(
            verdict=verdict,
            spec=in_force,
            reports=reports,
            overlaps=overlaps,
            problems=observed.problems if accepted else (),
            unhealthy=unhealthy,
            unknown=unknown,
            devices=total["devices"],
            generation=generation,
            pools=[pool.name for pool in pools],
            previous=before,
            complete=observed.complete,
            applied=as_rendered(pools, observed.daemonsets),
        )
    )
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "summary": {
            "nodes": f"{sum(r.served for r in reports)}/{len(reports)}",
            "devices": f"{total['healthy']}/{total['devices']}",
            "capacity": total["capacity"],
            "allocated": total["allocated"],
            "unhealthy": bad,
        },
        "conditions": conditions.with_times(judged, previous=before, generation=generation, now=rfc3339(observed.now)),
        "pools": [_pool(pool, reports, overlaps) for pool in pools],
    }
    _fill(status, resources=resources, unhealthy=unhealthy, reports=reports, limit=settings.max_bytes)
    return status


def _since(condition: Mapping[str, Any]) -> datetime | None:
    if condition.get("status") != "True" or not condition.get("lastTransitionTime"):
        return None
    return datetime.fromisoformat(condition["lastTransitionTime"])


def _pool(pool: PoolView, reports: Sequence[NodeReport], overlaps: Sequence[Any]) -> dict[str, Any]:
    ours = [r for r in reports if r.pool == pool.name]
    said = [pool.problem.message] if pool.problem else []
    if mine := [o for o in overlaps if o.pool == pool.name]:
        said.append(describe(mine))
    said += sorted({r.message for r in ours if r.reason == "FailedCreate"})
    if not ours and not said:
        said.append("no node matches")
    return {
        "name": pool.name,
        "nodes": {
            "matched": len(ours),
            "settled": sum(r.settled for r in ours),
            "ready": sum(r.served for r in ours),
            "updated": sum(r.updated for r in ours),
            "stale": sum(r.state == "Stale" for r in ours),
        },
        "configHash": pool.config_hash,
        "message": clip("; ".join(said)),
    }


def _resources(reports: Iterable[NodeReport]) -> list[dict[str, Any]]:
    """Counts by resource name. Devices of a node that is not served are counted, but not as healthy.

    Nor are those whose last check had no answer: they are offered on, so their agent counts them as healthy, and a
    driver that hangs would be seen nowhere.
    """
    found: dict[str, dict[str, Any]] = {}
    for report in reports:
        unknown = _unknown(report)
        for resource in _listed(report, "resources"):
            name = resource["name"]
            total = found.setdefault(
                name,
                {"name": name, "entry": resource.get("entry", name), "nodes": 0, "devices": 0, "healthy": 0}
                | {"unhealthy": 0, "capacity": 0, "allocated": 0},
            )
            devices, healthy = int(resource.get("devices", 0)), int(resource.get("healthy", 0))
            total["nodes"] += bool(devices)
            total["devices"] += devices
            total["healthy"] += max(healthy - unknown[name], 0) if report.served or report.grace else 0
            total["unhealthy"] += max(devices - healthy, 0)
            total["capacity"] += int(resource.get("capacity", 0))
            total["allocated"] += int(resource.get("allocated", 0))
    return [found[name] for name in sorted(found)]


def _unknown(report: NodeReport) -> Counter[str]:
    """By resource."""
    return Counter(d.get("resource", "") for d in _listed(report, "devices") if d.get("health") == "Unknown")


def _with_health(health: str, reports: Iterable[NodeReport]) -> list[dict[str, Any]]:
    found = [
        _without_empty(
            {
                "node": report.name,
                "resource": device.get("resource", ""),
                "id": device["id"],
                "health": device["health"],
                "reason": device.get("reason", ""),
                "message": clip(device.get("message", "")),
                "since": device.get("since", ""),
            }
        )
        for report in reports
        for device in _listed(report, "devices")
        if device.get("health") == health
    ]
    return sorted(found, key=lambda d: (d.get("since", "9999"), d["node"], d["id"]))


def _fill(
    status: dict[str, Any],
    *,
    resources: Sequence[dict[str, Any]],
    unhealthy: Sequence[dict[str, Any]],
    reports: Sequence[NodeReport],
    limit: int,
) -> None:
    """The lists, in the order in which they are worth their bytes, each cut with a count."""
    room = _Room(limit - size(status) - 512)  # brackets, names and counts of the lists
    shown = room.take(resources, most=MAX_RESOURCES)
    status["resources"] = shown
    _count(status, "resourcesOmitted", len(resources) - len(shown))
    # half of the room at most: what breaks every device must not hide every node
    shown = room.take(unhealthy, most=MAX_UNHEALTHY, keep=room.left // 2)
    status["unhealthyDevices"] = shown
    _count(status, "unhealthyDevicesOmitted", status["summary"]["unhealthy"] - len(shown))
    order = sorted(reports, key=lambda r: (not r.problem, r.name))
    nodes = room.take((_node(r) for r in order), most=MAX_NODES)
    status["nodes"] = nodes
    _count(status, "nodesOmitted", len(reports) - len(nodes))
    known = sum(
        len(_listed(r, "devices")) + int(r.inventory.status.get("devicesOmitted", 0)) for r in reports if r.inventory
    )
    told = 0
    for node, report in zip(nodes, order, strict=False):
        devices = _listed(report, "devices")
        if devices and room.left > 0:
            node["devices"] = room.take((_device(d) for d in devices), most=MAX_DEVICES, around='"devices": []')
            told += len(node["devices"])
    _count(status, "devicesOmitted", known - told)


def _node(report: NodeReport) -> dict[str, Any]:
    unknown = _unknown(report)
    return _without_empty(
        {
            "name": report.name,
            "pool": report.pool,
            "state": str(report.state),
            "reason": report.reason,
            "message": report.message,
            "resources": [
                {"name": r["name"], **{count: int(r.get(count, 0)) for count in _COUNTS}}
                | {"healthy": max(int(r.get("healthy", 0)) - unknown[r["name"]], 0)}
                for r in _listed(report, "resources")
            ],
        }
    )


def _device(device: Mapping[str, Any]) -> dict[str, Any]:
    holders = [dict(holder) for holder in (device.get("allocatedTo") or ())[:MAX_HOLDERS]]
    kept = {key: device.get(key, "") for key in ("id", "resource", "health", "reason")}
    return _without_empty({**kept, "allocatedTo": holders})


class _Room:
    """The bytes that are left."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(
        self, items: Iterable[dict[str, Any]], *, most: int, keep: int = 0, around: str = ""
    ) -> list[dict[str, Any]]:
        """The items that fit, from the first on, up to the first that does not.

        `keep`: bytes that they must leave; `around`: text that they come with.
        """
        self.left -= len(around)
        taken: list[dict[str, Any]] = []
        for item in items:
            needed = size(item) + 2
            if needed > self.left - keep or len(taken) >= most:
                break
            self.left -= needed
            taken.append(item)
        return taken


def size(value: Any) -> int:
    """Bytes of a value as JSON, never too few: what the API server stores has no spaces and fewer escapes.

    Go's encoder writes <, > and & as six characters each.
    """
    text = json.dumps(value)
    return len(text) + 5 * sum(map(text.count, "<>&"))


def _listed(report: NodeReport, field: str) -> Sequence[Mapping[str, Any]]:
    return (report.inventory.status.get(field) or ()) if report.inventory else ()


def _without_empty(item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if value not in ("", [])}


def _count(status: dict[str, Any], field: str, number: int) -> None:
    if number > 0:
        status[field] = number
