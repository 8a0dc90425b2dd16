"""What each resource name advertises: its devices in order, the list for the kubelet, and who is behind an id. Pure.

All of it follows from the devices. It exists because it is asked for by every Allocate and may have 20,000 ids: so it
is made once per event, for the names alone whose devices are listed otherwise than before, and what only a preferred
allocation needs is made when one asks for it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from device_agent.allocate.preferred import Place
from device_agent.allocate.topology import Affinity, Links, affinity, spot_of
from device_agent.table.device import Device
from device_agent.table.snapshot import Advertised


class Advertisement:
    """Of all names. `hints`: whether a name's list tells the kubelet about NUMA nodes."""

    def __init__(self, *, hints: Callable[[str], bool]) -> None:
        self._hints = hints
        self._groups: dict[str, tuple[Device, ...]] = {}
        self._index: dict[str, dict[str, Device]] = {}
        self._lists: dict[str, tuple[Advertised, ...]] = {}
        self._shapes: dict[str, tuple[object, ...]] = {}
        self._places: dict[str, dict[str, Place]] = {}
        self._links: Links = {}
        self._affinities: dict[str, Affinity | None] = {}

    # Making it

    def make(self, devices: Iterable[tuple[str, Device]]) -> frozenset[str]:
        """Follow the devices, given with their resource names; the names whose list is not what it was."""
        by_name: dict[str, list[Device]] = {}
        for name, device in devices:
            by_name.setdefault(name, []).append(device)
        self._groups = {n: tuple(sorted(by_name[n], key=lambda d: d.unit.id)) for n in sorted(by_name)}
        changed = set()
        for name in self._groups.keys() | self._shapes.keys():
            hints = name in self._groups and self._hints(name)
            shape = (hints, *((id(d), *d.shape()) for d in self.devices(name)))
            if self._shapes.get(name) != shape:
                self._shapes[name] = shape
                if self._relist(name, hints=hints):
                    changed.add(name)
        self._lists = {n: self._lists[n] for n in sorted(self._lists)}
        return frozenset(changed)

    def _relist(self, name: str, *, hints: bool) -> bool:
        """Make one name's list; whether the kubelet has to be told."""
        index: dict[str, Device] = {}
        ids: list[Advertised] = []
        for device in self.devices(name):
            numa = device.unit.numa_node if hints else None
            for i, _, healthy in device.listed():
                index[i] = device
                ids.append(Advertised(id=i, healthy=healthy, numa_node=numa))
        before, after = self._lists.get(name, ()), tuple(ids)
        self._places.pop(name, None)
        self._affinities.pop(name, None)
        self._index[name], self._lists[name] = index, after
        if not after:
            del self._index[name], self._lists[name]
        if name not in self._groups:
            del self._shapes[name]
        return before != after

    def links(self, links: Links) -> None:
        """The NVLinks between the node's GPUs; no list depends on them."""
        if links != self._links:
            self._links = links
            self._affinities.clear()

    def moved(self, name: str) -> None:
        """A device of the name is another one, or elsewhere, whatever its list says."""
        self._affinities.pop(name, None)

    # Answers

    def names(self) -> tuple[str, ...]:
        """Those with listed ids, sorted."""
        return tuple(self._lists)

    def groups(self) -> tuple[str, ...]:
        """Those that have devices, also such as are listed with no id now, sorted."""
        return tuple(self._groups)

    def has(self, name: str) -> bool:
        return name in self._groups

    def devices(self, name: str) -> Sequence[Device]:
        """Devices of a name by id, those that are listed with no id too."""
        return self._groups.get(name, ())

    def ids(self, name: str) -> Mapping[str, Device]:
        """Listed id -> device."""
        return self._index.get(name, {})

    def list(self, name: str) -> tuple[Advertised, ...]:
        """For ListAndWatch, by device and replica; empty for a name without listed ids."""
        return self._lists.get(name, ())

    def places(self, name: str) -> Mapping[str, Place]:
        """Where each listed id is."""
        places = self._places.get(name)
        if places is None:
            places = {
                i: Place(device=device.unit.id, numa_node=device.unit.numa_node, replica=index)
                for device in self.devices(name)
                for i, index, _ in device.listed()
            }
            self._places[name] = places
        return places

    def offered(self, name: str, ids: Sequence[str], *, at_least: int) -> Sequence[str]:
        """Those of the ids that are healthy now; all of them when too few are."""
        listed = self.list(name)
        if all(a.healthy for a in listed):
            return ids
        broken = {a.id for a in listed if not a.healthy}
        well = [i for i in ids if i not in broken]
        return well if len(well) >= at_least else ids

    def affinity(self, name: str) -> Affinity | None:
        """How close its devices are to each other; made when it is first asked for after they or the links changed."""
        if name not in self._affinities:
            spots = {device.unit.id: spot_of(device.unit) for device in self.devices(name)}
            self._affinities[name] = affinity(spots, self._links)
        return self._affinities[name]
