"""Builds small /sys and /dev trees in the kernel's shape: real directories below devices/, relative links elsewhere.

Device nodes are plain files, as in a tree that was captured without root.
"""

import os
from pathlib import Path

from device_agent.discovery.source import Roots

ROOT = "devices/pci0000:00"


class HostTreeBuilder:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.sys = root / "sys"
        self.dev = root / "dev"
        self._minor = 0
        for folder in ("class", "bus", "devices", "dev/char", "dev/block", "kernel/iommu_groups"):
            (self.sys / folder).mkdir(parents=True)
        self.dev.mkdir(exist_ok=True)
        (self.sys / ROOT).mkdir()
        self.write(f"{ROOT}/uevent", "")

    @property
    def roots(self) -> Roots:
        return Roots.below(self.root)

    def write(self, path: str, text: str | bytes) -> None:
        file = self.sys / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())

    def link(self, path: str, to: str) -> None:
        """A relative link from `path` to `to`, both below /sys."""
        place = self.sys / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(os.path.relpath(self.sys / to, place.parent))

    def node(self, name: str) -> str:
        """A device node by its path below /dev."""
        place = self.dev / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
        return f"/dev/{name}"

    def dev_link(self, name: str, target: str) -> None:
        place = self.dev / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)

    def pci(
        self,
        address: str,
        ids: str,
        *,
        pci_class: str = "020000",
        driver: str | None = None,
        group: int | None = None,
        numa: int = -1,
        below: str = ROOT,
    ) -> str:
        """A PCI function; `ids` as vendor:device. Returns its path below /sys."""
        path = f"{below}/{address}"
        vendor, _, device = ids.partition(":")
        for name, value in {
            "vendor": f"0x{vendor}",
            "device": f"0x{device}",
            "class": f"0x{pci_class}",
            "numa_node": str(numa),
            "uevent": f"PCI_SLOT_NAME={address}",
        }.items():
            self.write(f"{path}/{name}", f"{value}\n")
        self.link(f"bus/pci/devices/{address}", path)
        self.link(f"{path}/subsystem", "bus/pci")
        if driver:
            self.bind(path, driver)
        if group is not None:
            (self.sys / f"kernel/iommu_groups/{group}/devices").mkdir(parents=True, exist_ok=True)
            self.link(f"kernel/iommu_groups/{group}/devices/{address}", path)
            self.link(f"{path}/iommu_group", f"kernel/iommu_groups/{group}")
        return path

    def bind(self, path: str, driver: str, *, bus: str = "pci") -> None:
        (self.sys / f"bus/{bus}/drivers/{driver}").mkdir(parents=True, exist_ok=True)
        self.link(f"{path}/driver", f"bus/{bus}/drivers/{driver}")

    def virtual_function(self, physical: str, index: int, address: str, ids: str, **fields: object) -> str:
        path = self.pci(address, ids, below=physical.rpartition("/")[0], **fields)
        self.link(f"{path}/physfn", physical)
        self.link(f"{physical}/virtfn{index}", path)
        return path

    def obj(
        self,
        path: str,
        subsystem: str,
        *,
        devname: str | None = None,
        present: bool = True,
        bus: bool = False,
        block: bool = False,
        **files: str,
    ) -> str:
        """An object of a class (or bus). With `devname` it has a node, which is made unless it must be missing."""
        name = path.rpartition("/")[2]
        kind = f"bus/{subsystem}/devices" if bus else f"class/{subsystem}"
        uevent = ""
        if devname is not None:
            self._minor += 1
            number = f"240:{self._minor}"
            uevent = f"MAJOR=240\nMINOR={self._minor}\nDEVNAME={devname}\n"
            self.write(f"{path}/dev", f"{number}\n")
            if present:
                self.node(devname)
        self.write(f"{path}/uevent", uevent)
        for file, value in files.items():
            self.write(f"{path}/{file}", f"{value}\n")
        self.link(f"{kind}/{name}", path)
        self.link(f"{path}/subsystem", f"bus/{subsystem}" if bus else f"class/{subsystem}")
        if devname is not None:
            self.link(f"dev/{'block' if block else 'char'}/{number}", path)
        return path

    def usb(self, path: str, *, vendor: str, product: str, serial: str | bytes | None = None) -> str:
        """A USB device (not interface) with its bus node."""
        self.obj(path, "usb", bus=True, devname=f"bus/usb/001/{self._minor + 1:03}", idVendor=vendor, idProduct=product)
        if serial is not None:
            self.write(f"{path}/serial", serial)
        return path
