"""Collects what a pass needs to know about its object: from the cache, and from Events about missing agent pods."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from device_operator.cluster.cache import ClusterCache
from device_operator.cluster.complaints import Complaints
from device_operator.spec.model import ConfigRef
from device_operator.spec.placement import Assignment
from device_operator.status.nodes import UNTOLD
from device_operator.status.observed import ApplyProblem, Observed

_MAX_WAIT: Final = 300.0
_SOON: Final = 0.001
_PODS_ASKED: Final = 5
"""Starting pods whose Events are read in one pass. Messages name the first node with a cause, so a few are enough."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """`nodes` without a pod, and `pods` that wait. `asked`: DaemonSets whose Events were read. Events are not watched,
    so the pass is repeated at `due`, `seconds` after the reading.
    """

    nodes: frozenset[str]
    pods: frozenset[str]
    asked: tuple[str, ...]
    seconds: float
    due: float


class Observer:
    """`first_wait`: seconds until Events about missing pods are read again. It doubles while nothing changes."""

    def __init__(
        self,
        cache: ClusterCache,
        complaints: Complaints,
        *,
        now: Callable[[], datetime],
        clock: Callable[[], float],
        first_wait: float,
    ) -> None:
        self._cache = cache
        self._complaints = complaints
        self._now = now
        self._clock = clock
        self._first_wait = first_wait
        self._waiting: dict[str, _Waiting] = {}

    def seen(self, ref: ConfigRef) -> Observed:
        """What the cache has, without a request: enough for the reports of nodes, apart from missing pods."""
        cache = self._cache
        return Observed(
            now=self._now(),
            nodes=tuple(cache.nodes),
            daemonsets=cache.daemonsets_of(ref),
            pods=cache.pods_of(ref.name),
            inventories=tuple(i for i in cache.inventories_of(ref.name) if i.owner_uid == ref.uid),
            complete=cache.complete,
        )

    async def observe(self, ref: ConfigRef, assigned: Assignment, problems: tuple[ApplyProblem, ...]) -> Observed:
        seen = self.seen(ref)
        daemonsets, pods = seen.daemonsets, seen.pods
        starting = sorted(p.name for p in pods if not p.deleting and not p.ready and p.waiting_reason in UNTOLD)
        on = {pod.node for pod in pods}
        lacking = frozenset(node for nodes in assigned.nodes.values() for node in nodes if node not in on)
        poor = {pool for pool, nodes in assigned.nodes.items() if not lacking.isdisjoint(nodes)}
        asked = tuple(sorted(d.name for d in daemonsets if d.pool in poor))
        told = replace(
            seen,
            failed_creates=await self._complaints.failed_creates(asked),
            pod_warnings=await self._complaints.pod_warnings(starting[:_PODS_ASKED]),
            problems=problems,
        )
        # after the answers: when it is due, they are no longer valid
        self._note(ref, lacking, frozenset(starting), asked)
        return told

    def wait(self, ref: ConfigRef) -> float:
        """Seconds until a pass reads the Events about missing pods again; infinite if no pod is missing."""
        waiting = self._waiting.get(ref.uid)
        return max(waiting.due - self._clock(), _SOON) if waiting else float("inf")

    def forget(self, uid: str) -> None:
        self._waiting.pop(uid, None)

    def _note(self, ref: ConfigRef, nodes: frozenset[str], pods: frozenset[str], asked: tuple[str, ...]) -> None:
        """A pass for another reason, before `due`, changes nothing: many of them follow a new object."""
        before, now = self._waiting.get(ref.uid), self._clock()
        if not nodes and not pods:
            self.forget(ref.uid)
            return
        if before is None or (before.nodes, before.pods, before.asked) != (nodes, pods, asked):
            seconds = self._first_wait
        elif now >= before.due:
            seconds = min(before.seconds * 2, _MAX_WAIT)
        else:
            return
        self._waiting[ref.uid] = _Waiting(nodes, pods, asked, seconds, now + seconds)
