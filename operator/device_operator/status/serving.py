"""The diagnosis of a node whose agent runs, from the report of the agent. Pure.

An agent reports at most one message for each resource, and the health of each device. A node has one reason, so the
most important comes first: a configuration that is not used, resources that the kubelet does not offer, containers
with wrong variables, single devices, and last a lack of numbers.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from device_operator.spec.caveats import EnvClash

FOREIGN_PLUGIN: Final = "ForeignPlugin"
"""The message of an agent begins with this word where another device plugin has the name of the resource."""
REFUSED: Final = "ResourceRefused"
DRIVER_UNAVAILABLE: Final = "DriverUnavailable"
NO_DEVICES: Final = "NoDevices"
HEALTH_NOT_KEPT: Final = "HealthNotKept"
DEVICES_UNHEALTHY: Final = "DevicesUnhealthy"
DEVICES_UNKNOWN: Final = "DevicesUnknown"


class State(StrEnum):
    SERVING = "Serving"
    PENDING = "Pending"
    STALE = "Stale"
    FAILED = "Failed"
    NO_DEVICES = "NoDevices"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Of a node. `grace`: without a cause that is worth an alarm yet. `problem`: there is a fault."""

    state: State
    reason: str
    message: str = ""
    grace: bool = False
    problem: bool = True


def reported(
    status: Mapping[str, Any], *, clashes: Sequence[EnvClash] = (), nvml: Collection[str] = (), fresh: bool = False
) -> Diagnosis:
    """The diagnosis by the status of an inventory.

    `clashes`: environment variables that several resources of the pool set. `nvml`: entries with devices of the NVIDIA
    driver. `fresh`: the agent has just become Ready, and may not have asked the kubelet yet.
    """
    resources: Sequence[Mapping[str, Any]] = status.get("resources") or ()
    devices = sum(int(r.get("devices", 0)) for r in resources)
    state = State.SERVING if devices else State.NO_DEVICES
    if error := status.get("configError"):
        return Diagnosis(state, "ConfigError", f"the agent keeps its previous configuration: {error}")
    if left_out := unregistered(status):
        foreign = [text for text in left_out if f": {FOREIGN_PLUGIN}: " in text]
        return Diagnosis(state, FOREIGN_PLUGIN if foreign else "NotRegistered", "; ".join(foreign or left_out))
    said = _said(status, nvml)
    for reason in (REFUSED, DRIVER_UNAVAILABLE):
        if texts := said[reason]:
            return Diagnosis(state, reason, "; ".join(texts))
    # an agent that has just started reports these before it has asked the kubelet
    unknown = [str(r["name"]) for r in resources if r.get("devices") and not r.get("registered", True)]
    if unknown and not fresh:
        return Diagnosis(state, "NotRegistered", f"the kubelet does not know {', '.join(unknown)} yet")
    if clashed := _clashed(status, clashes):
        others = len(clashed) - 1
        more = f", and {others} more container{'s' * (others > 1)}" if others else ""
        return Diagnosis(state, "EnvCollision", clashed[0] + more)
    if error := status.get("healthError"):  # unhealthy devices have their own part in Degraded
        return Diagnosis(state, HEALTH_NOT_KEPT, error)
    for health, reason in (("Unhealthy", DEVICES_UNHEALTHY), ("Unknown", DEVICES_UNKNOWN)):
        if found := [d for d in status.get("devices") or () if d.get("health") == health]:
            text = f"{len(found)} of {devices} devices {health}: {found[0].get('id')} ({_why(found[0])})"
            return Diagnosis(state, reason, text + (" and others" if len(found) > 1 else ""))
    if status.get("podResources") == "Unavailable" and not fresh:
        text = "the kubelet's pod-resources socket gives no answer, so holders are unknown: check agent.kubeletRootDir"
        return Diagnosis(state, "PodResourcesUnavailable", text)
    if not devices:
        nothing = "; ".join([*said[NO_DEVICES], *(status.get("nothingFound") or ())])
        text = nothing or "the agent found nothing to serve; excluded in the inventory says what it left out"
        return Diagnosis(state, NO_DEVICES, text, problem=False)
    return Diagnosis(state, "Serving", problem=False)


def _why(device: Mapping[str, Any]) -> str:
    """The reason, and for a device without an answer the message too."""
    told = [device.get("reason", "")]
    if device.get("health") == "Unknown":
        told.append(device.get("message", ""))
    return ": ".join(filter(None, told))


def _said(status: Mapping[str, Any], nvml: Collection[str]) -> Mapping[str, list[str]]:
    """The messages of the agent about resources, by reason. Resources with the same message share a sentence.

    An agent has one message for a resource: that it refuses it, why its source finds nothing, or why the kubelet does
    not know it (`unregistered`). Only a refusal adds to `excluded`; a refused name with placeholders filled in has no
    entry in the report.
    """
    found: dict[str, defaultdict[str, list[str]]] = {
        reason: defaultdict(list) for reason in (REFUSED, DRIVER_UNAVAILABLE, NO_DEVICES)
    }
    refused = set(status.get("refusedEntries") or ())
    for resource in status.get("resources") or ():
        message, name, devices = resource.get("message"), resource["name"], resource.get("devices")
        if not message or (devices and not resource.get("registered", True)):
            continue
        entry = resource.get("entry", name)
        if entry in refused or ("entry" not in resource and "{" not in name):
            reason = REFUSED
        elif entry in nvml:
            reason = DRIVER_UNAVAILABLE
        else:
            reason = REFUSED if devices else NO_DEVICES
        found[reason][message].append(name)
    return {reason: [f"{', '.join(told)}: {text}" for text, told in texts.items()] for reason, texts in found.items()}


def unregistered(status: Mapping[str, Any]) -> list[str]:
    """Why the kubelet does not know resources that have devices: one sentence for each cause in the report."""
    why: defaultdict[str, list[str]] = defaultdict(list)
    for resource in status.get("resources") or ():
        if resource.get("devices") and not resource.get("registered", True) and resource.get("message"):
            why[resource["message"]].append(resource["name"])
    return [
        f"{', '.join(found)} {'is' if len(found) == 1 else 'are'} not registered with the kubelet: {message}"
        for message, found in why.items()
    ]


def _clashed(status: Mapping[str, Any], clashes: Sequence[EnvClash]) -> list[str]:
    """Containers that lack a value of a variable, because they hold two resources that set it."""
    if not clashes:
        return []
    entry_of = {r["name"]: r.get("entry", r["name"]) for r in status.get("resources") or ()}
    held: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)
    for device in status.get("devices") or ():
        for holder in device.get("allocatedTo") or ():
            who = (holder.get("namespace", ""), holder.get("pod", ""), holder.get("container", ""))
            held[who].add(device.get("resource", ""))
    return [
        f"container {container} of pod {namespace}/{pod} holds {' and '.join(both)}, which each set {clash.name}: "
        "it has the value of one of them alone"
        for (namespace, pod, container), resources in sorted(held.items())
        if len(resources) > 1
        for clash in clashes
        if clash.between(entry_of.get(r, r) for r in sorted(resources))
        for both in [[r for r in sorted(resources) if entry_of.get(r, r) in clash.values]]
    ]
