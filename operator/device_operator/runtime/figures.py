"""The metrics about DevicePluginConfigs, made from the result of each object's last pass. Pure.

All begin with device_operator_: config_condition{config,type,status}, config_status{config,status},
config_fault{config,reason}, config_paused{config}, nodes{config,pool,state}, node_failed{config,pool,node,reason},
devices{config,pool,resource,health}, devices_not_healthy{config,pool,node,resource,health,reason},
devices_withheld{config,pool,resource}, stale_grants{config,pool,node,resource}, capacity{config,pool,resource},
allocated{config,pool,resource}.

Alerts read config_fault, node_failed, devices_not_healthy and stale_grants. These have a series only while something is
wrong. What is planned (withheld, may be empty, an agent that starts) has none.
"""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from device_agent.contract.config_reasons import ConditionReason
from device_agent.contract.inventory import InventoryResource, InventoryStatus
from device_agent.contract.node_reasons import NodeReason
from device_agent.contract.reasons import OTHER, DeviceHealth, as_label
from device_agent.contract.status import ConditionStatus, ConditionType, ConfigStatus, PoolNodes
from prometheus_client.core import GaugeMetricFamily, Metric

PREFIX: Final = "device_operator_"
OK: Final = "OK"
_WORDS: Final = frozenset({OK, *ConditionReason, *NodeReason})
_NOT_HEALTHY: Final = (DeviceHealth.UNHEALTHY, DeviceHealth.UNKNOWN)
_NODE: Final = ("pool", "node", "resource")
_FLEET: Final = ("pool", "resource")


@dataclass(frozen=True, slots=True)
class FailedNode:
    """A node with a fault of its own. `reason`: a word of `NodeReason`, or Kubernetes' own."""

    pool: str
    node: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a pass saw. `inventories`: by node. `faults`: the reason of each fault of the object as a whole."""

    status: ConfigStatus
    inventories: Mapping[str, InventoryStatus] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    failed: tuple[FailedNode, ...] = ()


@dataclass(frozen=True, slots=True)
class _Kind:
    """One metric of an object. `labels`: without `config`."""

    name: str
    help: str
    labels: tuple[str, ...]


_CONDITION: Final = _Kind("config_condition", "1 for the status of each condition.", ("type", "status"))
_STATUS: Final = _Kind("config_status", "1 for the object's one word: OK, or what most needs a human.", ("status",))
_FAULT: Final = _Kind("config_fault", "1 for each fault of the object.", ("reason",))
_PAUSED: Final = _Kind("config_paused", "1 while spec.paused is true, else 0.", ())
_NODES: Final = _Kind("nodes", "Nodes of a pool: matched, settled, ready, …", ("pool", "state"))
_FAILED: Final = _Kind("node_failed", "1 for each node with a fault, and why.", ("pool", "node", "reason"))
_DEVICES: Final = _Kind("devices", "Physical devices.", (*_FLEET, "health"))
_BAD: Final = _Kind(
    "devices_not_healthy", "Devices that are not Healthy, without those withheld by plan.", (*_NODE, "health", "reason")
)
_WITHHELD: Final = _Kind("devices_withheld", "Devices not offered, by plan.", _FLEET)
_STALE: Final = _Kind("stale_grants", "Devices whose container was given other hardware's device node.", _NODE)
_CAPACITY: Final = _Kind("capacity", "Ids that kubelets see.", _FLEET)
_ALLOCATED: Final = _Kind("allocated", "Ids held.", _FLEET)
_KINDS: Final = (
    *(_CONDITION, _STATUS, _FAULT, _PAUSED, _NODES, _FAILED),
    *(_DEVICES, _BAD, _WITHHELD, _STALE, _CAPACITY, _ALLOCATED),
)

Figures = dict[str, Tally[tuple[str, ...]]]
"""Name of the metric -> values of its labels -> number."""


def word(reason: str) -> str:
    """A reason of an object or a node as a label. Kubernetes' own reasons are `Other`."""
    return str(reason) if reason in _WORDS else OTHER


def figures(seen: Seen) -> Figures:
    """The series of one object."""
    found: Figures = {kind.name: Tally() for kind in _KINDS}
    status = seen.status
    for condition in status.conditions:
        for candidate in ConditionStatus:
            found[_CONDITION.name][condition.type, candidate] = int(condition.status == candidate)
    if status.summary is not None and status.summary.status:
        found[_STATUS.name][(word(status.summary.status),)] = 1
    progressing = status.condition(ConditionType.PROGRESSING)
    found[_PAUSED.name][()] = int(progressing is not None and progressing.reason == ConditionReason.PAUSED)
    for reason in seen.faults:
        found[_FAULT.name][(word(reason),)] = 1
    for failed in seen.failed:
        found[_FAILED.name][failed.pool, failed.node, word(failed.reason)] = 1
    for pool in status.pools:
        for state, number in asdict(pool.nodes or PoolNodes()).items():
            found[_NODES.name][pool.name, state] += number
    for node, inventory in seen.inventories.items():
        _count(found, node, inventory)
    return found


def _count(found: Figures, node: str, inventory: InventoryStatus) -> None:
    pool = inventory.pool_name
    for resource in inventory.resources:
        fleet = (pool, resource.name)
        for health, number in _by_health(resource).items():
            found[_DEVICES.name][*fleet, health] += number
        found[_WITHHELD.name][fleet] += resource.withheld
        found[_CAPACITY.name][fleet] += resource.capacity
        found[_ALLOCATED.name][fleet] += resource.allocated
        if inventory.devices_omitted:
            _count_omitted(found, node, inventory, resource)
    for device in inventory.devices:
        if device.health is not DeviceHealth.HEALTHY and not device.withheld:
            found[_BAD.name][pool, node, device.resource, device.health, as_label(device.reason)] += 1
        if device.stale_grant:
            found[_STALE.name][pool, node, device.resource] += 1


def _count_omitted(found: Figures, node: str, inventory: InventoryStatus, resource: InventoryResource) -> None:
    """Devices for which the inventory had no room: their number is known, but not their reasons."""
    listed = Tally(device.health for device in inventory.devices if device.resource == resource.name)
    for health in _NOT_HEALTHY:
        if (omitted := _by_health(resource)[health] - listed[health]) > 0:
            found[_BAD.name][inventory.pool_name, node, resource.name, health, OTHER] += omitted


def _by_health(resource: InventoryResource) -> dict[DeviceHealth, int]:
    return {
        DeviceHealth.HEALTHY: resource.healthy,
        DeviceHealth.UNHEALTHY: resource.unhealthy,
        DeviceHealth.UNKNOWN: resource.unknown,
    }


def families(objects: Mapping[str, Figures]) -> Iterator[Metric]:
    """All series, by the name of the object."""
    for kind in _KINDS:
        yield _family(kind, ((name, found[kind.name]) for name, found in objects.items()))


def _family(kind: _Kind, tallies: Iterable[tuple[str, Tally[tuple[str, ...]]]]) -> Metric:
    family = GaugeMetricFamily(PREFIX + kind.name, kind.help, labels=["config", *kind.labels])
    for name, tally in tallies:
        for key, number in tally.items():
            family.add_metric([name, *key], number)
    return family
