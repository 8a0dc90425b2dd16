"""What identifies an allocatable device, and whether that survives a reboot. Pure."""

from collections.abc import Iterable

from device_agent.contract import attributes
from device_agent.contract.inventory import Identity
from device_agent.select.found import FoundDevice
from device_agent.select.unit import Unit


def identity(attribute: str, finds: Iterable[FoundDevice]) -> Identity:
    """Whether a unit made by `attribute` has the same id after the next boot."""
    if attribute == "name" and all(find.stable_name for find in finds):
        return Identity.STABLE
    return Identity.VOLATILE if attributes.is_volatile(attribute) else Identity.STABLE


def better_unit(find: FoundDevice) -> str:
    """The attribute that identifies the find best, as a hint for the admin."""
    return next((a for a in attributes.TELLING if a in find.attributes), "name")


class TakenIds:
    """The ids of units and their replicas, with the resource of each."""

    def __init__(self) -> None:
        self._units: dict[str, Unit] = {}
        self._like_replicas: dict[str, Unit] = {}
        """Units whose own id looks like a replica's: the part before `::` -> the unit with the lowest number."""

    def add(self, unit: Unit) -> None:
        self._units[unit.id] = unit
        base, number = split(unit.id)
        if number is not None:
            other = self._like_replicas.setdefault(base, unit)
            if number < (split(other.id)[1] or 0):
                self._like_replicas[base] = unit

    def holder(self, unit: Unit) -> str | None:
        """The resource that already has one of the unit's ids; None if all are free."""
        found = self._units.get(unit.id)
        if found is None:
            found = self._units.get(split(unit.id)[0])
            found = found if found and _is_replica(unit.id, found) else None
        if found is None:
            found = self._like_replicas.get(unit.id)
            found = found if found and _is_replica(found.id, unit) else None
        return found.resource if found else None


def held_numbers(held: Iterable[str]) -> dict[str, int]:
    """Id of a unit -> the lowest number of its replicas among the held ids.

    The id `a::1` can mean two things: a unit `a::1`, or replica 1 of a unit `a`. Both are in the result.
    """
    lowest: dict[str, int] = {}
    for device_id in held:
        base, number = split(device_id)
        lowest[device_id] = 0
        if number is not None:
            lowest[base] = min(number, lowest.get(base, number))
    return lowest


def split(device_id: str) -> tuple[str, int | None]:
    """(the part before the last `::`, the number after it), or (the id, None) if there is no number."""
    base, separator, number = device_id.rpartition("::")
    if separator and number.isascii() and number.isdecimal():
        return base, int(number)
    return device_id, None


def _is_replica(device_id: str, unit: Unit) -> bool:
    base, number = split(device_id)
    return base == unit.id and number is not None and number < unit.replicas
