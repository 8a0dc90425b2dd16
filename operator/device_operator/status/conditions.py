"""The four conditions of a DevicePluginConfig, from the reports of its nodes. Pure.

Ready counts the settled nodes, or the young ones if no node is settled: `kubectl wait` for Ready on a new cluster
returns when agents serve. Once True, Ready stays True while nodes only wait for an agent that is starting
(`NodeReport.grace`, or a young node without a fault). So an edit, a rollout or a new node does not make it False; a
node with a fault does. When only that rule keeps Ready True, or Degraded False, the reason is AgentsStarting. The
message then says what the agents wait for. maxUnavailable nodes, rounded down, may be unserved, but never all nodes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from device_agent.contract.reasons import ConditionReason, DeviceHealth, NodeReason, NodeState
from device_agent.contract.status import ConditionStatus, ConditionType, ConfigCondition, FleetDevice

from device_operator.spec.acceptance import AcceptedState, Rejected
from device_operator.spec.caveats import caveats
from device_operator.spec.model import Spec
from device_operator.spec.placement import Overlap, describe
from device_operator.spec.wording import clip, name_nodes, name_some
from device_operator.status.nodes import NOT_MADE, NodeReport
from device_operator.status.observed import ApplyProblem
from device_operator.status.rollout import Rollout

ACCEPTED, PROGRESSING, DEGRADED, READY = ConditionType
TRUE, FALSE, UNKNOWN = ConditionStatus

MAX_MESSAGE: Final = 4096
"""Characters of a condition's message."""
MAX_GROUPS: Final = 5
"""Causes that a message describes in full; it counts the others."""
_DEVICES: Final = {
    DeviceHealth.UNHEALTHY: ConditionReason.DEVICES_UNHEALTHY,
    DeviceHealth.UNKNOWN: ConditionReason.DEVICES_UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition without its times. `reason`: a condition's, or a node's where nodes are the cause."""

    type: ConditionType
    status: ConditionStatus
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class BrokenDevices:
    """Devices of one health. `cut`: the number of further devices, for which the inventories had no room."""

    listed: tuple[FleetDevice, ...] = ()
    cut: int = 0

    @property
    def number(self) -> int:
        return len(self.listed) + self.cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the conditions depend on.

    `broken`: the devices that are not Healthy, by health. `devices`: number of known devices. `previous`: the present
    conditions, by type. `applied`: the DaemonSets match the spec in force. `rollout`: which pools wait for it.
    """

    standing: AcceptedState
    reports: Sequence[NodeReport]
    overlaps: Sequence[Overlap]
    problems: Sequence[ApplyProblem]
    broken: Mapping[DeviceHealth, BrokenDevices]
    devices: int
    previous: Mapping[str, ConfigCondition]
    complete: bool
    applied: bool
    rollout: Rollout | None = None

    @property
    def basis(self) -> list[NodeReport]:
        """The nodes that count: the settled ones, or the young ones where no node is settled."""
        return [r for r in self.reports if r.settled] or [r for r in self.reports if r.young]

    @property
    def rejected(self) -> Rejected | None:
        return self.standing.rejected

    @property
    def spec(self) -> Spec | None:
        """The spec in force."""
        return self.standing.in_force.spec if self.standing.in_force else None


def conclude(situation: Situation) -> tuple[Condition, ...]:
    """Accepted, Progressing, Degraded, Ready."""
    accepted = _accepted(situation)
    if not situation.complete:
        return accepted, *(_unseen(kind, situation) for kind in (PROGRESSING, DEGRADED, READY))
    return accepted, _progressing(situation), _degraded(situation), _ready(situation)


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
    counts = f"{_count(len(spec.resources), 'resource')}, {_count(len(spec.pools), 'pool')}"
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
    if halted := _halted(situation):
        return Condition(PROGRESSING, FALSE, ConditionReason.HALTED, f"{message}; {halted}")
    if behind:
        rollout = situation.rollout
        if rollout and rollout.waiting:
            behind = [r for r in behind if r.pool == rollout.behind] or behind
            message += f"; {_pools(rollout.waiting)} follow{'s' * (len(rollout.waiting) == 1)} pool {rollout.behind}"
        return Condition(
            PROGRESSING, TRUE, ConditionReason.UPDATING, f"{message}; waiting for {name_nodes(r.name for r in behind)}"
        )
    if not basis:
        return Condition(PROGRESSING, FALSE, ConditionReason.NO_NODES, "there is no node to update")
    return Condition(PROGRESSING, FALSE, ConditionReason.CURRENT, message)


def _degraded(situation: Situation) -> Condition:
    parts: list[tuple[str, str]] = []
    if situation.rejected:
        parts.append((situation.rejected.reason, f"generation {situation.standing.generation} is not accepted"))
    if situation.standing.lost:
        parts.append((ConditionReason.ACCEPTED_SPEC_LOST, situation.standing.lost))
    if halted := _halted(situation):
        parts.append((ConditionReason.HALTED, halted))
    parts += [(p.reason, f"pool {p.pool}: {p.message}") for p in situation.problems]
    if situation.overlaps:
        parts.append((situation.overlaps[0].reason, describe(situation.overlaps)))
    settled = any(r.settled for r in situation.reports)
    elsewhere: set[str] = {*_DEVICES.values(), *(o.reason for o in situation.overlaps if o.reported)}
    wrong = [r for r in situation.reports if r.problem and r.reason not in elsewhere and not _on_its_way(r)]
    parts += _causes(r for r in wrong if r.served or not r.young or not settled)
    parts += [
        (reason, _devices(health, devices))
        for health, reason in _DEVICES.items()
        if (devices := situation.broken.get(health, BrokenDevices())).number
    ]
    if parts:
        return Condition(DEGRADED, TRUE, parts[0][0], "; ".join(text for _, text in parts))
    if waiting := [r for r in situation.basis if r.problem and r.reason not in elsewhere]:
        text = "; ".join(text for _, text in _causes(waiting))
        return Condition(
            DEGRADED, FALSE, ConditionReason.AGENTS_STARTING, f"No problems found while agents start: {text}"
        )
    return Condition(DEGRADED, FALSE, ConditionReason.AS_WANTED, "No problems found")


def _halted(situation: Situation) -> str:
    """Why the new spec does not reach all pools, and how to go on; '' if it does, or nothing is changed anyway."""
    rollout, spec = situation.rollout, situation.spec
    if rollout is None or not rollout.halted or spec is None or spec.paused:
        return ""
    keep = f"{_pools(rollout.waiting)} keep{'s' * (len(rollout.waiting) == 1)}"
    return (
        f"the new spec is halted: {rollout.halted}; {keep} the earlier spec. "
        "Correct the spec, or return to the earlier one (docs/operations.md, Return to an earlier spec)"
    )


def _pools(names: Sequence[str]) -> str:
    return f"pool{'s' * (len(names) > 1)} {name_some(names)}"


def _devices(health: DeviceHealth, devices: BrokenDevices) -> str:
    text = f"{_count(devices.number, 'device')} {health}"
    if devices.listed:
        reasons = Counter(d.reason or health for d in devices.listed).most_common(MAX_GROUPS)
        text += f" on {name_nodes(d.node for d in devices.listed)}: "
        text += ", ".join(f"{reason} ({number})" for reason, number in reasons)
    return text + (
        f"; {devices.cut} of them are not listed, because the inventories have no room" if devices.cut else ""
    )


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
            f"none of {_count(len(situation.reports), 'matched node')} is Ready",
        )
    was_ready = _was(situation, READY) is TRUE
    settled = basis[0].settled
    unserved = [r for r in basis if not r.served]
    blocking = [r for r in unserved if not (was_ready and _on_its_way(r))]
    allowed = min(spec.allowed_unavailable(len(basis)), len(basis) - 1)
    message = f"{len(basis) - len(unserved)} of {len(basis)} {'settled nodes' if settled else 'nodes'} served"
    waiting = [r for r in situation.reports if r.young and not r.served]
    if settled and waiting:
        message += f", {_count(len(waiting), 'node')} joining"
    if not settled:
        message += ", none of them is settled yet"
    # the count does not include these nodes, so the message must name them
    message = "; ".join([message, *_pools_away(situation.reports)])
    if len(blocking) > allowed:
        causes = _causes(blocking)
        return Condition(READY, FALSE, causes[0][0], "; ".join([message, *(text for _, text in causes)]))
    if unserved:
        message = "; ".join([message, *(text for _, text in _causes(unserved))])
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


def _on_its_way(report: NodeReport) -> bool:
    """Whether waiting may be enough. A pod that cannot be created is a fault, on a young node too."""
    return report.grace or (report.young and report.state is NodeState.PENDING and report.reason not in NOT_MADE)


def _nothing_in_force(standing: AcceptedState) -> tuple[str, str]:
    """(reason, message)"""
    if standing.lost:
        return ConditionReason.ACCEPTED_SPEC_LOST, standing.lost
    reason = standing.rejected.reason if standing.rejected else ConditionReason.NOT_ACCEPTED
    return reason, "nothing runs, because no spec of this object was accepted yet: see Accepted"


def _causes(reports: Iterable[NodeReport]) -> list[tuple[str, str]]:
    """(reason, sentence), the most frequent reason first: its nodes, and the message of one of them."""
    groups: defaultdict[str, list[NodeReport]] = defaultdict(list)
    for report in reports:
        groups[report.reason].append(report)
    order = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    told = [
        (reason, f"{found[0].state} {reason} on {name_nodes(r.name for r in found)}: {found[0].message}")
        for reason, found in order[:MAX_GROUPS]
    ]
    if len(order) > MAX_GROUPS:
        told.append((order[MAX_GROUPS][0], f"{len(order) - MAX_GROUPS} more causes"))
    return told


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def with_times(
    concluded: Iterable[Condition], *, previous: Mapping[str, ConfigCondition], generation: int, now: str
) -> tuple[ConfigCondition, ...]:
    """Conditions in the form of the API. The time of the last transition changes only with the status."""
    conditions = []
    for found in concluded:
        before = previous.get(found.type)
        same = before is not None and before.status is found.status
        conditions.append(
            ConfigCondition(
                type=found.type,
                status=found.status,
                observed_generation=generation,
                last_transition_time=before.last_transition_time if before and same else now,
                reason=found.reason,
                message=clip(found.message, MAX_MESSAGE),
            )
        )
    return tuple(conditions)
