"""What hardware a node has, configured or not, and the entries of `spec.resources` that would serve it. Pure.

The survey is a configuration document of its own, whose entries own nothing: an agent or a tree is scanned with it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from device_agent.contract.document import Document, parse_resource

from kubectl_devices.model.table import Table, table

Entry = dict[str, Any]
Found = Mapping[str, Any]
"""A device as `device_agent.select.description` describes it."""

_NO_DEVICE: Final = ("00*", "05*", "06*", "08*", "0c03*", "0c05*", "0c80*", "0d*", "11*")
"""PCI classes that no pod asks for: old devices, memory, bridges, system peripherals, USB, SMBus, signals."""
_CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    "accel": (),
    "drm": ("renderD*",),
    "fpga_region": (),
    "infiniband": (),
    "kfd": (),
    "sound": ("pcmC*",),
    "tpm": ("tpm[0-9]*",),
    "tty": ("ttyUSB*", "ttyACM*"),
    "uio": (),
    "video4linux": (),
}
"""Classes of sysfs whose objects are devices that pods use, with globs of their kernel names; () is all."""
_FILES: Final = (
    "/dev/fuse",
    "/dev/hwrng",
    "/dev/kvm",
    "/dev/net/tun",
    "/dev/vhost-net",
    "/dev/vhost-vsock",
    "/dev/dsp",
)
_NVIDIA: Final = "10de"


@dataclass(frozen=True, slots=True)
class Kind:
    """Devices that one entry would serve. `name`: the last part of a resource's name."""

    source: str
    name: str
    entry: Entry
    devices: tuple[Found, ...]
    remark: str = ""


def document() -> Document:
    """The survey. Its resources are named by source: survey.local/pci, survey.local/tty, …"""
    entries: list[Entry] = []
    for subsystem in _CLASSES:
        source = _source(subsystem)
        entries.append({"name": f"survey.local/{subsystem}", "devices": [{"sysfs": source}], "unit": "name"})
    entries.append({"name": "survey.local/files", "devices": [{"files": {"paths": list(_FILES)}}]})
    entries.append(
        {
            "name": "survey.local/pci",
            "devices": [{"pci": {"addresses": ["*"]}}],
            "exclude": [{"attribute": "pci.class", "values": list(_NO_DEVICE)}],
        }
    )
    quiet = {"ownership": "None", "inject": {"ownNodes": "All"}}
    return Document(tuple(parse_resource({**entry, **quiet}, path="survey") for entry in entries))


def kinds(devices: Iterable[Found]) -> tuple[Kind, ...]:
    """The devices of a scan of the survey, by what would select them."""
    by_source: defaultdict[str, list[Found]] = defaultdict(list)
    for device in devices:
        by_source[str(device["entry"]).rpartition("/")[2]].append(device)
    found: list[Kind] = []
    for source, there in by_source.items():
        make = {"pci": _pci, "files": _files}.get(source)
        found += make(there) if make else _sysfs(source, there)
    return tuple(found)


def hardware_table(found: Iterable[Kind]) -> Table:
    rows = (
        (
            kind.source,
            _title(device),
            _ids(device["attributes"]),
            device["attributes"].get("driver", ""),
            "" if device.get("numaNode") is None else str(device["numaNode"]),
            ",".join(device["nodes"]),
        )
        for kind in found
        for device in kind.devices
    )
    return table("FOUND_BY DEVICE ID DRIVER NUMA NODES", rows)


def entries(found: Iterable[Kind]) -> list[Entry]:
    """For `spec.resources`. A device that two entries select belongs to the first, so those of classes stand first."""
    return [{"name": f"example.com/{kind.name}", **kind.entry} for kind in found]


def _pci(devices: list[Found]) -> Iterator[Kind]:
    """One kind for each vendor and device id; NVIDIA's display controllers are served by the driver's library."""
    groups: defaultdict[tuple[str, str], list[Found]] = defaultdict(list)
    nvidia: list[Found] = []
    for device in devices:
        attributes = device["attributes"]
        if attributes.get("pci.vendor") == _NVIDIA and str(attributes.get("pci.class", "")).startswith("03"):
            nvidia.append(device)
        elif "pci.vendor" in attributes and "pci.device" in attributes:
            groups[attributes["pci.vendor"], attributes["pci.device"]].append(device)
    if nvidia:
        preset: Entry = {"preset": "nvidia-gpu-cdi"}
        yield Kind("pci", "gpu", preset, tuple(nvidia), "docs/gpu.md has the presets and what the node needs for each")
    for (vendor, device_id), there in sorted(groups.items()):
        entry: Entry = {"devices": [{"pci": {"ids": [f"{vendor}:{device_id}"]}}]}
        remark = (
            ""
            if any(d["nodes"] for d in there)
            else "it has no device node: bind it to vfio-pci, or name nodes in inject.deviceNodes"
        )
        yield Kind("pci", f"pci-{vendor}-{device_id}", entry, tuple(there), remark)


def _sysfs(subsystem: str, devices: list[Found]) -> Iterator[Kind]:
    entry: Entry = {"devices": [{"sysfs": _source(subsystem)}]}
    ports = [d["attributes"].get("usb.port") for d in devices]
    if all(ports):
        entry["unit"] = "usb.port"
        several = len(set(ports)) < len(ports)
        yield Kind(
            subsystem, subsystem, entry, tuple(devices), "one port has several nodes: a pod gets all" if several else ""
        )
    else:
        yield Kind(subsystem, subsystem, entry, tuple(devices))


def _source(subsystem: str) -> Entry:
    names = _CLASSES.get(subsystem, ())
    return {"subsystem": subsystem, **({"names": list(names)} if names else {})}


def _files(devices: list[Found]) -> Iterator[Kind]:
    for device in devices:
        path = str(device["value"])
        yield Kind("files", path.rpartition("/")[2], {"devices": [{"files": {"paths": [path]}}]}, (device,))


def _title(device: Found) -> str:
    """The address or name; of a group of PCI functions, what the agent calls it."""
    return (
        str(device["attributes"].get("pci.address") if device["source"] == "pci" else device["value"]) or device["id"]
    )


def _ids(attributes: Mapping[str, str]) -> str:
    for bus, second in (("usb", "product"), ("pci", "device")):
        if f"{bus}.vendor" in attributes:
            return f"{attributes[f'{bus}.vendor']}:{attributes.get(f'{bus}.{second}', '')}"
    return ""
