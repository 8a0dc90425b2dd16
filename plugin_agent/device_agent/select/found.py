"""What a scan finds, before anybody decides who owns it. Pure values: no gRPC, no policy."""

from collections.abc import Mapping
from dataclasses import field

from device_agent.contract.document import Match
from device_agent.contract.values import dataclass
from device_agent.select.kernel_names import matcher


@dataclass(frozen=True, slots=True)
class FoundDevice:
    """One device as its source sees it.

    `sysfs_path`: its real directory relative to the sysfs root (`devices/pci0000:00/0000:00:03.0`), None
    where it has none; two finds are the same hardware when one's path is, or lies below, the other's.
    `attributes`: names of `contract.attributes`, absent ones left out, sysfs files at most 128 bytes.
    `nodes`: its own nodes as paths on the host (`/dev/kvm`), sorted, each present when scanned.
    `problem`: (CamelCase reason, message) when it was found but cannot work, such as a node that is gone.
    `left_out`: (CamelCase reason, message) when the source sees that it is not what was asked for: it is owned by none.
    """

    source: str
    name: str
    sysfs_path: str | None
    attributes: Mapping[str, str]
    nodes: tuple[str, ...] = ()
    numa_node: int | None = None
    problem: tuple[str, str] | None = None
    left_out: tuple[str, str] | None = None

    @property
    def label(self) -> str:
        """What people call it: the path they named, the PCI address, the kernel name."""
        return self.attributes.get("path", self.name) if self.source == "files" else self.name

    @property
    def hardware(self) -> str:
        """What it is told apart by from everything else on the node."""
        return self.sysfs_path or f"{self.source}:{self.label}"

    def unmet(self, match: Match) -> str | None:
        """How it fails a match, None when it matches; an attribute that is absent never does."""
        value = self.attributes.get(match.attribute)
        if value is None:
            return f"{match.attribute} is absent"
        if matcher(match.values)(value):
            return None
        return f"{match.attribute} is {value!r}, not {' or '.join(match.values)}"


@dataclass(frozen=True, slots=True)
class Findings:
    """One scan of a whole document: `by_entry[resource index][entry index]` are the finds of that entry's source.

    `iommu_groups`: group number -> every PCI function in it, whatever the document asks for, so that a
    group's viability can be judged; empty when no PCI function was asked for.
    `errors`: what could not be read, one line each; the scan goes on without it.
    `reasons`: resource index -> why one of its sources found nothing, where an admin would look for devices.
    `nothing`: resource index, of one whose sources all found nothing -> where each has looked, '' if no news.
    """

    by_entry: tuple[tuple[tuple[FoundDevice, ...], ...], ...]
    iommu_groups: Mapping[str, tuple[FoundDevice, ...]] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    reasons: Mapping[int, str] = field(default_factory=dict)
    nothing: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
