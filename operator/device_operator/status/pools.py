"""The pools that a status tells of: those of the accepted spec, or after a rejection those that run. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from device_agent.contract import names

from device_operator.render.manifests import ANNOTATION_CONFIG_HASH, ANNOTATION_JUDGED_BY, ANNOTATION_TEMPLATE, Manifest
from device_operator.spec import scheduling
from device_operator.spec.acceptance import Accepted
from device_operator.spec.caveats import EnvClash, env_clashes, noted, nvml_entries
from device_operator.spec.model import ConfigRef, Pool, Spec
from device_operator.spec.placement import Assignment
from device_operator.spec.scheduling import Toleration
from device_operator.status.observed import ApplyProblem, DaemonSetView, Observed


def running(daemonsets: Iterable[DaemonSetView]) -> Spec | None:
    """What an object's DaemonSets stand for, as far as pools go (`resources` is empty); None: there are none."""
    views = sorted(daemonsets, key=lambda view: view.pool)
    if not views:
        return None
    pools = (Pool(v.pool, node_selector_terms=v.terms, tolerations=v.tolerations, serves=v.serves) for v in views)
    return Spec(resources=(), pools=tuple(pools), max_unavailable=views[0].max_unavailable)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """A pool that should run: from the accepted spec, or after a rejection from what runs.

    `nodes`: names; `applied`: its DaemonSet exists; `problem`: why not, or why it is not as rendered. `clashes`: of
    the environment variables that its resources set. `nvml`: names of entries with devices of the NVIDIA driver.
    """

    name: str
    nodes: tuple[str, ...]
    config_hash: str = ""
    template_hash: str = ""
    tolerations: tuple[Toleration, ...] = scheduling.EVERY_TAINT
    applied: bool = True
    problem: ApplyProblem | None = None
    clashes: tuple[EnvClash, ...] = ()
    nvml: frozenset[str] = frozenset()


def pool_daemonset(ref: ConfigRef, pool: str) -> str:
    return names.pool_object_name(ref.name, pool)


def wanted_pools(
    ref: ConfigRef,
    verdict: Accepted,
    *,
    observed: Observed,
    assigned: Assignment,
    manifests: Iterable[Manifest],
) -> tuple[PoolView, ...]:
    rendered = {m.pool: m for m in manifests if m.kind == "DaemonSet"}
    problems = {problem.pool: problem for problem in observed.problems}
    existing = {view.name for view in observed.daemonsets}
    return tuple(
        PoolView(
            name=pool.name,
            nodes=assigned.nodes.get(pool.name, ()),
            config_hash=rendered[pool.name].config_hash if pool.name in rendered else "",
            template_hash=rendered[pool.name].template_hash if pool.name in rendered else "",
            tolerations=pool.effective_tolerations,
            applied=pool_daemonset(ref, pool.name) in existing,
            problem=problems.get(pool.name),
            clashes=env_clashes(verdict.spec.document(pool)),
            nvml=nvml_entries(verdict.spec.document(pool)),
        )
        for pool in verdict.spec.pools
    )


def as_rendered(pools: Iterable[PoolView], daemonsets: Iterable[DaemonSetView]) -> bool:
    live = {
        view.pool: tuple(view.annotations.get(key) for key in (ANNOTATION_CONFIG_HASH, ANNOTATION_TEMPLATE))
        for view in daemonsets
    }
    return live == {pool.name: (pool.config_hash, pool.template_hash) for pool in pools}


def running_pools(spec: Spec, *, observed: Observed, assigned: Assignment) -> tuple[PoolView, ...]:
    annotations = {view.pool: view.annotations for view in observed.daemonsets}
    notes = {pool: noted(found.get(ANNOTATION_JUDGED_BY, "")) for pool, found in annotations.items()}
    return tuple(
        PoolView(
            name=pool.name,
            nodes=assigned.nodes.get(pool.name, ()),
            config_hash=annotations[pool.name].get(ANNOTATION_CONFIG_HASH, ""),
            template_hash=annotations[pool.name].get(ANNOTATION_TEMPLATE, ""),
            tolerations=pool.effective_tolerations,
            clashes=notes[pool.name][0],
            nvml=notes[pool.name][1],
        )
        for pool in spec.pools
    )
