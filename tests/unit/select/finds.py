"""Finds and selections without a file system."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from device_agent.contract import check
from device_agent.contract.document import Document, parse_resource
from device_agent.discovery.iommu import IommuGroups
from device_agent.discovery.pci import with_group
from device_agent.discovery.sysfs_tree import PciFunction
from device_agent.select.found import DeviceNodes, Findings, FoundDevice
from device_agent.select.selection import select
from device_agent.select.unit import Selection

SOURCES: dict[str, dict[str, Any]] = {
    "pci": {"pci": {}},
    "sysfs": {"sysfs": {"subsystem": "tty"}},
    "files": {"files": {"paths": ["/dev/*"]}},
    "simulated": {"simulated": {"count": 1}},
}


def pci(
    address: str,
    *,
    driver: str | None = None,
    group: str | None = None,
    pci_class: str = "020000",
    nodes: Sequence[str] = (),
    below: str = "devices/pci0000:00",
    **attributes: str,
) -> FoundDevice:
    values = {"name": address, "pci.address": address, "pci.class": pci_class}
    if driver:
        values |= {"driver": driver, "pci.driver": driver}
    if group is not None:
        values["iommuGroup"] = group
        if driver and "vfio" in driver:
            nodes = [f"/dev/vfio/{group}", "/dev/vfio/vfio"]
    return FoundDevice(
        "pci",
        address,
        f"{below}/{address}",
        values | attributes,
        nodes=tuple(nodes),
        shared_nodes=("/dev/vfio/vfio",),
        unit="pci.address",
        stable_name=True,
    )


def grouped(finds: Iterable[FoundDevice], *, members: Iterable[FoundDevice]) -> tuple[FoundDevice, ...]:
    """PCI finds as their source hands them over on a node with these functions; other finds as they are."""
    groups = IommuGroups(map(_function, members))
    return tuple(with_group(f, _function(f), groups) if f.source == "pci" else f for f in finds)


def _function(find: FoundDevice) -> PciFunction:
    values = find.attributes
    return PciFunction(
        path=find.sysfs_path or "",
        address=find.name,
        vendor="10de",
        device="20b5",
        pci_class=values.get("pci.class", ""),
        driver=values.get("pci.driver"),
        iommu_group=values.get("iommuGroup"),
        numa_node=find.numa_node,
    )


def sysfs(name: str, path: str | None = None, *, nodes: Sequence[str] = (), **attributes: str) -> FoundDevice:
    values = {"name": name} | {key.replace("__", "."): value for key, value in attributes.items()}
    if nodes:
        values["path"] = nodes[0]
    return FoundDevice("sysfs", name, path or f"devices/virtual/tty/{name}", values, nodes=tuple(nodes))


def file(path: str, *, place: str | None = None, nodes: Sequence[str] | None = None) -> FoundDevice:
    name = path.rpartition("/")[2]
    return FoundDevice(
        "files", name, place, {"name": name, "path": path}, nodes=tuple(nodes or [path]), label=path, unit="path"
    )


def sim(index: int, **fields: Any) -> FoundDevice:
    name = f"sim-{index:05}"
    return FoundDevice("simulated", name, None, {"name": name, "index": str(index)}, stable_name=True, **fields)


def sims(count: int) -> list[FoundDevice]:
    return [sim(i) for i in range(count)]


def entry(name: str, *sources: str, **fields: Any) -> dict[str, Any]:
    return {"name": f"example.com/{name}", "devices": [SOURCES[s] for s in sources], **fields}


def documented(*entries: dict[str, Any]) -> Document:
    document = Document(tuple(parse_resource(e, path=f"resources[{i}]") for i, e in enumerate(entries)))
    assert check.problems(document) == ()
    return document


def selection(
    *pairs: tuple[dict[str, Any], Sequence[Sequence[FoundDevice]]],
    members: Iterable[FoundDevice] | None = None,
    exists: Callable[[str], bool] = lambda _path: True,
    number: Callable[[str], str] = lambda _path: "",
    gone: Iterable[str] = (),
    held: frozenset[str] = frozenset(),
) -> Selection:
    """Selects from (resource entry, finds per source). `members`: all PCI functions of the node; None: those
    found. `gone`: paths of mounts that are missing.
    """
    everything = [find for _, found in pairs for finds in found for find in finds if find.source == "pci"]
    node = everything if members is None else tuple(members)
    by_entry = tuple(tuple(grouped(finds, members=node) for finds in found) for _, found in pairs)
    findings = Findings(by_entry=by_entry)
    dev = DeviceNodes(exists=exists, number=number, missing=frozenset(gone).__contains__)
    return select(documented(*(e for e, _ in pairs)), findings, dev=dev, held=held)


def ids(selected: Selection) -> list[tuple[str, str]]:
    return [(u.resource.removeprefix("example.com/"), u.id) for u in selected.units]


def reasons(selected: Selection) -> dict[tuple[str, str], str]:
    return {(e.entry.removeprefix("example.com/"), e.id): e.reason for e in selected.excluded}
