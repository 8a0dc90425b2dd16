"""The NodeDeviceInventory as dataclasses. The agent of a node writes it; the operator reads it.

`codec` makes the JSON of crds/nodedeviceinventories.yaml from them. The agent limits the object's size and cuts its
lists. If `…_omitted` of a list is above 0, the list is incomplete, even when it is empty. Times are RFC 3339 in UTC
with whole seconds.
"""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Final

from device_agent.contract.codec import ABSENT_IF_EMPTY, decode
from device_agent.contract.reasons import DeviceHealth
from device_agent.contract.values import dataclass

KIND = "NodeDeviceInventory"


class Identity(StrEnum):
    """STABLE: the device's id follows the hardware. VOLATILE: after a reboot another device may have the id."""

    STABLE = "Stable"
    VOLATILE = "Volatile"


class PodResourcesState(StrEnum):
    """Whether the kubelet tells which pod holds which device. UNAVAILABLE: the holders are the last known ones."""

    AVAILABLE = "Available"
    UNAVAILABLE = "Unavailable"


class HistoryState(StrEnum):
    """How a device is, in one word, for its history: Unhealthy counts before withheld, and withheld before Unknown."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    UNKNOWN = "Unknown"
    WITHHELD = "Withheld"
    GONE = "Gone"


UNNAMED_POD: Final = "a pod"
"""What `stale_grant` begins with while the pod's name is not known."""
ALL_DEVICES: Final = "*"
"""As an id in `cordoned`: all that the object serves on the node."""


@dataclass(frozen=True, slots=True)
class InventoryCordon:
    """A device that an admin withholds from new pods. `id`: as `devices` has it, or `ALL_DEVICES`."""

    id: str
    reason: str = field(default="", metadata=ABSENT_IF_EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class InventorySpec:
    """Whose inventory it is, which never changes, and what admins have cordoned."""

    node_name: str
    config_name: str
    cordoned: tuple[InventoryCordon, ...] = field(default=(), metadata=ABSENT_IF_EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class InventorySummary:
    """Numbers over all resources. They also count what was cut from the lists.

    `devices`: physical devices; each is healthy, unhealthy or unknown. `withheld`: those that are withheld by plan,
    whatever their health. `capacity`, `allocated`: ids.
    """

    devices: int = 0
    healthy: int = 0
    unhealthy: int = 0
    unknown: int = 0
    withheld: int = 0
    capacity: int = 0
    allocated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryResource:
    """One resource name on the node. The counts include devices that were cut from the list of devices.

    `entry`: the name of its entry in spec.resources; '' if the name made from placeholders is refused.
    `registered`: the kubelet has accepted it since the kubelet's last start.
    `devices`: physical devices; each is healthy, unhealthy or unknown. `withheld`: those that are withheld by plan,
    whatever their health. `reason`: what is wrong with it, a word of `NodeReason`, or ''. `message`: the same as a text
    for people.
    """

    name: str
    entry: str = field(default="", metadata=ABSENT_IF_EMPTY)
    registered: bool = True
    last_registration_time: str = field(default="", metadata=ABSENT_IF_EMPTY)
    devices: int = 0
    healthy: int = 0
    unhealthy: int = 0
    unknown: int = field(default=0, metadata=ABSENT_IF_EMPTY)
    withheld: int = field(default=0, metadata=ABSENT_IF_EMPTY)
    capacity: int = 0
    allocated: int = 0
    reason: str = field(default="", metadata=ABSENT_IF_EMPTY)
    message: str = field(default="", metadata=ABSENT_IF_EMPTY)

    @property
    def entry_name(self) -> str:
        """The name of the entry; the resource's own name if `entry` is empty."""
        return self.entry or self.name


@dataclass(frozen=True, slots=True)
class InventoryHolder:
    """A container that holds a device."""

    namespace: str = ""
    pod: str = ""
    container: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryDevice:
    """One physical device under one resource name. `id`: the id of its first replica at the kubelet.

    `reason`: why it is not Healthy: a word of `reasons.DeviceReason` or of the device's driver. `offered`: whether new
    pods may get it. `withheld`: why not, if it is by plan, a word of `reasons.Withheld`. `message`: both for people.
    `since`: when its health or `withheld` last changed. `stale_grant`: why a container that has it was given other
    hardware's device node, or a node that is gone, or ''. `kept_for`: pods that are gone, for which the kubelet keeps
    it, or ''.
    """

    id: str
    resource: str
    health: DeviceHealth
    offered: bool = True
    reason: str = field(default="", metadata=ABSENT_IF_EMPTY)
    withheld: str = field(default="", metadata=ABSENT_IF_EMPTY)
    message: str = field(default="", metadata=ABSENT_IF_EMPTY)
    since: str = field(default="", metadata=ABSENT_IF_EMPTY)
    identity: Identity | None = None
    attributes: Mapping[str, str] = field(default_factory=dict, metadata=ABSENT_IF_EMPTY)
    nodes: tuple[str, ...] = field(default=(), metadata=ABSENT_IF_EMPTY)
    numa_node: int | None = None
    allocated_to: tuple[InventoryHolder, ...] = field(default=(), metadata=ABSENT_IF_EMPTY)
    stale_grant: str = field(default="", metadata=ABSENT_IF_EMPTY)
    kept_for: str = field(default="", metadata=ABSENT_IF_EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryExclusion:
    """A device that a source found but the node does not serve. `reason`: a word of `reasons.ExclusionReason`."""

    id: str = field(default="", metadata=ABSENT_IF_EMPTY)
    source: str = field(default="", metadata=ABSENT_IF_EMPTY)
    entry: str = field(default="", metadata=ABSENT_IF_EMPTY)
    reason: str = field(default="", metadata=ABSENT_IF_EMPTY)
    message: str = field(default="", metadata=ABSENT_IF_EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryTransition:
    """One change of a device under one resource name, which may have left the node since.

    `from_`: how it was; None: nothing was known of it. `reason`: why it is `to`, a word of `reasons.DeviceReason`, of
    `reasons.Withheld` or of the device's driver; for Gone, the last reason before. '' if there is none.
    """

    time: str
    resource: str
    id: str
    from_: HistoryState | None = None
    to: HistoryState
    reason: str = field(default="", metadata=ABSENT_IF_EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryStatus:
    """What the agent found and serves.

    `config_error`: why the agent cannot use the configuration, or ''. `health_error`: why it cannot keep the devices'
    health on the node's disk, or ''. `kubelet_record_error`: why the kubelet's record cannot be used, or ''.
    `acknowledgement`: the answer to the annotation, '' without one. `cordon_message`: which items of `spec.cordoned`
    name no device, or ''. `history`: what happened to devices in the last days, the newest at the end.
    """

    pool_name: str = ""
    agent_version: str = ""
    observed_config_hash: str = field(default="", metadata=ABSENT_IF_EMPTY)
    config_error: str = field(default="", metadata=ABSENT_IF_EMPTY)
    health_error: str = field(default="", metadata=ABSENT_IF_EMPTY)
    acknowledgement: str = field(default="", metadata=ABSENT_IF_EMPTY)
    cordon_message: str = field(default="", metadata=ABSENT_IF_EMPTY)
    kubelet_record_error: str = field(default="", metadata=ABSENT_IF_EMPTY)
    pod_resources: PodResourcesState | None = None
    summary: InventorySummary | None = None
    resources: tuple[InventoryResource, ...] = ()
    devices: tuple[InventoryDevice, ...] = ()
    excluded: tuple[InventoryExclusion, ...] = ()
    history: tuple[InventoryTransition, ...] = field(default=(), metadata=ABSENT_IF_EMPTY)
    resources_omitted: int = field(default=0, metadata=ABSENT_IF_EMPTY)
    devices_omitted: int = field(default=0, metadata=ABSENT_IF_EMPTY)
    excluded_omitted: int = field(default=0, metadata=ABSENT_IF_EMPTY)
    attributes_omitted: int = field(default=0, metadata=ABSENT_IF_EMPTY)
    holders_omitted: int = field(default=0, metadata=ABSENT_IF_EMPTY)
    history_omitted: int = field(default=0, metadata=ABSENT_IF_EMPTY)
    last_heartbeat_time: str = field(default="", metadata=ABSENT_IF_EMPTY)

    @property
    def totals(self) -> InventorySummary:
        """The numbers over all resources, also of what was cut from the lists."""
        return self.summary or InventorySummary(
            devices=sum(r.devices for r in self.resources),
            healthy=sum(r.healthy for r in self.resources),
            unhealthy=sum(r.unhealthy for r in self.resources),
            unknown=sum(r.unknown for r in self.resources),
            withheld=sum(r.withheld for r in self.resources),
            capacity=sum(r.capacity for r in self.resources),
            allocated=sum(r.allocated for r in self.resources),
        )

    def listed(self, health: DeviceHealth) -> tuple[InventoryDevice, ...]:
        """The listed devices of this health."""
        return tuple(device for device in self.devices if device.health is health)

    def cut(self, health: DeviceHealth) -> int:
        """How many devices of this health were cut from the list, computed from the counts."""
        if not self.devices_omitted:
            return 0
        number = {
            DeviceHealth.UNHEALTHY: self.totals.unhealthy,
            DeviceHealth.UNKNOWN: self.totals.unknown,
            DeviceHealth.HEALTHY: self.totals.healthy,
        }[health]
        return min(max(number - len(self.listed(health)), 0), self.devices_omitted)


def read_status(status: object) -> InventoryStatus:
    """Reads an inventory's status. Fields that only a newer agent knows are skipped.

    Raises:
        ShapeError: a required field is missing, or a field has a wrong type; the message names it.
    """
    return decode(InventoryStatus, status, path="status", lenient=True)
