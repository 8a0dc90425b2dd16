"""The table of device attributes. Validation, error messages and the documentation are made from it."""

import difflib
import re
from collections.abc import Collection, Iterable
from typing import Final

from device_agent.contract.values import dataclass

PCI: Final = "pci"
SYSFS: Final = "sysfs"
FILES: Final = "files"
SIMULATED: Final = "simulated"
NVML: Final = "nvml"
SOURCES: Final = (PCI, SYSFS, FILES, SIMULATED, NVML)
MIG: Final = "nvml: {kind: MIG}"
"""Stands for MIG devices in `Attribute.sources`: they come from `nvml`, but have more attributes than its GPUs."""
_GPU: Final = "nvml: {kind: GPU}"

_RANKS: Final = {"uuid": 1, "usb.port": 2, "pci.address": 3, "path": 4, "name": 5}
_HARDWARE = (PCI, SYSFS, FILES, NVML)


@dataclass(frozen=True, slots=True)
class Attribute:
    """A name that placeholders, `include`, `exclude` and `unit` may use.

    `sources`: the sources whose devices can have it, or MIG. A device without the attribute never matches.
    `volatile`: after a reboot another device may have this value.
    `rank`: how well it identifies a device, from 1 (best); 0: never suggested for `unit`.
    `apart`: the attribute that still differs when two devices have the same value of this one, or ''.
    """

    name: str
    sources: tuple[str, ...]
    description: str
    volatile: bool = False
    rank: int = 0
    apart: str = ""


ATTRIBUTES: Final = (
    Attribute(
        "name",
        SOURCES,
        "kernel name, PCI address or file name; for a GPU or MIG device the UUID",
        volatile=True,
        rank=_RANKS["name"],
    ),
    Attribute("subsystem", _HARDWARE, "kernel subsystem of the device, such as pci, block, misc"),
    Attribute("driver", _HARDWARE, "driver bound to the device or to its nearest ancestor that has one"),
    Attribute("numaNode", SOURCES, "NUMA node, absent if the hardware does not tell"),
    Attribute(
        "index",
        (SYSFS, FILES, SIMULATED, NVML),
        "number at the end of the kernel name; for a GPU its number in NVML, for a MIG device such as 0:1",
        volatile=True,
    ),
    Attribute("path", _HARDWARE, "path of the device's first own node below /dev", volatile=True, rank=_RANKS["path"]),
    Attribute(
        "iommuGroup", _HARDWARE, "number of the IOMMU group of the device or its nearest PCI function", volatile=True
    ),
    Attribute("vfIndex", _HARDWARE, "number of a virtual function within its physical function"),
    *(
        Attribute(
            f"{scope}.{name}", _HARDWARE, f"{text} of {whose}", rank=3 if (scope, name) == ("pci", "address") else 0
        )
        for scope, whose in (
            ("pci", "the PCI function itself or the nearest one above the device"),
            ("pf", "the physical function of a virtual function"),
        )
        for name, text in (
            ("address", "address, as 0000:3b:00.0,"),
            ("vendor", "vendor id, 4 hex digits,"),
            ("device", "device id, 4 hex digits,"),
            ("class", "class code, 6 hex digits,"),
            ("driver", "driver"),
        )
    ),
    Attribute("pf.netName", _HARDWARE, "network interface name of the physical function"),
    Attribute("pf.numaNode", _HARDWARE, "NUMA node of the physical function"),
    Attribute("usb.vendor", (SYSFS, FILES), "vendor id of the nearest USB device above, 4 hex digits"),
    Attribute("usb.product", (SYSFS, FILES), "product id of the nearest USB device above, 4 hex digits"),
    Attribute("usb.serial", (SYSFS, FILES), "serial number of the nearest USB device above", apart="usb.port"),
    Attribute(
        "usb.port", (SYSFS, FILES), "port path of the nearest USB device above, such as 1-2.3", rank=_RANKS["usb.port"]
    ),
    *(
        Attribute(name, (NVML,), text, rank=_RANKS.get(name, 0))
        for name, text in (
            ("uuid", "UUID of the GPU or of the MIG device"),
            ("minor", "number N of the GPU's /dev/nvidiaN"),
            ("model", "product name, such as NVIDIA A100-SXM4-40GB"),
            ("memoryMiB", "memory of the GPU or MIG device in MiB"),
            ("computeCapability", "compute capability, such as 8.0"),
            ("architecture", "architecture, such as ampere"),
            ("brand", "brand, such as Nvidia, Tesla, GeForce"),
            ("driverVersion", "version of the driver, such as 580.95.05"),
            ("cudaVersion", "highest CUDA version of the driver, such as 13.0"),
            ("migMode", "Enabled or Disabled; absent if the GPU has no MIG"),
        )
    ),
    *(
        Attribute(name, (MIG,), text)
        for name, text in (
            ("profile", "profile of a MIG device, such as 1g.10gb"),
            ("parentUuid", "UUID of the GPU that a MIG device is on"),
            ("gi", "GPU instance of a MIG device"),
            ("ci", "compute instance of a MIG device"),
        )
    ),
)
_BY_NAME: Final = {attribute.name: attribute for attribute in ATTRIBUTES}

FILE_PREFIXES: Final = {
    "attr.": _HARDWARE,
    "pci.attr.": _HARDWARE,
    "pf.attr.": _HARDWARE,
    "usb.attr.": (SYSFS, FILES),
}
"""Prefix of a sysfs file -> sources. The file is of the device, its PCI function, physical function or USB device."""

TELLING: Final = tuple(a.name for a in sorted(ATTRIBUTES, key=lambda a: a.rank) if a.rank)
"""Attributes that identify a device, best first."""

ANY: Final = "*"
"""In a sysfs file's path: any characters within the name of one directory or file. One name of a path may have it."""
_RELATIVE = re.compile(r"[A-Za-z0-9_:@+*-][A-Za-z0-9._:@+*-]*(?:/[A-Za-z0-9_:@+*-][A-Za-z0-9._:@+*-]*){0,7}")


def is_volatile(name: str) -> bool:
    """Whether another device may have the attribute's value after a reboot."""
    return name in _BY_NAME and _BY_NAME[name].volatile


def apart(name: str) -> str:
    """The attribute that still differs when two devices have the same value of `name`; '' if there is none."""
    return _BY_NAME[name].apart if name in _BY_NAME else ""


def file_attribute(name: str) -> tuple[str, str] | None:
    """(prefix, path relative to the sysfs object) if the attribute is a sysfs file, else None."""
    for prefix in FILE_PREFIXES:
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return None


def attribute_problem(name: str, *, sources: Collection[str], also: Iterable[str] = ()) -> str | None:
    """Why no device of `sources` can have the attribute, with a suggestion; None if one can.

    `sources`: names of sources, and also MIG if `nvml` finds MIG devices. `also`: more names that are allowed here.
    """
    extra = tuple(also)
    if name in extra:
        return None
    if found := file_attribute(name):
        prefix, path = found
        if problem := _path_problem(name, path):
            return problem
        return _wrong_source(name, FILE_PREFIXES[prefix], sources)
    if attribute := _BY_NAME.get(name):
        return _wrong_source(name, attribute.sources, sources)
    known = [a.name for a in ATTRIBUTES if set(a.sources) & set(sources)] + list(extra)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f": did you mean {near[0]!r}? Known here: " if near else "; known here: "
    files = [p for p, s in FILE_PREFIXES.items() if set(s) & set(sources)]
    tail = f", and sysfs files as {', '.join(p + '<file>' for p in files)}" if files else ""
    return f"unknown attribute {name!r}{hint}{', '.join(known)}{tail}"


def several_files(name: str) -> str:
    """What a message about an absent attribute adds if '*' stands in its path, else ''."""
    return ": no file of the device matches, or more than one does" if ANY in name else ""


def _path_problem(name: str, path: str) -> str | None:
    if not _RELATIVE.fullmatch(path) or ".." in path:
        return (
            f"{name!r} must name a file below the device's sysfs directory, such as attr.state or attr.device/model: "
            "at most 8 names with letters, digits and ._:@+-, without '..' and without a slash at either end"
        )
    if sum(ANY in part for part in path.split("/")) > 1:
        return f"{name!r}: only one directory or file name of the path may have '*'; write the other names in full"
    return None


def _wrong_source(name: str, having: tuple[str, ...], sources: Collection[str]) -> str | None:
    if set(having) & set(sources):
        return None
    given = sorted(set(sources) - {MIG})
    if MIG in having:
        given = [_GPU if source == NVML else source for source in given]
    known = ", ".join(a.name for a in ATTRIBUTES if set(a.sources) & set(sources))
    return (
        f"devices of {', '.join(given)} have no attribute {name!r}; it belongs to {', '.join(having)}; "
        f"known here: {known}"
    )
