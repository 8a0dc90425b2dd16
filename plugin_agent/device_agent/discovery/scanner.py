"""One scan of everything a document asks for. It reads, and never changes the hardware's state."""

from device_agent.contract import check
from device_agent.contract.document import DeviceEntry, Document
from device_agent.discovery.files import DeviceFiles
from device_agent.discovery.host_tree import DevTree
from device_agent.discovery.pci import PciFunctions
from device_agent.discovery.simulated import SimulatedDevices
from device_agent.discovery.source import Roots, Source
from device_agent.discovery.sysfs import SysfsObjects
from device_agent.discovery.sysfs_tree import SysfsTree
from device_agent.nvml.model import NvmlView
from device_agent.nvml.source import NvmlDevices
from device_agent.select.found import Findings, FoundDevice


class Scanner:
    """Scans below `roots`. Nothing is kept between scans."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots

    def scan(
        self, document: Document, *, nvml: NvmlView | None = None, known: frozenset[str] = frozenset()
    ) -> Findings:
        """What each entry's source finds, whoever comes to own it.

        A device that cannot be read never hides the others: it is left out, or found with a problem, and
        `errors` names it. Blocking: a driver may take its time to answer a read.
        `nvml`: the last look at NVIDIA's GPUs; of those nothing is found without. `known`: names of entries that had
        devices before, whose absence is news.
        """
        tree = SysfsTree(self._roots)
        pci = PciFunctions(tree)
        alone = all(entry.nvml for resource in document.resources for entry in resource.devices)
        gpus = NvmlDevices(tree, nvml, alone=alone)
        shared: dict[str, Source] = {
            "pci": pci,
            "sysfs": SysfsObjects(tree),
            "files": DeviceFiles(tree),
            "nvml": gpus,
        }
        errors: list[str] = []

        unread: set[str] = set()

        def source_of(entry: DeviceEntry, owner: str) -> Source:
            return shared.get(entry.kind) or SimulatedDevices(owner)

        def of_entry(entry: DeviceEntry, owner: str, wanted: frozenset[str]) -> tuple[FoundDevice, ...]:
            try:
                return source_of(entry, owner).scan(entry, wanted=wanted)
            except OSError as error:
                errors.append(f"{owner}: {error}")
                unread.add(owner)
                return ()

        by_entry, nothing = [], {}
        for number, resource in enumerate(document.resources):
            wanted = check.attribute_names(resource)
            owners = [f"{resource.name} devices[{i}]" for i in range(len(resource.devices))]
            found = tuple(of_entry(e, owner, wanted) for e, owner in zip(resource.devices, owners, strict=True))
            by_entry.append(found)
            if not any(found) and unread.isdisjoint(owners):
                nothing[number] = tuple(source_of(e, "").nothing(e) for e in resource.devices)
        asked = any(entry.pci for resource in document.resources for entry in resource.devices)
        return Findings(
            by_entry=tuple(by_entry),
            iommu_groups=pci.iommu_groups() if asked else {},
            nothing=nothing,
            errors=tuple(dict.fromkeys((*errors, *tree.errors))),
            reasons={
                i: reason
                for i, resource in enumerate(document.resources)
                if any(entry.nvml for entry in resource.devices)
                and (reason := gpus.reason(expected=resource.name in known))
            },
        )

    def exists(self, host_path: str) -> bool:
        """Whether a companion such as /dev/net/tun is there: a device node, or a directory of some."""
        return DevTree(self._roots.dev).exists(host_path.removeprefix("/dev/"))
