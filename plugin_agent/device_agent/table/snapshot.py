"""What the device table tells others, as values of one moment: the kubelet's list, and the state for reports."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum

from device_agent.contract.values import dataclass
from device_agent.select.unit import Excluded, Unit
from device_agent.table.holders import Holder


class Health(StrEnum):
    """The two words of the kubelet's API. The kubelet takes every other word for Unhealthy."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"


@dataclass(frozen=True, slots=True)
class Advertised:
    """One id in a ListAndWatch message. `numa_node` None: no topology, because unknown or not published."""

    id: str
    healthy: bool
    numa_node: int | None


@dataclass(frozen=True, slots=True)
class DeviceState:
    """One physical device under one resource name.

    `since`: when this health and reason began, UTC. `unanswered`: why its last check gave no answer, or ''. A check
    without an answer does not change the health. `ids`: as the kubelet has them, with those on their way out; empty
    while the device's id is listed under another name. `holders`: of those ids that are held.
    """

    unit: Unit
    health: Health
    reason: str
    message: str
    since: datetime
    ids: tuple[str, ...]
    holders: Mapping[str, tuple[Holder, ...]]
    unanswered: str = ""


@dataclass(frozen=True, slots=True)
class ResourceState:
    """One resource name. `healthy` counts physical devices, `capacity` and `allocated` count ids.

    `entry`: the configuration entry's name as written. `message`: why it is refused, or ''.
    """

    name: str
    entry: str
    devices: tuple[DeviceState, ...]
    capacity: int
    allocated: int
    healthy: int
    message: str


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """The table at one moment.

    `resources`: by name; those served, and the configured names without placeholders that have no device.
    `refused`: resource or entry name -> why. `notes`: entry without devices -> why its driver shows none.
    `holders_known`: whether PodResources answered the last time; if not, the holders are those of its last answer.
    """

    resources: tuple[ResourceState, ...]
    excluded: tuple[Excluded, ...]
    refused: Mapping[str, str]
    holders_known: bool
    notes: Mapping[str, str] = field(default_factory=dict)
