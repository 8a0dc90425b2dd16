"""The one word that `kubectl get` shows for a DevicePluginConfig: OK, or the reason that most needs a human. Pure."""

from collections.abc import Callable, Sequence
from typing import Final

from device_agent.contract.config_reasons import ConditionReason
from device_agent.contract.node_reasons import NodeReason
from device_agent.contract.status import ConditionStatus, ConditionType

from device_operator.status.conditions import Condition
from device_operator.status.situation import Fault

OK: Final = "OK"

_URGENCY: Final[tuple[tuple[str, ...], ...]] = (
    # an edit is not in force
    (ConditionReason.ACCEPTED_SPEC_LOST,),
    (ConditionReason.INVALID_SPEC, ConditionReason.SPEC_NOT_KEPT),
    (ConditionReason.POOL_OVERLAP, ConditionReason.RESOURCE_CONFLICT),
    (ConditionReason.HALTED,),
    (ConditionReason.NOT_OWNED, ConditionReason.APPLY_FAILED),
    # pods hold what nobody watches, or what they should not have
    (ConditionReason.NODES_LOST,),
    (NodeReason.STALE_GRANT, ConditionReason.DEVICE_CONFLICT),
    # no agent works on a node; also Kubernetes' own reasons
    (),
    # the agent works, and a whole resource is missing
    (NodeReason.DRIVER_UNAVAILABLE, NodeReason.RESOURCE_REFUSED, NodeReason.FOREIGN_PLUGIN, NodeReason.NOT_REGISTERED),
    (ConditionReason.NO_NODES,),
    (ConditionReason.NOTHING_FOUND,),
    # single devices, and what the agent cannot know
    (ConditionReason.DEVICES_UNHEALTHY,),
    (ConditionReason.DEVICES_UNKNOWN, NodeReason.KUBELET_KEEPS, NodeReason.ENV_COLLISION),
    (NodeReason.HEALTH_NOT_KEPT, NodeReason.POD_RESOURCES_UNAVAILABLE, NodeReason.KUBELET_RECORD_UNREADABLE),
    # the node is the cause
    (NodeReason.NODE_NOT_READY, ConditionReason.NO_READY_NODES),
)
"""Words, the most urgent first. A word that no line has belongs to the empty line: it is about an agent."""
_OF_AGENTS: Final = _URGENCY.index(())
_RANK: Final = {word: rank for rank, words in enumerate(_URGENCY) for word in words}


def urgency(reason: str) -> int:
    """The lower, the more urgent."""
    return _RANK.get(reason, _OF_AGENTS)


def headline(
    faults: Sequence[Fault], conditions: Sequence[Condition], *, withheld: Callable[[], Fault | None]
) -> tuple[str, str]:
    """(word, message). Without a fault: why it is not Ready, or what is going on; OK, if nothing is.

    `faults`: by `faults.faults`, `conditions`: by `conditions.conclude`, `withheld`: `emptiness.all_withheld`.
    """
    by_type = {condition.type: condition for condition in conditions}
    accepted, ready = by_type[ConditionType.ACCEPTED], by_type[ConditionType.READY]
    if accepted.status is ConditionStatus.FALSE:
        return accepted.reason, accepted.message
    if faults:
        worst = min(faults, key=lambda fault: urgency(fault.reason))
        return worst.reason, worst.text
    if ready.status is not ConditionStatus.TRUE or ready.reason == ConditionReason.AGENTS_STARTING:
        return ready.reason, ready.message
    progressing = by_type[ConditionType.PROGRESSING]
    if progressing.reason in (ConditionReason.PAUSED, ConditionReason.UPDATING):
        return progressing.reason, progressing.message
    if kept := withheld():
        return kept.reason, kept.text
    return OK, ""
