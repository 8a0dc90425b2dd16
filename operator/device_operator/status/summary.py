"""The complete status of an object, from what is in force and what was observed. Pure.

`nodes` has the state of each node, `conditions` that of the whole. This module counts the parts, and puts them together
within a bound in bytes: etcd would refuse a bigger object as a whole.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from device_operator.render.manifests import Manifest
from device_operator.spec.acceptance import Standing
from device_operator.spec.placement import Assignment, describe
from device_operator.spec.wording import clip, rfc3339
from device_operator.status import conditions
from device_operator.status.conditions import PROGRESSING, Situation, by_type
from device_operator.status.nodes import NodeReport, StatusSettings, node_reports
from device_operator.status.observed import Observed
from device_operator.status.pools import PoolView, as_rendered, pool_views

MAX_RESOURCES: Final = 128
MAX_UNHEALTHY: Final = 4096
MAX_NODES: Final = 8192
MAX_DEVICES: Final = 1024
"""Of one node. These four are maxItems of the CRD; the bound in bytes is nearly always reached first."""
MAX_HOLDERS: Final = 2

_COUNTS: Final = ("devices", "healthy", "capacity", "allocated")


def compute(
    standing: Standing,
    *,
    observed: Observed,
    previous: Mapping[str, Any],
    assigned: Assignment,
    manifests: Iterable[Manifest] = (),
    settings: StatusSettings | None = None,
) -> dict[str, Any]:
    """The complete status.

    `assigned` (`placement.assignment`), `manifests` (`manifests.render`): of the spec in force; empty where none is.
    `previous`: the status as it stands, {} at first.
    """
    settings = settings or StatusSettings()
    before = by_type(previous)
    in_force = standing.in_force
    pools: tuple[PoolView, ...] = ()
    if in_force:
        pools = pool_views(standing.ref, in_force.spec, observed=observed, assigned=assigned, manifests=manifests)
    reports = _reports(standing, pools, observed, assigned, before=before, settings=settings)
    unhealthy, unknown = _with_health("Unhealthy", reports), _with_health("Unknown", reports)
    resources = _resources(reports)
    concluded = conditions.conclude(
        Situation(
            standing=standing,
            reports=reports,
            overlaps=assigned.overlaps,
            problems=observed.problems,
            unhealthy=unhealthy,
            unknown=unknown,
            devices=sum(r["devices"] for r in resources),
            previous=before,
            complete=observed.complete,
            applied=as_rendered(pools, observed.daemonsets),
        )
    )
    now, generation = rfc3339(observed.now), standing.generation
    status: dict[str, Any] = {
        "observedGeneration": generation,
        **_accepted_generation(standing, previous),
        "summary": _summary(reports, resources, unhealthy),
        "conditions": conditions.with_times(concluded, previous=before, generation=generation, now=now),
        "pools": [_pool(pool, reports, assigned.overlaps) for pool in pools],
    }
    _fill(status, resources=resources, unhealthy=unhealthy, reports=reports, limit=settings.max_bytes)
    return status


def _reports(
    standing: Standing,
    pools: Iterable[PoolView],
    observed: Observed,
    assigned: Assignment,
    *,
    before: Mapping[str, Mapping[str, Any]],
    settings: StatusSettings,
) -> tuple[NodeReport, ...]:
    return node_reports(
        standing.ref,
        pools,
        observed,
        settings=settings,
        paused=standing.in_force is not None and standing.in_force.spec.paused,
        progressing_since=_since(before.get(PROGRESSING, {})),
        conflicts={o.node: (o.reason, describe([o])) for o in reversed(assigned.overlaps) if o.reported},
    )


def _accepted_generation(standing: Standing, previous: Mapping[str, Any]) -> dict[str, int]:
    """The generation whose spec is lost stays in the status, because it runs."""
    if standing.in_force:
        return {"acceptedGeneration": standing.in_force.generation}
    before = previous.get("acceptedGeneration")
    return {"acceptedGeneration": before} if standing.lost and before else {}


def _summary(
    reports: Sequence[NodeReport], resources: Sequence[Mapping[str, Any]], unhealthy: Sequence[object]
) -> dict[str, Any]:
    total = {count: sum(r[count] for r in resources) for count in _COUNTS}
    return {
        "nodes": f"{sum(r.served for r in reports)}/{len(reports)}",
        "devices": f"{total['healthy']}/{total['devices']}",
        "capacity": total["capacity"],
        "allocated": total["allocated"],
        # an inventory's list of devices may be cut, its counts are not
        "unhealthy": max(len(unhealthy), sum(r["unhealthy"] for r in resources)),
    }


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

    Devices of unknown health are not counted as healthy either. Their agent does so, because it offers them; a driver
    that hangs would be seen nowhere.
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
    """Adds the lists, the most important first, each cut where the bytes end, with the number left out."""
    room = _Room(limit - size(status) - 512)  # brackets, names and counts of the lists
    shown = room.take(resources, most=MAX_RESOURCES)
    status["resources"] = shown
    _count(status, "resourcesOmitted", len(resources) - len(shown))
    # half of the room at most: a failure of every device must not hide the nodes
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
    """The bytes that a status may still have."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(
        self, items: Iterable[dict[str, Any]], *, most: int, keep: int = 0, around: str = ""
    ) -> list[dict[str, Any]]:
        """The items before the first that does not fit.

        `keep`: bytes that must be left; `around`: text around the items.
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
    """Bytes of a value as JSON, or more than that: the API server stores no spaces and fewer escapes.

    Go's encoder writes each of <, > and & as six characters.
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
