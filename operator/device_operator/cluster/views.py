"""API objects as JSON, reduced to views. Pure.

Names and labels repeat over thousands of nodes, so they are interned: each is in memory once.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from sys import intern
from typing import Any, Final

from device_agent.contract import names
from device_agent.contract.codec import ShapeError, decode
from device_agent.contract.inventory import InventoryStatus, read_status
from device_agent.contract.reasons import ExclusionReason

from device_operator.cluster.client import Object
from device_operator.render.manifests import ANNOTATION_SERVES, ANNOTATION_TEMPLATE
from device_operator.spec.driver_access import CONTAINER
from device_operator.spec.model import Pool
from device_operator.spec.placement import NodeView
from device_operator.spec.scheduling import Taint, Term
from device_operator.status.observed import DaemonSetView, FailedCreate, InventoryView, PodView, PodWarning

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MAX_TEXT: Final = 512
"""Longest part, in characters, that is kept of a message from outside."""
_SANDBOX_ID: Final = re.compile(r"[0-9a-f]{32,}")
_DEVICE_DROPPED: Final = frozenset({"attributes", "nodes", "numaNode", "identity"})
_MAX_EXCLUDED: Final = 8
"""The most of `excluded` that is kept from one inventory: for entries without devices, one of each reason."""
_DROPPED: Final = frozenset({"acknowledgement", "lastHeartbeatTime", "history", "historyOmitted"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """An object in our namespace with our label. `owner_uid`: of the DevicePluginConfig that owns it, or empty.

    `version`: generation of a DaemonSet, resourceVersion of a ConfigMap. It changes with every change that matters.
    """

    kind: str
    name: str
    uid: str
    config: str
    pool: str
    owner_uid: str
    version: int
    deleting: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    daemonset: DaemonSetView | None = None


def moment(text: str | None) -> datetime | None:
    """RFC 3339, with or without fractions, as an aware datetime."""
    return datetime.fromisoformat(text) if text else None


def node(raw: Object, _: NodeView | None) -> NodeView:
    meta, spec = raw["metadata"], raw.get("spec", {})
    ready = _condition(raw, "Ready")
    return NodeView(
        name=intern(meta["name"]),
        labels=_interned(meta.get("labels")),
        created=moment(meta.get("creationTimestamp")) or _EPOCH,
        taints=tuple(
            _taint(t["key"], t.get("value", ""), t["effect"]) for t in spec.get("taints", ()) if "effect" in t
        ),
        ready=ready.get("status") == "True",
        ready_changed_at=moment(ready.get("lastTransitionTime")),
        why_not_ready=_why_not_ready(ready),
        deleting="deletionTimestamp" in meta,
    )


def _why_not_ready(ready: Object) -> str:
    """The node lifecycle controller sets Unknown for a silent kubelet; the kubelet itself sets False.

    The message of the kubelet is not used: it may hold ages, and would change with each report.
    """
    if ready.get("status") == "False":
        return "its kubelet reports NotReady; kubectl describe node says why"
    return "its kubelet does not report"


def daemonset(raw: Object, _: Owned | None) -> Owned:
    meta, status = raw["metadata"], raw.get("status", {})
    labels, annotations = _interned(meta.get("labels")), _interned(meta.get("annotations"))
    view = DaemonSetView(
        name=meta["name"],
        uid=meta["uid"],
        pool=labels.get(names.LABEL_POOL, ""),
        generation=meta.get("generation", 0),
        observed_generation=status.get("observedGeneration", 0),
        desired=status.get("desiredNumberScheduled", 0),
        updated=status.get("updatedNumberScheduled", 0),
        annotations=annotations,
        runs=_runs(raw, annotations, labels.get(names.LABEL_POOL, "")),
    )
    return _owned("DaemonSet", meta, version=view.generation, view=view, labels=labels)


def _runs(raw: Object, annotations: Mapping[str, str], pool: str) -> Pool | None:
    """None where somebody changed the object so that it cannot be read; the next pass repairs it."""
    affinity: Object = raw["spec"]["template"]["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    try:
        serves = json.loads(annotations.get(ANNOTATION_SERVES, "[]"))
        return Pool(
            name=pool,
            node_selector_terms=tuple(decode(Term, term, path="term", lenient=True) for term in terms),
            serves=tuple(intern(str(name)) for name in serves),
        )
    except (ValueError, TypeError):  # ShapeError is a ValueError
        return None


def configmap(raw: Object, _: Owned | None) -> Owned:
    """From the metadata alone."""
    return _owned(
        "ConfigMap",
        raw["metadata"],
        version=int(raw["metadata"]["resourceVersion"]),
        view=None,
        labels=_interned(raw["metadata"].get("labels")),
    )


def pod(raw: Object, _: PodView | None) -> PodView:
    meta, spec, status = raw["metadata"], raw.get("spec", {}), raw.get("status", {})
    labels = meta.get("labels", {})
    ready, scheduled = _condition(raw, "Ready"), _condition(raw, "PodScheduled")
    containers: list[Object] = status.get("containerStatuses", [])  # webhooks add containers of their own
    container = next((c for c in containers if c.get("name") == CONTAINER), containers[0] if containers else {})
    state = container.get("state", {})
    waiting = state.get("waiting", {})
    terminated = state.get("terminated") or container.get("lastState", {}).get("terminated", {})
    return PodView(
        name=meta["name"],
        node=spec.get("nodeName") or _wanted_node(spec),
        config=intern(labels.get(names.LABEL_CONFIG, "")),
        pool=intern(labels.get(names.LABEL_POOL, "")),
        created=moment(meta.get("creationTimestamp")) or _EPOCH,
        phase=intern(status.get("phase", "Pending")),
        ready=ready.get("status") == "True",
        ready_changed_at=moment(ready.get("lastTransitionTime")),
        deleting="deletionTimestamp" in meta,
        template_hash=intern(meta.get("annotations", {}).get(ANNOTATION_TEMPLATE, "")),
        waiting_reason=intern(waiting.get("reason", "")),
        waiting_message=waiting.get("message", "")[:_MAX_TEXT],
        terminated_reason=intern(terminated.get("reason", "")),
        terminated_message=terminated.get("message", "")[:_MAX_TEXT],
        terminated_at=moment(terminated.get("finishedAt")),
        exit_code=terminated.get("exitCode"),
        restarts=container.get("restartCount", 0),
        unscheduled=scheduled.get("message", "")[:_MAX_TEXT] if scheduled.get("status") == "False" else "",
        namespace=intern(meta.get("namespace", "")),
    )


def inventory(raw: Object, before: InventoryView | None, *, now: datetime) -> InventoryView:
    """`heartbeat_seen` becomes `now` only when lastHeartbeatTime changes: clocks of nodes are not trusted.

    The first time, it is the time of the last write of the status on the API server. Otherwise an agent that was
    silent for an hour would look alive to a new leader.
    """
    meta, spec = raw["metadata"], raw.get("spec", {})
    status, unreadable = _inventory_status(raw.get("status"))
    heartbeat = str(raw.get("status", {}).get("lastHeartbeatTime", ""))
    seen = _written(meta, now=now)
    if before is not None:
        same = before.uid == meta["uid"] and before.heartbeat == heartbeat
        seen = before.heartbeat_seen if same else now
    return InventoryView(
        name=intern(meta["name"]),
        uid=meta["uid"],
        node=intern(spec.get("nodeName", "")),
        config=intern(spec.get("configName", "")),
        owner_uid=intern(_owner_uid(meta)),
        status=status,
        heartbeat_seen=seen,
        heartbeat=heartbeat,
        unreadable=unreadable,
    )


def _written(meta: Object, *, now: datetime) -> datetime:
    """When the status was last written, on the clock of the API server; `now` where that is unknown."""
    times = (moment(f.get("time")) for f in meta.get("managedFields", ()) if f.get("subresource") == "status")
    return min(max((t for t in times if t), default=now), now)


def _inventory_status(raw: object) -> tuple[InventoryStatus | None, str]:
    """What the operator needs of the status, and why it cannot be read; (None, "") where no agent has written it."""
    if not raw:
        return None, ""
    try:
        return read_status(_pruned(raw) if isinstance(raw, dict) else raw), ""
    except ShapeError as error:
        return None, str(error)


def _pruned(raw: Object) -> Object:
    """Drops fields that the operator never reads, and interns the rest."""
    kept: Object = {key: value for key, value in raw.items() if key not in _DROPPED}
    if isinstance(devices := raw.get("devices"), list):
        kept["devices"] = [_without(device, _DEVICE_DROPPED) for device in devices]
    if isinstance(resources := raw.get("resources"), list):
        kept["resources"] = [_without(resource) for resource in resources]
    if isinstance(excluded := raw.get("excluded"), list):
        kept["excluded"] = [_without(entry) for entry in _telling(excluded, resources)]
    return kept


def _telling(excluded: list[Any], resources: object) -> list[Object]:
    """What says why entries have no device: first where sources looked, then one example of each other reason."""
    rows = [r for r in resources if isinstance(r, dict)] if isinstance(resources, list) else []
    found = {str(r.get("entry") or r.get("name")) for r in rows if r.get("devices")}
    looked: list[Object] = []
    examples: dict[tuple[str, str], Object] = {}
    for e in excluded:
        if not isinstance(e, dict) or not e.get("entry") or str(e["entry"]) in found:
            continue
        if e.get("reason") == ExclusionReason.NOTHING_FOUND:
            looked.append(e)
        else:
            examples.setdefault((str(e.get("entry")), str(e.get("reason"))), e)
    return [*looked, *examples.values()][:_MAX_EXCLUDED]


def _without(entry: object, dropped: frozenset[str] = frozenset()) -> object:
    """One entry of a list. A value that is not an object is returned unchanged; the codec refuses it."""
    if not isinstance(entry, dict):
        return entry
    return {
        key: intern(value[:_MAX_TEXT]) if isinstance(value, str) else value
        for key, value in entry.items()
        if key not in dropped
    }


def failed_create(raw: Object) -> FailedCreate:
    """From a core/v1 Event about a DaemonSet."""
    return FailedCreate(
        daemonset=raw["involvedObject"].get("name", ""),
        message=raw.get("message", "")[:_MAX_TEXT],
        last_seen=_last_seen(raw),
        namespace=intern(raw["involvedObject"].get("namespace", "")),
    )


def pod_warning(raw: Object) -> PodWarning:
    """From a core/v1 Event about a pod. Sandbox ids are left out: each try has another one."""
    return PodWarning(
        pod=raw["involvedObject"].get("name", ""),
        reason=intern(raw.get("reason", "")),
        message=_SANDBOX_ID.sub("…", raw.get("message", ""))[:_MAX_TEXT],
        last_seen=_last_seen(raw),
    )


def _last_seen(event: Object) -> datetime:
    series = event.get("series", {}) or {}
    last = (
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
    )
    return moment(last) or _EPOCH


def owner_uid(raw: Object) -> str:
    """The uid of the DevicePluginConfig that owns the object; empty where none does."""
    return _owner_uid(raw["metadata"])


def owner_text(raw: Object) -> str:
    """Who owns the object, for a message."""
    owners = raw["metadata"].get("ownerReferences", ())
    return ", ".join(f"{o['kind']} {o['name']}" for o in owners) or "nobody"


def _owned(kind: str, meta: Object, *, version: int, view: DaemonSetView | None, labels: Mapping[str, str]) -> Owned:
    return Owned(
        kind=kind,
        name=meta["name"],
        uid=meta["uid"],
        config=labels.get(names.LABEL_CONFIG, ""),
        pool=labels.get(names.LABEL_POOL, ""),
        owner_uid=_owner_uid(meta),
        version=version,
        deleting="deletionTimestamp" in meta,
        labels=labels,
        annotations=view.annotations if view else _interned(meta.get("annotations")),
        daemonset=view,
    )


def _owner_uid(meta: Object) -> str:
    for owner in meta.get("ownerReferences", ()):
        if owner["kind"] == "DevicePluginConfig" and owner["apiVersion"].startswith(f"{names.GROUP}/"):
            return str(owner["uid"])
    return ""


def _condition(raw: Object, kind: str) -> Object:
    conditions: list[Object] = raw.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == kind), {})


def _wanted_node(spec: Object) -> str | None:
    """The DaemonSet controller pins a pod by metadata.name before the scheduler has bound it."""
    affinity: Object = spec.get("affinity", {}).get("nodeAffinity", {})
    required: Object = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in required.get("nodeSelectorTerms", []):
        for match in term.get("matchFields", ()):
            if match.get("key") == "metadata.name" and match.get("values"):
                return intern(match["values"][0])
    return None


@lru_cache(maxsize=1024)
def _taint(key: str, value: str, effect: str) -> Taint:
    return Taint(key, value, effect)


def _interned(labels: Mapping[str, str] | None) -> dict[str, str]:
    return {intern(key): intern(value) for key, value in (labels or {}).items()}
