"""PCI functions, selected by id, class, driver and address."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from typing import Final

from device_agent.contract.attributes import PCI
from device_agent.contract.document import DeviceEntry, PciSource
from device_agent.contract.reasons import DeviceReason
from device_agent.discovery import iommu
from device_agent.discovery.host_tree import host_paths
from device_agent.discovery.iommu import IommuGroups
from device_agent.discovery.likeness import meant
from device_agent.discovery.sysfs_tree import FoundNodes, PciFunction, SysfsTree
from device_agent.select.found import FoundDevice, Problem
from device_agent.select.kernel_names import restricts

_NOIOMMU: Final = "vfio-noiommu"
_NO_GROUP: Final = "it is bound to vfio and has no IOMMU group: switch the IOMMU on in firmware and kernel"


class PciFunctions:
    """The source `pci`. Functions and nodes are read once for all entries of a scan."""

    def __init__(self, tree: SysfsTree) -> None:
        self._tree = tree
        self._nodes: dict[str, tuple[FoundNodes, Problem | None]] = {}

    def scan(self, entry: DeviceEntry, *, owner: str, wanted: frozenset[str]) -> tuple[FoundDevice, ...]:  # noqa: ARG002
        assert entry.pci is not None
        # an unreadable function can be selected by its address alone
        at = restricts(entry.pci.addresses)
        found = [find for find in self._tree.functions().unreadable if at(find.name)]
        fields = _fields(entry.pci)
        for function in self._tree.functions().readable:
            if all(field.fits(function) for field in fields):
                place = self._tree.sys.host(function.path)
                with self._tree.boundary.around(PCI, function.address, place, into=found, sysfs_path=function.path):
                    found.append(self._found(function, wanted))
        return tuple(found)

    def nothing(self, entry: DeviceEntry) -> str:
        """Which field of the entry leaves no function over, and the value that may be meant."""
        assert entry.pci is not None
        left = self._tree.functions().readable
        if not left:
            return "this node has no PCI functions"
        before = "this node"
        for field in _fields(entry.pci):
            matching = tuple(f for f in left if field.fits(f))
            asked = f"{field.name} {' or '.join(field.globs)}"
            if not matching:
                there = sorted({value for f in left for value in field.values(f)})
                return f"no PCI function of {before} has {asked}{meant(field.globs, there)}"
            if field.globs:
                before = f"this node with {asked}"
            left = matching
        return "no PCI function of this node matches"

    @cached_property
    def _groups(self) -> IommuGroups:
        functions = self._tree.functions()
        unreadable = (
            (find.name, group)
            for find in functions.unreadable
            if find.sysfs_path and (group := self._tree.sys.link(f"{find.sysfs_path}/iommu_group"))
        )
        return IommuGroups(functions.readable, unreadable=unreadable)

    def _found(self, function: PciFunction, wanted: frozenset[str]) -> FoundDevice:
        if function.path not in self._nodes:
            self._nodes[function.path] = self._own_nodes(function)
        own, problem = self._nodes[function.path]
        nodes = host_paths(own.present)
        values = self._tree.attributes(function.path, name=function.address, wanted=wanted)
        if nodes:
            values["path"] = nodes[0]
        return with_group(
            FoundDevice(
                source=PCI,
                name=function.address,
                sysfs_path=function.path,
                attributes=values,
                nodes=nodes,
                shared_nodes=host_paths([iommu.VFIO_CONTAINER]),
                numa_node=function.numa_node,
                problem=problem,
                unit="pci.address",
                stable_name=True,
            ),
            function,
            self._groups,
        )

    def _own_nodes(self, function: PciFunction) -> tuple[FoundNodes, Problem | None]:
        if function.on_vfio:
            return self._vfio_nodes(function)
        own = self._tree.own_nodes(function.path, foreign=lambda path: self._tree.function(path) is not None)
        return own, own.problem

    def _vfio_nodes(self, function: PciFunction) -> tuple[FoundNodes, Problem | None]:
        """The group's node and the vfio container's (Linux Documentation/driver-api/vfio.rst)."""
        if function.iommu_group is None:
            text = f"{function.address} is bound to {function.driver} and has no IOMMU group: enable the IOMMU"
            return FoundNodes((), ()), (DeviceReason.DEVICE_NODE_MISSING, text)
        name = self._tree.sys.text(f"kernel/iommu_groups/{function.iommu_group}/name")
        prefix = "noiommu-" if name == _NOIOMMU else ""
        nodes = (f"vfio/{prefix}{function.iommu_group}", iommu.VFIO_CONTAINER)
        own = FoundNodes(
            present=tuple(sorted(n for n in nodes if self._tree.dev.is_node(n))),
            missing=tuple(n for n in nodes if not self._tree.dev.is_node(n)),
        )
        if not own.missing:
            return own, None
        missing = ", ".join(f"/dev/{n}" for n in own.missing)
        return own, (
            DeviceReason.DEVICE_NODE_MISSING,
            f"{missing} of IOMMU group {function.iommu_group} does not exist",
        )


def with_group(find: FoundDevice, function: PciFunction, groups: IommuGroups) -> FoundDevice:
    """The find of a function, with its IOMMU group and `unit` if it must be given away as part of a group."""
    if (group := groups.of(function)) is not None:
        return replace(find, group=group, unit=group.unit)
    if function.on_vfio and not iommu.is_bridge(function):
        return replace(find, unit=iommu.UNIT, absent={iommu.UNIT: _NO_GROUP})
    return find


class _Field:
    """A field of an entry. `values`: what of a function its globs are compared with; one must match."""

    def __init__(self, name: str, globs: tuple[str, ...], values: Callable[[PciFunction], Iterable[str]]) -> None:
        self.name = name
        self.globs = globs
        self.values = values
        self._matches = restricts(globs)

    def fits(self, function: PciFunction) -> bool:
        return any(map(self._matches, self.values(function)))


def _fields(source: PciSource) -> tuple[_Field, ...]:
    without = () if source.drivers else ("",)  # a function without a driver fits only where none is asked for
    return (
        _Field("ids", source.ids, lambda f: [f"{f.vendor}:{f.device}"]),
        _Field("classes", source.classes, lambda f: [f.pci_class, f.pci_class[:4]]),
        _Field("drivers", source.drivers, lambda f: [f.driver] if f.driver is not None else without),
        _Field("addresses", source.addresses, lambda f: [f.address]),
    )
