"""Which finds are the same hardware, and who owns it. Pure.

Two finds of different entries are the same hardware when one's sysfs path is, or lies below, the other's, or
when they share a device node. What one source finds in one entry it tells apart itself: its own nodes stop at
the next object that it reports.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from device_agent.contract.values import dataclass
from device_agent.select.found import FoundDevice

VFIO_CONTAINER: Final = "/dev/vfio/vfio"
"""Every vfio device brings it along; it belongs to none."""

# vfio_dev_driver_allowed and vfio_dev_viable of the kernel's drivers/vfio: these do not stand in a group's way
_NEUTRAL_DRIVERS = frozenset({"pcieport", "pci-stub"})
_BRIDGES = ("0604", "0609")


@dataclass(frozen=True, slots=True)
class Owner:
    """The find that came first: `entry` is its number within the resource's devices, `label` its name for people.

    `group`: the IOMMU group whose members are one hardware for it, None when it is not passed through.
    """

    resource: str
    entry: int
    label: str
    group: str | None = None

    def same_source(self, other: "Owner") -> bool:
        return (self.resource, self.entry) == (other.resource, other.entry)

    def same_group(self, other: "Owner") -> bool:
        return self.group is not None and (self.resource, self.group) == (other.resource, other.group)


class Ownership:
    """Who owns which sysfs paths and nodes. First come, first served."""

    def __init__(self) -> None:
        self._paths: dict[str, Owner] = {}
        self._above: dict[str, list[Owner]] = {}
        self._nodes: dict[str, Owner] = {}

    def conflict(self, owner: Owner, *, paths: Iterable[str], nodes: Iterable[str]) -> Owner | None:
        """The earlier owner of any of it, None when all of it is free."""
        for path in paths:
            for earlier in self._related(path, owner):
                if not earlier.same_group(owner):
                    return earlier
        for node in nodes:
            found = self._nodes.get(node)
            if found is not None and not found.same_group(owner):
                return found
        return None

    def _related(self, path: str, owner: Owner) -> Iterable[Owner]:
        if path in self._paths:
            yield self._paths[path]
        for above in _ancestors(path):
            found = self._paths.get(above)
            if found is not None and not found.same_source(owner):
                yield found
        yield from (below for below in self._above.get(path, ()) if not below.same_source(owner))

    def take(self, owner: Owner, *, paths: Iterable[str], nodes: Iterable[str]) -> None:
        for path in paths:
            if self._paths.setdefault(path, owner) is owner:
                for above in _ancestors(path):
                    owners = self._above.setdefault(above, [])
                    # one owner per source and group answers every question that is asked of it
                    if not any(o.same_source(owner) and o.group == owner.group for o in owners):
                        owners.append(owner)
        for node in nodes:
            self._nodes.setdefault(node, owner)


def _ancestors(path: str) -> Iterable[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def claimed_nodes(find: FoundDevice) -> tuple[str, ...]:
    if "parentUuid" in find.attributes:
        return ()  # all MIG devices of a GPU bring its node along: their places tell them apart
    return tuple(node for node in find.nodes if node != VFIO_CONTAINER)


def on_vfio(find: FoundDevice) -> bool:
    """A PCI function bound to vfio-pci or a vendor's variant of it."""
    return find.source == "pci" and "vfio" in find.attributes.get("pci.driver", "")


def is_bridge(find: FoundDevice) -> bool:
    return find.attributes.get("pci.class", "").startswith(_BRIDGES)


def passthrough_group(find: FoundDevice, groups: "dict[str, Group]") -> str | None:
    """The IOMMU group that the find can only be given away with, None when it is no part of a vfio group.

    A function without a driver counts when another one of its group is bound to vfio: who has the group has it.
    """
    group = find.attributes.get("iommuGroup")
    if find.source != "pci" or group is None or is_bridge(find):
        return None
    if on_vfio(find):
        return group
    free = "pci.driver" not in find.attributes
    return group if free and group in groups and groups[group].in_use else None


@dataclass(frozen=True, slots=True)
class Group:
    """An IOMMU group. `paths`: what goes with it; `blockers`: (address, host driver) that keep it on the host.

    Bridges count for neither.
    """

    paths: tuple[str, ...]
    blockers: tuple[tuple[str, str], ...]
    in_use: bool

    @classmethod
    def of(cls, members: Sequence[FoundDevice]) -> "Group":
        inner = [m for m in members if not is_bridge(m)]
        blockers = {m.name: driver for m in inner if (driver := _host_driver(m))}
        return cls(
            paths=tuple(m.sysfs_path for m in inner if m.sysfs_path and m.name not in blockers),
            blockers=tuple(blockers.items()),
            in_use=any(on_vfio(m) for m in inner),
        )


def _host_driver(find: FoundDevice) -> str | None:
    driver = find.attributes.get("pci.driver", "")
    return driver if driver and "vfio" not in driver and driver not in _NEUTRAL_DRIVERS else None
