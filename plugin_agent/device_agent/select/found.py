"""What a scan finds, before it is decided who owns what. Pure values: no gRPC, no policy.

A source hands over everything that selection must know of a device. So selection knows no source and no vendor.
"""

from collections.abc import Callable, Mapping
from dataclasses import field

from device_agent.contract.attributes import several_files
from device_agent.contract.document import Match
from device_agent.contract.reasons import DeviceReason, ExclusionReason
from device_agent.contract.values import dataclass
from device_agent.select.kernel_names import matcher

Problem = tuple[DeviceReason, str]
"""(reason, message of one line): why a device that was found cannot work."""
LeftOut = tuple[ExclusionReason, str]
"""(reason, message of one line): why the device is not what was asked for, or why that cannot be determined."""


@dataclass(frozen=True, slots=True)
class DeviceNodes:
    """Questions about paths of the node.

    `exists`: whether a path below /dev leads to a device node or a directory. `number`: of the node, such as
    `char/10:232`, '' where it has none. `missing`: whether nothing is at the path. False where the agent cannot see it:
    it sees /dev and /sys alone.
    """

    exists: Callable[[str], bool]
    number: Callable[[str], str] = lambda _path: ""
    missing: Callable[[str], bool] = lambda _path: False


@dataclass(frozen=True, slots=True)
class Group:
    """Devices that can only be given away together, such as the functions of an IOMMU group.

    `name`: its name for people, unique on the node.
    `unit`: the attribute that all its devices share.
    `paths`: the sysfs paths that belong to it.
    `unviable`: why it cannot be given away at all, or ''.
    """

    name: str
    unit: str
    paths: tuple[str, ...]
    unviable: str = ""


@dataclass(frozen=True, slots=True)
class FoundDevice:
    """One device as its source sees it.

    `sysfs_path`: its real directory relative to the sysfs root (`devices/pci0000:00/0000:00:03.0`), None if it has
    none. Two finds are the same hardware if their paths are equal, or one is below the other.
    `attributes`: names of `contract.attributes`, absent ones left out, sysfs files at most 128 bytes.
    `nodes`: its own nodes as paths on the host (`/dev/kvm`), sorted, each present when scanned.
    `shared_nodes`: those of its nodes that other devices have too, by design; they cause no conflict.
    `problem`: why it was found but cannot work, such as a missing node.
    `node_problem`: a problem only for entries that give the device's own nodes to containers.
    `left_out`: why the source rules it out; no entry owns it then.
    `label`: its name for people, such as the path in the configuration; '' if that is `name`.
    `unit`: the attribute whose value makes one device, if the entry names none.
    `stable_name`: its name is the same after the next boot.
    `parts`: the names that its driver uses in news of faults: physical devices, and parts of them as paths.
    `group`: the devices that it can only be given away with; None if it can be given away alone.
    `absent`: attribute -> why it lacks this attribute, if the source knows the reason.
    """

    source: str
    name: str
    sysfs_path: str | None
    attributes: Mapping[str, str]
    nodes: tuple[str, ...] = ()
    numa_node: int | None = None
    problem: Problem | None = None
    left_out: LeftOut | None = None
    label: str = ""
    unit: str = "name"
    stable_name: bool = False
    shared_nodes: tuple[str, ...] = ()
    node_problem: Problem | None = None
    parts: tuple[str, ...] = ()
    group: Group | None = None
    absent: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Its name for people."""
        return self.label or self.name

    @property
    def own_nodes(self) -> tuple[str, ...]:
        """Its nodes that are not shared by design."""
        return tuple(node for node in self.nodes if node not in self.shared_nodes)

    @property
    def hardware(self) -> str:
        """A name of its hardware that is unique on the node."""
        return self.sysfs_path or f"{self.source}:{self.title}"

    def unmet(self, match: Match) -> str | None:
        """Why it fails a match. None: it matches. An absent attribute never matches."""
        value = self.attributes.get(match.attribute)
        if value is None:
            return f"{match.attribute} is absent{several_files(match.attribute)}"
        if matcher(match.values)(value):
            return None
        return f"{match.attribute} is {value!r}, not {' or '.join(match.values)}"


@dataclass(frozen=True, slots=True)
class Findings:
    """One scan of a whole document: `by_entry[resource index][entry index]` are the finds of that entry's source.

    `errors`: what could not be read, one line each; the scan goes on without it.
    `reasons`: resource index -> why one of its sources found nothing, if an admin would expect devices there.
    `nothing`: resource index -> where each of its sources has looked, or ''. Only for resources without any find.
    `failed`: (resource index, entry index) -> why the source of that entry could not look at all.
    `vanished`: source -> advice about its devices that are no longer found, if there is any.
    """

    by_entry: tuple[tuple[tuple[FoundDevice, ...], ...], ...]
    errors: tuple[str, ...] = ()
    reasons: Mapping[int, str] = field(default_factory=dict)
    nothing: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    failed: Mapping[tuple[int, int], str] = field(default_factory=dict)
    vanished: Mapping[str, str] = field(default_factory=dict)
