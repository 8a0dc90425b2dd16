"""The agents: their ServiceAccount, DaemonSets, pods and reports."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from device_agent.contract import names
from device_agent.contract.node_reasons import NodeReason
from device_operator.spec import remedies

from kubectl_devices.model.soundness.finding import CheckReason, Finding, Severity, age
from kubectl_devices.model.soundness.observed import Object, Observed, condition, moment, of_a_config

HEARTBEAT_OLD: Final = timedelta(minutes=25)
"""A live agent writes at least every ten minutes; the operator counts a node as Stale after this."""
STARTING: Final = timedelta(seconds=60)
_RECENT: Final = timedelta(hours=1)


def agents(seen: Observed) -> Iterator[Finding]:
    if seen.account_read and seen.account is None:
        yield Finding(
            reason=CheckReason.SERVICE_ACCOUNT_MISSING,
            where=f"ServiceAccount {seen.namespace}/{seen.account_name}",
            what="the agents' ServiceAccount does not exist, so no agent can be created",
            todo="helm upgrade the release; it makes the account",
        )
    for daemonset in seen.daemonsets or ():
        yield from _daemonset(daemonset, seen)
    for pod in seen.agents:
        yield from _pod(pod, seen)
    yield from _inventories(seen)


def _daemonset(daemonset: Object, seen: Observed) -> Iterator[Finding]:
    """Pods that the API server refuses. Nothing is said where all pods are there by now."""
    meta, status = daemonset["metadata"], daemonset.get("status", {})
    namespace = meta["namespace"]
    if not of_a_config(daemonset):
        return
    lacking = status.get("desiredNumberScheduled", 0) - status.get("currentNumberScheduled", 0)
    if status.get("desiredNumberScheduled") is not None and lacking <= 0:
        return
    told = [
        (last, str(e.get("message", "")))
        for e in seen.events or ()
        if e.get("reason") == "FailedCreate"
        and e["involvedObject"].get("kind") == "DaemonSet"
        and e["involvedObject"].get("name") == meta["name"]
        and (last := _last_seen(e)) is not None
        and seen.now - last < _RECENT
    ]
    if told:
        _, message = max(told)
        yield Finding(
            reason=NodeReason.FAILED_CREATE,
            where=f"DaemonSet {namespace}/{meta['name']}",
            what=f"the API server refuses the agents' pods: {message}",
            todo=remedies.of_refusal(message, namespace=namespace)
            or f"kubectl -n {namespace} describe daemonset {meta['name']}",
        )


def _last_seen(event: Object) -> datetime | None:
    series = event.get("series") or {}
    return moment(series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime"))


def _pod(pod: Object, seen: Observed) -> Iterator[Finding]:
    meta, ready = pod["metadata"], condition(pod, "Ready")
    if ready.get("status") == "True" or "deletionTimestamp" in meta:
        return
    reason, what = why_not_ready(pod)
    began = moment(ready.get("lastTransitionTime")) or moment(meta.get("creationTimestamp")) or seen.now
    starting = reason == NodeReason.AGENT_NOT_READY and seen.now - began < STARTING
    node, kubectl = pod["spec"].get("nodeName", ""), f"kubectl -n {meta['namespace']}"
    yield Finding(
        severity=Severity.WARNING if starting else Severity.PROBLEM,
        reason=reason,
        where=f"Pod {meta['namespace']}/{meta['name']}" + (f" on {node}" if node else ""),
        what=f"the agent has not been Ready for {age(seen.now - began)}: {what}",
        todo=f"{kubectl} describe pod {meta['name']}; {kubectl} logs {meta['name']}",
    )


def why_not_ready(pod: Object) -> tuple[str, str]:
    """(reason, text), in Kubernetes' own words where it has some."""
    status = pod.get("status", {})
    for container in status.get("containerStatuses") or ():
        waiting = container.get("state", {}).get("waiting") or {}
        last = container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated") or {}
        if waiting.get("reason"):
            said = waiting.get("message") or last.get("message") or ""
            return waiting["reason"], f"{waiting['reason']}{f': {said}' if said else ''}"
        if last:
            return (
                NodeReason.AGENT_CRASHES,
                f"its container ended with {last.get('exitCode')}: {last.get('reason', '')}".rstrip(": "),
            )
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return NodeReason.UNSCHEDULABLE, scheduled.get("message") or "it is not scheduled"
    if status.get("phase") == "Failed":
        return NodeReason.POD_FAILED, status.get("message") or status.get("reason") or "the pod failed"
    return NodeReason.AGENT_NOT_READY, condition(pod, "Ready").get("message") or "it has not passed its readiness probe"


def _inventories(seen: Observed) -> Iterator[Finding]:
    for inventory in seen.inventories or ():
        where = f"NodeDeviceInventory {inventory.name}"
        look = f"kubectl -n {seen.namespace} get pods -l {names.LABEL_CONFIG}={inventory.config} -o wide"
        if inventory.unreadable:
            what, todo = f"it cannot be read: {inventory.unreadable}", "use plugin and agents of one release"
            yield Finding(reason=NodeReason.INVENTORY_UNREADABLE, where=where, what=what, todo=todo)
        elif inventory.status is None:
            yield Finding(reason=NodeReason.NO_REPORT, where=where, what="its agent has written no status", todo=look)
        else:
            beat = moment(inventory.status.last_heartbeat_time)
            if beat is not None and seen.now - beat > HEARTBEAT_OLD:
                what = f"no agent has written it for {age(seen.now - beat)}: devices and holders in it may be wrong"
                yield Finding(reason=CheckReason.INVENTORY_OLD, where=where, what=what, todo=look)
            if inventory.status.cordon_message:
                what = inventory.status.cordon_message
                yield Finding(
                    severity=Severity.WARNING, reason=CheckReason.CORDON_WITHOUT_DEVICE, where=where, what=what
                )
