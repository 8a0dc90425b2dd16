"""Decides which generation of an object is in force, beside the other objects. Pure.

A generation is judged against the present nodes and objects. Once accepted, it stays accepted. Nodes that overlap later
are reported by `placement.assignment` and make the object Degraded: one mislabelled node must not stop a fleet. A
rejected generation is judged again at every pass, so it is accepted after a label is corrected or a rival is deleted.
Until then the generation that was accepted before it stays in force.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from device_agent.contract.config_reasons import ConditionReason

from device_operator.runtime.errors import InvalidSpecError
from device_operator.spec import vain
from device_operator.spec.model import ConfigRef, Spec
from device_operator.spec.placement import NodeView, OtherConfig, assignment, describe


@dataclass(frozen=True, slots=True)
class Rejected:
    """`reason`: InvalidSpec, PoolOverlap, ResourceConflict or SpecNotKept."""

    reason: ConditionReason
    message: str

    @classmethod
    def invalid(cls, error: InvalidSpecError) -> "Rejected":
        return cls(ConditionReason.INVALID_SPEC, str(error))


@dataclass(frozen=True, slots=True)
class InForce:
    """The accepted spec that the operator renders and keeps in place. `generation`: the one that had this spec."""

    generation: int
    spec: Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedState:
    """Which generation of an object is in force. If that is not the present `generation`: why.

    `rejected`: None when the present generation is in force. `in_force`: None when no generation was ever accepted, or
    when the accepted spec cannot be read. `lost`: why it cannot be read, or ''. `earlier`: name of the stored spec to
    return to, or ''.
    """

    ref: ConfigRef
    generation: int
    rejected: Rejected | None = None
    in_force: InForce | None = None
    lost: str = ""
    earlier: str = ""


def rejection(
    ref: ConfigRef,
    spec: Spec,
    *,
    nodes: Iterable[NodeView],
    others: Iterable[OtherConfig],
    created: datetime,
) -> Rejected | None:
    """Why a generation cannot be accepted now; None: it can. It was never accepted before.

    `created`: creation time of the object. Nodes that others hold stay theirs. Of two new objects the older one wins.
    """
    if in_vain := vain.problems(spec):
        return Rejected.invalid(InvalidSpecError(in_vain))
    order = (created, ref.name)
    rivals = [replace(o, held=(*o.held, *o.wanted)) if (o.created, o.name) < order else o for o in others]
    found = assignment(spec, nodes=nodes, others=rivals)
    for reason in (ConditionReason.POOL_OVERLAP, ConditionReason.RESOURCE_CONFLICT):
        hits = [overlap for overlap in found.overlaps if overlap.reason is reason]
        if hits:
            return Rejected(reason, describe(hits))
    return None
