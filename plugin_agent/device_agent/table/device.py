"""One device under one resource name, as the table keeps it: which of its ids the kubelet is told, and how."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from device_agent.contract.document import Resource
from device_agent.select.unit import Grants, Identity, Unit
from device_agent.table.holders import Holder
from device_agent.table.snapshot import DeviceState, Health


@dataclass(slots=True)
class Leaving:
    """An id on its way out. `shown`: the list with it Unhealthy was taken, `shown_by`: at this time or before."""

    index: int
    shown: bool = False
    shown_by: float | None = None


@dataclass(slots=True, eq=False)
class Device:
    """One unit under one resource name. `ids`: of its present replicas; `withheld`: those not offered now.

    `unlisted`: ids that another device is listed with. `kept_until`: monotonic seconds; a device that vanished is
    listed until then at least. `unanswered`: why its last check gave no answer, or ''.
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
    judged: bool = False
    kept_until: float = 0.0
    unanswered: str = ""

    @property
    def never_found(self) -> bool:
        """No scan of this process has found it: PodResources has its id, an earlier process may have kept the rest."""
        return not self.present and not self.kept_until

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

    def leave(self, ids: Sequence[str], *, first: int = 0) -> None:
        """Put listed ids, replicas from `first` on, on their way out; those that were never listed are just gone."""
        for n, i in enumerate(ids, first):
            if i not in self.unlisted:
                self.leaving[i] = Leaving(index=n)

    def state(self, held: Mapping[str, tuple[Holder, ...]]) -> DeviceState:
        """It for reports. `held`: id -> its holders, of the resource."""
        ids = tuple(i for i, _, _ in self.listed())
        return DeviceState(
            unit=self.unit,
            health=self.health,
            reason=self.reason,
            message=self.message,
            since=self.since,
            unanswered=self.unanswered,
            ids=ids,
            holders={i: held[i] for i in ids if held.get(i)},
        )

    def shape(self) -> tuple[object, ...]:
        """Equal shapes are listed equally."""
        return self.unit.numa_node, self.health, self.ids, tuple(self.leaving), self.withheld, self.unlisted

    def judge(
        self, health: Health, reason: str = "", message: str = "", *, wall: datetime, since: datetime | None = None
    ) -> None:
        """Record a verdict. `since`: when what makes it unhealthy began, which is what an admin acknowledges.

        Where that is not known, and of a healthy device, it moves only when health or reason do.
        """
        changed = not self.judged or (health, reason) != (self.health, self.reason)
        if changed or (since is not None and health is Health.UNHEALTHY):
            self.since = since or wall
        self.judged = True
        self.health, self.reason, self.message = health, reason, message


class Hardware:
    """Devices by the hardware that they are made of.

    Two are the same when they have a sysfs path in common, or when one's lies below the other's; but finds of one
    source in one entry are told apart by it, however they lie (a disk and its partitions).
    """

    def __init__(self) -> None:
        self._at: dict[str, list[Device]] = {}
        self._above: dict[str, list[Device]] = {}
        self._ghosts: dict[str, Device] = {}

    def __bool__(self) -> bool:
        return bool(self._at or self._ghosts)

    def add(self, device: Device) -> None:
        if device.ghost:
            self._ghosts.setdefault(device.unit.id, device)
        for path in device.unit.hardware:
            self._at.setdefault(path, []).append(device)
            for ancestor in _ancestors(path):
                self._above.setdefault(ancestor, []).append(device)

    def sharing(self, unit: Unit) -> Device | None:
        """A device added that is the unit's hardware at least in part; of one that no scan found the id decides."""
        for path in unit.hardware:
            if path in self._at:
                return self._at[path][0]
            related: list[Device] = [*self._above.get(path, ())]
            for ancestor in _ancestors(path):
                related += self._at.get(ancestor, ())
            for device in related:
                if (device.unit.entry, device.unit.source) != (unit.entry, unit.source):
                    return device
        return self._ghosts.get(unit.id)


def _ancestors(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def ghost(entry: Resource, resource: str, device_id: str) -> Unit:
    """What is known of a device that PodResources says is held and no scan has found: its id."""
    return Unit(
        entry=entry.name,
        resource=resource,
        id=device_id,
        value=device_id,
        identity=Identity.VOLATILE,
        source="",
        attributes={},
        nodes=(),
        grants=Grants(),
        hardware=(),
    )


def split_replica(device_id: str) -> tuple[str, int]:
    """What `names.replica_id` made the id of, and the replica's index, as far as the id shows it."""
    device, separator, index = device_id.rpartition("::")
    if separator and device and index.isascii() and index.isdecimal():
        return device, int(index)
    return device_id, 0
