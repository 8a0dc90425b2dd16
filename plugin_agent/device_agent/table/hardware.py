"""Which units are the same hardware. Pure.

Two are when they have a sysfs path in common, or when one's lies below the other's. Units of one source in one entry
are told apart by that source, however their paths lie: a disk and its partitions.
"""

from typing import Generic, TypeVar

from device_agent.select.places import Places
from device_agent.select.unit import Unit

Found = TypeVar("Found")


class HardwareIndex(Generic[Found]):
    """What is known of some units, found by the hardware of another one. The first that was added wins."""

    def __init__(self) -> None:
        self._places: Places[tuple[str, str], Found] = Places()
        """By (entry, source) of the unit."""
        self._ghosts: dict[str, Found] = {}

    def __bool__(self) -> bool:
        return bool(self._places or self._ghosts)

    def add(self, unit: Unit, found: Found) -> None:
        """`found`: what `sharing` is to answer for the hardware of this unit."""
        if not unit.source:
            self._ghosts.setdefault(unit.id, found)
        for path in unit.hardware:
            self._places.add(path, found, kind=(unit.entry, unit.source))

    def sharing(self, unit: Unit) -> Found | None:
        """What was added for hardware that is the unit's at least in part; of a ghost the id alone decides."""
        kind = (unit.entry, unit.source)
        for path in unit.hardware:
            if (same := self._places.at(path)) is not None:
                return same
            for other, found in self._places.related(path):
                if other != kind:
                    return found
        return self._ghosts.get(unit.id)
