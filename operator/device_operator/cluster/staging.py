"""What each pool of an object gets in a pass: the spec in force, or an earlier one while it waits for its turn."""

from dataclasses import dataclass, replace

from device_operator.cluster.acceptances import AcceptedSpecs
from device_operator.cluster.cache import ClusterCache
from device_operator.render.manifests import Manifest, RenderSettings, annotated, render
from device_operator.spec.acceptance import InForce
from device_operator.spec.model import ConfigRef, Pool, Spec
from device_operator.spec.placement import Assignment
from device_operator.status.nodes import StatusSettings, node_reports
from device_operator.status.observed import Observed
from device_operator.status.pools import pool_views
from device_operator.status.rollout import LivePool, Rollout, live_pool, plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """`manifests`: to apply. `wanted`: of the spec in force; their objects must not be deleted.

    `used`: generations whose specs pools have, or get now.
    """

    rollout: Rollout
    manifests: tuple[Manifest, ...]
    wanted: tuple[Manifest, ...]
    used: frozenset[int]


class Staging:
    """Keeps what it rendered for pools that wait."""

    def __init__(
        self, cache: ClusterCache, accepted: AcceptedSpecs, *, render: RenderSettings, status: StatusSettings
    ) -> None:
        self._cache = cache
        self._accepted = accepted
        self._render = render
        self._status = status
        self._waiting: dict[str, dict[tuple[str, int, int], tuple[Manifest, ...]]] = {}

    def forget(self, uid: str) -> None:
        self._waiting.pop(uid, None)

    def stage(
        self,
        ref: ConfigRef,
        in_force: InForce,
        manifests: tuple[Manifest, ...],
        *,
        seen: Observed,
        assigned: Assignment,
    ) -> Staged:
        """`manifests`: of the spec in force. A pool whose earlier spec is lost is left as it is."""
        spec, live, earlier = in_force.spec, self._live(ref), self._accepted.earlier(ref)
        turns = {pool.name: live[pool.name].turn for pool in spec.pools if pool.name in live}
        if len(turns) == len(spec.pools) and {t.generation for t in turns.values()} == {in_force.generation}:
            rollout = Rollout(turns=turns)  # all have it: no need to look at the nodes
        else:
            pools = pool_views(ref, spec, observed=seen, assigned=assigned, manifests=manifests)
            reports = node_reports(ref, pools, seen, settings=self._status)
            rollout = plan(in_force.generation, spec, pools=pools, reports=reports, live=live, earlier=earlier)
        before, rendered = self._waiting.pop(ref.uid, {}), dict[tuple[str, int, int], tuple[Manifest, ...]]()
        staged: list[Manifest] = []
        for pool in spec.pools:
            turn = rollout.turns[pool.name]
            found = tuple(m for m in manifests if m.pool == pool.name)
            if pool.name in rollout.waiting:
                key = (pool.name, turn.generation, in_force.generation)
                old = earlier.get(turn.generation)
                found = rendered[key] = before[key] if key in before else self._earlier(ref, old, pool, spec)
            staged += (annotated(m, turn.annotations()) for m in found)
        if rendered:
            self._waiting[ref.uid] = rendered
        used = {pool.turn.generation for pool in live.values()} | {turn.generation for turn in rollout.turns.values()}
        return Staged(rollout=rollout, manifests=tuple(staged), wanted=manifests, used=frozenset(used))

    def _live(self, ref: ConfigRef) -> dict[str, LivePool]:
        """By pool. Of the ConfigMaps of two contract versions, the one with the higher generation counts."""
        mine = [o for o in self._cache.owned(ref.name) if o.owner_uid == ref.uid and not o.deleting]
        daemonsets = {o.pool: o.annotations for o in mine if o.kind == "DaemonSet"}
        live = {pool: live_pool(None, annotations) for pool, annotations in daemonsets.items()}
        configmaps = [(o.pool, live_pool(o.annotations, daemonsets.get(o.pool))) for o in mine if o.kind == "ConfigMap"]
        return live | dict(sorted(configmaps, key=lambda found: found[1].turn.generation))

    def _earlier(self, ref: ConfigRef, old: Spec | None, pool: Pool, now: Spec) -> tuple[Manifest, ...]:
        """The pool as it was, on the nodes that it has now."""
        was = next((p for p in old.pools if p.name == pool.name), None) if old else None
        if old is None or was is None:
            return ()
        placed = replace(pool, serves=was.serves, agent=was.agent)
        return render(ref, replace(old, pools=(placed,), max_unavailable=now.max_unavailable), self._render)
