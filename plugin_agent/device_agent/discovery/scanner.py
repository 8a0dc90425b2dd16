"""One scan of everything a document asks for. It reads, and never changes the hardware's state."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from device_agent.contract import attributes, check
from device_agent.contract.document import DeviceEntry, Document, Resource
from device_agent.discovery.boundary import Boundary
from device_agent.discovery.driver import DriverSource, Opener
from device_agent.discovery.files import DeviceFiles
from device_agent.discovery.host_tree import DevTree, HostTree
from device_agent.discovery.pci import PciFunctions
from device_agent.discovery.reads import Reader, UnreadableError
from device_agent.discovery.simulated import SimulatedDevices
from device_agent.discovery.source import Roots, Source
from device_agent.discovery.sysfs import SysfsObjects
from device_agent.discovery.sysfs_tree import SysfsTree
from device_agent.select.found import DeviceNodes, Findings, FoundDevice

SOURCES: Final[Mapping[str, Callable[[SysfsTree], Source]]] = {
    attributes.PCI: PciFunctions,
    attributes.SYSFS: SysfsObjects,
    attributes.FILES: DeviceFiles,
    attributes.SIMULATED: lambda _tree: SimulatedDevices(),
}
"""Every source that needs the node's files alone. Sources of driver libraries are handed to each scan."""

_MEMORY: Final = "char/1:"
"""The kernel's memory devices, such as /dev/null: their number tells of no hardware. Placeholders have it."""
NO_DRIVERS: Final[Mapping[str, Opener]] = MappingProxyType({})


class Scanner:
    """Scans below `roots`. From scan to scan it remembers only which defects are in the log."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._boundary = Boundary()

    def scan(
        self,
        document: Document,
        *,
        drivers: Mapping[str, Opener] = NO_DRIVERS,
        known: frozenset[str] = frozenset(),
        reader: Reader | None = None,
    ) -> Findings:
        """What each entry's source finds, before it is decided who owns what.

        A device that cannot be read never hides the others: it is left out, or found with a problem. An entry whose
        source fails does not hide the other entries. Blocking: a driver may take its time to answer a read. `drivers`:
        sources made from the answers of driver libraries, by kind. `known`: names of entries that had devices before,
        so their absence is reported. `reader`: is told of each read.
        """
        return _Scan(SysfsTree(self._roots, self._boundary, reader), document, drivers).findings(known)

    def device_nodes(self) -> DeviceNodes:
        """The node's /dev and /sys, for companions such as /dev/net/tun, mounts, and the numbers of device nodes."""
        sys, dev = HostTree(self._roots.sys, mount="/sys"), DevTree(self._roots.dev)

        def number(host_path: str) -> str:
            try:
                real = dev.real(host_path.removeprefix("/dev/"))
            except UnreadableError:
                return ""
            found = (dev.number(real) if real else None) or ""
            return "" if found.startswith(_MEMORY) else found

        def missing(host_path: str) -> bool:
            tree = next((tree for tree in (sys, dev) if host_path.startswith(f"{tree.mount}/")), None)
            try:
                # a captured tree needs no /dev/null
                return (
                    tree is not None
                    and host_path != "/dev/null"
                    and tree.real(host_path[len(tree.mount) + 1 :]) is None
                )
            except UnreadableError:
                return False

        return DeviceNodes(
            exists=lambda host_path: dev.exists(host_path.removeprefix("/dev/")), number=number, missing=missing
        )

    def still_there(self, hardware: Iterable[str]) -> frozenset[str]:
        """Those names of hardware (`FoundDevice.hardware`) that the node has. What has no path counts as there."""
        sys, dev = HostTree(self._roots.sys, mount="/sys"), DevTree(self._roots.dev)
        return frozenset(name for name in hardware if _is_there(name, sys, dev))


def _is_there(hardware: str, sys: HostTree, dev: DevTree) -> bool:
    source, colon, path = hardware.partition(":/dev/")
    try:
        if colon and "/" not in source:
            return dev.exists(path)
        return "/" not in hardware or sys.real(hardware) is not None
    except UnreadableError:
        return True


class _Scan:
    """One look at the node. `failed`: (resource index, entry index) -> why its source could not look."""

    def __init__(self, tree: SysfsTree, document: Document, drivers: Mapping[str, Opener]) -> None:
        self._tree = tree
        self._document = document
        kinds = {entry.kind for resource in document.resources for entry in resource.devices}
        self._drivers: dict[str, DriverSource] = {kind: drivers[kind](tree) for kind in sorted(kinds & drivers.keys())}
        self._sources: dict[str, Source] = {kind: make(tree) for kind, make in SOURCES.items() if kind in kinds}
        self._sources |= self._drivers
        self._failed: dict[tuple[int, int], str] = {}

    def findings(self, known: frozenset[str]) -> Findings:
        resources = tuple(enumerate(self._document.resources))
        by_entry = tuple(self._of_resource(number, resource) for number, resource in resources)
        unread = {number for number, _ in self._failed}
        empty = [(n, resource) for n, resource in resources if n not in unread and not any(by_entry[n])]
        return Findings(
            by_entry=by_entry,
            nothing={number: self._nothing(resource) for number, resource in empty},
            failed=self._failed,
            errors=tuple(dict.fromkeys(self._failed.values())),
            reasons={
                number: reason
                for number, resource in resources
                if (reason := self._reason(resource, expected=resource.name in known))
            },
            vanished={kind: source.vanished() for kind, source in self._drivers.items()},
        )

    def _of_resource(self, number: int, resource: Resource) -> tuple[tuple[FoundDevice, ...], ...]:
        wanted = check.attribute_names(resource).union(rule.match.attribute for rule in self._document.cordon)
        found: list[tuple[FoundDevice, ...]] = []
        for i, entry in enumerate(resource.devices):
            owner = f"{resource.name} devices[{i}]"
            try:
                found.append(self._sources[entry.kind].scan(entry, owner=owner, wanted=wanted))
            except Exception as error:  # noqa: BLE001 whatever it is, the other entries must be looked for
                self._failed[number, i] = self._tree.boundary.explain(error, owner)
                found.append(())
        return tuple(found)

    def _nothing(self, resource: Resource) -> tuple[str, ...]:
        return tuple(self._looked(entry) for entry in resource.devices)

    def _looked(self, entry: DeviceEntry) -> str:
        try:
            return self._sources[entry.kind].nothing(entry)
        except Exception as error:  # noqa: BLE001 it only explains; the scan is made
            return self._tree.boundary.explain(error, entry.kind)

    def _reason(self, resource: Resource, *, expected: bool) -> str:
        kinds = sorted({entry.kind for entry in resource.devices} & self._drivers.keys())
        return next((reason for kind in kinds if (reason := self._drivers[kind].reason(expected=expected))), "")
