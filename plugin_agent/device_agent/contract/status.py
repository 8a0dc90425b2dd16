"""The status of a DevicePluginConfig as values: the operator builds it, compares it and reads back its own.

The JSON is that of crds/devicepluginconfigs.yaml (`codec`). The operator bounds it by bytes and cuts its lists: a list
with a count in its `…_omitted` is not the whole list. Times are RFC 3339 in UTC with whole seconds.
"""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from device_agent.contract.codec import ABSENT_IF_EMPTY, ShapeError, decode
from device_agent.contract.inventory import InventoryHolder
from device_agent.contract.reasons import NodeState
from device_agent.contract.values import dataclass


class ConditionType(StrEnum):
    ACCEPTED = "Accepted"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"
    READY = "Ready"


class ConditionStatus(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigCondition:
    """`reason`: a word of `reasons.ConditionReason`, or of `reasons.NodeReason` where nodes are the cause.

    `last_transition_time`: when `status` became what it is.
    """

    type: str
    status: ConditionStatus
    observed_generation: int = 0
    last_transition_time: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSummary:
    """The numbers of the printer columns. `nodes`, `devices`: such as 3/3."""

    nodes: str = ""
    devices: str = ""
    capacity: int = 0
    allocated: int = 0
    unhealthy: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNodes:
    """How many nodes of a pool match, count, are served, are up to date, do not report."""

    matched: int = 0
    settled: int = 0
    ready: int = 0
    updated: int = 0
    stale: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatus:
    """`config_hash`: SHA-256 of its configuration document."""

    name: str
    nodes: PoolNodes | None = None
    config_hash: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceTotals:
    """One resource name over all nodes. `nodes`: those that have it."""

    name: str = ""
    entry: str = ""
    nodes: int = 0
    devices: int = 0
    healthy: int = 0
    unhealthy: int = 0
    capacity: int = 0
    allocated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetDevice:
    """A device that is not Healthy, with its node."""

    node: str = field(default="", metadata=ABSENT_IF_EMPTY)
    resource: str = field(default="", metadata=ABSENT_IF_EMPTY)
    id: str = field(default="", metadata=ABSENT_IF_EMPTY)
    health: str = field(default="", metadata=ABSENT_IF_EMPTY)
    reason: str = field(default="", metadata=ABSENT_IF_EMPTY)
    message: str = field(default="", metadata=ABSENT_IF_EMPTY)
    since: str = field(default="", metadata=ABSENT_IF_EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResource:
    """One resource on one node. `healthy`: without devices whose last check gave no answer."""

    name: str = ""
    devices: int = 0
    healthy: int = 0
    capacity: int = 0
    allocated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDevice:
    """One device on one node. `allocated_to`: the first holders; the inventory has the rest."""

    id: str = field(default="", metadata=ABSENT_IF_EMPTY)
    resource: str = field(default="", metadata=ABSENT_IF_EMPTY)
    health: str = field(default="", metadata=ABSENT_IF_EMPTY)
    reason: str = field(default="", metadata=ABSENT_IF_EMPTY)
    allocated_to: tuple[InventoryHolder, ...] = field(default=(), metadata=ABSENT_IF_EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """`reason`: a word of `reasons.NodeReason`, or Kubernetes' own for a container that cannot start."""

    name: str
    pool: str = field(default="", metadata=ABSENT_IF_EMPTY)
    state: NodeState
    reason: str = field(default="", metadata=ABSENT_IF_EMPTY)
    message: str = field(default="", metadata=ABSENT_IF_EMPTY)
    resources: tuple[NodeResource, ...] = field(default=(), metadata=ABSENT_IF_EMPTY)
    devices: tuple[NodeDevice, ...] = field(default=(), metadata=ABSENT_IF_EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigStatus:
    """`accepted_generation`: the one in force, 0 where none ever was."""

    observed_generation: int = 0
    accepted_generation: int = field(default=0, metadata=ABSENT_IF_EMPTY)
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
        """None before the operator's first visit."""
        return self.by_type.get(kind)


NOTHING_SAID = ConfigStatus()
"""The status of an object that no operator has visited."""


def read_config_status(status: object) -> ConfigStatus:
    """The status as some operator has written it; one that cannot be read says nothing, and is written anew."""
    try:
        return decode(ConfigStatus, status or {}, path="status", lenient=True)
    except ShapeError:
        return NOTHING_SAID
