"""One level-triggered pass for one DevicePluginConfig: observe, decide, apply, report.

The contract: a pass gets the name of an object; it does not learn what changed. It may run at any time, twice, or after
a restart. It makes cluster and status match the spec in force, and makes no request when nothing differs. If it raises,
the caller tries again after a back-off. Its result says when the next pass is due if nothing changes.
"""

import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from device_agent.contract.codec import encode
from device_agent.contract.config_reasons import ConditionReason
from device_agent.contract.node_reasons import NodeReason
from device_agent.contract.status import ConditionType, ConfigStatus

from device_operator.cluster.acceptances import AcceptedSpecs
from device_operator.cluster.apply import Applier
from device_operator.cluster.cache import CONFIGS, ClusterCache
from device_operator.cluster.cleaning import Cleaner
from device_operator.cluster.client import ApiError, Client
from device_operator.cluster.complaints import Complaints
from device_operator.cluster.configs import Config, ConfigStore
from device_operator.cluster.events import EventWriter
from device_operator.cluster.observing import Observer
from device_operator.cluster.revisions import Revision
from device_operator.cluster.staging import Staged, Staging
from device_operator.render.manifests import Manifest, RenderSettings, render
from device_operator.runtime import errors
from device_operator.runtime.figures import FailedNode, Seen
from device_operator.runtime.workers import Pass
from device_operator.spec.acceptance import AcceptedState, InForce, Rejected, rejection
from device_operator.spec.model import ConfigRef
from device_operator.spec.placement import Assignment, OtherConfig, assignment
from device_operator.status import pacing
from device_operator.status.conflicts import with_reported
from device_operator.status.nodes import StatusSettings, settles_at
from device_operator.status.notices import health_transitions, stale_grants, transitions
from device_operator.status.observed import ApplyProblem, InventoryView, Observed
from device_operator.status.pacing import LastWrite, Pace
from device_operator.status.situation import Computed
from device_operator.status.summary import compute

logger = logging.getLogger(__name__)

_PROBLEM_RECHECK: Final = 30.0
"""Seconds. Foreign objects are not watched, so a pass must look again to see that one is gone."""
_LEAST_LOOK: Final = 1.0
_NEVER: Final = float("inf")


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
    """What a pass remembers for the next one. A restart may lose it without harm."""

    uid: str
    rendered: tuple[int, tuple[Manifest, ...]] | None = None
    last_write: LastWrite | None = None
    inventories: tuple[InventoryView, ...] | None = None


class Reconciler:
    """`clock`: monotonic seconds; `now`: aware UTC. `report(name, seen)` gets what each pass saw, None if the
    object is gone. `reconsider()` enqueues every object.
    """

    def __init__(
        self,
        *,
        client: Client,
        configs: ConfigStore,
        cache: ClusterCache,
        accepted: AcceptedSpecs,
        events: EventWriter,
        settings: ReconcileSettings,
        clock: Callable[[], float],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        report: Callable[[str, Seen | None], None] = lambda *_: None,
        reconsider: Callable[[], None] = lambda: None,
    ) -> None:
        namespace = settings.render.namespace
        self._client = client
        self._configs = configs
        self._cache = cache
        self._accepted = accepted
        self._events = events
        self._settings = settings
        self._clock = clock
        self._report = report
        self._reconsider = reconsider
        self._applier = Applier(client, namespace=namespace)
        self._staging = Staging(cache, accepted, render=settings.render, status=settings.status)
        self._cleaner = Cleaner(client, cache, self._applier, grace=settings.inventory_grace, clock=clock, now=now)
        complaints = Complaints(client, namespace=namespace, seconds=settings.failed_create, clock=clock)
        self._observer = Observer(cache, complaints, now=now, clock=clock, first_wait=settings.failed_create)
        self._memories: dict[str, _Memory] = {}

    async def reconcile(self, name: str) -> Pass:
        """Raises ApiError or one of client.UNREACHABLE when the pass could not be finished."""
        config = self._configs.get(name)
        if config is None or config.deleting:
            # the garbage collector cleans up by ownerReferences
            self._forget(name)
            self._report(name, None)
            return Pass(result="gone")
        memory = self._memory(config.ref)
        others = self._configs.others(name, held=self._accepted.held_pools)
        standing, failure = await self._standing(config, others)
        assigned = Assignment({})
        manifests: tuple[Manifest, ...] = ()
        problems: list[ApplyProblem] = []
        rollout = None
        if standing.in_force is not None:
            assigned = assignment(standing.in_force.spec, nodes=self._cache.nodes, others=others)
            manifests = self._rendered(config.ref, standing.in_force, memory)
            seen = self._observer.seen(config.ref)
            staged = self._staging.stage(config.ref, standing.in_force, manifests, seen=seen, assigned=assigned)
            rollout = None if standing.in_force.spec.paused else staged.rollout
            problems, refusal = await self._bring_about(config.ref, standing.in_force, staged, assigned)
            failure = refusal or failure
        observed = await self._observer.observe(config.ref, assigned, tuple(problems))
        assigned = self._with_reported(config.ref, assigned, others)
        computed = compute(
            standing,
            observed=observed,
            previous=config.status,
            assigned=assigned,
            manifests=manifests,
            settings=self._settings.status,
            rollout=rollout,
        )
        new = computed.status
        self._report(name, _seen(computed, observed, assigned))
        again = [await self._write_status(config, new, observed, memory)]
        if failure is not None:
            raise failure
        again.append(self._next_look(config.ref, assigned, observed, new))
        if problems or (standing.rejected and standing.rejected.reason == ConditionReason.SPEC_NOT_KEPT):
            again.append(_PROBLEM_RECHECK)
        return Pass(result="rejected" if standing.rejected else "accepted", again=min(again))

    async def _standing(self, config: Config, others: tuple[OtherConfig, ...]) -> tuple[AcceptedState, ApiError | None]:
        """The spec in force, and a refusal of the API server. After a refusal the pass is tried again soon."""
        ref, failure, in_force, lost = config.ref, None, None, ""
        rejected = self._rejection(config, others)
        if rejected is None and not self._is_kept(config):
            try:
                await self._accepted.keep(ref, generation=config.generation, spec=config.raw["spec"])
            except (errors.ForeignOwnerError, ApiError) as error:
                failure = error if isinstance(error, ApiError) else None
                text = f"the accepted spec cannot be stored in a ControllerRevision, so it is not in force: {error}"
                rejected = Rejected(ConditionReason.SPEC_NOT_KEPT, text)
                logger.warning("accepted spec not kept", extra={"config": ref.name, "error": str(error)})
        latest = self._accepted.latest(ref)
        if latest is not None and latest.spec is not None:
            in_force = InForce(latest.generation, latest.spec)
        else:
            lost = self._lost(config, latest)
        standing = AcceptedState(
            ref=ref,
            generation=config.generation,
            rejected=rejected,
            in_force=in_force,
            lost=lost,
            earlier=self._accepted.way_back(ref, generation=config.generation),
        )
        return standing, failure

    def _rejection(self, config: Config, others: tuple[OtherConfig, ...]) -> Rejected | None:
        if config.spec is None:
            assert config.problem is not None
            return Rejected.invalid(config.problem)
        # an accepted generation stays accepted, even if its revision was deleted
        if self._is_kept(config) or config.status.accepted_generation == config.generation:
            return None
        return rejection(config.ref, config.spec, nodes=self._cache.nodes, others=others, created=config.created)

    def _is_kept(self, config: Config) -> bool:
        latest = self._accepted.latest(config.ref)
        return latest is not None and latest.generation == config.generation

    def _lost(self, config: Config, latest: Revision | None) -> str:
        """Why the accepted spec cannot be read; empty if no generation was accepted."""
        left = "running agents stay as they are and are not repaired; apply a valid spec"
        namespace = self._settings.render.namespace
        if latest is not None:
            return (
                f"the accepted spec of generation {latest.generation}, kept in ControllerRevision "
                f"{namespace}/{latest.name}, is not valid for this version of the operator ({latest.problem}): {left}"
            )
        before = config.status.accepted_generation
        if not before and not self._cache.daemonsets_of(config.ref):
            return ""
        what = f"generation {before}" if before else "an earlier generation"
        gone = f"its ControllerRevision in namespace {namespace} was deleted or changed"
        return f"the accepted spec of {what} is gone, because {gone}: {left}"

    def _rendered(self, ref: ConfigRef, in_force: InForce, memory: _Memory) -> tuple[Manifest, ...]:
        if memory.rendered is None or memory.rendered[0] != in_force.generation:
            memory.rendered = (in_force.generation, render(ref, in_force.spec, self._settings.render))
        return memory.rendered[1]

    async def _bring_about(
        self, ref: ConfigRef, in_force: InForce, staged: Staged, assigned: Assignment
    ) -> tuple[list[ApplyProblem], ApiError | None]:
        """Makes the cluster match the spec in force. Changes nothing for a paused object."""
        problems: list[ApplyProblem] = []
        failure: ApiError | None = None
        if in_force.spec.paused:
            self._cleaner.forget(ref.uid)
        else:
            problems, failure = await self._apply(ref, staged.manifests)
            failure = await self._cleaner.clean(ref, staged.wanted, assigned) or failure
        if failure is None:
            try:
                await self._accepted.remove_old(ref, used=staged.used)
            except ApiError as error:
                failure = error
        return problems, failure

    def _with_reported(self, ref: ConfigRef, assigned: Assignment, others: Iterable[OtherConfig]) -> Assignment:
        return with_reported(
            assigned,
            others=others,
            on_node=self._cache.inventories_on,
            mine=ref,
            agents_of=lambda config: {pod.node for pod in self._cache.pods_of(config) if not pod.deleting},
        )

    async def _apply(self, ref: ConfigRef, manifests: Iterable[Manifest]) -> tuple[list[ApplyProblem], ApiError | None]:
        """The objects that could not be written, by pool; and a refusal, after which the pass is tried again soon."""
        owned = {(o.kind, o.name): o for o in self._cache.owned(ref.name)}
        problems: dict[str, ApplyProblem] = {}
        failure: ApiError | None = None
        for manifest in manifests:
            if manifest.pool in problems:
                continue  # without its ConfigMap the pods of a DaemonSet cannot start
            try:
                await self._applier.ensure(manifest, owner=ref, live=owned.get((manifest.kind, manifest.name)))
            except errors.ForeignOwnerError as error:
                problems[manifest.pool] = ApplyProblem(manifest.pool, NodeReason.NOT_OWNED, str(error))
            except ApiError as error:
                failure = error
                text = f"{manifest.kind} {manifest.name} cannot be written: {error.message}"
                problems[manifest.pool] = ApplyProblem(manifest.pool, NodeReason.APPLY_FAILED, text)
        for problem in problems.values():
            logger.warning("not applied", extra={"config": ref.name, "pool": problem.pool, "error": problem.message})
        return list(problems.values()), failure

    async def _write_status(self, config: Config, new: ConfigStatus, observed: Observed, memory: _Memory) -> float:
        """Seconds until the next write is due; infinite if only a change makes one due."""
        ref = config.ref
        wait = pacing.wait(config.status, new, last=memory.last_write, now=self._clock(), pace=self._settings.pace)
        if wait > 0 and not pacing.unchanged(config.status, new):
            return wait
        notices = transitions(config.status, new)
        if memory.inventories is not None:
            notices += health_transitions(memory.inventories, observed.inventories)
            notices += stale_grants(memory.inventories, observed.inventories)
        memory.inventories = observed.inventories
        # before the status: after a restart in between, the same Events are written again under the same names
        await self._events.write(ref, notices)
        if wait > 0:
            return wait
        body = encode(new)
        try:
            written = await self._client.replace_status(CONFIGS, ref.name, uid=ref.uid, status=body)
        except ApiError as error:
            if error.not_found:
                self._configs.drop(ref.name, uid=ref.uid)
                return _NEVER
            raise
        memory.last_write = LastWrite(self._clock(), len(json.dumps(body, separators=(",", ":"))))
        # the answer may contain an edit that came in between; kopf's event for it then changes nothing
        edited = self._configs.put(written)
        if edited or _acceptance(config.status) != _acceptance(new):
            self._reconsider()
        return 0.0 if edited else self._settings.pace.refresh

    def _next_look(self, ref: ConfigRef, assigned: Assignment, observed: Observed, new: ConfigStatus) -> float:
        """Seconds until time alone changes a state: a node settles, or a grace or heartbeat ends."""
        settings, now = self._settings, observed.now
        ours = {name for names in assigned.nodes.values() for name in names}
        moments = [settles_at(node, settings.status) for node in observed.nodes if node.name in ours]
        stale = timedelta(seconds=settings.status.pod_stale)
        for pod in observed.pods:
            moments += (pod.created + stale, (pod.ready_changed_at or pod.created) + stale)
        silent = timedelta(seconds=settings.status.heartbeat_stale)
        moments += (inventory.heartbeat_seen + silent for inventory in observed.inventories)
        settle = timedelta(seconds=settings.status.settle)
        if progressing := new.condition(ConditionType.PROGRESSING):
            moments.append(datetime.fromisoformat(progressing.last_transition_time) + settle)
        waits = [settings.resync, self._observer.wait(ref), self._cleaner.wait(ref)]
        waits += ((moment - now).total_seconds() for moment in moments)
        # one pass for many: a thousand nodes may settle one after the other
        return max(min(wait for wait in waits if wait > 0), min(_LEAST_LOOK, settings.resync))

    def _memory(self, ref: ConfigRef) -> _Memory:
        memory = self._memories.get(ref.name)
        if memory is None or memory.uid != ref.uid:
            self._forget(ref.name)
            memory = self._memories[ref.name] = _Memory(ref.uid)
        return memory

    def _forget(self, name: str) -> None:
        if memory := self._memories.pop(name, None):
            for part in (self._events, self._observer, self._cleaner, self._staging):
                part.forget(memory.uid)


def _seen(computed: Computed, observed: Observed, assigned: Assignment) -> Seen:
    """For the metrics. Inventories of nodes that belong to no pool do not count."""
    ours = {node for found in assigned.nodes.values() for node in found}
    return Seen(
        status=computed.status,
        inventories={i.node: i.status for i in observed.inventories if i.status and i.node in ours},
        faults=computed.faults,
        failed=tuple(FailedNode(r.pool, r.name, r.reason) for r in computed.failing),
    )


def _acceptance(status: ConfigStatus) -> tuple[object, ...]:
    accepted = status.condition(ConditionType.ACCEPTED)
    return (accepted.status, accepted.observed_generation) if accepted else ()
