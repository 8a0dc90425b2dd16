"""Which units are the same hardware. Pure.

Two are when they have a sysfs path in common, or when one's lies below the other's. Units of one source in one entry
are told apart by that source, however their paths lie: a disk and its partitions.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

from device_agent.select.unit import Unit

Found = TypeVar("Found")
_Kind = tuple[str, str]
"""(entry, source) of a unit. At most one is kept of each kind and path: it answers for all the others."""


class HardwareIndex(Generic[Found]):
    """What is known of some units, found by the hardware of another one. The first that was added wins."""

    def __init__(self) -> None:
        self._at: dict[str, dict[_Kind, Found]] = {}
        self._above: dict[str, dict[_Kind, Found]] = {}
        self._ghosts: dict[str, Found] = {}

    def __bool__(self) -> bool:
        return bool(self._at or self._ghosts)

    def add(self, unit: Unit, found: Found) -> None:
        """`found`: what `sharing` is to answer for the hardware of this unit."""
        kind = (unit.entry, unit.source)
        if not unit.source:
            self._ghosts.setdefault(unit.id, found)
        for path in unit.hardware:
            self._at.setdefault(path, {}).setdefault(kind, found)
            for ancestor in _ancestors(path):
                self._above.setdefault(ancestor, {}).setdefault(kind, found)

    def sharing(self, unit: Unit) -> Found | None:
        """What was added for hardware that is the unit's at least in part; of a ghost the id alone decides."""
        kind = (unit.entry, unit.source)
        for path in unit.hardware:
            if path in self._at:
                return next(iter(self._at[path].values()))
            for related in self._related(path):
                for other, found in related.items():
                    if other != kind:
                        return found
        return self._ghosts.get(unit.id)

    def _related(self, path: str) -> Iterator[dict[_Kind, Found]]:
        yield self._above.get(path, {})
        for ancestor in _ancestors(path):
            yield self._at.get(ancestor, {})


def _ancestors(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
