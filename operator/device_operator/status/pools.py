"""The pools of the accepted spec, with what the status needs to know about each. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from device_agent.contract import names

from device_operator.render.manifests import ANNOTATION_CONFIG_HASH, ANNOTATION_TEMPLATE, Manifest
from device_operator.spec import scheduling
from device_operator.spec.caveats import EnvClash, env_clashes
from device_operator.spec.model import ConfigRef, Spec
from device_operator.spec.placement import Assignment
from device_operator.spec.scheduling import Toleration
from device_operator.status.observed import ApplyProblem, DaemonSetView, Observed


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """`nodes`: names. `applied`: the DaemonSet exists. `problem`: why it is missing, or differs from the rendered one.

    `clashes`: environment variables that several resources set.
    """

    name: str
    nodes: tuple[str, ...]
    config_hash: str = ""
    template_hash: str = ""
    tolerations: tuple[Toleration, ...] = scheduling.EVERY_TAINT
    applied: bool = True
    problem: ApplyProblem | None = None
    clashes: tuple[EnvClash, ...] = ()


def pool_daemonset(ref: ConfigRef, pool: str) -> str:
    return names.pool_object_name(ref.name, pool)


def pool_views(
    ref: ConfigRef, spec: Spec, *, observed: Observed, assigned: Assignment, manifests: Iterable[Manifest]
) -> tuple[PoolView, ...]:
    """In the order of the spec. `manifests`: rendered from `spec`."""
    rendered = {m.pool: m for m in manifests if m.kind == "DaemonSet"}
    problems = {problem.pool: problem for problem in observed.problems}
    existing = {view.name for view in observed.daemonsets}
    views = []
    for pool in spec.pools:
        manifest, document = rendered.get(pool.name), spec.document(pool)
        views.append(
            PoolView(
                name=pool.name,
                nodes=assigned.nodes.get(pool.name, ()),
                config_hash=manifest.config_hash if manifest else "",
                template_hash=manifest.template_hash if manifest else "",
                tolerations=pool.effective_tolerations,
                applied=pool_daemonset(ref, pool.name) in existing,
                problem=problems.get(pool.name),
                clashes=env_clashes(document),
            )
        )
    return tuple(views)


def as_rendered(pools: Iterable[PoolView], daemonsets: Iterable[DaemonSetView]) -> bool:
    """Whether the DaemonSets on the cluster match the accepted spec, by the hashes in their annotations."""
    live = {
        view.pool: tuple(view.annotations.get(key) for key in (ANNOTATION_CONFIG_HASH, ANNOTATION_TEMPLATE))
        for view in daemonsets
    }
    return live == {pool.name: (pool.config_hash, pool.template_hash) for pool in pools}
