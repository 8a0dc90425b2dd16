"""What sysfs says of one device: its place, its ancestors' attributes, its /dev nodes.

One object of this class serves all sources of one scan, so that ten entries read a PCI function once.
"""

import contextlib
import os
import posixpath
import re
from collections.abc import Callable, Iterator
from typing import Final

from device_agent.contract import attributes
from device_agent.contract.reasons import DeviceReason
from device_agent.contract.values import dataclass
from device_agent.discovery.boundary import Boundary
from device_agent.discovery.host_tree import DevTree, HostTree
from device_agent.discovery.reads import Reader, UnreadableError
from device_agent.discovery.source import Roots
from device_agent.select.found import FoundDevice, Problem

PCI_DEVICES: Final = "bus/pci/devices"

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_PCI_ID = re.compile(r"[0-9a-f]{4}")
_INDEX = re.compile(r"[0-9]+$")
_MAX_NUMA_NODE: Final = 1 << 16
"""The highest number of a NUMA node; larger values are invalid."""
# Attribute groups that every device, interface or interrupt user has: no object is inside them.
_BARREN: Final = frozenset({"power", "msi_irqs", "statistics", "queues"})


@dataclass(frozen=True, slots=True)
class PciFunction:
    """A PCI function; ids in lower-case hex without 0x. `iommu_group`, `driver`, `numa_node`: None if absent."""

    path: str
    address: str
    vendor: str
    device: str
    pci_class: str
    driver: str | None
    iommu_group: str | None
    numa_node: int | None

    @property
    def on_vfio(self) -> bool:
        """Bound to vfio-pci or to a vendor's variant of it, such as mlx5-vfio-pci."""
        return self.driver is not None and "vfio" in self.driver


@dataclass(frozen=True, slots=True)
class FoundNodes:
    """Nodes that sysfs announces, as sorted paths below /dev: those `present` in /dev, and those `missing` there."""

    present: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def problem(self) -> Problem | None:
        if not self.missing:
            return None
        names = ", ".join(f"/dev/{name}" for name in self.missing)
        return DeviceReason.DEVICE_NODE_MISSING, f"the kernel announces {names}, but it does not exist in /dev"


@dataclass(frozen=True, slots=True)
class PciBus:
    """The node's PCI functions in the order of their addresses; `unreadable` ones are finds that are left out."""

    readable: tuple[PciFunction, ...]
    unreadable: tuple[FoundDevice, ...]


@dataclass(frozen=True, slots=True)
class _Listing:
    directories: tuple[str, ...]
    is_object: bool
    has_node: bool


class SysfsTree:
    """The node's /sys and /dev during one scan. Paths are relative to /sys, with links resolved.

    `boundary`: wraps the work on each object. `reader`: is told of each read.
    """

    def __init__(self, roots: Roots, boundary: Boundary | None = None, reader: Reader | None = None) -> None:
        self.boundary = boundary or Boundary()
        self.sys = HostTree(roots.sys, mount="/sys", reader=reader)
        self.dev = DevTree(roots.dev, reader=reader)
        self._reader = reader or Reader()
        self._functions: dict[str, PciFunction | None] = {}
        self._bus: PciBus | None = None
        self._virtual: dict[str, dict[str, str]] = {}
        self._bases: dict[str, tuple[dict[str, str], dict[str, str]]] = {}
        self._listings: dict[str, _Listing] = {}
        self._by_devname: dict[str, str] | None = None

    def member(self, directory: str, name: str) -> str | None:
        """The object behind a link of a class or bus directory. None: it is a control file, or gone.

        Raises:
            UnreadableError: the link exists but cannot be followed.
        """
        path = f"{directory}/{name}"
        # a control file, such as net/bonding_masters, is no link; in doubt, `real` raises
        return None if self.sys.is_plain(path) else self.sys.real(path)

    def subsystem(self, path: str) -> str | None:
        return self.sys.link(f"{path}/subsystem")

    def functions(self) -> PciBus:
        """All PCI functions of the node."""
        if self._bus is None:
            readable: list[PciFunction] = []
            unreadable: list[FoundDevice] = []
            for name in self.sys.names(PCI_DEVICES):
                link, path = f"{PCI_DEVICES}/{name}", None
                with self.boundary.around(attributes.PCI, name, self.sys.host(link), into=unreadable):
                    path = self.member(PCI_DEVICES, name)
                if path is None:
                    continue
                with self.boundary.around(attributes.PCI, name, self.sys.host(path), into=unreadable, sysfs_path=path):
                    self._functions[path] = function = self._read_function(path)
                    if function is not None:
                        readable.append(function)
            self._bus = PciBus(tuple(sorted(readable, key=lambda f: f.address)), tuple(unreadable))
        return self._bus

    def function(self, path: str) -> PciFunction | None:
        """The PCI function at `path`; None if it is none, is gone, or cannot be read."""
        if path not in self._functions:
            try:
                self._functions[path] = self._read_function(path)
            except UnreadableError:
                self._functions[path] = None
        return self._functions[path]

    def _read_function(self, path: str) -> PciFunction | None:
        """The PCI function at `path`; None if it is none, or gone.

        Raises:
            UnreadableError: it does not tell its vendor or device id.
        """
        address = posixpath.basename(path)
        if not _ADDRESS.fullmatch(address):
            return None
        ids = []
        for name in ("vendor", "device"):
            value = self.sys.required(f"{path}/{name}")
            if value is None:
                return None
            if not _PCI_ID.fullmatch(number := value.removeprefix("0x").lower()):
                raise UnreadableError(self.sys.host(f"{path}/{name}"), f"{value!r} is not a PCI id")
            ids.append(number)
        return PciFunction(
            path=path,
            address=address,
            vendor=ids[0],
            device=ids[1],
            pci_class=(self.sys.text(f"{path}/class") or "").removeprefix("0x").lower(),
            driver=self.sys.link(f"{path}/driver"),
            iommu_group=self.sys.link(f"{path}/iommu_group"),
            numa_node=self._numa_node(path),
        )

    def nearest_function(self, path: str) -> PciFunction | None:
        """The PCI function that `path` is or is below; None if there is none, or if it cannot be read."""
        for place in self.upwards(path):
            if _ADDRESS.fullmatch(posixpath.basename(place)):
                return self.function(place)
        return None

    def nearest_usb(self, path: str) -> str | None:
        """The USB device (not interface) that `path` is or is below."""
        return next((p for p in self.upwards(path) if self.sys.text(f"{p}/idVendor")), None)

    @staticmethod
    def upwards(path: str) -> Iterator[str]:
        """`path` and its parents, nearest first, up to `devices/x`."""
        while path.count("/"):
            yield path
            path = path.rpartition("/")[0]

    def _numa_node(self, path: str) -> int | None:
        text = self.sys.text(f"{path}/numa_node")
        if not text or not text.isdecimal():
            return None  # -1: the firmware does not say
        node = int(text)
        return node if node < _MAX_NUMA_NODE else None

    def attributes(self, path: str, *, name: str, wanted: frozenset[str]) -> dict[str, str]:
        """All attributes of `contract.attributes` but `index` and `path`; absent ones are left out.

        Raises:
            UnreadableError: the read of a `wanted` file failed, so it is not known whether the device has a value.
        """
        if path not in self._bases:
            self._bases[path] = self._read_bases(path)
        known, bases = self._bases[path]
        found = {"name": name, **known}
        for attribute in wanted:
            if (parts := attributes.file_attribute(attribute)) and (base := bases.get(parts[0])):
                file = self._file(base, parts[1])
                if file and (text := self.sys.asked(file)):
                    found[attribute] = text
        return found

    def _file(self, base: str, path: str) -> str | None:
        """The file at `path` below `base`; None if it is absent, or if several files match a '*'."""
        if attributes.ANY not in path:
            return self.sys.real(f"{base}/{path}")
        names = path.split("/")
        at = next(i for i, name in enumerate(names) if attributes.ANY in name)
        directory = self.sys.real("/".join((base, *names[:at])))
        if directory is None:
            return None
        fits = re.compile(".*".join(map(re.escape, names[at].split(attributes.ANY)))).fullmatch
        places = ("/".join((directory, name, *names[at + 1 :])) for name in self.sys.names(directory) if fits(name))
        found = {file for place in places if (file := self.sys.real(place)) and self.sys.asked(file)}
        return found.pop() if len(found) == 1 else None

    def _read_bases(self, path: str) -> tuple[dict[str, str], dict[str, str]]:
        """(attributes that are always read, prefix of file attributes -> the object whose files they are)."""
        function, usb = self.nearest_function(path), self.nearest_usb(path)
        physical = self.sys.real(f"{function.path}/physfn") if function else None
        numa = self._nearest_numa(path, function)
        found: dict[str, str | None] = {
            "subsystem": self.subsystem(path),
            "driver": self._driver(path, function),
            "numaNode": None if numa is None else str(numa),
            "iommuGroup": self.sys.link(f"{path}/iommu_group") or (function.iommu_group if function else None),
        }
        if function:
            found |= self._of_function("pci", function)
        if function and physical and (parent := self.function(physical)):
            found |= self._of_function("pf", parent)
            found["vfIndex"] = self._virtual_functions(physical).get(function.path)
            found["pf.netName"] = next(iter(self.sys.names(f"{physical}/net")), None)
            found["pf.numaNode"] = None if parent.numa_node is None else str(parent.numa_node)
        if usb:
            found["usb.vendor"] = self.sys.text(f"{usb}/idVendor")
            found["usb.product"] = self.sys.text(f"{usb}/idProduct")
            found["usb.serial"] = self.sys.text(f"{usb}/serial")
            found["usb.port"] = posixpath.basename(usb)
        bases = {"attr.": path, "pci.attr.": function and function.path, "pf.attr.": physical, "usb.attr.": usb}
        return (
            {key: value for key, value in found.items() if value},
            {prefix: base for prefix, base in bases.items() if base},
        )

    @staticmethod
    def _of_function(scope: str, function: PciFunction) -> dict[str, str | None]:
        return {
            f"{scope}.address": function.address,
            f"{scope}.vendor": function.vendor,
            f"{scope}.device": function.device,
            f"{scope}.class": function.pci_class,
            f"{scope}.driver": function.driver,
        }

    def _driver(self, path: str, function: PciFunction | None) -> str | None:
        for place in self.upwards(path):
            if driver := self.sys.link(f"{place}/driver"):
                return driver
            if function and place == function.path:
                break  # above are bridges, whose driver pcieport does not drive this device
        return None

    def _nearest_numa(self, path: str, function: PciFunction | None) -> int | None:
        for place in self.upwards(path):
            if (node := self._numa_node(place)) is not None:
                return node
            if function and place == function.path:
                break
        return None

    def _virtual_functions(self, physical: str) -> dict[str, str]:
        if physical not in self._virtual:
            self._virtual[physical] = numbers = dict[str, str]()
            for name in self.sys.names(physical):
                if name.startswith("virtfn"):
                    with contextlib.suppress(UnreadableError):  # one bad link does not hide the others
                        if target := self.sys.real(f"{physical}/{name}"):
                            numbers[target] = name.removeprefix("virtfn")
        return self._virtual[physical]

    def own_nodes(self, path: str, *, foreign: Callable[[str], bool]) -> FoundNodes:
        """The nodes of `path` and of the objects below it, but not of `foreign` objects and what is below them.

        Raises:
            UnreadableError: one of these objects does not tell its node.
        """
        present: set[str] = set()
        missing: set[str] = set()
        for place in self._objects(path, foreign):
            if (devname := self.devname(place)) is not None:
                (present if self.dev.is_node(devname) else missing).add(devname)
        return FoundNodes(present=tuple(sorted(present)), missing=tuple(sorted(missing)))

    def _objects(self, path: str, foreign: Callable[[str], bool]) -> Iterator[str]:
        pending = [path]
        while pending:
            place = pending.pop()
            yield place
            for inner in self._listing(place).directories:
                below = f"{place}/{inner}"
                listing = self._listing(below)
                # An object is in its parent, or one level deeper in a directory of its class (block/vda) that is no
                # object itself. Still deeper there are only attribute groups.
                candidates = [below] if listing.is_object else [f"{below}/{name}" for name in listing.directories]
                pending += [c for c in candidates if self._listing(c).is_object and not foreign(c)]

    def _listing(self, path: str) -> _Listing:
        if path not in self._listings:
            self._listings[path] = self._list(path)
        return self._listings[path]

    def _list(self, path: str) -> _Listing:
        directories: list[str] = []
        files: set[str] = set()
        self._reader.begin(self.sys.host(path))
        try:
            with os.scandir(self.sys.at(path)) as entries:
                for entry in entries:
                    if entry.name in ("uevent", "dev"):
                        files.add(entry.name)
                    elif entry.name not in _BARREN and entry.is_dir(follow_symlinks=False):
                        directories.append(entry.name)
        except FileNotFoundError:
            pass  # unplugged while we looked
        except OSError as error:
            raise self.sys.unreadable(path, error) from error
        finally:
            self._reader.end()
        return _Listing(directories=tuple(directories), is_object="uevent" in files, has_node="dev" in files)

    def devname(self, path: str) -> str | None:
        """The kernel's name of an object's node below /dev. None: it has no node.

        Raises:
            UnreadableError: the name cannot be that of a node.
        """
        if not self._listing(path).has_node:
            return None
        for line in (self.sys.raw(f"{path}/uevent") or b"").split(b"\n"):
            key, _, value = line.partition(b"=")
            if key == b"DEVNAME" and value and b".." not in value.split(b"/"):
                name = os.fsdecode(value)
                if any(ord(c) < 0x20 or ord(c) == 0x7F for c in name):
                    raise UnreadableError(
                        self.sys.host(f"{path}/uevent"), f"DEVNAME is {name!r}, which cannot be the name of a node"
                    )
                return name.removeprefix("/dev/")
        return posixpath.basename(path).replace("!", "/")  # the kernel's own rule for a slash in a name

    def node_object(self, node: str) -> str | None:
        """The sysfs object of a device node, given as its path below /dev; None if there is none."""
        number = self.dev.number(node)
        if number is not None:
            return self.sys.real(f"dev/{number}")
        if self._by_devname is None:  # a captured tree: plain files have no device numbers, but uevents name them
            self._by_devname = dict(self._named_nodes())
        return self._by_devname.get(node)

    def _named_nodes(self) -> Iterator[tuple[str, str]]:
        """(path below /dev, sysfs object) of all nodes that are named. Unreadable objects are skipped."""
        for directory in ("dev/char", "dev/block"):
            for number in self.sys.names(directory):
                with contextlib.suppress(UnreadableError):
                    path = self.member(directory, number)
                    if path is not None and (devname := self.devname(path)) is not None:
                        yield devname, path

    def is_object(self, path: str) -> bool:
        return self._listing(path).is_object


def trailing_index(name: str) -> str | None:
    """The number at the end of a kernel name."""
    found = _INDEX.search(name)
    return found[0] if found else None


def numa(values: dict[str, str]) -> int | None:
    """The NUMA node of a device by its attributes."""
    return int(values["numaNode"]) if "numaNode" in values else None
