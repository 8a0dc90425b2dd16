"""The status of a DevicePluginConfig as dataclasses. The operator builds it, compares it and reads it back.

`codec` makes the JSON of crds/devicepluginconfigs.yaml from them. The operator limits its size and cuts its lists. If
`…_omitted` of a list is above 0, the list is incomplete. Times are RFC 3339 in UTC with whole seconds.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from device_agent.contract.codec import ABSENT_IF_EMPTY, ShapeError, decode
from device_agent.contract.inventory import InventoryHolder
from device_agent.contract.node_reasons import NodeState
from device_agent.contract.values import dataclass


class ConditionType(StrEnum):
    ACCEPTED = "Accepted"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"
    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


class ConditionStatus(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigCondition:
    """A condition. `reason`: a word of `ConditionReason`, or of `NodeReason` if nodes are the cause.

    `last_transition_time`: when `status` last changed.
    """

    type: str
    status: ConditionStatus
    observed_generation: int = 0
    last_transition_time: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSummary:
    """The columns of kubectl get. `status`: OK, or the reason that most needs a human. `message`: that reason for
    people. `nodes`, `devices`: such as 3/3.
    """

    status: str = field(default="", metadata=ABSENT_IF_EMPTY)
    message: str = field(default="", metadata=ABSENT_IF_EMPTY)
    nodes: str = ""
    devices: str = ""
    capacity: int = 0
    allocated: int = 0
    unhealthy: int = 0
    withheld: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNodes:
    """Numbers of nodes of a pool.

    `matched`: nodes of the pool. `settled`: nodes Ready for 5 minutes; the condition Ready counts them.
    `ready`: nodes that a reporting agent serves. `updated`: nodes on the current configuration and pod template.
    `stale`: nodes whose agent does not report.
    """

    matched: int = 0
    settled: int = 0
    ready: int = 0
    updated: int = 0
    stale: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatus:
    """One pool. `config_hash`: SHA-256 of its configuration document."""

    name: str
    nodes: PoolNodes | None = None
    config_hash: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceTotals:
    """One resource name over all nodes. `nodes`: how many nodes have it. `withheld`: devices that are not offered by
    plan, whatever their health. `max_per_container`, `counts`: what one container may ask for in the accepted spec; 0
    and empty: anything.
    """

    name: str = ""
    entry: str = ""
    nodes: int = 0
    devices: int = 0
    healthy: int = 0
    unhealthy: int = 0
    withheld: int = field(default=0, metadata=ABSENT_IF_EMPTY)
    capacity: int = 0
    allocated: int = 0
    max_per_container: int = field(default=0, metadata=ABSENT_IF_EMPTY)
    counts: tuple[int, ...] = field(default=(), metadata=ABSENT_IF_EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetDevice:
    """A device on some node that is not Healthy."""

    node: str = field(default="", metadata=ABSENT_IF_EMPTY)
    resource: str = field(default="", metadata=ABSENT_IF_EMPTY)
    id: str = field(default="", metadata=ABSENT_IF_EMPTY)
    health: str = field(default="", metadata=ABSENT_IF_EMPTY)
    reason: str = field(default="", metadata=ABSENT_IF_EMPTY)
    message: str = field(default="", metadata=ABSENT_IF_EMPTY)
    since: str = field(default="", metadata=ABSENT_IF_EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResource:
    """One resource on one node. `healthy`: does not count devices whose last check gave no answer."""

    name: str = ""
    devices: int = 0
    healthy: int = 0
    withheld: int = field(default=0, metadata=ABSENT_IF_EMPTY)
    capacity: int = 0
    allocated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDevice:
    """One device on one node. `allocated_to`: the first holders; the inventory has all of them."""

    id: str = field(default="", metadata=ABSENT_IF_EMPTY)
    resource: str = field(default="", metadata=ABSENT_IF_EMPTY)
    health: str = field(default="", metadata=ABSENT_IF_EMPTY)
    reason: str = field(default="", metadata=ABSENT_IF_EMPTY)
    withheld: str = field(default="", metadata=ABSENT_IF_EMPTY)
    allocated_to: tuple[InventoryHolder, ...] = field(default=(), metadata=ABSENT_IF_EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """One node. `reason`: a word of `NodeReason`, or Kubernetes' own reason if a container cannot start."""

    name: str
    pool: str = field(default="", metadata=ABSENT_IF_EMPTY)
    state: NodeState
    reason: str = field(default="", metadata=ABSENT_IF_EMPTY)
    message: str = field(default="", metadata=ABSENT_IF_EMPTY)
    resources: tuple[NodeResource, ...] = field(default=(), metadata=ABSENT_IF_EMPTY)
    devices: tuple[NodeDevice, ...] = field(default=(), metadata=ABSENT_IF_EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigStatus:
    """The whole status. `accepted_generation`: the generation in force, 0 if none was accepted yet.

    `earlier_spec`: name of the ControllerRevision with the spec to return to. After a rejected edit it is the one in
    force, else the accepted one before. `last_update_time`: when the status was written.
    """

    observed_generation: int = 0
    last_update_time: str = field(default="", metadata=ABSENT_IF_EMPTY)
    accepted_generation: int = field(default=0, metadata=ABSENT_IF_EMPTY)
    earlier_spec: str = field(default="", metadata=ABSENT_IF_EMPTY)
    summary: StatusSummary | None = None
    conditions: tuple[ConfigCondition, ...] = ()
    pools: tuple[PoolStatus, ...] = ()
    resources: tuple[ResourceTotals, ...] = ()
    unhealthy_devices: tuple[FleetDevice, ...] = ()
    nodes: tuple[NodeStatus, ...] = ()
    resources_omitted: int = field(default=0, metadata=ABSENT_IF_EMPTY)
    unhealthy_devices_omitted: int = field(default=0, metadata=ABSENT_IF_EMPTY)
    nodes_omitted: int = field(default=0, metadata=ABSENT_IF_EMPTY)
    devices_omitted: int = field(default=0, metadata=ABSENT_IF_EMPTY)

    @property
    def by_type(self) -> Mapping[str, ConfigCondition]:
        return {condition.type: condition for condition in self.conditions}

    def condition(self, kind: ConditionType) -> ConfigCondition | None:
        """The condition of this type; None before the operator first wrote the status."""
        return self.by_type.get(kind)


NOTHING_SAID = ConfigStatus()
"""The status of an object before the operator first wrote it."""


def read_config_status(status: object) -> ConfigStatus:
    """Reads the status. The operator writes what cannot be read again.

    The conditions and the accepted generation are read even if the lists of another version cannot be. Otherwise their
    times would be lost, and with them what was already told.
    """
    given = status or {}
    kept = ("observedGeneration", "acceptedGeneration", "lastUpdateTime", "conditions")
    for fields in (given, {k: v for k, v in given.items() if k in kept} if isinstance(given, dict) else {}):
        with contextlib.suppress(ShapeError):
            return decode(ConfigStatus, fields, path="status", lenient=True)
    return NOTHING_SAID
