"""The configuration document: what one pool's agents serve. Policy alone: node, object and pool come as environment.

Every entry is resolved: the operator has applied defaults and presets, so the agent has one
matcher and one injection path. Field names are the DevicePluginConfig's, in JSON as camelCase.
Meaning and bounds of each field: the CRD's descriptions; what may be wrong beyond shape: `check`.
"""

import json
from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import Any, Final, TypeVar

from device_agent.contract import attributes
from device_agent.contract.codec import ShapeError, decode, encode
from device_agent.contract.values import dataclass

T = TypeVar("T")

CONTRACT_VERSION: Final = 1
"""Part of the ConfigMap's name: agents of another version keep their own document until they are rolled."""


GLOB: Final = "glob"
"""Key in the metadata of a source's field that holds globs: they are checked wherever the source comes from."""


def _globs() -> Any:
    return field(default=(), metadata={GLOB: True})


class ContractError(ValueError):
    """The document cannot be used. The message is one line for an admin: where, what, how to mend it."""


class Ownership(StrEnum):
    EXCLUSIVE = "Exclusive"
    NONE = "None"


class Policy(StrEnum):
    PACKED = "Packed"
    SPREAD = "Spread"
    TOPOLOGY = "Topology"


class TopologyHints(StrEnum):
    PUBLISH = "Publish"
    OMIT = "Omit"


class OwnNodes(StrEnum):
    """Which own nodes the agent gives. None: none, as where a container runtime brings them (CDI, a vendor's hook)."""

    ALL = "All"
    LISTED = "Listed"
    NONE = "None"


@dataclass(frozen=True, slots=True)
class Match:
    """Globs (fnmatch, case-sensitive), ORed. An absent attribute never matches."""

    attribute: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PciSource:
    """Globs; fields are ANDed, an empty field does not restrict. `ids` as vendor:device, lower-case hex.

    `classes` match the class code's 6 hex digits or its first 4 (as lspci prints them).
    """

    ids: tuple[str, ...] = _globs()
    classes: tuple[str, ...] = _globs()
    drivers: tuple[str, ...] = _globs()
    addresses: tuple[str, ...] = _globs()


@dataclass(frozen=True, slots=True)
class SysfsSource:
    """Objects of a class or bus whose kernel name matches a glob (none given: all)."""

    subsystem: str
    names: tuple[str, ...] = _globs()


@dataclass(frozen=True, slots=True)
class FilesSource:
    """Globs of absolute paths below /dev; a directory is one device with the nodes below it."""

    paths: tuple[str, ...] = field(metadata={GLOB: True})


@dataclass(frozen=True, slots=True)
class SimulatedSource:
    """`count` devices without hardware in `numa_nodes` equal blocks (0: no NUMA); `unhealthy`: their indexes."""

    count: int
    numa_nodes: int = 0
    unhealthy: tuple[int, ...] = ()


class NvmlKind(StrEnum):
    GPU = "GPU"
    MIG = "MIG"


@dataclass(frozen=True, slots=True)
class NvmlSource:
    """NVIDIA devices as the driver's management library lists them: whole GPUs, or partitions (MIG)."""

    kind: NvmlKind = NvmlKind.GPU


@dataclass(frozen=True, slots=True)
class DeviceEntry:
    """One source, exactly, and what its finds must match."""

    pci: PciSource | None = None
    sysfs: SysfsSource | None = None
    files: FilesSource | None = None
    simulated: SimulatedSource | None = None
    nvml: NvmlSource | None = None
    include: tuple[Match, ...] = ()

    @property
    def kind(self) -> str:
        """`pci`, `sysfs`, `files`, `simulated` or `nvml`."""
        return next(k for k in attributes.SOURCES if getattr(self, k) is not None)


@dataclass(frozen=True, slots=True)
class PerDevice:
    """The replicas of the devices that match; the first entry that matches counts."""

    match: Match
    replicas: int


@dataclass(frozen=True, slots=True)
class Sharing:
    """`max_per_container` 0: no cap."""

    replicas: int = 1
    max_per_container: int = 0
    per_device: tuple[PerDevice, ...] = ()

    @property
    def shared(self) -> bool:
        return self.replicas > 1 or any(p.replicas > 1 for p in self.per_device)


@dataclass(frozen=True, slots=True)
class Allocation:
    """`counts` empty: any size of request."""

    policy: Policy = Policy.TOPOLOGY
    counts: tuple[int, ...] = ()
    topology_hints: TopologyHints = TopologyHints.PUBLISH


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """`own` (glob below /dev) selects own nodes; `host_path` names a companion; exactly one of the two.

    `container_path` empty: as on the host. `env`: a variable that gets the container path(s).
    """

    own: str = ""
    host_path: str = ""
    container_path: str = ""
    permissions: str = "rw"
    env: str = ""
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Mount:
    host_path: str
    container_path: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class Env:
    """`counts`: only requests of these sizes get it (empty: all). `optional`: left out where an attribute is absent."""

    name: str
    value: str
    counts: tuple[int, ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Annotation:
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Inject:
    own_nodes: OwnNodes = OwnNodes.ALL
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    env: tuple[Env, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    cdi_devices: tuple[str, ...] = ()


class Clears(StrEnum):
    """What ends a failure. Reset: the driver needs nothing more, or it was reloaded, or the node rebooted."""

    QUIET = "Quiet"
    RESET = "Reset"


@dataclass(frozen=True, slots=True)
class XidRule:
    """An XID error of the NVIDIA driver that makes the GPU Unhealthy, beside or instead of the built-in table's row."""

    xid: int
    clears: Clears = Clears.RESET


@dataclass(frozen=True, slots=True)
class HealthRules:
    """When a device of the resource is Unhealthy, beyond what its source says.

    `unhealthy_when`: one match is a failed check; checks are `interval_seconds` apart. So many failed or good checks in
    a row turn the device over; a check that gives no answer counts as neither. `removal_grace_seconds`: how long a
    device that vanished stays listed at least. `ignore_xids` are no failures.
    """

    unhealthy_when: tuple[Match, ...] = ()
    interval_seconds: int = 10
    failure_threshold: int = 3
    recovery_threshold: int = 3
    removal_grace_seconds: int = 60
    ignore_xids: tuple[int, ...] = ()
    xids: tuple[XidRule, ...] = ()


@dataclass(frozen=True, slots=True)
class Resource:
    """One entry of `spec.resources`. `name` as written is its key; `unit` empty: the source's default.

    `max_devices` 0: no limit.
    """

    name: str
    devices: tuple[DeviceEntry, ...]
    exclude: tuple[Match, ...] = ()
    unit: str = ""
    max_devices: int = 0
    ownership: Ownership = Ownership.EXCLUSIVE
    sharing: Sharing = Sharing()
    allocation: Allocation = Allocation()
    inject: Inject = Inject()
    health: HealthRules = HealthRules()


@dataclass(frozen=True, slots=True)
class Document:
    """The order of `resources` decides ownership: the first entry that selects a device owns it."""

    resources: tuple[Resource, ...]
    contract_version: int = field(default=CONTRACT_VERSION)


def parse(raw: bytes | str) -> Document:
    """The document, strictly: an unknown or ill-typed field is an error with its path.

    Raises:
        ContractError: not JSON, another contract version, or another shape.
    """
    try:
        data = json.loads(raw)
    except ValueError as error:
        raise ContractError(f"the configuration is not valid JSON: {error}") from error
    except RecursionError as error:
        raise ContractError("the configuration is nested too deeply") from error
    version = data.get("contractVersion") if isinstance(data, dict) else None
    if version != CONTRACT_VERSION:
        raise ContractError(
            f"the configuration has contract version {version!r}, this agent reads {CONTRACT_VERSION}: "
            "operator and agent images must be of one release"
        )
    return _decode(Document, data, path="")


def parse_resource(data: Mapping[str, Any], *, path: str) -> Resource:
    """One resolved entry of `spec.resources`; omitted fields get the document's defaults.

    Raises:
        ContractError: another shape; the message begins with `path`.
    """
    resource = _decode(Resource, data, path=path)
    policy = data.get("allocation", {}).get("policy")
    if policy is None and resource.sharing.shared:
        return replace(resource, allocation=replace(resource.allocation, policy=Policy.SPREAD))
    return resource


def dump(document: Document) -> bytes:
    """The document as it stands in the ConfigMap: equal documents give equal bytes."""
    return json.dumps(encode(document), indent=1, ensure_ascii=False).encode() + b"\n"


def _decode(cls: type[T], data: object, *, path: str) -> T:
    try:
        return decode(cls, data, path=path)
    except ShapeError as error:
        raise ContractError(str(error)) from error
