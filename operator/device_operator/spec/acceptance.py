"""Whether an object's present generation may be in force beside the other objects, and which generation is. Pure.

A generation is judged against the nodes and objects of the moment. Once accepted it stays so: nodes that come to
overlap later are told by `placement.assignment` and degrade the object, because one mislabelled node must not freeze
a fleet. A rejected generation is judged again at every pass, so that a mended label or a deleted rival lets it in.
Until then the generation that was accepted before it stays in force.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from device_agent.contract.reasons import ConditionReason

from device_operator.runtime.errors import InvalidSpecError
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
    """The accepted spec that is rendered and repaired. `generation`: the one that had this spec."""

    generation: int
    spec: Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedState:
    """What is in force of an object, and why that is not its present `generation`.

    `rejected`: None where the present generation is in force. `in_force`: None where no generation was ever accepted,
    or where its spec cannot be read; `lost` then says why, and is empty otherwise.
    """

    ref: ConfigRef
    generation: int
    rejected: Rejected | None = None
    in_force: InForce | None = None
    lost: str = ""


def rejection(
    ref: ConfigRef,
    spec: Spec,
    *,
    nodes: Iterable[NodeView],
    others: Iterable[OtherConfig],
    created: datetime,
) -> Rejected | None:
    """Why a generation that was never accepted cannot be now; None: it can.

    `created`: when the object was. What others hold comes first; of two objects that are both new the older one wins.
    """
    order = (created, ref.name)
    rivals = [replace(o, held=(*o.held, *o.wanted)) if (o.created, o.name) < order else o for o in others]
    found = assignment(spec, nodes=nodes, others=rivals)
    for reason in (ConditionReason.POOL_OVERLAP, ConditionReason.RESOURCE_CONFLICT):
        hits = [overlap for overlap in found.overlaps if overlap.reason is reason]
        if hits:
            return Rejected(reason, describe(hits))
    return None
