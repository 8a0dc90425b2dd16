"""The state of each matched node, with its reason. Conditions and counts are made of these. Pure.

Two durations keep short interruptions from looking like faults. A node is *settled*, and counts, once it has been Ready
for `settle` seconds: in that time images are pulled and agents start. A node whose agent is being replaced or restarted
has *grace* for `pod_stale` seconds. In that time it makes the object NotReady only when the cause is known.
Messages contain times, never ages: a message that counts seconds would cause a status write each second.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from device_agent.contract.config_reasons import ConditionReason
from device_agent.contract.node_reasons import NodeReason, NodeState

from device_operator.spec import remedies, scheduling
from device_operator.spec.model import ConfigRef
from device_operator.spec.placement import NodeView
from device_operator.spec.wording import clip, rfc3339
from device_operator.status.observed import FailedCreate, InventoryView, Observed, PodView
from device_operator.status.pools import PoolView, pool_daemonset
from device_operator.status.serving import Diagnosis, reported, unregistered

PULL_REASONS: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"}
)
CREATING_REASONS: Final = frozenset({"", NodeReason.CONTAINER_CREATING, NodeReason.POD_INITIALIZING})
UNTOLD: Final = CREATING_REASONS - {""}
"""Reasons that do not explain why a container waits. The Events of the pod explain it."""
NOT_MADE: Final = frozenset({NodeReason.FAILED_CREATE, NodeReason.PAUSED})
"""Reasons of nodes whose agent cannot start until an admin acts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSettings:
    """Durations in seconds. `max_bytes`: of the status as JSON.

    `failed_create_recent`: how old a FailedCreate event may be. The DaemonSet controller tries again, with a new event,
    at least every 1,000 s.
    """

    settle: float = 300.0
    pod_stale: float = 60.0
    heartbeat_stale: float = 1500.0
    failed_create_recent: float = 1200.0
    max_bytes: int = 384 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """`grace`: not fully served, but it is too early for an alarm.

    `settled`: Ready for long enough; `young`: Ready, but not for long enough. A node that is NotReady or being deleted
    is neither. `updated`: on the current pod template and configuration. `problem`: there is a fault.
    `inventory`: of this object and pool, at any age. `reported`: it was written with the current configuration.
    """

    name: str
    pool: str
    state: NodeState
    reason: str
    message: str = ""
    settled: bool = False
    young: bool = False
    grace: bool = False
    updated: bool = False
    problem: bool = False
    inventory: InventoryView | None = None
    reported: bool = False

    @property
    def served(self) -> bool:
        return self.state in (NodeState.SERVING, NodeState.NO_DEVICES)


def settles_at(node: NodeView, settings: StatusSettings) -> datetime:
    """When a Ready node is settled. After a reboot it needs as long as after its creation."""
    return max(node.created, node.ready_changed_at or node.created) + timedelta(seconds=settings.settle)


def node_reports(
    ref: ConfigRef,
    pools: Iterable[PoolView],
    observed: Observed,
    *,
    settings: StatusSettings,
    paused: bool = False,
    progressing_since: datetime | None = None,
    conflicts: Mapping[str, tuple[ConditionReason, str]] | None = None,
) -> tuple[NodeReport, ...]:
    """Every matched node, in the order of pools and names.

    `progressing_since`: start of Progressing; from then a node without a pod has grace for `settle` seconds.
    `conflicts`: node -> reason and message, for nodes where another object serves the same resource or device,
    or two pools of this one select the node.
    """
    reporter = _Reporter(
        ref,
        observed,
        settings,
        paused=paused,
        progressing_since=progressing_since,
        conflicts=conflicts or {},
    )
    return reporter.reports(pools)


class _Reporter:
    """The observations by node, with a method for each stage from no pod to a serving agent."""

    def __init__(
        self,
        ref: ConfigRef,
        observed: Observed,
        settings: StatusSettings,
        *,
        paused: bool,
        progressing_since: datetime | None,
        conflicts: Mapping[str, tuple[ConditionReason, str]],
    ) -> None:
        self._conflicts = conflicts
        self._identity = ref
        self._settings = settings
        self._now = observed.now
        self._paused = paused
        self._waited = progressing_since is not None and not self._within(progressing_since, settings.settle)
        self._nodes = {node.name: node for node in observed.nodes}
        self._pods: defaultdict[tuple[str, str], list[PodView]] = defaultdict(list)
        for pod in observed.pods:
            if pod.config == ref.name and pod.node:
                self._pods[pod.pool, pod.node].append(pod)
        self._inventories = {i.node: i for i in observed.inventories if i.owner_uid == ref.uid}
        self._failed_creates = _latest(observed.failed_creates)
        self._warnings = {warning.pod: warning for warning in observed.pod_warnings}

    def reports(self, pools: Iterable[PoolView]) -> tuple[NodeReport, ...]:
        return tuple(
            self._report(pool, node) for pool in pools for name in pool.nodes if (node := self._nodes.get(name))
        )

    def _report(self, pool: PoolView, node: NodeView) -> NodeReport:
        inventory = self._inventories.get(node.name)
        if inventory and inventory.status and inventory.status.pool_name not in ("", pool.name):
            inventory = None  # written for the pool that the node left
        pods = self._pods.get((pool.name, node.name), [])
        alive = [pod for pod in pods if not pod.deleting]
        pod = max(alive, key=lambda p: (p.created, p.name), default=None)
        if not node.ready:
            # checked first: on such a node the pod's conditions are old, or follow from the node's state
            diagnosis = self._away(node, inventory)
        elif pod is None:
            diagnosis = self._without_pod(pool, node, replacing=bool(pods))
        elif pod.ready:
            diagnosis = self._with_ready_pod(pod, inventory, pool)
            diagnosis = self._with_conflict(node, diagnosis)
        else:
            diagnosis = self._with_conflict(node, self._with_starting_pod(pod, inventory))
        here = node.ready and not node.deleting
        if node.deleting and diagnosis.state in (NodeState.PENDING, NodeState.STALE):
            diagnosis = self._away(node, inventory)
        settled = here and self._now >= settles_at(node, self._settings)
        return NodeReport(
            name=node.name,
            pool=pool.name,
            state=diagnosis.state,
            reason=diagnosis.reason,
            message=clip(diagnosis.message),
            settled=settled,
            young=here and not settled,
            grace=diagnosis.grace,
            updated=_current(pool, pod, inventory),
            problem=diagnosis.problem,
            inventory=inventory,
            reported=_reported(pool, inventory),
        )

    def _with_conflict(self, node: NodeView, diagnosis: Diagnosis) -> Diagnosis:
        """The diagnosis, or the conflict of the node if that explains the diagnosis."""
        conflict = self._conflicts.get(node.name)
        if conflict is None:
            return diagnosis
        if conflict[0] is ConditionReason.POOL_OVERLAP:
            # of two pools' agents one waits, and writes no inventory
            explained = diagnosis.problem
        else:
            serves = diagnosis.state in (NodeState.SERVING, NodeState.NO_DEVICES)
            # a conflict of names explains the other faults of the node: the kubelet knows one agent only
            explained = serves and (conflict[0] is ConditionReason.RESOURCE_CONFLICT or not diagnosis.problem)
        return Diagnosis(diagnosis.state, *conflict) if explained else diagnosis

    def _away(self, node: NodeView, inventory: InventoryView | None) -> Diagnosis:
        """A node that is NotReady or being deleted serves nothing, and its agent is not the cause."""
        since = f" since {rfc3339(node.ready_changed_at)}" if node.ready_changed_at else ""
        joining = self._within(node.created, self._settings.settle)
        return Diagnosis(
            NodeState.STALE if inventory else NodeState.PENDING,
            NodeReason.NODE_NOT_READY,
            "the node is being deleted" if node.deleting else f"the node is NotReady{since}: {node.why_not_ready}",
            problem=not (joining or node.deleting),
        )

    def _without_pod(self, pool: PoolView, node: NodeView, *, replacing: bool) -> Diagnosis:
        """Why there is no pod. The DaemonSet controller creates it within seconds, unless something prevents it."""
        if self._paused and not pool.applied:
            return Diagnosis(
                NodeState.PENDING, NodeReason.PAUSED, "spec.paused is true, so no DaemonSet is created; set it to false"
            )
        if pool.problem:
            return Diagnosis(NodeState.PENDING, pool.problem.reason, pool.problem.message)
        if keeping := scheduling.keeping_away(node.taints, pool.tolerations):
            return Diagnosis(
                NodeState.PENDING,
                NodeReason.TAINTED,
                f"{'taint' if len(keeping) == 1 else 'taints'} {', '.join(map(str, keeping))} "
                f"keep{'s' if len(keeping) == 1 else ''} the agent away: add a matching toleration to pool "
                f"{pool.name}, or remove its tolerations to tolerate every taint",
            )
        failed = self._failed_creates.get(pool_daemonset(self._identity, pool.name))
        if failed and self._within(failed.last_seen, self._settings.failed_create_recent):
            # the cure stands first: the text may be cut
            todo = remedies.of_refusal(failed.message, namespace=failed.namespace)
            text = f"the DaemonSet cannot make the pod{_cure(todo)}: {failed.message}"
            return Diagnosis(NodeState.PENDING, NodeReason.FAILED_CREATE, text)
        grace = not self._waited
        if replacing:
            return Diagnosis(NodeState.PENDING, NodeReason.REPLACING, "the agent's pod is being replaced", grace)
        if not pool.applied:
            return Diagnosis(NodeState.PENDING, NodeReason.NOT_APPLIED, "the DaemonSet is not created yet", grace)
        return Diagnosis(
            NodeState.PENDING, NodeReason.AWAITING_POD, "the DaemonSet controller has made no pod yet", grace
        )

    def _with_starting_pod(self, pod: PodView, inventory: InventoryView | None) -> Diagnosis:
        if pod.phase == "Failed":
            return Diagnosis(NodeState.FAILED, NodeReason.POD_FAILED, f"pod {pod.name}: {_ended(pod)}")
        if pod.unscheduled:
            return Diagnosis(
                NodeState.PENDING, NodeReason.UNSCHEDULABLE, f"pod {pod.name} is not scheduled: {pod.unscheduled}"
            )
        waiting = pod.waiting_reason
        if waiting in PULL_REASONS:
            text = f"pod {pod.name}: {waiting}{_cure(remedies.PULL)}: {pod.waiting_message}"
            return Diagnosis(NodeState.FAILED, NodeReason.IMAGE_PULL_FAILED, text)
        if waiting == "CrashLoopBackOff":
            return Diagnosis(NodeState.FAILED, NodeReason.AGENT_CRASHES, f"pod {pod.name}: {_ended(pod)}")
        if waiting not in CREATING_REASONS:
            return Diagnosis(NodeState.FAILED, waiting, f"pod {pod.name}: {pod.waiting_message or waiting}")
        since = max(pod.created, pod.ready_changed_at or pod.created)
        grace = self._within(since, self._settings.pod_stale)
        if waiting:
            text = f"pod {pod.name}: {waiting} since {rfc3339(pod.created)}"
            return Diagnosis(NodeState.PENDING, waiting, f"{text}{self._told_by_kubelet(pod)}", grace)
        if self._within(pod.created, self._settings.pod_stale) or (grace and inventory is None):
            return Diagnosis(NodeState.PENDING, NodeReason.STARTING, f"pod {pod.name} starts", grace=True)
        why = "; ".join(unregistered(inventory.status) if inventory and inventory.status else ()) or "its log says why"
        # lastState is never cleared, so an old one does not explain the present state
        ended = pod.terminated_at
        last = f"; {_ended(pod)}" if ended and ended > since - timedelta(seconds=self._settings.pod_stale) else ""
        text = f"pod {pod.name} is not Ready since {rfc3339(since)}: {why}{last}"
        if grace:
            return Diagnosis(NodeState.SERVING, NodeReason.AGENT_NOT_READY, text, grace=True)
        return Diagnosis(NodeState.STALE if inventory else NodeState.FAILED, NodeReason.AGENT_NOT_READY, text)

    def _told_by_kubelet(self, pod: PodView) -> str:
        if warning := self._warnings.get(pod.name):
            return f": {warning.reason}{_cure(remedies.of_start(warning.message))}: {warning.message}"
        where = f"-n {pod.namespace} " if pod.namespace else ""
        return f"; kubectl describe pod {where}{pod.name} says why"

    def _with_ready_pod(self, pod: PodView, inventory: InventoryView | None, pool: PoolView) -> Diagnosis:
        since = pod.ready_changed_at or pod.created
        fresh = self._within(since, self._settings.pod_stale)
        if inventory and inventory.unreadable:
            why = f"inventory {inventory.name} cannot be read: {inventory.unreadable}"
            text = f"{why}; bring operator and agents to one version"
            return Diagnosis(NodeState.STALE, NodeReason.INVENTORY_UNREADABLE, text)
        if inventory is None or inventory.status is None:
            text = (
                f"pod {pod.name} is Ready since {rfc3339(since)}, but has not reported: it has written no inventory; "
                "its log says why (rights of its ServiceAccount, admission policy)"
            )
            return Diagnosis(NodeState.PENDING if fresh else NodeState.STALE, NodeReason.NO_REPORT, text, grace=fresh)
        if not self._within(inventory.heartbeat_seen, self._settings.heartbeat_stale):
            text = f"the last report of pod {pod.name} came at {rfc3339(inventory.heartbeat_seen)}; its log says why"
            return Diagnosis(NodeState.STALE, NodeReason.NO_HEARTBEAT, text)
        return reported(inventory.status, clashes=pool.clashes, fresh=fresh)

    def _within(self, moment: datetime, seconds: float) -> bool:
        return self._now - moment < timedelta(seconds=seconds)


def _cure(todo: str) -> str:
    return f" ({todo})" if todo else ""


def _current(pool: PoolView, pod: PodView | None, inventory: InventoryView | None) -> bool:
    """Whether the node is on the current pod template and configuration.

    An inventory stays while the agent's pod is replaced. So while the pod is not Ready, the inventory counts only if it
    was written after the pod was created. A pod that was Ready and failed later is current.
    """
    if pod is None or inventory is None or not _reported(pool, inventory):
        return False
    if pool.template_hash and pod.template_hash != pool.template_hash:
        return False
    return pod.ready or inventory.heartbeat_seen > pod.created


def _reported(pool: PoolView, inventory: InventoryView | None) -> bool:
    """Whether an agent of the node wrote its inventory with the current configuration."""
    if inventory is None or inventory.status is None:
        return False
    return not pool.config_hash or inventory.status.observed_config_hash == pool.config_hash


def _ended(pod: PodView) -> str:
    how = f"exit code {pod.exit_code}" if pod.exit_code is not None else "ended"
    reason = f" ({pod.terminated_reason})" if pod.terminated_reason else ""
    said = f": {pod.terminated_message or pod.waiting_message}" if pod.terminated_message or pod.waiting_message else ""
    times = f", {pod.restarts} restart{'s' if pod.restarts > 1 else ''}" if pod.restarts else ""
    return f"{how}{reason}{times}{said}"


def _latest(events: Iterable[FailedCreate]) -> dict[str, FailedCreate]:
    latest: dict[str, FailedCreate] = {}
    for event in sorted(events, key=lambda e: e.last_seen):
        latest[event.daemonset] = event
    return latest
