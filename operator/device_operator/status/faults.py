"""All problems of a DevicePluginConfig, for its condition Degraded and its one word. Pure."""

from collections import Counter
from typing import Final

from device_agent.contract.config_reasons import ConditionReason
from device_agent.contract.reasons import DeviceHealth

from device_operator.spec.placement import describe
from device_operator.spec.wording import clip, count, name_nodes
from device_operator.status.nodes import NodeReport
from device_operator.status.situation import (
    MAX_GROUPS,
    BrokenDevices,
    Fault,
    Situation,
    causes,
    on_its_way,
    pools,
)

_DEVICES: Final = {
    DeviceHealth.UNHEALTHY: ConditionReason.DEVICES_UNHEALTHY,
    DeviceHealth.UNKNOWN: ConditionReason.DEVICES_UNKNOWN,
}

_MAX_TOLD: Final = 200
"""Characters of one device's own message."""


def faults(situation: Situation) -> list[Fault]:
    """All faults, those of the object as a whole first. Empty: nothing is wrong, or agents are still starting."""
    found: list[Fault] = []
    if situation.rejected:
        found.append(Fault(situation.rejected.reason, f"generation {situation.standing.generation} is not accepted"))
    if situation.standing.lost:
        found.append(Fault(ConditionReason.ACCEPTED_SPEC_LOST, situation.standing.lost))
    if why := halted(situation):
        found.append(Fault(ConditionReason.HALTED, why))
    found += [Fault(p.reason, f"pool {p.pool}: {p.message}") for p in situation.problems]
    if situation.overlaps:
        found.append(Fault(situation.overlaps[0].reason, describe(situation.overlaps)))
    found += causes(failing(situation))
    found += situation.gaps
    found += [
        Fault(reason, _devices(health, devices))
        for health, reason in _DEVICES.items()
        if (devices := situation.broken.get(health, BrokenDevices())).number
    ]
    return found


def failing(situation: Situation) -> list[NodeReport]:
    """The nodes with a fault of their own. Not those where waiting may be enough."""
    settled = any(r.settled for r in situation.reports)
    told = told_elsewhere(situation)
    wrong = [r for r in situation.reports if r.problem and r.reason not in told and not on_its_way(r)]
    return [r for r in wrong if r.served or not r.young or not settled]


def told_elsewhere(situation: Situation) -> set[str]:
    """Reasons of nodes that a fault of the whole object already reports."""
    broken = {reason for health, reason in _DEVICES.items() if situation.broken.get(health, BrokenDevices()).number}
    return {*broken, *(o.reason for o in situation.overlaps if o.reported)}


def halted(situation: Situation) -> str:
    """Why the new spec does not reach all pools, and how to go on; '' if it does, or the object is paused."""
    rollout, spec = situation.rollout, situation.spec
    if rollout is None or not rollout.halted or spec is None or spec.paused:
        return ""
    keep = f"{pools(rollout.waiting)} keep{'s' * (len(rollout.waiting) == 1)}"
    return (
        f"the new spec is halted: {rollout.halted}; {keep} the earlier spec. "
        "Correct the spec, or return to the earlier one (docs/operations.md, Return to an earlier spec)"
    )


def _devices(health: DeviceHealth, devices: BrokenDevices) -> str:
    text = f"{count(devices.number, 'device')} {health}"
    if devices.listed:
        reasons = Counter(d.reason or health for d in devices.listed).most_common(MAX_GROUPS)
        text += f" on {name_nodes(d.node for d in devices.listed)}: "
        text += ", ".join(f"{reason} ({number})" for reason, number in reasons)
        told = next((d for d in devices.listed if (d.reason or health) == reasons[0][0] and d.message), None)
        if told:
            text += f"; {told.id}: {clip(told.message, _MAX_TOLD)}"
    return text + (
        f"; {devices.cut} of them are not listed, because the inventories have no room" if devices.cut else ""
    )
