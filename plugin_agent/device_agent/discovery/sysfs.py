"""Objects of a sysfs class or bus: /sys/class/X, else /sys/bus/X/devices, else /sys/block for block."""

import posixpath
from contextlib import AbstractContextManager

from device_agent.contract.attributes import SYSFS
from device_agent.contract.document import DeviceEntry
from device_agent.discovery.host_tree import host_paths
from device_agent.discovery.likeness import meant
from device_agent.discovery.sysfs_tree import SysfsTree, numa, trailing_index
from device_agent.select.found import FoundDevice
from device_agent.select.kernel_names import restricts


class SysfsObjects:
    """The source `sysfs`."""

    def __init__(self, tree: SysfsTree) -> None:
        self._tree = tree

    def scan(self, entry: DeviceEntry, *, owner: str, wanted: frozenset[str]) -> tuple[FoundDevice, ...]:  # noqa: ARG002
        assert entry.sysfs is not None
        found: list[FoundDevice] = []
        matching: dict[str, str] = {}  # object -> its name
        directory, names = self._subsystem(entry.sysfs.subsystem)
        for name in filter(restricts(entry.sysfs.names), names):
            with self._around(f"{directory}/{name}", name, found):
                path = self._tree.member(directory, name)
                # two links may lead to one object: its own name counts
                if path and (path not in matching or name == posixpath.basename(path)):
                    matching[path] = name
        for path, name in matching.items():
            with self._around(path, name, found, sysfs_path=path):
                found.append(self._found(path, name, matching, wanted))
        return tuple(found)

    def nothing(self, entry: DeviceEntry) -> str:
        assert entry.sysfs is not None
        subsystem, names = entry.sysfs.subsystem, entry.sysfs.names
        there = self._subsystem(subsystem)[1]
        if names and there:
            return f"{subsystem} has no device named {' or '.join(names)}{meant(names, there)}"
        known = sorted({*self._tree.sys.names("class"), *self._tree.sys.names("bus"), "block"})
        if subsystem in known:
            return f"no device in /sys/class/{subsystem} or /sys/bus/{subsystem}/devices"
        hint = meant([subsystem], known) or ": is the name right?"
        return f"nothing in /sys/class/{subsystem} or /sys/bus/{subsystem}/devices{hint}"

    def _around(
        self, path: str, name: str, into: list[FoundDevice], *, sysfs_path: str | None = None
    ) -> AbstractContextManager[None]:
        return self._tree.boundary.around(SYSFS, name, self._tree.sys.host(path), into=into, sysfs_path=sysfs_path)

    def _subsystem(self, subsystem: str) -> tuple[str, list[str]]:
        """The first directory that has objects of the subsystem, and their names."""
        places = [f"class/{subsystem}", f"bus/{subsystem}/devices"]
        if subsystem == "block":
            places.append("block")
        for place in places:
            names = [name for name in self._tree.sys.names(place) if not self._tree.sys.is_plain(f"{place}/{name}")]
            if names:
                return place, names
        return places[0], []

    def _found(self, path: str, name: str, matching: dict[str, str], wanted: frozenset[str]) -> FoundDevice:
        own = self._tree.own_nodes(path, foreign=matching.__contains__)
        nodes = host_paths(own.present)
        values = self._tree.attributes(path, name=name, wanted=wanted)
        if (index := trailing_index(posixpath.basename(path))) is not None:
            values["index"] = index
        if nodes:
            values["path"] = nodes[0]
        return FoundDevice(
            source=SYSFS,
            name=name,
            sysfs_path=path,
            attributes=values,
            nodes=nodes,
            numa_node=numa(values),
            problem=own.problem,
        )
