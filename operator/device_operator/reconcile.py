"""One level-triggered pass for one DevicePluginConfig: observe, decide, apply, report.

The contract: a pass is told a name and nothing of what happened. It may run at any time, twice, or after any
loss of memory, and brings the cluster and the status to where they belong. Where nothing differs it writes
nothing and asks nothing. What it raises makes the caller try again after a back-off; what it returns says when
time alone makes another look worthwhile.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from device_operator.cluster.apply import Applier
from device_operator.cluster.cache import CONFIGS, INVENTORIES, ClusterCache
from device_operator.cluster.client import ApiError, Client
from device_operator.cluster.configs import Config, ConfigStore
from device_operator.cluster.events import EventWriter
from device_operator.cluster.views import Owned
from device_operator.render.manifests import Manifest, RenderSettings, render
from device_operator.runtime import errors
from device_operator.runtime.workers import Pass
from device_operator.spec.acceptance import Accepted, Rejected, accept
from device_operator.spec.model import ConfigRef
from device_operator.spec.placement import Assignment, OtherConfig, assignment
from device_operator.status import pacing
from device_operator.status.conditions import ACCEPTED, PROGRESSING, by_type
from device_operator.status.conflicts import with_reported
from device_operator.status.nodes import UNTOLD, StatusSettings, settles_at
from device_operator.status.notices import health_transitions, transitions
from device_operator.status.observed import ApplyProblem, InventoryView, Observed
from device_operator.status.pacing import LastWrite, Pace
from device_operator.status.pools import running
from device_operator.status.summary import compute

logger = logging.getLogger(__name__)

_PODS_RECHECK_MAX: Final = 300.0
_PROBLEM_RECHECK: Final = 30.0
"""Seconds: an object of somebody else is in no watch of ours, so nothing tells when it is gone."""
_LEAST_LOOK: Final = 1.0
_HEARTBEAT: Final = 600.0
"""Seconds: agents write their inventory at least so often."""
_PODS_ASKED: Final = 5
"""Starting pods of an object whose Events are asked for: a message tells of the first node that has a cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileSettings:
    """Durations in seconds."""

    render: RenderSettings
    status: StatusSettings = field(default_factory=StatusSettings)
    pace: Pace = field(default_factory=Pace)
    resync: float = 300.0
    inventory_grace: float = 1800.0
    failed_create: float = 10.0


@dataclass(slots=True)
class _Memory:
    """Of one object, by its uid. Everything in it can be lost."""

    rendered: tuple[tuple[int, str], tuple[Manifest, ...]] | None = None
    last_write: LastWrite | None = None
    orphans: dict[str, float] = field(default_factory=dict)
    inventories: tuple[InventoryView, ...] | None = None
    lacking: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    lacking_wait: float = 0.0


class Reconciler:
    """`clock`: monotonic seconds; `now`: aware UTC. `report(name, status, inventories)` is told what each pass saw,
    with None for an object that is gone. `reconsider()`: every object is to be looked at again.
    """

    def __init__(
        self,
        *,
        client: Client,
        configs: ConfigStore,
        cache: ClusterCache,
        applier: Applier,
        events: EventWriter,
        settings: ReconcileSettings,
        clock: Callable[[], float],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        report: Callable[[str, Mapping[str, Any] | None, Iterable[Mapping[str, Any]]], None] = lambda *_: None,
        reconsider: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._configs = configs
        self._cache = cache
        self._applier = applier
        self._events = events
        self._settings = settings
        self._clock = clock
        self._now = now
        self._report = report
        self._reconsider = reconsider
        self._memories: dict[str, tuple[str, _Memory]] = {}

    async def reconcile(self, name: str) -> Pass:
        """Raises ApiError or one of client.UNREACHABLE when the pass could not be finished."""
        config = self._configs.get(name)
        if config is None or config.deleting:
            # ownerReferences clean up, with or without us
            self._forget(name)
            return Pass(result="gone")
        ref, memory = config.ref, self._memory(config.ref)
        nodes = tuple(self._cache.nodes)
        others = self._configs.others(name, daemonsets=self._cache.daemonsets_of)
        verdict = self._judge(config, others)
        self._configs.judged(config, accepted=isinstance(verdict, Accepted))
        in_force = verdict.spec if isinstance(verdict, Accepted) else running(self._cache.daemonsets_of(ref))
        assigned = assignment(in_force, nodes=nodes, others=others) if in_force else Assignment({})
        manifests: tuple[Manifest, ...] = ()
        problems: list[ApplyProblem] = []
        failure: Exception | None = None
        if isinstance(verdict, Accepted):
            manifests = self._rendered(config, verdict, memory)
            if verdict.spec.paused:
                memory.orphans = {}
            else:
                problems, failure = await self._apply(ref, manifests)
                failure = await self._clean(config, assigned, memory) or failure
        observed = await self._observe(ref, assigned, tuple(problems), memory)
        assigned = with_reported(
            assigned,
            others=others,
            on_node=self._cache.inventories_on,
            mine=ref,
            agents_of=lambda config: {pod.node for pod in self._cache.pods_of(config) if not pod.deleting},
        )
        new = compute(
            ref,
            generation=config.generation,
            verdict=verdict,
            observed=observed,
            previous=config.status,
            assigned=assigned,
            manifests=manifests,
            settings=self._settings.status,
        )
        served = {node for found in assigned.nodes.values() for node in found}
        self._report(name, new, [i.status for i in observed.inventories if i.node in served])
        looks = [await self._write_status(config, new, observed, memory)]
        if failure is not None:
            raise failure
        looks.append(self._next_look(assigned, observed, new, memory))
        if problems:
            looks.append(_PROBLEM_RECHECK)
        again = min(looks)
        return Pass(result="accepted" if isinstance(verdict, Accepted) else "rejected", again=again)

    def _judge(self, config: Config, others: Iterable[OtherConfig]) -> Accepted | Rejected:
        if config.spec is None:
            assert config.problem is not None
            return Rejected.invalid(config.problem)
        return accept(
            config.ref,
            config.spec,
            nodes=self._cache.nodes,
            others=others,
            created=config.created,
            already=self._configs.was_accepted(config),
        )

    def _rendered(self, config: Config, verdict: Accepted, memory: _Memory) -> tuple[Manifest, ...]:
        key = (config.generation, config.ref.uid)
        if memory.rendered is None or memory.rendered[0] != key:
            memory.rendered = (key, render(config.ref, verdict.spec, self._settings.render))
        return memory.rendered[1]

    async def _apply(
        self, ref: ConfigRef, manifests: Iterable[Manifest]
    ) -> tuple[list[ApplyProblem], Exception | None]:
        """What could not be written, pool by pool; and the refusal that is worth another try soon."""
        owned = {(o.kind, o.name): o for o in self._cache.owned(ref.name)}
        problems: dict[str, ApplyProblem] = {}
        failure: Exception | None = None
        for manifest in manifests:
            if manifest.pool in problems:
                continue  # a DaemonSet without its ConfigMap makes pods that cannot start
            try:
                await self._applier.ensure(manifest, owner=ref, live=owned.get((manifest.kind, manifest.name)))
            except errors.ForeignOwnerError as error:
                problems[manifest.pool] = ApplyProblem(manifest.pool, "NotOwned", str(error))
            except ApiError as error:
                failure = error
                text = f"{manifest.kind} {manifest.name} cannot be written: {error.message}"
                problems[manifest.pool] = ApplyProblem(manifest.pool, "ApplyFailed", text)
        for problem in problems.values():
            logger.warning("not applied", extra={"config": ref.name, "pool": problem.pool, "error": problem.message})
        return list(problems.values()), failure

    async def _clean(self, config: Config, assigned: Assignment, memory: _Memory) -> ApiError | None:
        """Deletes what left the specification: ours by label and ownerReference, nothing else.

        A refusal is returned: it must not keep the status from being told.
        """
        if not self._cache.complete:
            return None
        try:
            await self._clean_objects(config, assigned, memory)
            await self._clean_inventories(config, assigned, memory)
        except ApiError as error:
            logger.warning("not cleaned", extra={"config": config.ref.name, "error": str(error)})
            return error
        return None

    async def _clean_objects(self, config: Config, assigned: Assignment, memory: _Memory) -> None:
        uid = config.ref.uid
        mine = [o for o in self._cache.owned(config.ref.name) if o.owner_uid == uid and not o.deleting]
        kept = {(m.kind, m.name) for m in (memory.rendered or ((), ()))[1]}
        rolled = {o.pool for o in mine if _rolled_out(o)}
        for owned in sorted(mine, key=lambda o: o.kind, reverse=True):  # pods first, then what they have mounted
            if (owned.kind, owned.name) in kept:
                continue
            # a ConfigMap of another contract version is read by agents that are not rolled yet
            if owned.kind == "ConfigMap" and owned.pool in assigned.nodes and owned.pool not in rolled:
                continue
            await self._applier.remove(owned)

    async def _clean_inventories(self, config: Config, assigned: Assignment, memory: _Memory) -> None:
        """Deletes those whose node is gone, or in no pool, for the whole grace, once no agent's pod is there.

        A restart of this process forgets since when. But an agent writes every ten minutes, so a node whose inventory
        is older than that has had no agent for the rest of the time.
        """
        ref, now, clock = config.ref, self._now(), self._clock()
        kept = {node for nodes in assigned.nodes.values() for node in nodes}
        kept |= {pod.node for pod in self._cache.pods_of(ref.name) if pod.node and not pod.deleting}
        inventories = [i for i in self._cache.inventories_of(ref.name) if i.owner_uid == ref.uid]
        since, memory.orphans = memory.orphans, {}
        for inventory in inventories:
            if inventory.node not in kept:
                without = max((now - inventory.heartbeat_seen).total_seconds() - _HEARTBEAT, 0.0)
                memory.orphans[inventory.name] = min(since.get(inventory.name, clock), clock - without)
        for inventory in inventories:
            orphaned = memory.orphans.get(inventory.name)
            if orphaned is None or clock - orphaned < self._settings.inventory_grace:
                continue
            try:
                await self._client.delete(INVENTORIES, inventory.name, uid=inventory.uid)
            except ApiError as error:
                if not (error.not_found or error.conflict):
                    raise
            logger.info("inventory deleted", extra={"config": ref.name, "node": inventory.node})

    async def _observe(
        self,
        ref: ConfigRef,
        assigned: Assignment,
        problems: tuple[ApplyProblem, ...],
        memory: _Memory,
    ) -> Observed:
        cache, name = self._cache, ref.name
        daemonsets = cache.daemonsets_of(ref)
        pods = cache.pods_of(name)
        starting = sorted(p.name for p in pods if not p.deleting and not p.ready and p.waiting_reason in UNTOLD)
        lacking = self._lacking(assigned, {pod.node for pod in pods}, starting, memory)
        poor = sorted(d.name for d in daemonsets if d.pool in lacking)
        return Observed(
            now=self._now(),
            nodes=tuple(cache.nodes),
            daemonsets=daemonsets,
            pods=pods,
            inventories=tuple(i for i in cache.inventories_of(name) if i.owner_uid == ref.uid),
            failed_creates=await cache.failed_creates(self._client, poor),
            pod_warnings=await cache.pod_warnings(self._client, starting[:_PODS_ASKED]),
            complete=cache.complete,
            problems=problems,
        )

    def _lacking(self, assigned: Assignment, on: set[str | None], starting: Iterable[str], memory: _Memory) -> set[str]:
        """Pools with a node that has no pod. Events are not watched, so such a pool is looked at again by itself.

        `starting`: pods that wait for something, of which Events tell too.
        """
        pools = assigned.nodes
        lacking = frozenset(node for nodes in pools.values() for node in nodes if node not in on)
        waiting = (lacking, frozenset(starting))
        if waiting != memory.lacking:
            memory.lacking, memory.lacking_wait = waiting, self._settings.failed_create
        elif any(waiting):
            memory.lacking_wait = min(memory.lacking_wait * 2, _PODS_RECHECK_MAX)
        return {pool for pool, nodes in pools.items() if not lacking.isdisjoint(nodes)}

    async def _write_status(self, config: Config, new: dict[str, Any], observed: Observed, memory: _Memory) -> float:
        """Seconds until a write that had to wait; infinite where none does."""
        ref = config.ref
        wait = pacing.wait(config.status, new, last=memory.last_write, now=self._clock(), pace=self._settings.pace)
        if wait is not None and wait > 0:
            return wait
        notices = transitions(config.status, new)
        if memory.inventories is not None:
            notices += health_transitions(memory.inventories, observed.inventories)
        memory.inventories = observed.inventories
        # before the status: a restart in between finds the old status, and tells the same under the same name
        await self._events.write(ref, notices)
        if wait is None:
            return float("inf")
        try:
            written = await self._client.replace_status(CONFIGS, ref.name, uid=ref.uid, status=new)
        except ApiError as error:
            if error.not_found:
                self._configs.drop(ref.name, uid=ref.uid)
                return float("inf")
            raise
        memory.last_write = LastWrite(self._clock(), len(json.dumps(new, separators=(",", ":"))))
        # an edit that came in between is in the answer, and kopf's event of it will be older than what we know then
        edited = self._configs.put(written)
        if edited or _verdict(config.status) != _verdict(new):
            self._reconsider()
        return 0.0 if edited else float("inf")

    def _next_look(self, assigned: Assignment, observed: Observed, new: Mapping[str, Any], memory: _Memory) -> float:
        """Seconds until something becomes true by the passing of time: `nodes` says what does."""
        settings, now = self._settings, observed.now
        ours = {name for names in assigned.nodes.values() for name in names}
        moments = [settles_at(node, settings.status) for node in observed.nodes if node.name in ours]
        stale = timedelta(seconds=settings.status.pod_stale)
        for pod in observed.pods:
            moments += (pod.created + stale, (pod.ready_since or pod.created) + stale)
        silent = timedelta(seconds=settings.status.heartbeat_stale)
        moments += (inventory.heartbeat_seen + silent for inventory in observed.inventories)
        settle = timedelta(seconds=settings.status.settle)
        moments += (
            datetime.fromisoformat(c["lastTransitionTime"]) + settle
            for c in new["conditions"]
            if c["type"] == PROGRESSING
        )
        looks = [settings.resync, *((moment - now).total_seconds() for moment in moments)]
        if any(memory.lacking):
            looks.append(memory.lacking_wait)
        looks += (since + settings.inventory_grace - self._clock() for since in memory.orphans.values())
        # a thousand nodes that settle one after the other are no thousand passes
        return max(min(look for look in looks if look > 0), min(_LEAST_LOOK, settings.resync))

    def _memory(self, ref: ConfigRef) -> _Memory:
        uid, memory = self._memories.get(ref.name, ("", _Memory()))
        if uid != ref.uid:
            memory = _Memory()
            self._memories[ref.name] = (ref.uid, memory)
        return memory

    def _forget(self, name: str) -> None:
        uid, _ = self._memories.pop(name, ("", None))
        self._events.forget(uid)
        self._report(name, None, ())


def _verdict(status: Mapping[str, Any]) -> tuple[Any, ...]:
    accepted = by_type(status).get(ACCEPTED, {})
    return accepted.get("status"), accepted.get("observedGeneration")


def _rolled_out(owned: Owned) -> bool:
    """All pods of the DaemonSet are of its present template."""
    view = owned.daemonset
    return view is not None and view.observed_generation >= view.generation and view.updated >= view.desired
