"""Short ways to write the values that the operator's pure half takes."""

from datetime import UTC, datetime, timedelta
from typing import Any

from device_agent.contract.inventory import read_status
from device_operator.render.manifests import ANNOTATION_CONFIG_HASH, ANNOTATION_TEMPLATE, RenderSettings
from device_operator.spec.model import ConfigRef, Spec
from device_operator.spec.parsing import parse_spec
from device_operator.spec.placement import NodeView
from device_operator.spec.scheduling import Taint
from device_operator.status.observed import DaemonSetView, InventoryView, PodView
from device_operator.status.pools import pool_daemonset

NOW = datetime(2026, 6, 1, 12, 0, 0, tzinfo=UTC)
LAB = ConfigRef("lab", "uid-lab")
KVM = "example.com/kvm"
SETTINGS = RenderSettings(namespace="device-operator", agent_image="registry.example.com/agent:1")


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def obj(spec: Any = None, *, name: str = "lab", **fields: Any) -> dict[str, Any]:
    """A DevicePluginConfig; without `spec` one that serves /dev/kvm everywhere, plus `fields`."""
    given = {"resources": [entry()], **fields} if spec is None else spec
    return {"metadata": {"name": name, "uid": f"uid-{name}", "generation": 1}, "spec": given}


def entry(name: str = KVM, **fields: Any) -> dict[str, Any]:
    return {"name": name, "devices": [{"files": {"paths": ["/dev/kvm"]}}], **fields}


def spec(given: Any = None, **fields: Any) -> Spec:
    return parse_spec(obj(given, **fields))


def pools(*given: dict[str, Any], resources: list[dict[str, Any]] | None = None) -> Spec:
    return spec({"resources": resources or [entry()], "nodePools": list(given)})


def node(name: str = "node-1", *, age: float = 3600, ready: bool = True, **fields: Any) -> NodeView:
    labels = {"kubernetes.io/os": "linux", **fields.pop("labels", {})}
    since = fields.pop("ready_changed_at", ago(age))
    return NodeView(name=name, labels=labels, created=ago(age), ready=ready, ready_changed_at=since, **fields)


def pod(on: str = "node-1", *, pool: str = "default", age: float = 1800, ready: bool = True, **fields: Any) -> PodView:
    fields.setdefault("phase", "Running")
    fields.setdefault("ready_changed_at", ago(age))
    return PodView(name=f"lab-{pool}-{on}", node=on, config="lab", pool=pool, created=ago(age), ready=ready, **fields)


def inventory(on: str = "node-1", *, heard: float = 10, owner: str = "uid-lab", **status: Any) -> InventoryView:
    """An inventory of one healthy /dev/kvm. Fields in `status` replace those of its status."""
    given = {
        "poolName": "default",
        "podResources": "Available",
        "resources": [counts()],
        "devices": [device()],
        **status,
    }
    given["resources"] = [_with_unknown(row, given["devices"]) for row in given["resources"]]
    return InventoryView(
        name=f"lab.{on}",
        uid=f"uid-{on}",
        node=on,
        config="lab",
        owner_uid=owner,
        status=read_status(given),
        heartbeat_seen=ago(heard),
    )


def _with_unknown(row: dict[str, Any], devices: list[dict[str, Any]]) -> dict[str, Any]:
    """As the agent has it: a resource says how many of its devices gave no answer."""
    number = sum(d["resource"] == row["name"] and d["health"] == "Unknown" for d in devices)
    return {"unknown": number, **row}


def counts(name: str = KVM, devices: int = 1, healthy: int | None = None, **fields: Any) -> dict[str, Any]:
    healthy = devices if healthy is None else healthy
    unhealthy = devices - healthy - fields.get("unknown", 0)
    given = {"name": name, "entry": name, "registered": True, "devices": devices}
    given |= {"healthy": healthy, "unhealthy": unhealthy}
    return {**given, "capacity": devices, "allocated": 0, **fields}


def device(id_: str = "kvm", *, resource: str = KVM, health: str = "Healthy", **fields: Any) -> dict[str, Any]:
    return {"id": id_, "resource": resource, "health": health, "since": "2026-05-01T00:00:00Z", **fields}


def daemonset(pool: str = "default", *, config_hash: str = "", template_hash: str = "", **fields: Any) -> DaemonSetView:
    annotations = {ANNOTATION_CONFIG_HASH: config_hash, ANNOTATION_TEMPLATE: template_hash}
    annotations |= fields.pop("annotations", {})
    name = pool_daemonset(LAB, pool)
    return DaemonSetView(name=name, uid=f"uid-{pool}", pool=pool, generation=1, annotations=annotations, **fields)


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> Taint:
    return Taint(key, value, effect)
