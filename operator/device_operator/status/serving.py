"""The diagnosis of a node whose agent runs, from the report of the agent. Pure.

An agent reports at most one message for each resource, and the health of each device. A node has one reason, the most
important one: the first that applies, in the order of `reported`.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from device_agent.contract.inventory import InventoryDevice, InventoryResource, InventoryStatus, PodResourcesState
from device_agent.contract.node_reasons import NodeReason, NodeState
from device_agent.contract.reasons import DeviceHealth, ExclusionReason

from device_operator.spec.caveats import EnvClash
from device_operator.spec.wording import count

_DEVICES: Final = {
    DeviceHealth.UNHEALTHY: NodeReason.DEVICES_UNHEALTHY,
    DeviceHealth.UNKNOWN: NodeReason.DEVICES_UNKNOWN,
}
"""The node's reason for devices that are not Healthy, the worse one first."""
_SHOWN: Final = 3
"""Devices that a node's message names."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Of a node. `grace`: it is too early for an alarm. `problem`: there is a fault."""

    state: NodeState
    reason: str
    message: str = ""
    grace: bool = False
    problem: bool = True


def reported(status: InventoryStatus, *, clashes: Sequence[EnvClash] = (), fresh: bool = False) -> Diagnosis:
    """The diagnosis by the status of an inventory.

    `clashes`: environment variables that several resources of the pool set. `fresh`: the agent has just become Ready,
    and may not have asked the kubelet yet.
    """
    devices = status.totals.devices
    state = NodeState.SERVING if devices else NodeState.NO_DEVICES
    if status.config_error:
        text = f"the agent keeps its previous configuration: {status.config_error}"
        return Diagnosis(state, NodeReason.CONFIG_ERROR, text)
    if left_out := _unregistered(status):
        for reason in (NodeReason.FOREIGN_PLUGIN, NodeReason.RESOURCE_CONFLICT):
            if found := [r for r in left_out if r.reason == reason]:
                return Diagnosis(state, reason, "; ".join(_not_registered(found)))
        return Diagnosis(state, NodeReason.NOT_REGISTERED, "; ".join(_not_registered(left_out)))
    for reason in (NodeReason.RESOURCE_REFUSED, NodeReason.DRIVER_UNAVAILABLE):
        if texts := _told(r for r in status.resources if r.reason == reason):
            return Diagnosis(state, reason, "; ".join(texts))
    return (
        _not_yet_known(status, state, fresh=fresh)
        or _clashed(status, clashes, state)
        or _health(status, state)
        or _stale_grants(status, state)
        or _kept(status, state)
        or _holders_unknown(status, state, fresh=fresh)
        or (Diagnosis(state, NodeReason.SERVING, problem=False) if devices else _nothing(status))
    )


def unregistered(status: InventoryStatus) -> list[str]:
    """Why the kubelet does not know resources that have devices: one sentence for each cause that the agent gives."""
    return _not_registered(_unregistered(status))


def _unregistered(status: InventoryStatus) -> list[InventoryResource]:
    return [r for r in status.resources if r.devices and not r.registered and r.message]


def _not_registered(resources: Iterable[InventoryResource]) -> list[str]:
    return [
        f"{', '.join(found)} {'is' if len(found) == 1 else 'are'} not registered with the kubelet: {message}"
        for message, found in _by_message(resources).items()
    ]


def _told(resources: Iterable[InventoryResource]) -> list[str]:
    """What the agent says about resources; resources with equal texts share one sentence."""
    return [f"{', '.join(found)}: {message}" for message, found in _by_message(resources).items()]


def _by_message(resources: Iterable[InventoryResource]) -> dict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for resource in resources:
        if resource.message:
            found[resource.message].append(resource.name)
    return found


def _not_yet_known(status: InventoryStatus, state: NodeState, *, fresh: bool) -> Diagnosis | None:
    """The kubelet does not know a resource, and the agent gives no cause. That is normal just after its start."""
    unknown = [r.name for r in status.resources if r.devices and not r.registered]
    if not unknown or fresh:
        return None
    return Diagnosis(state, NodeReason.NOT_REGISTERED, f"the kubelet does not know {', '.join(unknown)} yet")


def _clashed(status: InventoryStatus, clashes: Sequence[EnvClash], state: NodeState) -> Diagnosis | None:
    """Containers that lack the value of a variable, because they hold two resources that set it.

    If the inventory's list of holders was cut, there may be more such containers than are named.
    """
    if not clashes:
        return None
    entry_of = {r.name: r.entry_name for r in status.resources}
    held: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)
    for device in status.devices:
        for holder in device.allocated_to:
            held[holder.namespace, holder.pod, holder.container].add(device.resource)
    texts = [
        f"container {container} of pod {namespace}/{pod} holds {' and '.join(both)}, which each set {clash.name}: "
        "it got only one of the values; request these resources in separate containers"
        for (namespace, pod, container), resources in sorted(held.items())
        if len(resources) > 1
        for clash in clashes
        if clash.between(entry_of.get(r, r) for r in sorted(resources))
        for both in [[r for r in sorted(resources) if entry_of.get(r, r) in clash.values]]
    ]
    if not texts:
        return None
    others = len(texts) - 1
    more = f", and {count(others, 'more container')}" if others else ""
    return Diagnosis(state, NodeReason.ENV_COLLISION, texts[0] + more)


def _health(status: InventoryStatus, state: NodeState) -> Diagnosis | None:
    if status.health_error:  # unhealthy devices have their own part in Degraded
        return Diagnosis(state, NodeReason.HEALTH_NOT_KEPT, status.health_error)
    for health, reason in _DEVICES.items():
        listed = status.listed(health)
        number = len(listed) + status.cut(health)
        if number:
            text = f"{number} of {status.totals.devices} devices {health}"
            text += f": {listed[0].id} ({_why(listed[0])})" if listed else "; the inventory has no room to list them"
            return Diagnosis(state, reason, text + (" and others" if listed and number > 1 else ""))
    unread = [f"{e.entry}: {e.message}" for e in status.excluded if e.reason == ExclusionReason.UNREADABLE]
    if unread:
        return Diagnosis(state, NodeReason.DEVICES_UNKNOWN, f"cannot be read: {_first(unread)}")
    return None


def _why(device: InventoryDevice) -> str:
    """The reason; for a device of unknown health the message too."""
    message = device.message if device.health is DeviceHealth.UNKNOWN else ""
    return ": ".join(filter(None, (device.reason, message)))


def _holders_unknown(status: InventoryStatus, state: NodeState, *, fresh: bool) -> Diagnosis | None:
    if fresh:
        return None
    if status.pod_resources is PodResourcesState.UNAVAILABLE:
        text = "the kubelet's pod-resources socket gives no answer, so holders are unknown: check agent.kubeletRootDir"
        return Diagnosis(state, NodeReason.POD_RESOURCES_UNAVAILABLE, text)
    if status.kubelet_record_error:
        text = f"the kubelet's record cannot be used: {status.kubelet_record_error}"
        return Diagnosis(state, NodeReason.KUBELET_RECORD_UNREADABLE, text)
    return None


def _stale_grants(status: InventoryStatus, state: NodeState) -> Diagnosis | None:
    texts = [f"{d.id} of {d.resource}: {d.stale_grant}" for d in status.devices if d.stale_grant]
    return Diagnosis(state, NodeReason.STALE_GRANT, _first(texts)) if texts else None


def _kept(status: InventoryStatus, state: NodeState) -> Diagnosis | None:
    kept = [d for d in status.devices if d.kept_for]
    texts = [f"the kubelet keeps {d.id} of {d.resource} for {d.kept_for}, which is gone" for d in kept]
    return Diagnosis(state, NodeReason.KUBELET_KEEPS, f"{_first(texts)}: restart the kubelet") if texts else None


def _first(texts: Sequence[str]) -> str:
    more = f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return "; ".join(texts[:_SHOWN]) + more


def _nothing(status: InventoryStatus) -> Diagnosis:
    looked = [f"{e.entry}: {e.message}" for e in status.excluded if e.reason == ExclusionReason.NOTHING_FOUND]
    text = "; ".join([*_told(status.resources), *looked])
    text = text or "the agent found nothing to serve; status.excluded of the inventory lists what it left out"
    return Diagnosis(NodeState.NO_DEVICES, NodeReason.NO_DEVICES, text, problem=False)
