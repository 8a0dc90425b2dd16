"""The kubelet's way of seeing devices: which ids each has, and the list of each resource name. Pure.

A `Device` does not depend on how it is served. ListAndWatch knows only ids: one for each replica, unique over all
names of the node, each Healthy or Unhealthy. An id is dropped only after the kubelet was told that it is Unhealthy.
This module has what only ListAndWatch needs. `Ids` are the ids of one device. `ResourceList` has all ids of one name.
`Told` is what the kubelet was told of them.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Final, NamedTuple

from device_agent.allocate.grant import GrantedId, NoteWriter, device_text, granted
from device_agent.allocate.preferred import Place
from device_agent.allocate.topology import Affinity, Links, affinity, spot_of
from device_agent.contract.names import replica_id
from device_agent.contract.values import dataclass
from device_agent.select.unit import Unit
from device_agent.table.device import Device, Key, Standing, split_replica
from device_agent.table.grants import Granted
from device_agent.table.snapshot import Advertised


class Leaving(NamedTuple):
    """An id on its way out. `replica`: its index; `since`: when it began to leave, monotonic seconds."""

    replica: int
    since: float


_NOTHING: Final[Mapping[str, Leaving]] = {}


@dataclass(frozen=True, slots=True)
class Ids:
    """The ids of one device. `current`: of its replicas, by index; `leaving`: listed Unhealthy until they may go.

    `unlisted`: those that are listed for another device.
    """

    current: tuple[str, ...] = ()
    leaving: Mapping[str, Leaving] = field(default_factory=lambda: _NOTHING)
    unlisted: frozenset[str] = frozenset()

    def of(self, unit: Unit, *, now: float) -> "Ids":
        """The ids of the unit that a scan found. Surplus replicas begin to leave; ids that came back stay."""
        if len(self.current) == unit.replicas:
            after = self
        else:
            ids = tuple(replica_id(unit.id, n) for n in range(unit.replicas))
            after = replace(self._leave(self.current[unit.replicas :], first=unit.replicas, now=now), current=ids)
        return after.without(after.current)

    def all_leaving(self, *, now: float) -> "Ids":
        """The ids after the device vanished: all begin to leave."""
        return replace(self._leave(self.current, first=0, now=now), current=())

    def also_leaving(self, more: Mapping[str, Leaving]) -> "Ids":
        """The ids with further ones that are in use and must be listed."""
        return replace(self, leaving={**self.leaving, **more})

    def without(self, ids: Collection[str]) -> "Ids":
        """The ids without these: they are gone, or they are back."""
        if self.leaving.keys().isdisjoint(ids):
            return self
        gone = frozenset(ids)
        return replace(self, leaving={i: leaving for i, leaving in self.leaving.items() if i not in gone})

    def replica(self, device_id: str) -> int:
        """Which replica one of the ids is."""
        if (leaving := self.leaving.get(device_id)) is not None:
            return leaving.replica
        _, index = split_replica(device_id)
        if index < len(self.current) and self.current[index] == device_id:
            return index
        return self.current.index(device_id)  # an id that was cut for length does not show it

    def listed(self) -> Iterator[tuple[str, int]]:
        """(id, index of its replica) as the kubelet is told, in the order of the index."""
        everything = [(i, n) for n, i in enumerate(self.current)]
        if self.leaving:
            everything += [(i, leaving.replica) for i, leaving in self.leaving.items()]
            everything.sort(key=lambda item: item[1])
        return (item for item in everything if item[0] not in self.unlisted)

    def _leave(self, ids: Sequence[str], *, first: int, now: float) -> "Ids":
        """Puts ids on their way out. Ids that were never listed are simply dropped."""
        more = {i: Leaving(replica=n, since=now) for n, i in enumerate(ids, first) if i not in self.unlisted}
        return self.also_leaving(more) if more else self


def share_out(
    ids: Mapping[Key, Ids], *, elsewhere: Collection[Key] = ()
) -> tuple[Mapping[Key, Ids], Mapping[str, str]]:
    """Assigns each id to one device: first the ids on their way out, because the kubelet has them, then in the table's
    order.

    The kubelet finds the pod of a device by the id alone (pkg/kubelet/cm/devicemanager/pod_devices.go,
    getPodAndContainerForDevice). So an id must be in one list only. `elsewhere`: devices that another agent lists.
    Returns the ids, and the ids on their way out with the name that lists them.
    """
    leaving: dict[str, str] = {}
    doubles: dict[Key, frozenset[str]] = {}
    for key, own in ids.items():
        if own.leaving:
            doubles[key] = frozenset(leaving.keys() & own.leaving.keys())
            for i in own.leaving:
                leaving.setdefault(i, key[0])
    taken = set(leaving)
    changed: dict[Key, Ids] = {}
    for key, own in ids.items():
        unlisted = doubles.get(key, frozenset()).union(taken.intersection(own.current))
        if key in elsewhere:
            unlisted = unlisted.union(own.current)
        taken.update(own.current)
        if unlisted != own.unlisted:
            changed[key] = replace(own, unlisted=unlisted)
    return {**ids, **changed} if changed else ids, leaving


class ListRow(NamedTuple):
    """All that a list needs of one device."""

    device: Device
    ids: Ids
    standing: Standing

    def granted(self, device_id: str, *, boot: str) -> Granted:
        """What a container with one of its ids has."""
        device = granted(self.device.unit, exclusive=self.device.exclusive)
        return Granted(device, self.ids.replica(device_id), boot)

    def offers(self, device_id: str) -> bool:
        """Whether a listed id of it is Healthy."""
        standing = self.standing
        return standing.offered and device_id not in standing.kept_back and device_id not in self.ids.leaving


@dataclasses.dataclass(frozen=True, eq=False)  # the one of contract.values has slots, and always compares by value
class ResourceList:
    """The list of one resource name. `rows`: its devices by id; `hints`: whether the kubelet gets NUMA nodes.

    `advertised`: for ListAndWatch, by device and replica. `owners`: listed id -> its device. The rest is for preferred
    allocations, and is made on first use.
    """

    rows: tuple[ListRow, ...]
    hints: bool
    links: Links
    advertised: tuple[Advertised, ...]
    owners: Mapping[str, ListRow]

    @classmethod
    def of(cls, rows: tuple[ListRow, ...], *, hints: bool, links: Links) -> "ResourceList":
        """`rows`: including devices without a listed id."""
        advertised: list[Advertised] = []
        owners: dict[str, ListRow] = {}
        for row in rows:
            numa_node = row.device.unit.numa_node if hints else None
            for i, _ in row.ids.listed():
                advertised.append(Advertised(id=i, healthy=row.offers(i), numa_node=numa_node))
                owners[i] = row
        return cls(rows, hints, links, tuple(advertised), owners)

    def note(self, ids: Iterable[str], writer: NoteWriter) -> tuple[str, str]:
        """(name, value) of the annotation that says which devices these listed ids are."""
        rows = {i: self.owners[i] for i in ids}
        of = ((i, GrantedId(row.device.unit.id, row.ids.replica(i))) for i, row in rows.items())
        devices = {row.device.unit.id: row.device for row in rows.values()}
        return writer.write(self.rows[0].device.unit.resource, of, lambda device: self._text_of(devices[device]))

    @cached_property
    def places(self) -> Mapping[str, Place]:
        """Where each listed id is."""
        return {
            i: Place(device=row.device.unit.id, numa_node=row.device.unit.numa_node, replica=index)
            for row in self.rows
            for i, index in row.ids.listed()
        }

    def granted(self, device_id: str, *, boot: str) -> Granted:
        """What a container with this listed id has. It is kept: a pod waits."""
        found = self._granted.get(device_id)
        if found is None:
            found = self._granted[device_id] = self.owners[device_id].granted(device_id, boot=boot)
        return found

    @cached_property
    def _granted(self) -> dict[str, Granted]:
        return {}

    def _text_of(self, device: Device) -> str:
        text = self._texts.get(device.unit.id)
        if text is None:
            text = self._texts[device.unit.id] = device_text(device.unit, exclusive=device.exclusive)
        return text

    @cached_property
    def _texts(self) -> dict[str, str]:
        """Device id -> `device_text`, of those that were given since this list was made."""
        return {}

    @cached_property
    def unhealthy(self) -> frozenset[str]:
        """Listed ids that are not offered."""
        return frozenset(a.id for a in self.advertised if not a.healthy)

    @cached_property
    def affinity(self) -> Affinity | None:
        """How close its devices are to each other."""
        return affinity({row.device.unit.id: spot_of(row.device.unit) for row in self.rows}, self.links)


Lists = Mapping[str, ResourceList]
"""Resource name -> its list, sorted by name. A name whose devices have no listed id now has an empty list."""


def make(before: Lists, rows: Iterable[ListRow], *, hints: Callable[[str], bool], links: Links) -> Lists:
    """The lists of these devices. A name whose devices and ids are the same values as before keeps its list."""
    by_name: dict[str, list[ListRow]] = {}
    for row in rows:
        by_name.setdefault(row.device.unit.resource, []).append(row)
    lists: dict[str, ResourceList] = {}
    for name in sorted(by_name):
        made = tuple(sorted(by_name[name], key=lambda row: row.device.unit.id))
        old, hinted = before.get(name), hints(name)
        same = old is not None and (old.hints, old.links, old.rows) == (hinted, links, made)
        lists[name] = old if old is not None and same else ResourceList.of(made, hints=hinted, links=links)
    return lists


def with_links(lists: Lists, links: Links) -> Lists:
    """The same lists with these links between the devices."""
    return {name: one if one.links == links else replace(one, links=links) for name, one in lists.items()}


def changed(before: Lists, after: Lists) -> frozenset[str]:
    """Names whose list for the kubelet has changed."""
    return frozenset(
        name
        for name in before.keys() | after.keys()
        if before.get(name) is not after.get(name) and advertised(before, name) != advertised(after, name)
    )


def advertised(lists: Lists, name: str) -> tuple[Advertised, ...]:
    """The list of a name; empty for one that is not served."""
    found = lists.get(name)
    return found.advertised if found is not None else ()


Told = Mapping[str, float]
"""What the kubelet was told: id -> since when it has the id as Unhealthy.

An id counts if it was written as Unhealthy and is Unhealthy in every list made since. Any of these lists may be the
next that the kubelet gets.
"""


def unhealthy_since(before: Told, written: Iterable[Advertised], latest: ResourceList, *, now: float) -> Told:
    """The value after the list `written` was sent. `latest`: the next list to send; `before`: the value so far."""
    unhealthy = latest.unhealthy
    return {i.id: before.get(i.id, now) for i in written if not i.healthy and i.id in unhealthy}


def still_unhealthy(told: Mapping[str, Told], before: Lists, after: Lists) -> Mapping[str, Told]:
    """What the kubelet was told, by name, after the lists `after` replaced `before`."""
    return {
        name: ids if before.get(name) is after[name] else {i: at for i, at in ids.items() if i in after[name].unhealthy}
        for name, ids in told.items()
        if name in after
    }
