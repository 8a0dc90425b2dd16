"""What selection hands to the device table: allocatable units with everything that an Allocate needs.

Files are looked at and placeholders rendered at scan time, so Allocate only combines values.
"""

from collections.abc import Mapping
from dataclasses import field

from device_agent.contract.inventory import Identity
from device_agent.contract.reasons import DeviceReason, ExclusionReason
from device_agent.contract.values import dataclass


@dataclass(frozen=True, slots=True)
class NodeGrant:
    """A device node for the container. `env`: template of the variable that gets the container path, or ''."""

    host_path: str
    container_path: str
    permissions: str
    env: str = ""


@dataclass(frozen=True, slots=True)
class MountGrant:
    host_path: str
    container_path: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class Grants:
    """What one unit adds to a container. Texts keep only the `{position}` placeholder; all else is rendered.

    `env`: (index into the resource's inject.env, name, value); `annotations`: (name, value).
    """

    nodes: tuple[NodeGrant, ...] = ()
    mounts: tuple[MountGrant, ...] = ()
    env: tuple[tuple[int, str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    cdi_devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unit:
    """One allocatable device.

    `entry`: the resource entry's name as written, its key. `resource`: the rendered name that the kubelet sees. `id`:
    at most 63 characters; replicas are `names.replica_id(id, n)`. `value`: the unit attribute in full. `hardware`: the
    members' sysfs paths, sorted; source and name for a member without a path. `problem`: (reason, message) that makes
    it Unhealthy, such as CompanionMissing. `unfit`: which of the entry's `health.unhealthyWhen` it matches, for an
    admin, or ''. `parts`: the names that its driver uses in news of faults: physical devices, and parts of them as
    paths. `own_nodes`: those of `nodes` that belong to this device alone, path -> number such as `char/4:64`, ''
    where it has none.
    """

    entry: str
    resource: str
    id: str
    value: str
    identity: Identity
    source: str
    attributes: Mapping[str, str]
    nodes: tuple[str, ...]
    grants: Grants
    hardware: tuple[str, ...]
    numa_node: int | None = None
    replicas: int = 1
    problem: tuple[DeviceReason, str] | None = None
    unfit: str = ""
    parts: tuple[str, ...] = ()
    own_nodes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Excluded:
    """A device that an entry's source found and that is not offered.

    `id`: the find's name for people. `hardware`: its name in the `hardware` of a unit, or ''.
    """

    id: str
    source: str
    entry: str
    reason: ExclusionReason
    message: str = ""
    hardware: str = ""


@dataclass(frozen=True, slots=True)
class Selection:
    """Units in the order of entries and ids. `refused`: rendered resource or entry name -> why it is not served.

    `notes`: entry name -> why a source of it finds nothing on this node.
    `vanished`: source -> advice about its devices that are no longer found, if there is any.
    `blind`: (entry name, source) -> why that source could not look for devices of the entry.
    `still_there`: hardware of earlier units that is in none of these and that the node still has.
    """

    units: tuple[Unit, ...]
    excluded: tuple[Excluded, ...]
    refused: Mapping[str, str]
    notes: Mapping[str, str] = field(default_factory=dict)
    vanished: Mapping[str, str] = field(default_factory=dict)
    blind: Mapping[tuple[str, str], str] = field(default_factory=dict)
    still_there: frozenset[str] = frozenset()

    def has(self, unit: Unit) -> bool:
        """Whether the node still has the hardware of a unit that is not selected any more."""
        return not self.still_there.isdisjoint(unit.hardware)
