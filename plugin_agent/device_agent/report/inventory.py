"""The node's inventory: what the device table says, as a NodeDeviceInventory. Pure: values in, JSON out.

One table snapshot, and what the process knows beside it, become the object's status, bounded by bytes.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from device_agent.contract import names
from device_agent.contract.times import since_text
from device_agent.contract.values import dataclass
from device_agent.select.unit import Excluded
from device_agent.table.snapshot import DeviceState, Health, ResourceState, TableSnapshot

if TYPE_CHECKING:
    from device_agent.kubelet.registration import RegistrationState

KIND: Final = "NodeDeviceInventory"
OWNER_KIND: Final = "DevicePluginConfig"
UNKNOWN: Final = "Unknown"
"""The health of a device that is offered, and whose last check gave no answer."""
MAX_TEXT: Final = 512
"""Characters of a message: a node has many devices and one object."""
MAX_STATUS_TEXT: Final = 2048
MAX_VALUE: Final = 4096
"""Characters of an attribute's value, a path or a find's name, as the CRD has it."""
MAX_NODES: Final = 64
"""Device nodes of one device; a directory of /dev may hold many."""
MAX_ATTRIBUTES: Final = 256
MAX_RESOURCES: Final = 1024
MAX_HOLDERS: Final = 16
"""Holders of one device."""
_ENVELOPE: Final = 2048
"""Bytes for what is not in the lists: names, hashes, brackets."""

OPTIONAL: Final = (
    "configError",
    "healthError",
    "acknowledgement",
    "observedConfigHash",
    "resourcesOmitted",
    "devicesOmitted",
    "excludedOmitted",
    "attributesOmitted",
    "holdersOmitted",
)
"""Status fields that come and go: a merge patch has to null them, or an old value stays."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who reports: from the pod's environment."""

    node: str
    config: str
    config_uid: str
    pool: str
    version: str

    @property
    def name(self) -> str:
        return names.inventory_name(self.config, self.node)


@dataclass(frozen=True, slots=True)
class Observed:
    """What the process knows beside the table. `config_hash`: of the document in force, or ''.

    `health_error`: why the devices' health is not kept on the node, or what was kept could not be read, or ''.
    `acknowledgement`: what became of the annotation, or ''.
    """

    config_hash: str
    config_error: str
    registrations: "Mapping[str, RegistrationState]"
    health_error: str = ""
    acknowledgement: str = ""


def timestamp(seconds: float) -> str:
    """Epoch seconds as the API writes times: RFC 3339, whole seconds, UTC."""
    return since_text(datetime.fromtimestamp(seconds, tz=UTC))


def build(snapshot: TableSnapshot, observed: Observed, *, identity: Identity, limit: int) -> dict[str, Any]:
    """The status, without lastHeartbeatTime, of at most `limit` bytes as compact JSON.

    Filled in this order, each cut with a count: resources, devices without holders (unhealthy ones first),
    excluded, attributes, holders.
    """
    room = _Room(limit - _ENVELOPE)
    status: dict[str, Any] = {
        "poolName": identity.pool,
        "agentVersion": identity.version,
        "podResources": "Available" if snapshot.holders_known else "Unavailable",
    }
    if observed.config_hash:
        status["observedConfigHash"] = observed.config_hash
    told = {
        "configError": observed.config_error,
        "healthError": observed.health_error,
        "acknowledgement": observed.acknowledgement,
    }
    status |= {field: room.text(text) for field, text in told.items() if text}
    status["summary"] = _summary(snapshot)

    states = [(r, d) for r in snapshot.resources for d in r.devices]
    resources = [*(_resource(r, observed) for r in snapshot.resources), *_refused(snapshot)]
    status["resources"] = list(room.take(resources[:MAX_RESOURCES]))
    _count(status, "resourcesOmitted", len(resources) - len(status["resources"]))

    # in a cut list the unhealthy ones are what somebody looks for
    order = sorted(range(len(states)), key=lambda i: (states[i][1].health is Health.HEALTHY, i))
    taken = dict(zip(order, room.take(_device(*states[i]) for i in order), strict=False))
    _count(status, "devicesOmitted", len(states) - len(taken))

    status["excluded"] = list(room.take(map(_excluded, snapshot.excluded)))
    _count(status, "excludedOmitted", len(snapshot.excluded) - len(status["excluded"]))

    shown = sorted(taken)
    omitted = 0
    for i in shown:
        attributes = {k: v[:MAX_VALUE] for k, v in sorted(states[i][1].unit.attributes.items())[:MAX_ATTRIBUTES]}
        if attributes and not room.add(taken[i], "attributes", attributes):
            omitted += 1
    _count(status, "attributesOmitted", omitted)

    omitted = sum(len(_holders(d)) for i, (_, d) in enumerate(states) if i not in taken)
    for i in shown:
        who = _holders(states[i][1])
        if who and not room.add(taken[i], "allocatedTo", who[:MAX_HOLDERS]):
            omitted += len(who)
        elif len(who) > MAX_HOLDERS:
            omitted += len(who) - MAX_HOLDERS
    _count(status, "holdersOmitted", omitted)
    status["devices"] = [taken[i] for i in shown]
    return status


def patch(status: Mapping[str, Any], *, heartbeat: float) -> dict[str, Any]:
    """The merge patch that makes the object's status exactly this one: lists replace, absent fields are nulled."""
    gone = {field: None for field in OPTIONAL if field not in status}
    return {"status": {**status, **gone, "lastHeartbeatTime": timestamp(heartbeat)}}


def new_object(identity: Identity) -> dict[str, Any]:
    """The object as the agent creates it: owned by the DevicePluginConfig, so that it goes with it."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": identity.name,
            "ownerReferences": [
                {
                    "apiVersion": names.API_VERSION,
                    "kind": OWNER_KIND,
                    "name": identity.config,
                    "uid": identity.config_uid,
                    "controller": False,
                }
            ],
        },
        "spec": {"nodeName": identity.node, "configName": identity.config},
    }


class _Room:
    """The bytes that are left."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def text(self, value: str) -> str:
        value = _clip(value, most=MAX_STATUS_TEXT)
        self._left -= _size(value)
        return value

    def take(self, items: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The items that fit, up to the first that does not; what comes after it is not even made."""
        for item in items:
            size = _size(item) + 1
            if size > self._left:
                return
            self._left -= size
            yield item

    def add(self, item: dict[str, Any], field: str, value: Any) -> bool:
        """Whether the field found room in the item."""
        size = _size(value) + len(field) + 4
        if size > self._left:
            return False
        self._left -= size
        item[field] = value
        return True


def _summary(snapshot: TableSnapshot) -> dict[str, int]:
    """The numbers of the printer columns."""
    return {
        "devices": sum(_physical(r) for r in snapshot.resources),
        "healthy": sum(r.healthy for r in snapshot.resources),
        "capacity": sum(r.capacity for r in snapshot.resources),
        "allocated": sum(r.allocated for r in snapshot.resources),
    }


def _physical(state: ResourceState) -> int:
    """Devices under this name; one that is listed under another for the time being counts there."""
    return sum(1 for d in state.devices if d.ids)


def _resource(state: ResourceState, observed: Observed) -> dict[str, Any]:
    registration = observed.registrations.get(state.name)
    since = registration.since if registration else None
    return _without_empty(
        {
            "name": state.name,
            "entry": state.entry,
            "registered": registration is not None and registration.registered,
            "lastRegistrationTime": timestamp(since) if since is not None else "",
            "devices": _physical(state),
            "healthy": state.healthy,
            "capacity": state.capacity,
            "allocated": state.allocated,
            "message": _clip("; ".join(filter(None, (registration.message if registration else "", state.message)))),
        }
    )


def _refused(snapshot: TableSnapshot) -> Iterator[dict[str, Any]]:
    """Names that are not served at all; and an entry that gives too many, once, however many of them are served."""
    told = {r.name for r in snapshot.resources}
    for name, why in snapshot.refused.items():
        if name not in told:
            counts = dict.fromkeys(("devices", "healthy", "capacity", "allocated"), 0)
            yield {"name": name, "registered": False, **counts, "message": _clip(why)}


def _device(resource: ResourceState, device: DeviceState) -> dict[str, Any]:
    unit = device.unit
    item = _without_empty(
        {
            "id": unit.id,
            "resource": resource.name,
            "health": UNKNOWN if device.unanswered and device.health is Health.HEALTHY else str(device.health),
            "reason": device.reason,
            "message": _clip(device.message),
            "since": since_text(device.since),
            "identity": str(unit.identity),
            "nodes": list(unit.nodes[:MAX_NODES]),
        }
    )
    if unit.numa_node is not None:
        item["numaNode"] = unit.numa_node
    return item


def _excluded(device: Excluded) -> dict[str, Any]:
    return _without_empty(
        {
            "id": _clip(device.id, most=MAX_VALUE),
            "source": device.source,
            "entry": device.entry,
            "reason": device.reason,
            "message": _clip(device.message),
        }
    )


def _holders(device: DeviceState) -> list[dict[str, str]]:
    """Each container once, however many of the device's replicas it has."""
    unique = sorted({holder for who in device.holders.values() for holder in who})
    return [{"namespace": h.namespace, "pod": h.pod, "container": h.container} for h in unique]


def _without_empty(item: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in item.items() if v not in ("", [])}


def _count(status: dict[str, Any], field: str, number: int) -> None:
    if number:
        status[field] = number


def _clip(text: str, *, most: int = MAX_TEXT) -> str:
    """One line of bounded length: some of it is text from devices."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _size(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogateescape"))
