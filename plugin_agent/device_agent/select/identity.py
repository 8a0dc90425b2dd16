"""What tells one allocatable device from another, and how long that lasts. Pure."""

from collections.abc import Iterable
from typing import Final

from device_agent.select.found import FoundDevice
from device_agent.select.unit import Identity, Unit

_VOLATILE: Final = frozenset({"name", "path", "index", "iommuGroup"})
# Where `name` is no enumeration number: the PCI address, the UUID, and what the document itself numbers.
_STABLE_NAMES: Final = frozenset({"pci", "simulated", "nvml"})
_TELLING: Final = ("uuid", "usb.port", "pci.address", "path", "name")


def identity(attribute: str, finds: Iterable[FoundDevice]) -> Identity:
    """Whether a unit that was made by `attribute` has the same id after the next boot."""
    if attribute == "name" and all(find.source in _STABLE_NAMES for find in finds):
        return Identity.STABLE
    return Identity.VOLATILE if attribute in _VOLATILE else Identity.STABLE


def better_unit(find: FoundDevice) -> str:
    """The attribute that tells the find best from others: the hint for whoever chose one that does not."""
    return next((a for a in _TELLING if a in find.attributes), "name")


class Ids:
    """The ids of units and their replicas, with the resource of each."""

    def __init__(self) -> None:
        self._units: dict[str, Unit] = {}
        self._like_replicas: list[Unit] = []

    def add(self, unit: Unit) -> None:
        self._units[unit.id] = unit
        if "::" in unit.id:
            self._like_replicas.append(unit)

    def holder(self, unit: Unit) -> str | None:
        """The resource that has one of the unit's ids, None when all are free."""
        found = self._units.get(unit.id)
        if found is None:
            base = self._units.get(unit.id.rpartition("::")[0])
            found = base if base and _is_replica(unit.id, base) else None
        if found is None:
            found = next((u for u in self._like_replicas if _is_replica(u.id, unit)), None)
        return found.resource if found else None


def _is_replica(device_id: str, unit: Unit) -> bool:
    base, _, number = device_id.rpartition("::")
    return base == unit.id and number.isdecimal() and int(number) < unit.replicas
