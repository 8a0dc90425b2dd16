"""What others see of the device table, as values of one moment: the kubelet's list, and the state for reports."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum

from device_agent.contract.reasons import DeviceHealth, Withheld
from device_agent.contract.values import dataclass
from device_agent.select.unit import Excluded, Unit
from device_agent.table.holders import Holder


class Health(StrEnum):
    """The two words of the kubelet's API. The kubelet takes every other word for Unhealthy."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a device is withheld as a whole, whatever its health. `message`: for an admin."""

    word: Withheld
    message: str


@dataclass(frozen=True, slots=True)
class Advertised:
    """One id in a ListAndWatch message. `numa_node` None: no topology, because unknown or not published."""

    id: str
    healthy: bool
    numa_node: int | None


@dataclass(frozen=True, slots=True)
class DeviceState:
    """One physical device under one resource name.

    `since`: when this health, reason or hold began, UTC.
    `unanswered`: why its last check gave no answer, or ''. A check without an answer does not change the health.
    `hold`: why it is withheld, None if it is not.
    `ids`: as listed to the kubelet, including ids on their way out. Empty while another name lists the device's id.
    `holders`: id -> its holders, for each id that is held.
    `stale`: id -> what is wrong, if its container was given device nodes that are no longer those of the device.
    `kept`: id -> the pod that is gone, if the kubelet keeps the id for that pod.
    """

    unit: Unit
    health: Health
    reason: str
    message: str
    since: datetime
    ids: tuple[str, ...]
    holders: Mapping[str, tuple[Holder, ...]]
    unanswered: str = ""
    hold: Hold | None = None
    stale: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)

    @property
    def offered(self) -> bool:
        """Whether new pods may get it."""
        return self.health is Health.HEALTHY and self.hold is None

    @property
    def withheld(self) -> str:
        """The word for why it is withheld, or ''."""
        return self.hold.word if self.hold is not None else ""

    @property
    def text(self) -> str:
        """Why it is not Healthy, and why it is withheld, for an admin."""
        return "; ".join(filter(None, (self.message, self.hold.message if self.hold is not None else "")))

    @property
    def told(self) -> DeviceHealth:
        """Its health in reports. Unknown: it counts as Healthy, but its last check gave no answer."""
        if self.health is not Health.HEALTHY:
            return DeviceHealth.UNHEALTHY
        return DeviceHealth.UNKNOWN if self.unanswered else DeviceHealth.HEALTHY


@dataclass(frozen=True, slots=True)
class DeviceCounts:
    """Numbers of physical devices. Each is healthy, unhealthy or unknown; `withheld` is counted in addition."""

    devices: int = 0
    healthy: int = 0
    unhealthy: int = 0
    unknown: int = 0
    withheld: int = 0


def counts_of(devices: Iterable[DeviceState]) -> DeviceCounts:
    """Counts the devices that have listed ids."""
    listed = [device for device in devices if device.ids]
    of = Counter(device.told for device in listed)
    return DeviceCounts(
        devices=len(listed),
        healthy=of[DeviceHealth.HEALTHY],
        unhealthy=of[DeviceHealth.UNHEALTHY],
        unknown=of[DeviceHealth.UNKNOWN],
        withheld=sum(device.hold is not None for device in listed),
    )


@dataclass(frozen=True, slots=True)
class ResourceState:
    """One resource name. `counts`: physical devices, without those that another name lists for now. `capacity` and
    `allocated` count ids.

    `entry`: the configuration entry's name as written. `message`: why it is refused, or its driver's note, or ''.
    """

    name: str
    entry: str
    devices: tuple[DeviceState, ...]
    capacity: int
    allocated: int
    message: str
    counts: DeviceCounts = DeviceCounts()


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """The table at one moment.

    `resources`: by name; those served, and the configured names without placeholders that have no device.
    `refused`: resource or entry name -> why. `notes`: entry without devices -> why its driver shows none.
    `taken`: resource name -> which other agent serves it, so that this one cannot.
    `holders_known`: whether PodResources answered the last time; if not, the holders are those of its last answer.
    """

    resources: tuple[ResourceState, ...]
    excluded: tuple[Excluded, ...]
    refused: Mapping[str, str]
    holders_known: bool
    record_problem: str = ""
    notes: Mapping[str, str] = field(default_factory=dict)
    taken: Mapping[str, str] = field(default_factory=dict)
