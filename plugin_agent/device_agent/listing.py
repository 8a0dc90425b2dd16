"""One device under one resource name, as the table keeps it: which of its ids the kubelet is told, and how."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from device_agent.snapshot import Health
from device_agent.units import Unit


@dataclass(slots=True)
class Leaving:
    """An id on its way out. `shown`: the list with it Unhealthy was taken, `shown_by`: at this time or before."""

    index: int
    shown: bool = False
    shown_by: float | None = None


@dataclass(slots=True, eq=False)
class Device:
    """One unit under one resource name. `ids`: of its present replicas; `withheld`: those not offered now.

    `unlisted`: ids that another device is listed with.
    """

    unit: Unit
    since: datetime
    present: bool = True
    exclusive: bool = True
    ids: tuple[str, ...] = ()
    leaving: dict[str, Leaving] = field(default_factory=dict)
    withheld: frozenset[str] = frozenset()
    unlisted: frozenset[str] = frozenset()
    health: Health = Health.HEALTHY
    reason: str = ""
    message: str = ""

    @property
    def ghost(self) -> bool:
        """Known from PodResources alone: no scan has found it."""
        return not self.unit.source

    def listed(self) -> Iterator[tuple[str, int, bool]]:
        """(id, replica's index, healthy) as the kubelet is told, in the order of the index."""
        healthy = self.health is Health.HEALTHY
        everything = [(i, n, healthy and i not in self.withheld) for n, i in enumerate(self.ids)]
        if self.leaving:
            everything += [(i, leaving.index, False) for i, leaving in self.leaving.items()]
            everything.sort(key=lambda item: item[1])
        return (item for item in everything if item[0] not in self.unlisted)

    def shape(self) -> tuple[object, ...]:
        """Equal shapes are listed equally."""
        return self.unit.numa_node, self.health, self.ids, tuple(self.leaving), self.withheld, self.unlisted

    def judge(self, health: Health, reason: str = "", message: str = "", *, wall: datetime) -> None:
        """Record a verdict; `since` moves only when health or reason do."""
        if (health, reason) != (self.health, self.reason):
            self.since = wall
        self.health, self.reason, self.message = health, reason, message


class Hardware:
    """Devices by the hardware they are made of: two are the same when one's sysfs path is or lies below the other's."""

    def __init__(self) -> None:
        self._at: dict[str, Device] = {}
        self._above: dict[str, Device] = {}
        self._by_id: dict[str, Device] = {}

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def add(self, device: Device) -> None:
        self._by_id.setdefault(device.unit.id, device)
        for path in device.unit.hardware:
            self._at.setdefault(path, device)
            for ancestor in _ancestors(path):
                self._above.setdefault(ancestor, device)

    def sharing(self, unit: Unit) -> Device | None:
        """A device added that is, at least in part, the unit's hardware, or has its id."""
        for path in unit.hardware:
            found = self._at.get(path) or self._above.get(path)
            if found:
                return found
            for ancestor in _ancestors(path):
                if ancestor in self._at:
                    return self._at[ancestor]
        return self._by_id.get(unit.id)


def _ancestors(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
