"""PCI functions: by id, class, driver, address."""

from device_agent.contract.document import DeviceEntry, PciSource
from device_agent.discovery.host_tree import host_paths
from device_agent.discovery.sysfs_tree import NODE_MISSING, OwnNodes, PciFunction, SysfsTree
from device_agent.select.found import FoundDevice
from device_agent.select.kernel_names import matcher, restricts

_DIRECTORY = "bus/pci/devices"
_NOIOMMU = "vfio-noiommu"


class PciFunctions:
    """The source `pci`. Function and nodes are read once for all entries of a scan."""

    def __init__(self, tree: SysfsTree) -> None:
        self._tree = tree
        self._all: tuple[PciFunction, ...] | None = None
        self._nodes: dict[str, tuple[OwnNodes, tuple[str, str] | None]] = {}

    def scan(self, entry: DeviceEntry, *, wanted: frozenset[str]) -> tuple[FoundDevice, ...]:
        assert entry.pci is not None
        return tuple(self._found(f, wanted) for f in self._functions() if _selects(entry.pci, f))

    def nothing(self, entry: DeviceEntry) -> str:  # noqa: ARG002 the entry's globs are in the configuration
        return "no PCI function of this node matches" if self._functions() else "this node has no PCI functions"

    def iommu_groups(self) -> dict[str, tuple[FoundDevice, ...]]:
        """Every function of every IOMMU group, as devices without nodes."""
        groups: dict[str, list[FoundDevice]] = {}
        for function in self._functions():
            if function.iommu_group is not None:
                groups.setdefault(function.iommu_group, []).append(self._bare(function, frozenset()))
        return {group: tuple(members) for group, members in groups.items()}

    def _functions(self) -> tuple[PciFunction, ...]:
        if self._all is None:
            found = (self._tree.function(path) for _, path in self._tree.members(_DIRECTORY))
            self._all = tuple(sorted((f for f in found if f), key=lambda f: f.address))
        return self._all

    def _bare(self, function: PciFunction, wanted: frozenset[str]) -> FoundDevice:
        return FoundDevice(
            source="pci",
            name=function.address,
            sysfs_path=function.path,
            attributes=self._tree.attributes(function.path, name=function.address, wanted=wanted),
            numa_node=function.numa_node,
        )

    def _found(self, function: PciFunction, wanted: frozenset[str]) -> FoundDevice:
        if function.path not in self._nodes:
            self._nodes[function.path] = self._own_nodes(function)
        own, problem = self._nodes[function.path]
        nodes = host_paths(own.present)
        values = self._tree.attributes(function.path, name=function.address, wanted=wanted)
        if nodes:
            values["path"] = nodes[0]
        return FoundDevice(
            source="pci",
            name=function.address,
            sysfs_path=function.path,
            attributes=values,
            nodes=nodes,
            numa_node=function.numa_node,
            problem=problem,
        )

    def _own_nodes(self, function: PciFunction) -> tuple[OwnNodes, tuple[str, str] | None]:
        if function.on_vfio:
            return self._vfio_nodes(function)
        own = self._tree.own_nodes(function.path, foreign=lambda path: self._tree.function(path) is not None)
        return own, own.problem

    def _vfio_nodes(self, function: PciFunction) -> tuple[OwnNodes, tuple[str, str] | None]:
        """The group's node and the container's (Linux Documentation/driver-api/vfio.rst)."""
        if function.iommu_group is None:
            text = f"{function.address} is bound to {function.driver} and has no IOMMU group: enable the IOMMU"
            return OwnNodes((), ()), (NODE_MISSING, text)
        name = self._tree.sys.text(f"kernel/iommu_groups/{function.iommu_group}/name")
        prefix = "noiommu-" if name == _NOIOMMU else ""
        nodes = (f"vfio/{prefix}{function.iommu_group}", "vfio/vfio")
        own = OwnNodes(
            present=tuple(sorted(n for n in nodes if self._tree.dev.is_node(n))),
            missing=tuple(n for n in nodes if not self._tree.dev.is_node(n)),
        )
        if not own.missing:
            return own, None
        missing = ", ".join(f"/dev/{n}" for n in own.missing)
        return own, (NODE_MISSING, f"{missing} of IOMMU group {function.iommu_group} does not exist")


def _selects(source: PciSource, function: PciFunction) -> bool:
    return (
        restricts(source.ids)(f"{function.vendor}:{function.device}")
        and (not source.classes or any(map(matcher(source.classes), (function.pci_class, function.pci_class[:4]))))
        and (not source.drivers or (function.driver is not None and matcher(source.drivers)(function.driver)))
        and restricts(source.addresses)(function.address)
    )
