"""IOMMU groups: which PCI functions must be given away together, and whether that is possible. Pure.

A container that drives a function through vfio drives its whole group (Linux Documentation/driver-api/vfio.rst). So a
group has every function in it, whatever the document asks for. Bridges are in no group here.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from device_agent.discovery.sysfs_tree import PciFunction
from device_agent.select.found import Group

UNIT: Final = "iommuGroup"
VFIO_CONTAINER: Final = "vfio/vfio"
"""Below /dev. All functions on vfio share it, and none owns it."""

# vfio_dev_driver_allowed and vfio_dev_viable of the kernel's drivers/vfio: these drivers do not block a group
_NEUTRAL_DRIVERS: Final = frozenset({"pcieport", "pci-stub"})
_BRIDGES: Final = ("0604", "0609")


class IommuGroups:
    """The groups of one node. `unreadable`: (address, group) of functions whose driver cannot be read."""

    def __init__(self, functions: Iterable[PciFunction], *, unreadable: Iterable[tuple[str, str]] = ()) -> None:
        members: dict[str, list[PciFunction]] = {}
        for function in functions:
            if function.iommu_group is not None and not is_bridge(function):
                members.setdefault(function.iommu_group, []).append(function)
        blockers: dict[str, list[str]] = {}
        for address, number in unreadable:
            blockers.setdefault(number, []).append(f"{address} (cannot be read)")
        self._in_use = {number for number, found in members.items() if any(f.on_vfio for f in found)}
        self._groups: Mapping[str, Group] = {
            number: _group(number, found, blockers.get(number, ())) for number, found in members.items()
        }

    def of(self, function: PciFunction) -> Group | None:
        """The group with which the function must be given away. None: it is not part of a vfio group.

        A function without a driver is part of a vfio group if another function of the group is bound to vfio.
        """
        number = function.iommu_group
        if number is None or is_bridge(function):
            return None
        goes = function.on_vfio or (function.driver is None and number in self._in_use)
        return self._groups[number] if goes else None


def is_bridge(function: PciFunction) -> bool:
    return function.pci_class.startswith(_BRIDGES)


def _group(number: str, members: Iterable[PciFunction], unreadable: Iterable[str]) -> Group:
    name = f"IOMMU group {number}"
    hosts = {f.address: f.driver for f in members if _is_hosts(f)}
    blockers = [*(f"{address} (driver {driver})" for address, driver in hosts.items()), *unreadable]
    return Group(
        name=name,
        unit=UNIT,
        paths=tuple(f.path for f in members if f.address not in hosts),
        unviable=f"{name} also holds {', '.join(blockers)}: bind all of the group to vfio-pci, or none"
        if blockers
        else "",
    )


def _is_hosts(function: PciFunction) -> bool:
    """Whether a driver of the host uses the function."""
    return bool(function.driver) and not function.on_vfio and function.driver not in _NEUTRAL_DRIVERS
