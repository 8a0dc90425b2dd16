"""What sysfs says of one device: its place, its ancestors' attributes, its /dev nodes.

One object of this class serves all sources for one scan, so that ten entries read a PCI function once.
"""

import os
import posixpath
import re
from collections.abc import Callable, Iterator
from typing import Final

from device_agent.contract import attributes
from device_agent.contract.values import dataclass
from device_agent.discovery.host_tree import DevTree, HostTree
from device_agent.discovery.source import Roots

NODE_MISSING: Final = "DeviceNodeMissing"

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_INDEX = re.compile(r"\d+$")
# Attribute groups that every device, interface or interrupt user has: no object lies in them.
_BARREN: Final = frozenset({"power", "msi_irqs", "statistics", "queues"})


@dataclass(frozen=True, slots=True)
class PciFunction:
    """A PCI function; ids in lower-case hex without 0x. `iommu_group`, `driver`, `numa_node`: None where absent."""

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
class OwnNodes:
    """Nodes that sysfs announces, as paths below /dev, sorted: the `present` ones and those that /dev lacks."""

    present: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def problem(self) -> tuple[str, str] | None:
        if not self.missing:
            return None
        names = ", ".join(f"/dev/{name}" for name in self.missing)
        return NODE_MISSING, f"{names} is announced by the kernel and does not exist in /dev"


@dataclass(frozen=True, slots=True)
class _Listing:
    directories: tuple[str, ...]
    is_object: bool
    has_node: bool


class SysfsTree:
    """The node's /sys and /dev for the length of one scan. Paths are relative to /sys, links resolved."""

    def __init__(self, roots: Roots) -> None:
        self.sys = HostTree(roots.sys, mount="/sys")
        self.dev = DevTree(roots.dev)
        self._functions: dict[str, PciFunction | None] = {}
        self._virtual: dict[str, dict[str, str]] = {}
        self._bases: dict[str, tuple[dict[str, str], dict[str, str]]] = {}
        self._listings: dict[str, _Listing] = {}
        self._by_devname: dict[str, str] | None = None

    @property
    def errors(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.sys.errors, *self.dev.errors)))

    def members(self, directory: str) -> Iterator[tuple[str, str]]:
        """(kernel name, path) of the objects that a class or bus directory links to, in natural order."""
        for name in self.sys.names(directory):
            if self.sys.link(f"{directory}/{name}") is None:
                continue  # a control file such as net/bonding_masters
            path = self.sys.real(f"{directory}/{name}")
            if path is not None:  # None: it went away since the directory was read
                yield name, path

    def subsystem(self, path: str) -> str | None:
        return self.sys.link(f"{path}/subsystem")

    def function(self, path: str) -> PciFunction | None:
        """The PCI function at `path`, None when it is none or went away."""
        if path not in self._functions:
            self._functions[path] = self._read_function(path)
        return self._functions[path]

    def _read_function(self, path: str) -> PciFunction | None:
        address = posixpath.basename(path)
        if not _ADDRESS.fullmatch(address):
            return None
        values = [self.sys.text(f"{path}/{name}") for name in ("vendor", "device", "class")]
        vendor, device, pci_class = (value.removeprefix("0x").lower() if value else "" for value in values)
        if not vendor or not device:
            return None
        return PciFunction(
            path=path,
            address=address,
            vendor=vendor,
            device=device,
            pci_class=pci_class,
            driver=self.sys.link(f"{path}/driver"),
            iommu_group=self.sys.link(f"{path}/iommu_group"),
            numa_node=self._numa_node(path),
        )

    def nearest_function(self, path: str) -> PciFunction | None:
        """The PCI function that `path` is or lies below."""
        return next((f for p in self.upwards(path) if (f := self.function(p))), None)

    def nearest_usb(self, path: str) -> str | None:
        """The USB device (not interface) that `path` is or lies below."""
        return next((p for p in self.upwards(path) if self.sys.text(f"{p}/idVendor")), None)

    @staticmethod
    def upwards(path: str) -> Iterator[str]:
        """`path` and what it lies in, nearest first, down to `devices/x`."""
        while path.count("/"):
            yield path
            path = path.rpartition("/")[0]

    def _numa_node(self, path: str) -> int | None:
        text = self.sys.text(f"{path}/numa_node")
        return int(text) if text and text.isdecimal() else None  # -1: the firmware does not say

    def attributes(self, path: str, *, name: str, wanted: frozenset[str]) -> dict[str, str]:
        """Everything of `contract.attributes` but `index` and `path`, absent ones left out."""
        if path not in self._bases:
            self._bases[path] = self._read_bases(path)
        known, bases = self._bases[path]
        found = {"name": name, **known}
        for attribute in wanted:
            if (parts := attributes.file_attribute(attribute)) and (base := bases.get(parts[0])):
                file = self.sys.real(f"{base}/{parts[1]}")
                if file and (text := self.sys.text(file)):
                    found[attribute] = text
        return found

    def _read_bases(self, path: str) -> tuple[dict[str, str], dict[str, str]]:
        """(attributes that need no naming, prefix of file attributes -> the object they are read from)."""
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
                break  # above it are bridges: their pcieport drives nothing of this device
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
            self._virtual[physical] = {
                target: name.removeprefix("virtfn")
                for name in self.sys.names(physical)
                if name.startswith("virtfn") and (target := self.sys.real(f"{physical}/{name}"))
            }
        return self._virtual[physical]

    def own_nodes(self, path: str, *, foreign: Callable[[str], bool]) -> OwnNodes:
        """The nodes of `path` and of the objects below it, without those of a `foreign` object and below it."""
        present: set[str] = set()
        missing: set[str] = set()
        for place in self._objects(path, foreign):
            if (devname := self.devname(place)) is not None:
                (present if self.dev.is_node(devname) else missing).add(devname)
        return OwnNodes(present=tuple(sorted(present)), missing=tuple(sorted(missing)))

    def _objects(self, path: str, foreign: Callable[[str], bool]) -> Iterator[str]:
        pending = [path]
        while pending:
            place = pending.pop()
            yield place
            for inner in self._listing(place).directories:
                below = f"{place}/{inner}"
                listing = self._listing(below)
                # An object lies in its parent, or one level deeper in a directory of its class (block/vda)
                # that is no object itself; deeper in, there are only attribute groups.
                candidates = [below] if listing.is_object else [f"{below}/{name}" for name in listing.directories]
                pending += [c for c in candidates if self._listing(c).is_object and not foreign(c)]

    def _listing(self, path: str) -> _Listing:
        if path not in self._listings:
            self._listings[path] = self._list(path)
        return self._listings[path]

    def _list(self, path: str) -> _Listing:
        directories: list[str] = []
        files: set[str] = set()
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
            self.sys.failed(path, error)
        return _Listing(directories=tuple(directories), is_object="uevent" in files, has_node="dev" in files)

    def devname(self, path: str) -> str | None:
        """What the kernel calls an object's node below /dev; None for an object without one."""
        if not self._listing(path).has_node:
            return None
        for line in (self.sys.raw(f"{path}/uevent") or b"").decode("utf-8", "replace").splitlines():
            key, _, value = line.partition("=")
            if key == "DEVNAME" and value and ".." not in value.split("/"):
                return value.removeprefix("/dev/")
        return posixpath.basename(path).replace("!", "/")  # the kernel's own rule for a slash in a name

    def node_object(self, node: str) -> str | None:
        """The sysfs object of a device node, given as its path below /dev; None where there is none."""
        number = self.dev.number(node)
        if number is not None:
            return self.sys.real(f"dev/{number}")
        if self._by_devname is None:  # a captured tree: plain files carry no numbers, uevents do name them
            self._by_devname = {}
            for kind in ("char", "block"):
                for _, path in self.members(f"dev/{kind}"):
                    if (devname := self.devname(path)) is not None:
                        self._by_devname[devname] = path
        return self._by_devname.get(node)

    def is_object(self, path: str) -> bool:
        return self._listing(path).is_object


def trailing_index(name: str) -> str | None:
    """The number at the end of a kernel name."""
    found = _INDEX.search(name)
    return found[0] if found else None


def numa(values: dict[str, str]) -> int | None:
    """The NUMA node of a device by its attributes."""
    return int(values["numaNode"]) if "numaNode" in values else None
