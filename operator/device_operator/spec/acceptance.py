"""Whether an object may be accepted beside the others. Pure.

A generation is judged against the nodes and objects of the moment. Once accepted it stays so: nodes that come to
overlap later are told by `placement.assignment` and degrade the object, because one mislabelled node must not freeze
a fleet. A rejected generation is judged again at every pass, so that a mended label or a deleted rival lets it in.
What an object runs counts as its own beside what its spec says: a refused or paused edit changes no agent.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from device_operator.runtime.errors import InvalidSpecError
from device_operator.spec.model import ConfigRef, Spec
from device_operator.spec.placement import POOL_OVERLAP, RESOURCE_CONFLICT, NodeView, OtherConfig, assignment, describe

INVALID_SPEC: Final = "InvalidSpec"


@dataclass(frozen=True, slots=True)
class Accepted:
    spec: Spec


@dataclass(frozen=True, slots=True)
class Rejected:
    """`reason`: InvalidSpec, PoolOverlap or ResourceConflict."""

    reason: str
    message: str

    @classmethod
    def invalid(cls, error: InvalidSpecError) -> "Rejected":
        return cls(INVALID_SPEC, str(error))


def accept(
    ref: ConfigRef,
    spec: Spec,
    *,
    nodes: Iterable[NodeView],
    others: Iterable[OtherConfig],
    created: datetime,
    already: bool,
) -> Accepted | Rejected:
    """Judges a generation.

    `already`: this generation was accepted before (`status.was_accepted`), which is never taken back.
    `created`: of this object; between two objects that are both new the older one wins.
    """
    if already:
        return Accepted(spec)
    order = (created, ref.name)
    earlier = [replace(o, accepted=True) if o.accepted is None and (o.created, o.name) < order else o for o in others]
    found = assignment(spec, nodes=nodes, others=earlier)
    for reason in (POOL_OVERLAP, RESOURCE_CONFLICT):
        hits = [overlap for overlap in found.overlaps if overlap.reason == reason]
        if hits:
            return Rejected(reason, describe(hits))
    return Accepted(spec)
