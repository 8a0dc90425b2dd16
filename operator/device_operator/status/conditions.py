"""The conditions of a DevicePluginConfig, from the reports of its nodes. Pure.

Ready counts the settled nodes, or the young ones if no node is settled: `kubectl wait` for Ready on a new cluster
returns when agents serve. Once True, Ready stays True while nodes only wait for an agent that is starting
(`NodeReport.grace`, or a young node without a fault). So an edit, a rollout or a new node does not make it False; a
node with a fault does. When only that rule keeps Ready True, or Degraded False, the reason is AgentsStarting. The
message then says what the agents wait for. maxUnavailable nodes, rounded down, may be unserved, but never all nodes.

Reconciling and Stalled are what kstatus reads, and with it Flux, Argo CD and `kubectl wait`
(https://github.com/kubernetes-sigs/cli-utils, pkg/kstatus).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from device_agent.contract.config_reasons import ConditionReason
from device_agent.contract.node_reasons import NodeReason, NodeState
from device_agent.contract.status import ConditionStatus, ConditionType, ConfigCondition

from device_operator.spec.acceptance import AcceptedState
from device_operator.spec.caveats import caveats
from device_operator.spec.wording import clip, count, name_nodes
from device_operator.status.faults import halted, told_elsewhere
from device_operator.status.nodes import NodeReport
from device_operator.status.situation import MAX_GROUPS, Fault, Situation, causes, on_its_way, pools

ACCEPTED, PROGRESSING, DEGRADED, READY, RECONCILING, STALLED = ConditionType
TRUE, FALSE, UNKNOWN = ConditionStatus

MAX_MESSAGE: Final = 4096
"""Characters of a condition's message."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition without its times. `reason`: a condition's, or a node's where nodes are the cause."""

    type: ConditionType
    status: ConditionStatus
    reason: str
    message: str


def conclude(situation: Situation, found: Sequence[Fault]) -> tuple[Condition, ...]:
    """All conditions, in the order of `ConditionType`. `found`: by `faults.faults`."""
    accepted = _accepted(situation)
    if situation.complete:
        seen = [_progressing(situation), _degraded(situation, found), _ready(situation)]
    else:
        seen = [_unseen(kind, situation) for kind in (PROGRESSING, DEGRADED, READY)]
    return accepted, *seen, _reconciling(situation, seen[0]), _stalled(situation)


def _accepted(situation: Situation) -> Condition:
    standing, rejected = situation.standing, situation.rejected
    if rejected:
        said = [rejected.message]
        if standing.in_force:
            said.append(f"generation {standing.in_force.generation} stays in force")
        return Condition(ACCEPTED, FALSE, rejected.reason, "; ".join(filter(None, [*said, standing.lost])))
    spec = situation.spec
    if spec is None:
        return Condition(ACCEPTED, FALSE, ConditionReason.ACCEPTED_SPEC_LOST, standing.lost)
    counts = f"{count(len(spec.resources), 'resource')}, {count(len(spec.pools), 'pool')}"
    message = f"generation {standing.generation} is in force: {counts}"
    if spec.paused and not situation.applied:
        message = f"generation {standing.generation} is accepted, but paused: not applied; {counts}"
    return Condition(ACCEPTED, TRUE, ConditionReason.ACCEPTED, "; ".join([message, *caveats(spec)]))


def _unseen(kind: ConditionType, situation: Situation) -> Condition:
    before = situation.previous.get(kind)
    if before:
        return Condition(kind, before.status, before.reason, before.message)
    return Condition(kind, UNKNOWN, ConditionReason.OBSERVING, "the operator is still reading the cluster's objects")


def _progressing(situation: Situation) -> Condition:
    basis = situation.basis
    behind = [r for r in basis if not r.updated]
    what = "settled nodes" if any(r.settled for r in basis) else "nodes"
    message = f"{len(basis) - len(behind)} of {len(basis)} {what} on the current configuration and pod template"
    if situation.spec is None:
        return Condition(PROGRESSING, FALSE, *_nothing_in_force(situation.standing))
    if situation.spec.paused:
        return Condition(
            PROGRESSING, FALSE, ConditionReason.PAUSED, f"spec.paused is true, nothing is changed; {message}"
        )
    if why := halted(situation):
        return Condition(PROGRESSING, FALSE, ConditionReason.HALTED, f"{message}; {why}")
    if behind:
        rollout = situation.rollout
        if rollout and rollout.waiting:
            behind = [r for r in behind if r.pool == rollout.behind] or behind
            message += f"; {pools(rollout.waiting)} follow{'s' * (len(rollout.waiting) == 1)} pool {rollout.behind}"
        return Condition(
            PROGRESSING, TRUE, ConditionReason.UPDATING, f"{message}; waiting for {name_nodes(r.name for r in behind)}"
        )
    if not basis:
        return Condition(PROGRESSING, FALSE, ConditionReason.NO_NODES, "there is no node to update")
    return Condition(PROGRESSING, FALSE, ConditionReason.CURRENT, message)


def _degraded(situation: Situation, found: Sequence[Fault]) -> Condition:
    if found:
        return Condition(DEGRADED, TRUE, found[0].reason, "; ".join(fault.text for fault in found))
    told = told_elsewhere(situation)
    if waiting := [r for r in situation.basis if r.problem and r.reason not in told]:
        text = "; ".join(fault.text for fault in causes(waiting))
        return Condition(
            DEGRADED, FALSE, ConditionReason.AGENTS_STARTING, f"No problems found while agents start: {text}"
        )
    return Condition(DEGRADED, FALSE, ConditionReason.AS_WANTED, "No problems found")


def _reconciling(situation: Situation, progressing: Condition) -> Condition:
    """For kstatus: the operator still works on the present generation. False beside Stalled, which would be hidden."""
    rejected = situation.rejected
    if rejected and rejected.reason is ConditionReason.SPEC_NOT_KEPT:
        return Condition(RECONCILING, TRUE, rejected.reason, rejected.message)
    if stalled := _why_stalled(situation):
        return Condition(RECONCILING, FALSE, stalled.reason, stalled.text)
    return Condition(RECONCILING, progressing.status, progressing.reason, progressing.message)


def _stalled(situation: Situation) -> Condition:
    """For kstatus: the present generation does not come into force until an admin acts."""
    if stalled := _why_stalled(situation):
        return Condition(STALLED, TRUE, stalled.reason, stalled.text)
    return Condition(STALLED, FALSE, ConditionReason.NOT_STALLED, "Nothing waits for an admin")


def _why_stalled(situation: Situation) -> Fault | None:
    rejected, lost = situation.rejected, situation.standing.lost
    if rejected and rejected.reason is not ConditionReason.SPEC_NOT_KEPT:
        return Fault(rejected.reason, rejected.message)
    if lost:
        return Fault(ConditionReason.ACCEPTED_SPEC_LOST, lost)
    if why := halted(situation):
        return Fault(ConditionReason.HALTED, why)
    foreign = next((p for p in situation.problems if p.reason is NodeReason.NOT_OWNED), None)
    return Fault(foreign.reason, f"pool {foreign.pool}: {foreign.message}") if foreign else None


def _ready(situation: Situation) -> Condition:
    spec = situation.spec
    if spec is None:
        status = UNKNOWN if situation.standing.lost else FALSE
        return Condition(READY, status, *_nothing_in_force(situation.standing))
    if not situation.reports:
        what = ", ".join(pool.name for pool in spec.pools[:MAX_GROUPS])
        return Condition(
            READY, TRUE, ConditionReason.NO_NODES, f"no node belongs to pool{'s' * (len(spec.pools) > 1)} {what}"
        )
    basis = situation.basis
    if not basis:
        return Condition(
            READY,
            UNKNOWN,
            ConditionReason.NO_READY_NODES,
            f"none of {count(len(situation.reports), 'matched node')} is Ready",
        )
    was_ready = _was(situation, READY) is TRUE
    settled = basis[0].settled
    unserved = [r for r in basis if not r.served]
    blocking = [r for r in unserved if not (was_ready and on_its_way(r))]
    allowed = min(spec.allowed_unavailable(len(basis)), len(basis) - 1)
    message = f"{len(basis) - len(unserved)} of {len(basis)} {'settled nodes' if settled else 'nodes'} served"
    waiting = [r for r in situation.reports if r.young and not r.served]
    if settled and waiting:
        message += f", {count(len(waiting), 'node')} joining"
    if not settled:
        message += ", none of them is settled yet"
    # the count does not include these nodes, so the message must name them
    message = "; ".join([message, *_pools_away(situation.reports)])
    if len(blocking) > allowed:
        found = causes(blocking)
        return Condition(READY, FALSE, found[0].reason, "; ".join([message, *(fault.text for fault in found)]))
    if unserved:
        message = "; ".join([message, *(fault.text for fault in causes(unserved))])
    if situation.rejected:
        return Condition(READY, TRUE, situation.rejected.reason, f"the accepted generation stays in force: {message}")
    if len(unserved) > allowed:
        return Condition(READY, TRUE, ConditionReason.AGENTS_STARTING, message)
    if not situation.devices:
        return Condition(READY, TRUE, ConditionReason.NO_DEVICES, f"{message}; no node has a device{_why_none(basis)}")
    return Condition(READY, TRUE, ConditionReason.SERVING, message)


def _was(situation: Situation, kind: ConditionType) -> ConditionStatus | None:
    before = situation.previous.get(kind)
    return before.status if before else None


def _why_none(reports: Iterable[NodeReport]) -> str:
    """Points to Degraded when a fault explains why there are no devices."""
    reasons = sorted({r.reason for r in reports if r.state is NodeState.NO_DEVICES and r.problem})
    return f" ({', '.join(reasons)}: see Degraded)" if reasons else ""


def _pools_away(reports: Iterable[NodeReport]) -> list[str]:
    """A sentence for each pool whose nodes are all NotReady."""
    pools: defaultdict[str, list[NodeReport]] = defaultdict(list)
    for report in reports:
        pools[report.pool].append(report)
    return [
        f"no node of pool {pool} is Ready ({name_nodes(r.name for r in found)})"
        for pool, found in pools.items()
        if all(r.reason == NodeReason.NODE_NOT_READY for r in found)
    ]


def _nothing_in_force(standing: AcceptedState) -> tuple[str, str]:
    """(reason, message)"""
    if standing.lost:
        return ConditionReason.ACCEPTED_SPEC_LOST, standing.lost
    reason = standing.rejected.reason if standing.rejected else ConditionReason.NOT_ACCEPTED
    return reason, "nothing runs, because no spec of this object was accepted yet: see Accepted"


def with_times(
    concluded: Iterable[Condition], *, previous: Mapping[str, ConfigCondition], standing: AcceptedState, now: str
) -> tuple[ConfigCondition, ...]:
    """Conditions in the form of the API. The time of the last transition changes only with the status.

    After a rejected edit Progressing and Ready are about the generation in force, so they name that generation. So
    `kubectl wait` for the edit does not return.
    """
    in_force = standing.in_force.generation if standing.in_force else standing.generation
    conditions = []
    for found in concluded:
        before = previous.get(found.type)
        same = before is not None and before.status is found.status
        conditions.append(
            ConfigCondition(
                type=found.type,
                status=found.status,
                observed_generation=in_force if found.type in (PROGRESSING, READY) else standing.generation,
                last_transition_time=before.last_transition_time if before and same else now,
                reason=found.reason,
                message=clip(found.message, MAX_MESSAGE),
            )
        )
    return tuple(conditions)
