"""Decides which pool gets a new configuration now, and which pool waits for another one. Pure.

A generation goes to the pools one after the other, in the order of the spec. The next pool gets it under two
conditions: all settled nodes of the pool before have it, and no resource of that pool has lost all its devices. So the
first pool is the canary. Annotations of a pool's objects say which generation it has, and which of its resources had
devices before. So a restart of the operator forgets nothing.

Labels of nodes act at once: a pool that waits already selects its nodes as the new spec says. Otherwise a node that
moves between pools would have two agents, or the pools would wait for each other.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from device_agent.contract.inventory import InventoryStatus
from device_agent.contract.node_reasons import NodeReason
from device_agent.contract.reasons import DeviceHealth, Withheld

from device_operator.render.manifests import (
    ANNOTATION_CHANGED,
    ANNOTATION_CONFIG_HASH,
    ANNOTATION_GENERATION,
    ANNOTATION_HAD_DEVICES,
    ANNOTATION_TEMPLATE,
)
from device_operator.spec.model import Spec
from device_operator.spec.wording import name_nodes, name_some
from device_operator.status.nodes import NodeReport
from device_operator.status.pools import PoolView


@dataclass(frozen=True, slots=True)
class Turn:
    """Where a pool is: noted in annotations of its objects.

    `generation`: whose spec the pool has, 0 if unknown. `changed`: the generation that last changed anything for the
    pool. `had`: the entries that had devices before.
    """

    generation: int = 0
    changed: int = 0
    had: frozenset[str] = frozenset()

    def annotations(self) -> dict[str, str]:
        return {
            ANNOTATION_GENERATION: str(self.generation),
            ANNOTATION_CHANGED: str(self.changed),
            ANNOTATION_HAD_DEVICES: json.dumps(sorted(self.had)),
        }


@dataclass(frozen=True, slots=True)
class LivePool:
    """What the objects of a pool say. `hashes`: of configuration and pod template."""

    turn: Turn = Turn()
    hashes: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """`turns`: by pool, what each gets now.

    `waiting`: pools that keep an earlier generation; `behind`: the pool they wait for. `halted`: why that pool will not
    finish without an admin, or ''.
    """

    turns: Mapping[str, Turn]
    waiting: tuple[str, ...] = ()
    behind: str = ""
    halted: str = ""


def live_pool(configmap: Mapping[str, str] | None, daemonset: Mapping[str, str] | None) -> LivePool:
    """A pool by the annotations of its two objects; None: the object is gone.

    If both exist, the ConfigMap says where the pool is, because it is written first.
    """
    first, second = configmap or daemonset or {}, daemonset or {}
    return LivePool(
        Turn(
            generation=_number(first.get(ANNOTATION_GENERATION, "")),
            changed=_number(first.get(ANNOTATION_CHANGED, "")),
            had=_names(first.get(ANNOTATION_HAD_DEVICES, "")),
        ),
        hashes=((configmap or {}).get(ANNOTATION_CONFIG_HASH, ""), second.get(ANNOTATION_TEMPLATE, "")),
    )


@dataclass(frozen=True, slots=True)
class _Unfinished:
    """A pool that has the new spec and is not done. `why`: why it will not finish without an admin, or ''."""

    pool: str
    changed: int
    why: str


def plan(
    generation: int,
    spec: Spec,
    *,
    pools: Sequence[PoolView],
    reports: Sequence[NodeReport],
    live: Mapping[str, LivePool],
    earlier: Mapping[int, Spec],
) -> Rollout:
    """Who gets `generation` now.

    `pools`, `reports`: as of the new spec, so `NodeReport.updated` means that a node has the new generation.
    `earlier`: readable specs that were accepted before.
    """
    turns: dict[str, Turn] = {}
    waiting: list[str] = []
    unfinished: list[_Unfinished] = []
    serves = {pool.name: pool.serves for pool in spec.pools}
    held_up_by: _Unfinished | None = None
    for pool in pools:
        present, nodes = live.get(pool.name), [r for r in reports if r.pool == pool.name]
        kept = _kept(pool, present, generation, earlier)
        # a pool waits only for changes that it does not have itself
        before = next((u for u in unfinished if kept is not None and u.changed > kept.generation), None)
        if kept is not None and before is not None:
            turns[pool.name] = kept
            waiting.append(pool.name)
            held_up_by = held_up_by or before
            continue
        had = _had(present, nodes, generation, live.values()) & set(serves[pool.name])
        turn = turns[pool.name] = Turn(generation, _changed(pool, present, generation), had)
        if (why := _unfinished(pool, nodes, turn)) is not None:
            unfinished.append(_Unfinished(pool.name, turn.changed, why))
    if held_up_by is None:
        return Rollout(turns=turns)
    return Rollout(turns=turns, waiting=tuple(waiting), behind=held_up_by.pool, halted=held_up_by.why)


def _kept(pool: PoolView, present: LivePool | None, generation: int, earlier: Mapping[int, Spec]) -> Turn | None:
    """What a pool keeps if it has to wait; None: nothing changes for it, or it is new."""
    if present is None:
        known = [g for g, spec in earlier.items() if g < generation and any(p.name == pool.name for p in spec.pools)]
        return Turn(max(known), max(known)) if known else None  # its objects were deleted by hand
    if present.turn.generation == generation or _unchanged(pool, present):
        return None
    return present.turn


def _unchanged(pool: PoolView, present: LivePool) -> bool:
    return present.hashes == (pool.config_hash, pool.template_hash)


def _changed(pool: PoolView, present: LivePool | None, generation: int) -> int:
    if present is not None and (present.turn.generation == generation or _unchanged(pool, present)):
        return present.turn.changed
    return generation


def _had(
    present: LivePool | None, nodes: Iterable[NodeReport], generation: int, all_pools: Iterable[LivePool]
) -> frozenset[str]:
    """The entries that must not lose all their devices.

    An edit may follow while an earlier one has not reached all pools. Then the entries from before the earlier edit
    count too.
    """
    if present is None:
        return frozenset()
    turn = present.turn
    if turn.generation == generation:
        return turn.had
    under_way = any(pool.turn.generation < turn.generation for pool in all_pools)
    return _with_devices(nodes) | (turn.had if under_way else frozenset())


def _unfinished(pool: PoolView, nodes: Sequence[NodeReport], turn: Turn) -> str | None:
    """Whether the pool holds up the next one. None: it does not.

    '': it does, and waiting may be enough. Any other text: it does until an admin acts; the text says why.
    """
    counted = [r for r in nodes if r.settled] or [r for r in nodes if r.young]
    counted = [r for r in counted if r.reason != NodeReason.TAINTED]  # no agent is wanted there
    if refusing := [r for r in counted if r.reason == NodeReason.CONFIG_ERROR]:
        return f"pool {pool.name} cannot use it on {name_nodes(r.name for r in refusing)}: {refusing[0].message}"
    if not all(r.updated for r in counted):
        return ""
    if counted and (lost := sorted(turn.had - _with_devices(counted))):
        return f"pool {pool.name} lost all devices of {name_some(lost)} on {name_nodes(r.name for r in counted)}"
    return None


def _with_devices(nodes: Iterable[NodeReport]) -> frozenset[str]:
    """The entries with a device that is not broken, withheld or not. Draining ones do not count: an edit took them."""
    found: set[str] = set()
    for status in (r.inventory.status for r in nodes if r.inventory and r.inventory.status):
        found |= _entries(status)
    return frozenset(found)


def _entries(status: InventoryStatus) -> set[str]:
    sound = [d for d in status.devices if d.health is not DeviceHealth.UNHEALTHY]
    draining = Counter(d.resource for d in sound if d.withheld == Withheld.DRAINING)
    return {r.entry_name for r in status.resources if r.healthy + r.unknown > draining[r.name]}


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 20 else 0


def _names(text: str) -> frozenset[str]:
    """A JSON list of texts; anything else, such as an annotation that somebody changed, counts as empty."""
    try:
        found = json.loads(text or "[]")
    except ValueError:
        return frozenset()
    return frozenset(str(name) for name in found) if isinstance(found, list) else frozenset()
