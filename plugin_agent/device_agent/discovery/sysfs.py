"""Objects of a sysfs class or bus: /sys/class/X, else /sys/bus/X/devices, else /sys/block for block."""

import posixpath

from device_agent.contract.document import DeviceEntry
from device_agent.discovery.host_tree import host_paths
from device_agent.discovery.sysfs_tree import SysfsTree, numa, trailing_index
from device_agent.select.found import FoundDevice
from device_agent.select.kernel_names import restricts


class SysfsObjects:
    """The source `sysfs`."""

    def __init__(self, tree: SysfsTree) -> None:
        self._tree = tree
        self._members: dict[str, tuple[tuple[str, str], ...]] = {}

    def scan(self, entry: DeviceEntry, *, wanted: frozenset[str]) -> tuple[FoundDevice, ...]:
        assert entry.sysfs is not None
        named = restricts(entry.sysfs.names)
        matching = {path: name for name, path in self._subsystem(entry.sysfs.subsystem) if named(name)}
        return tuple(self._found(path, name, matching, wanted) for path, name in matching.items())

    def nothing(self, entry: DeviceEntry) -> str:
        assert entry.sysfs is not None
        subsystem, names = entry.sysfs.subsystem, " or ".join(entry.sysfs.names)
        if names and self._subsystem(subsystem):
            return f"nothing of {subsystem} is named {names}"
        return f"nothing in /sys/class/{subsystem} or /sys/bus/{subsystem}/devices: is the name right?"

    def _subsystem(self, subsystem: str) -> tuple[tuple[str, str], ...]:
        if subsystem not in self._members:
            places = [f"class/{subsystem}", f"bus/{subsystem}/devices"]
            if subsystem == "block":
                places.append("block")
            members = (tuple(self._tree.members(place)) for place in places)
            self._members[subsystem] = next((m for m in members if m), ())
        return self._members[subsystem]

    def _found(self, path: str, name: str, matching: dict[str, str], wanted: frozenset[str]) -> FoundDevice:
        own = self._tree.own_nodes(path, foreign=matching.__contains__)
        nodes = host_paths(own.present)
        values = self._tree.attributes(path, name=name, wanted=wanted)
        if (index := trailing_index(posixpath.basename(path))) is not None:
            values["index"] = index
        if nodes:
            values["path"] = nodes[0]
        return FoundDevice(
            source="sysfs",
            name=name,
            sysfs_path=path,
            attributes=values,
            nodes=nodes,
            numa_node=numa(values),
            problem=own.problem,
        )
