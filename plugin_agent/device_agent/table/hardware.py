"""Which units are the same hardware. Pure.

Two units are the same hardware if they have a sysfs path in common, or if a path of one lies below a path of the
other. The second rule does not apply to units of one source in one entry: their source tells them apart. An
example is a disk and its partitions.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

from device_agent.select.places import Places
from device_agent.select.unit import Unit

Found = TypeVar("Found")


class HardwareIndex(Generic[Found]):
    """Finds for a unit what was added for another unit with the same hardware. The first one added wins."""

    def __init__(self) -> None:
        self._places: Places[tuple[str, str], Found] = Places()
        """By (entry, source) of the unit."""
        self._ghosts: dict[str, Found] = {}

    def __bool__(self) -> bool:
        return bool(self._places or self._ghosts)

    def add(self, unit: Unit, found: Found) -> None:
        """`found`: the answer of `sharing` for units that share hardware with this one."""
        if not unit.source:
            self._ghosts.setdefault(unit.id, found)
        for path in unit.hardware:
            self._places.add(path, found, kind=(unit.entry, unit.source))

    def sharing(self, unit: Unit) -> Found | None:
        """What was added for a unit that shares hardware with this one. A ghost is found by its id alone."""
        kind = (unit.entry, unit.source)
        for path in unit.hardware:
            if (same := self._places.at(path)) is not None:
                return same
            for other, found in self._places.related(path):
                if other != kind:
                    return found
        return self._ghosts.get(unit.id)


def same_hardware(one: Iterable[str], other: Iterable[str]) -> bool:
    """Whether two devices, by their sysfs paths, are the same hardware at least in part."""
    return any(a == b or a.startswith(f"{b}/") or b.startswith(f"{a}/") for a in one for b in other)
