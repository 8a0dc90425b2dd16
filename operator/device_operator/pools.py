"""Which node belongs to which pool, and whether an object may be accepted beside the others. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from device_operator.model import Identity, NodeView, OtherConfig
from device_operator.spec import Pool, Spec

INVALID_SPEC = "InvalidSpec"
POOL_OVERLAP = "PoolOverlap"
RESOURCE_CONFLICT = "ResourceConflict"


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two that want one node. `reason`: PoolOverlap or ResourceConflict; `pool`: ours that comes second."""

    node: str
    reason: str
    pool: str
    message: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """`nodes`: pool name -> names of its nodes, sorted; a node that two pools match is the first one's."""

    nodes: Mapping[str, tuple[str, ...]]
    overlaps: tuple[Overlap, ...] = ()


@dataclass(frozen=True, slots=True)
class Accepted:
    spec: Spec


@dataclass(frozen=True, slots=True)
class Rejected:
    """`reason`: InvalidSpec, PoolOverlap or ResourceConflict."""

    reason: str
    message: str


def matches(pool: Pool, node: NodeView) -> bool:
    """Whether the pool's DaemonSet would place a pod on the node, taints aside."""
    raise NotImplementedError


def accept(
    identity: Identity,
    spec: Spec,
    *,
    nodes: Iterable[NodeView],
    others: Iterable[OtherConfig],
    created: object,
    already: bool,
) -> Accepted | Rejected:
    """Judges a generation. `already`: this generation was accepted before, which is never taken back."""
    raise NotImplementedError


def assignment(spec: Spec, *, nodes: Iterable[NodeView], others: Iterable[OtherConfig]) -> Assignment:
    """The nodes of each pool, with every overlap there is now."""
    raise NotImplementedError
