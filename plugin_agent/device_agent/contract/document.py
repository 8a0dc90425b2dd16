"""The configuration document: what the agents of one pool serve. The names of node, object and pool are not in it.

The operator has already applied defaults and presets, so the agent needs only one matcher and one way to inject.
Field names are those of the DevicePluginConfig, in JSON as camelCase. The CRD's descriptions explain each field and
its bounds; `check` finds mistakes that a schema cannot find.
"""

import json
from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import Any, Final, TypeVar

from device_agent.contract import attributes
from device_agent.contract.codec import ABSENT_IF_EMPTY, ShapeError, decode, encode
from device_agent.contract.values import dataclass

T = TypeVar("T")

CONTRACT_VERSION: Final = 1
"""Part of the ConfigMap's name, so that agents of an older release keep their document until they are replaced."""


GLOB: Final = "glob"
"""Metadata key of a source's fields that have globs: `globs` checks these fields."""


def _globs() -> Any:
    return field(default=(), metadata={GLOB: True})


class ContractError(ValueError):
    """The document cannot be used. The message is one line for an admin: where, what is wrong, how to correct it."""


class Ownership(StrEnum):
    EXCLUSIVE = "Exclusive"
    NONE = "None"


class OnStaleGrant(StrEnum):
    """What becomes of a container whose device nodes lead to other hardware by now, when it starts again."""

    IGNORE = "Ignore"
    REFUSE = "Refuse"


class Policy(StrEnum):
    PACKED = "Packed"
    SPREAD = "Spread"
    TOPOLOGY = "Topology"


class TopologyHints(StrEnum):
    PUBLISH = "Publish"
    OMIT = "Omit"


class OwnNodes(StrEnum):
    """Which own nodes of a device the agent gives to a container. NONE: the container runtime gives them (CDI)."""

    ALL = "All"
    LISTED = "Listed"
    NONE = "None"


@dataclass(frozen=True, slots=True)
class Match:
    """Matches if the attribute fits a glob of `values` (fnmatch, case-sensitive). An absent attribute never matches."""

    attribute: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PciSource:
    """PCI functions that match a glob of every field; an empty field matches all. `ids`: vendor:device, lower-case hex.

    `classes`: matched against the 6 hex digits of the class code, and against its first 4 (as lspci prints them).
    """

    ids: tuple[str, ...] = _globs()
    classes: tuple[str, ...] = _globs()
    drivers: tuple[str, ...] = _globs()
    addresses: tuple[str, ...] = _globs()


@dataclass(frozen=True, slots=True)
class SysfsSource:
    """Objects of a class or bus in sysfs whose kernel name matches a glob; without `names`, all of them."""

    subsystem: str
    names: tuple[str, ...] = _globs()


@dataclass(frozen=True, slots=True)
class FilesSource:
    """Globs of absolute paths below /dev. A directory is one device with all nodes below it."""

    paths: tuple[str, ...] = field(metadata={GLOB: True})


@dataclass(frozen=True, slots=True)
class SimulatedSource:
    """`count` devices without hardware, in `numa_nodes` equal blocks (0: no NUMA). `unhealthy`: indexes."""

    count: int
    numa_nodes: int = 0
    unhealthy: tuple[int, ...] = ()


class NvmlKind(StrEnum):
    GPU = "GPU"
    MIG = "MIG"


@dataclass(frozen=True, slots=True)
class NvmlSource:
    """NVIDIA devices that the driver's library lists: whole GPUs, or partitions (MIG)."""

    kind: NvmlKind = NvmlKind.GPU


@dataclass(frozen=True, slots=True)
class DeviceEntry:
    """Exactly one source, and what its devices must match."""

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
    """The number of replicas of matching devices. The first entry that matches a device counts."""

    match: Match
    replicas: int


@dataclass(frozen=True, slots=True)
class Sharing:
    """How a device is shared. `max_per_container` 0: no limit."""

    replicas: int = 1
    max_per_container: int = 0
    per_device: tuple[PerDevice, ...] = ()

    @property
    def shared(self) -> bool:
        return self.replicas > 1 or any(p.replicas > 1 for p in self.per_device)


@dataclass(frozen=True, slots=True)
class Allocation:
    """How devices are chosen for a request. `counts`: the sizes of request that are allowed; empty: all."""

    policy: Policy = Policy.TOPOLOGY
    counts: tuple[int, ...] = ()
    topology_hints: TopologyHints = TopologyHints.PUBLISH


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """Device nodes for the container: `own` (a glob below /dev) selects own nodes, or `host_path` names a companion.

    `container_path` empty: the same path as on the host. `env`: a variable that gets the path(s) in the container.
    """

    own: str = ""
    host_path: str = ""
    container_path: str = ""
    permissions: str = "rw"
    env: str = ""
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Mount:
    """`optional`: left out if the path does not exist on the node, or an attribute is absent."""

    host_path: str
    container_path: str
    read_only: bool = True
    optional: bool = field(default=False, metadata=ABSENT_IF_EMPTY)


@dataclass(frozen=True, slots=True)
class Env:
    """`counts`: only requests of these sizes get it; empty: all. `optional`: left out if an attribute is absent."""

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
    """What ends a failure. RESET: the driver asks for no recovery action, or it was reloaded, or the node rebooted."""

    QUIET = "Quiet"
    RESET = "Reset"


@dataclass(frozen=True, slots=True)
class XidRule:
    """An XID of the NVIDIA driver that makes the GPU Unhealthy. It adds or replaces a row of the built-in table."""

    xid: int
    clears: Clears = Clears.RESET


@dataclass(frozen=True, slots=True)
class HealthRules:
    """When a device of the resource is Unhealthy, in addition to failures that its source reports.

    `unhealthy_when`: a device that matches one of them fails the check. Checks are `interval_seconds` apart.
    `failure_threshold`, `recovery_threshold`: so many failed, or good, checks in a row change the device's health. A
    check without an answer counts as neither.
    `removal_grace_seconds`: how long a vanished device stays listed at least. `ignore_xids`: XIDs that are no failures.
    """

    unhealthy_when: tuple[Match, ...] = ()
    interval_seconds: int = 10
    failure_threshold: int = 3
    recovery_threshold: int = 3
    removal_grace_seconds: int = 60
    ignore_xids: tuple[int, ...] = ()
    xids: tuple[XidRule, ...] = ()


@dataclass(frozen=True, slots=True)
class Needs:
    """What a device must have to be offered. `own_nodes`: globs below /dev; each must match one of its own nodes."""

    own_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Resource:
    """One entry of `spec.resources`. `name`: its key, with placeholders not filled in.

    `unit` empty: the source's default. `max_devices` 0: no limit. `needs` None: the own nodes that
    `inject.device_nodes` names; left out of the document, so that older agents read it. `may_be_empty`: that no
    node has a device is no fault; for the operator alone, never in the document.
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
    on_stale_grant: OnStaleGrant = OnStaleGrant.IGNORE
    needs: Needs | None = None
    may_be_empty: bool = field(default=False, metadata=ABSENT_IF_EMPTY)


@dataclass(frozen=True, slots=True)
class CordonRule:
    """Devices that are withheld from new pods on every node. `reason`: why, for people."""

    match: Match
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """The whole configuration of a pool. The first entry of `resources` that selects a device owns it. `cordon`: what
    admins withhold; absent without any, so that older agents read the document.
    """

    resources: tuple[Resource, ...]
    cordon: tuple[CordonRule, ...] = field(default=(), metadata=ABSENT_IF_EMPTY)
    contract_version: int = field(default=CONTRACT_VERSION)


def parse(raw: bytes | str) -> Document:
    """Reads the document. An unknown field, or a wrong type, is an error with the field's path.

    Raises:
        ContractError: not JSON, another contract version, or a wrong shape.
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
            f"the configuration has contract version {version!r}, but this agent reads {CONTRACT_VERSION}: "
            "use operator and agent images of the same release"
        )
    return _decode(Document, data, path="")


def parse_resource(data: Mapping[str, Any], *, path: str) -> Resource:
    """Reads one resolved entry of `spec.resources`. Omitted fields get the document's defaults.

    Raises:
        ContractError: a wrong shape; the message begins with `path`.
    """
    resource = _decode(Resource, data, path=path)
    policy = data.get("allocation", {}).get("policy")
    if policy is None and resource.sharing.shared:
        return replace(resource, allocation=replace(resource.allocation, policy=Policy.SPREAD))
    return resource


def dump(document: Document) -> bytes:
    """The document as bytes for the ConfigMap. Equal documents give equal bytes."""
    return json.dumps(encode(document), indent=1, ensure_ascii=False).encode() + b"\n"


def _decode(cls: type[T], data: object, *, path: str) -> T:
    try:
        return decode(cls, data, path=path)
    except ShapeError as error:
        raise ContractError(str(error)) from error
