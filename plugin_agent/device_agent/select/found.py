"""What a scan finds, before anybody decides who owns it. Pure values: no gRPC, no policy.

A source hands over everything that selection must know of a device. So selection knows no source and no vendor.
"""

from collections.abc import Callable, Mapping
from dataclasses import field

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
    """Questions about paths below the node's /dev.

    `exists`: whether the path leads to a device node or a directory. `number`: of the node, such as `char/10:232`, ''
    where it has none.
    """

    exists: Callable[[str], bool]
    number: Callable[[str], str] = lambda _path: ""


@dataclass(frozen=True, slots=True)
class Group:
    """Devices that can only be given away together, such as the functions of an IOMMU group.

    `name`: what people call it; it tells the group from all others of the node.
    `unit`: the attribute on which its devices agree.
    `paths`: the sysfs paths that go with it.
    `unviable`: why it cannot be given away at all, or ''.
    """

    name: str
    unit: str
    paths: tuple[str, ...]
    unviable: str = ""


@dataclass(frozen=True, slots=True)
class FoundDevice:
    """One device as its source sees it.

    `sysfs_path`: its real directory relative to the sysfs root (`devices/pci0000:00/0000:00:03.0`), None
    where it has none; two finds are the same hardware when one's path is, or lies below, the other's.
    `attributes`: names of `contract.attributes`, absent ones left out, sysfs files at most 128 bytes.
    `nodes`: its own nodes as paths on the host (`/dev/kvm`), sorted, each present when scanned.
    `shared_nodes`: those of its nodes that other devices have too, by design; having one is no conflict.
    `problem`: why it cannot work although it was found, such as a node that is gone.
    `node_problem`: the same, but only for an entry that gives its own nodes to containers.
    `left_out`: why the source knows that it is not what was asked for; no entry owns it then.
    `label`: what people call it, such as the path they named; '' where that is its name.
    `unit`: the attribute whose value makes one device, for an entry that names none.
    `stable_name`: its name is the same after the next boot.
    `parts`: what its driver calls it when it tells of failures: physical devices, and parts of them as paths.
    `group`: the devices that it can only be given away with, None when it can be given away alone.
    `absent`: attribute -> why it has none, where the source knows the reason.
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
        """What people call it."""
        return self.label or self.name

    @property
    def own_nodes(self) -> tuple[str, ...]:
        """Its nodes that are not shared by design."""
        return tuple(node for node in self.nodes if node not in self.shared_nodes)

    @property
    def hardware(self) -> str:
        """The name that tells it from everything else on the node."""
        return self.sysfs_path or f"{self.source}:{self.title}"

    def unmet(self, match: Match) -> str | None:
        """Why it fails a match. None: it matches. An absent attribute never matches."""
        value = self.attributes.get(match.attribute)
        if value is None:
            return f"{match.attribute} is absent"
        if matcher(match.values)(value):
            return None
        return f"{match.attribute} is {value!r}, not {' or '.join(match.values)}"


@dataclass(frozen=True, slots=True)
class Findings:
    """One scan of a whole document: `by_entry[resource index][entry index]` are the finds of that entry's source.

    `errors`: what could not be read, one line each; the scan goes on without it.
    `reasons`: resource index -> why one of its sources found nothing, where an admin would look for devices.
    `nothing`: resource index, of one whose sources all found nothing -> where each has looked, '' if no news.
    `failed`: (resource index, entry index) -> why the source of that entry could not look at all.
    `vanished`: source -> what to tell of a device of it that is no longer found, where there is more to say.
    """

    by_entry: tuple[tuple[tuple[FoundDevice, ...], ...], ...]
    errors: tuple[str, ...] = ()
    reasons: Mapping[int, str] = field(default_factory=dict)
    nothing: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    failed: Mapping[tuple[int, int], str] = field(default_factory=dict)
    vanished: Mapping[str, str] = field(default_factory=dict)
