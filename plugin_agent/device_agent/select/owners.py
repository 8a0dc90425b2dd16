"""Which entry owns which hardware. Pure.

Two finds of different entries are the same hardware in two cases. Their sysfs paths are equal, or one is below the
other. Or they have a device node in common that is not shared by design. Within one entry, a source keeps its finds
apart itself: the own nodes of a find stop at the next object that the source reports.
"""

from collections.abc import Iterator

from device_agent.contract.values import dataclass
from device_agent.select.found import FoundDevice
from device_agent.select.places import Places


@dataclass(frozen=True, slots=True)
class Owner:
    """The find that came first. `entry`: index of its source within the resource's devices. `label`: its name for
    people.

    `group`: name of its group, which it owns as one piece of hardware; None if it has no group.
    """

    resource: str
    entry: int
    label: str
    group: str | None = None

    def same_source(self, other: "Owner") -> bool:
        return (self.resource, self.entry) == (other.resource, other.entry)

    def same_group(self, other: "Owner") -> bool:
        return self.group is not None and (self.resource, self.group) == (other.resource, other.group)


class Owners:
    """Records which find owns which sysfs paths and nodes. The first find wins."""

    def __init__(self) -> None:
        # the first owner of each place, source and group is enough: later ones of that kind do not conflict with it
        self._places: Places[tuple[str, int, str | None], Owner] = Places()
        self._nodes: dict[str, Owner] = {}
        self._groups: set[tuple[str, str]] = set()

    def take(self, find: FoundDevice, owner: Owner) -> Owner | None:
        """Takes the find's hardware. If an earlier find has any of it, takes nothing and returns that owner."""
        paths, nodes = self._paths(find, owner), find.own_nodes
        for path in paths:
            for earlier in self._related(path, owner):
                if not earlier.same_group(owner):
                    return earlier
        for node in nodes:
            found = self._nodes.get(node)
            if found is not None and not found.same_group(owner):
                return found
        for path in paths:
            self._places.add(path, owner, kind=(owner.resource, owner.entry, owner.group))
        for node in nodes:
            self._nodes.setdefault(node, owner)
        if owner.group is not None:
            self._groups.add((owner.resource, owner.group))
        return None

    def _paths(self, find: FoundDevice, owner: Owner) -> list[str]:
        own = {find.sysfs_path} if find.sysfs_path else set()
        # with the first device of a group the entry takes the whole group
        if find.group is not None and (owner.resource, find.group.name) not in self._groups:
            own.update(find.group.paths)
        return sorted(own)

    def _related(self, path: str, owner: Owner) -> Iterator[Owner]:
        if (same := self._places.at(path)) is not None:
            yield same
        yield from (other for _, other in self._places.related(path) if not other.same_source(owner))
