"""The node's inventory: what the device table says, as a NodeDeviceInventory. Pure: values in, values out.

One table snapshot, and what the process knows beside it, become the object's status, bounded by bytes.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from device_agent.contract import check, names
from device_agent.contract.codec import encode, json_names
from device_agent.contract.inventory import (
    KIND,
    UNNAMED_POD,
    InventoryCordon,
    InventoryDevice,
    InventoryExclusion,
    InventoryHolder,
    InventoryResource,
    InventorySpec,
    InventoryStatus,
    InventorySummary,
    InventoryTransition,
    PodResourcesState,
)
from device_agent.contract.node_reasons import NodeReason
from device_agent.contract.reasons import DeviceHealth
from device_agent.contract.times import since_text
from device_agent.contract.values import dataclass
from device_agent.select.unit import Excluded
from device_agent.table.snapshot import DeviceState, ResourceState, TableSnapshot

if TYPE_CHECKING:
    from device_agent.kubelet.registration import RegistrationState

T = TypeVar("T")

OWNER_KIND: Final = "DevicePluginConfig"
MAX_TEXT: Final = 512
"""The most characters of a message: a node may have many devices, and the object is bounded."""
MAX_STATUS_TEXT: Final = 2048
MAX_VALUE: Final = 4096
"""Characters of an attribute's value, a path or a find's name, as the CRD has it."""
MAX_NODES: Final = 64
"""Device nodes of one device; a directory of /dev may hold many."""
MAX_ATTRIBUTES: Final = 256
MAX_RESOURCES: Final = 1024
MAX_HOLDERS: Final = check.MAX_REPLICAS
"""Holders of one device, as the CRD has it: each replica may have one."""
_ENVELOPE: Final = 2048
"""Bytes for what is not in the lists: names, hashes, brackets."""
_ORDER: Final = {DeviceHealth.UNHEALTHY: 0, DeviceHealth.UNKNOWN: 1, DeviceHealth.HEALTHY: 2}
"""Order in a cut list: broken devices first, then withheld ones, because those are looked for."""


@dataclass(frozen=True, slots=True)
class AgentIdentity:
    """Which agent reports: from the pod's environment."""

    node: str
    config: str
    config_uid: str
    pool: str
    version: str

    @property
    def inventory_name(self) -> str:
        return names.inventory_name(self.config, self.node)


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """What the process knows beside the table. `config_hash`: of the document in force, or ''.

    `health_error`: why the devices' health is not kept on the node, or what was kept could not be read, or ''.
    `acknowledgement`: the replies to the annotation, or ''. `cordons`: which cordons name no device, or ''.
    `history`: what happened to devices, the newest at the end.
    """

    config_hash: str
    config_error: str
    registrations: "Mapping[str, RegistrationState]"
    health_error: str = ""
    acknowledgement: str = ""
    cordons: str = ""
    history: tuple[InventoryTransition, ...] = ()


def timestamp(seconds: float) -> str:
    """Epoch seconds as the API writes times: RFC 3339, whole seconds, UTC."""
    return since_text(datetime.fromtimestamp(seconds, tz=UTC))


def build(snapshot: TableSnapshot, observed: AgentFacts, *, identity: AgentIdentity, limit: int) -> InventoryStatus:
    """The status, without its heartbeat, of at most `limit` bytes as compact JSON.

    Filled in this order, each cut with a count: resources, devices without holders (the broken ones first),
    excluded, attributes, holders, and the history from its newest item on.
    """
    room = _Room(limit - _ENVELOPE)
    texts = [room.text(t) for t in _texts(observed, snapshot)]
    all_resources = [*(_resource(r, snapshot, observed) for r in snapshot.resources), *_refused(snapshot)]
    resources = room.take(all_resources[:MAX_RESOURCES])
    found = [(r, d) for r in snapshot.resources for d in r.devices]
    listed = _listed(found, room)
    excluded = room.take(map(_excluded, snapshot.excluded))
    listed, attributes_omitted = _with_attributes(listed, found, room)
    listed, holders_omitted = _with_holders(listed, found, room)
    history = room.take(reversed(observed.history))[::-1]
    return InventoryStatus(
        pool_name=identity.pool,
        agent_version=identity.version,
        observed_config_hash=observed.config_hash,
        config_error=texts[0],
        health_error=texts[1],
        acknowledgement=texts[2],
        kubelet_record_error=texts[3],
        cordon_message=texts[4],
        pod_resources=PodResourcesState.AVAILABLE if snapshot.holders_known else PodResourcesState.UNAVAILABLE,
        summary=_summary(snapshot),
        resources=resources,
        devices=tuple(listed[i] for i in sorted(listed)),
        excluded=excluded,
        history=history,
        resources_omitted=len(all_resources) - len(resources),
        devices_omitted=len(found) - len(listed),
        excluded_omitted=len(snapshot.excluded) - len(excluded),
        attributes_omitted=attributes_omitted,
        holders_omitted=holders_omitted,
        history_omitted=len(observed.history) - len(history),
    )


def patch(status: InventoryStatus, *, heartbeat: float) -> dict[str, Any]:
    """The merge patch that makes the object's status exactly this one: lists replace, absent fields become null."""
    written = encode(replace(status, last_heartbeat_time=timestamp(heartbeat)))
    return {"status": {**dict.fromkeys(json_names(InventoryStatus)), **written}}


def new_object(identity: AgentIdentity, cordoned: tuple[InventoryCordon, ...] = ()) -> dict[str, Any]:
    """The object as the agent creates it: owned by the DevicePluginConfig, so it is deleted with it. `cordoned`: what
    admins had cordoned before, as the node store has it.
    """
    return {
        "apiVersion": names.API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": identity.inventory_name,
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
        "spec": encode(InventorySpec(node_name=identity.node, config_name=identity.config, cordoned=cordoned)),
    }


class _Room:
    """Counts the bytes that are left."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def text(self, value: str) -> str:
        value = _clip(value, most=MAX_STATUS_TEXT)
        self._left -= _size(value)
        return value

    def take(self, items: Iterable[T]) -> tuple[T, ...]:
        """The items that fit, up to the first that does not. Later items are not even encoded."""
        taken = []
        for item in items:
            if not self.fits(_size(encode(item)) + 1):
                break
            taken.append(item)
        return tuple(taken)

    def fits(self, size: int) -> bool:
        """Takes `size` bytes if they are left. Returns whether they were."""
        if size > self._left:
            return False
        self._left -= size
        return True


_Found = list[tuple[ResourceState, DeviceState]]
_Listed = dict[int, InventoryDevice]
"""By index in `_Found`."""


def _listed(found: _Found, room: _Room) -> _Listed:
    """The devices that fit, without attributes and holders."""
    order = sorted(range(len(found)), key=lambda i: (_ORDER[found[i][1].told], found[i][1].hold is None, i))
    return dict(zip(order, room.take(_device(*found[i]) for i in order), strict=False))


def _with_attributes(listed: _Listed, found: _Found, room: _Room) -> tuple[_Listed, int]:
    """The devices with the attributes that fit, and how many devices are shown without theirs."""
    full, omitted = dict(listed), 0
    for i in sorted(listed):
        attributes = {k: v[:MAX_VALUE] for k, v in sorted(found[i][1].unit.attributes.items())[:MAX_ATTRIBUTES]}
        if attributes and room.fits(_size(attributes) + len('"attributes":,')):
            full[i] = replace(listed[i], attributes=attributes)
        elif attributes:
            omitted += 1
    return full, omitted


def _with_holders(listed: _Listed, found: _Found, room: _Room) -> tuple[_Listed, int]:
    """The devices with the holders that fit, and how many holders are left out."""
    full, omitted = dict(listed), 0
    for i, (_, device) in enumerate(found):
        holders = _holders(device)
        shown: tuple[InventoryHolder, ...] = ()
        if i in listed and holders and room.fits(len('"allocatedTo":[],')):
            shown = room.take(holders[:MAX_HOLDERS])
            full[i] = replace(listed[i], allocated_to=shown)
        omitted += len(holders) - len(shown)
    return full, omitted


def _summary(snapshot: TableSnapshot) -> InventorySummary:
    """The numbers of the printer columns."""
    return InventorySummary(
        devices=sum(r.counts.devices for r in snapshot.resources),
        healthy=sum(r.counts.healthy for r in snapshot.resources),
        unhealthy=sum(r.counts.unhealthy for r in snapshot.resources),
        unknown=sum(r.counts.unknown for r in snapshot.resources),
        withheld=sum(r.counts.withheld for r in snapshot.resources),
        capacity=sum(r.capacity for r in snapshot.resources),
        allocated=sum(r.allocated for r in snapshot.resources),
    )


def _resource(state: ResourceState, snapshot: TableSnapshot, observed: AgentFacts) -> InventoryResource:
    registration = observed.registrations.get(state.name)
    since = registration.since if registration else None
    told = registration.message if registration else ""
    reason, why = _why_not(state, snapshot)
    # without devices the name need not be registered, so the table's reason is the right one
    if registration and told and (state.counts.devices or not reason):
        reason = str(registration.reason)
    return InventoryResource(
        name=state.name,
        entry=state.entry,
        registered=registration is not None and registration.registered,
        last_registration_time=timestamp(since) if since is not None else "",
        devices=state.counts.devices,
        healthy=state.counts.healthy,
        unhealthy=state.counts.unhealthy,
        unknown=state.counts.unknown,
        withheld=state.counts.withheld,
        capacity=state.capacity,
        allocated=state.allocated,
        reason=reason,
        message=_clip("; ".join(filter(None, (told, why)))),
    )


def _why_not(state: ResourceState, snapshot: TableSnapshot) -> tuple[str, str]:
    """(reason, message) of the table: another agent has the name, the resource is refused, or its driver shows no
    device.
    """
    if taken := snapshot.taken.get(state.name):
        return str(NodeReason.RESOURCE_CONFLICT), taken
    if not state.message:
        return "", ""
    refused = state.name in snapshot.refused
    return str(NodeReason.RESOURCE_REFUSED if refused else NodeReason.DRIVER_UNAVAILABLE), state.message


def _refused(snapshot: TableSnapshot) -> Iterator[InventoryResource]:
    """Names that are not served. An entry that gives too many names appears once, under its own name."""
    told = {r.name for r in snapshot.resources}
    why = {name: (NodeReason.DRIVER_UNAVAILABLE, note) for name, note in snapshot.notes.items()}
    why |= {name: (NodeReason.RESOURCE_REFUSED, text) for name, text in snapshot.refused.items()}
    for name, (reason, text) in why.items():
        if name not in told:
            yield InventoryResource(name=name, registered=False, reason=str(reason), message=_clip(text))


def _device(resource: ResourceState, device: DeviceState) -> InventoryDevice:
    unit = device.unit
    return InventoryDevice(
        id=unit.id,
        resource=resource.name,
        health=device.told,
        offered=device.offered,
        reason=device.reason,
        withheld=device.withheld,
        message=_clip(device.text),
        since=since_text(device.since),
        identity=unit.identity,
        nodes=unit.nodes[:MAX_NODES],
        numa_node=unit.numa_node,
        stale_grant=_clip(_stale(device)),
        kept_for=_clip(", ".join(sorted(set(device.kept.values())))),
    )


def _stale(device: DeviceState) -> str:
    """Which pods were given other hardware than they asked for, and what; each text once."""
    texts = (
        f"{', '.join(sorted({str(holder) for holder in device.holders.get(i, ())})) or UNNAMED_POD}: {text}"
        for i, text in device.stale.items()
    )
    return "; ".join(dict.fromkeys(texts))


def _texts(observed: AgentFacts, snapshot: TableSnapshot) -> tuple[str, ...]:
    return (
        observed.config_error,
        observed.health_error,
        observed.acknowledgement,
        snapshot.record_problem,
        observed.cordons,
    )


def _excluded(device: Excluded) -> InventoryExclusion:
    return InventoryExclusion(
        id=_clip(device.id, most=MAX_VALUE),
        source=device.source,
        entry=device.entry,
        reason=device.reason,
        message=_clip(device.message),
    )


def _holders(device: DeviceState) -> tuple[InventoryHolder, ...]:
    """Each container once, however many of the device's replicas it has."""
    unique = sorted({holder for who in device.holders.values() for holder in who})
    return tuple(InventoryHolder(h.namespace, h.pod, h.container) for h in unique)


def _clip(text: str, *, most: int = MAX_TEXT) -> str:
    """One line of bounded length: some of it is text from devices."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _size(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogateescape"))
