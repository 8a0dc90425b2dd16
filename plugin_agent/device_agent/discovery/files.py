"""Finds device files by path: for nodes with names that admins know, and for udev's stable links."""

import posixpath
from contextlib import AbstractContextManager

from device_agent.contract.attributes import FILES
from device_agent.contract.document import DeviceEntry
from device_agent.contract.reasons import ExclusionReason
from device_agent.discovery.host_tree import host_paths
from device_agent.discovery.likeness import meant
from device_agent.discovery.sysfs_tree import SysfsTree, numa, trailing_index
from device_agent.select.found import FoundDevice
from device_agent.select.kernel_names import is_literal, matcher


class DeviceFiles:
    """The source `files`. Each path that matches a glob is a device if it is a device node or a directory with nodes.

    `name` and `path` keep the matched path, such as /dev/serial/by-id/x; the nodes are what it leads to.
    """

    def __init__(self, tree: SysfsTree) -> None:
        self._tree = tree

    def scan(self, entry: DeviceEntry, *, owner: str, wanted: frozenset[str]) -> tuple[FoundDevice, ...]:  # noqa: ARG002
        assert entry.files is not None
        found: list[FoundDevice] = []
        met: set[str] = set()  # real paths: two globs may match one node
        broken: list[FoundDevice] = []
        for pattern in entry.files.paths:
            for path in self._expand(pattern.removeprefix("/dev/"), broken):
                with self._around(path, broken):
                    real = self._tree.dev.real(path)
                    if real and real not in met and (device := self._found(path, real, pattern, wanted)):
                        met.add(real)
                        found.append(device)
        return (*found, *{find.title: find for find in broken}.values())

    def _around(self, path: str, into: list[FoundDevice]) -> AbstractContextManager[None]:
        place = self._tree.dev.host(path)
        return self._tree.boundary.around(FILES, posixpath.basename(path), place, into=into, label=place)

    def nothing(self, entry: DeviceEntry) -> str:
        assert entry.files is not None
        hints = (self._meant(pattern.removeprefix("/dev/")) for pattern in entry.files.paths)
        return f"no device file matches {' or '.join(entry.files.paths)}{next(filter(None, hints), '')}"

    def _meant(self, pattern: str) -> str:
        """The path up to the first segment that its directory lacks, as the directory may have it."""
        before = ""
        for segment in pattern.split("/"):
            if not is_literal(segment):
                return ""
            names = self._tree.dev.names(before)
            if segment not in names:
                here = posixpath.join("/dev", before)
                return meant([posixpath.join(here, segment)], (posixpath.join(here, name) for name in names))
            before = posixpath.join(before, segment)
        return ""

    def _expand(self, pattern: str, broken: list[FoundDevice]) -> list[str]:
        paths = [""]
        for segment in pattern.split("/"):
            if is_literal(segment):
                paths = [posixpath.join(path, segment) for path in paths]
            else:
                paths = [inner for path in paths for inner in self._inside(path, segment, broken)]
        return paths

    def _inside(self, path: str, glob: str, broken: list[FoundDevice]) -> list[str]:
        """The paths in a directory that match the glob."""
        directory = None
        with self._around(path, broken):
            directory = self._tree.dev.real(path)
        if directory is None:
            return []
        return [posixpath.join(path, name) for name in filter(matcher((glob,)), self._tree.dev.names(directory))]

    def _found(self, path: str, real: str, pattern: str, wanted: frozenset[str]) -> FoundDevice | None:
        dev = self._tree.dev
        alias = False
        if dev.is_node(real):
            nodes: tuple[str, ...] = (real,)
            place = self._tree.node_object(real)
            # a node made by hand with another device's number: it has that device's attributes, but is a separate file
            alias = place is not None and self._tree.devname(place) != real
        elif dev.is_directory(real):
            nodes = dev.nodes_below(real)
            place = self._common_object(nodes)
        else:
            nodes, place = (), None
        name = posixpath.basename(path)
        if not nodes:
            # a glob may also match files that are no devices
            return _no_device(name, pattern) if pattern == f"/dev/{path}" else None
        values = self._tree.attributes(place, name=name, wanted=wanted) if place else {"name": name}
        index = trailing_index(posixpath.basename(place) if place else name)
        if index is not None:
            values["index"] = index
        values["path"] = f"/dev/{path}"
        return FoundDevice(
            source=FILES,
            name=name,
            label=values["path"],
            unit="path",
            sysfs_path=None if alias else place,
            attributes=values,
            nodes=host_paths(nodes),
            numa_node=numa(values),
        )

    def _common_object(self, nodes: tuple[str, ...]) -> str | None:
        """The object that contains all nodes. None: they belong to several PCI functions or USB devices."""
        places = [self._tree.node_object(node) for node in nodes]
        known = [place for place in places if place]
        if not known or len(known) < len(places):
            return None
        if len(set(known)) == 1:
            return known[0]
        hosts = {self._tree.nearest_usb(place) or self._function_path(place) for place in known}
        host = hosts.pop()
        if hosts or host is None:
            return None
        common = posixpath.commonpath(known)
        return next((p for p in self._tree.upwards(common) if self._tree.is_object(p)), None)

    def _function_path(self, place: str) -> str | None:
        function = self._tree.nearest_function(place)
        return function.path if function else None


def _no_device(name: str, path: str) -> FoundDevice:
    return FoundDevice(
        source=FILES,
        name=name,
        label=path,
        sysfs_path=None,
        attributes={"name": name, "path": path},
        left_out=(ExclusionReason.NOT_A_DEVICE, f"{path} is neither a device node nor a directory that holds one"),
    )
