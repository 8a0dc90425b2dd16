"""A new spec goes to the pools one after the other, and stops at a pool that it harms."""

from dataclasses import replace
from typing import Any

import pytest
from device_agent.contract.node_reasons import NodeReason, NodeState
from device_operator.spec.model import Spec
from device_operator.status.nodes import NodeReport
from device_operator.status.pools import PoolView
from device_operator.status.rollout import LivePool, Rollout, Turn, live_pool, plan
from unit.operator_core.build import KVM, counts, device, inventory, pools

NAMES = ("a", "b", "c")
SPEC = pools(*({"name": name, "nodeSelector": {"pool": name}} for name in NAMES))
OLD, NEW = ("old", "t"), ("new", "t")


def view(pool: str, hashes: tuple[str, str] = NEW) -> PoolView:
    return PoolView(name=pool, nodes=(f"{pool}-1",), config_hash=hashes[0], template_hash=hashes[1])


def report(pool: str, *, updated: bool = True, **fields: Any) -> NodeReport:
    """A settled node that serves, unless `fields` says else."""
    seen = fields.pop("inventory", inventory(f"{pool}-1"))
    fields = {"state": NodeState.SERVING, "reason": NodeReason.SERVING, "settled": True, **fields}
    return NodeReport(name=f"{pool}-1", pool=pool, updated=updated, inventory=seen, **fields)


def with_old(generation: int = 1) -> LivePool:
    return LivePool(Turn(generation, generation), OLD)


def moved(*had: str, generation: int = 2) -> LivePool:
    return LivePool(Turn(generation, generation, frozenset(had)), NEW)


def planned(
    live: dict[str, LivePool],
    *reports: NodeReport,
    generation: int = 2,
    views: tuple[PoolView, ...] | None = None,
    earlier: dict[int, Spec] | None = None,
    spec: Spec = SPEC,
) -> Rollout:
    given = {r.pool: r for r in reports}
    every = [given.get(name) or report(name, updated=live.get(name) != with_old()) for name in NAMES]
    return plan(
        generation,
        spec,
        pools=views or tuple(view(name) for name in NAMES),
        reports=every,
        live=live,
        earlier={1: SPEC} if earlier is None else earlier,
    )


def generations(found: Rollout) -> dict[str, int]:
    return {name: turn.generation for name, turn in found.turns.items()}


NONE = inventory("a-1", resources=[counts(devices=0)], devices=[])


def test_the_first_spec_goes_to_all_pools_at_once():
    nothing = [report(name, updated=False, inventory=None) for name in NAMES]
    found = planned({}, *nothing, generation=1, earlier={})
    assert generations(found) == {"a": 1, "b": 1, "c": 1}
    assert (found.waiting, found.behind, found.halted) == ((), "", "")


def test_an_edit_goes_to_the_first_pool_alone():
    found = planned({name: with_old() for name in NAMES})
    assert generations(found) == {"a": 2, "b": 1, "c": 1}
    assert (found.waiting, found.behind, found.halted) == (("b", "c"), "a", "")
    assert found.turns["a"].had == {KVM}


def test_the_next_pool_follows_when_the_one_before_is_current():
    found = planned({"a": moved(KVM), "b": with_old(), "c": with_old()})
    assert generations(found) == {"a": 2, "b": 2, "c": 1}
    assert (found.waiting, found.behind) == (("c",), "b")
    done = planned({name: moved(KVM) for name in NAMES})
    assert (set(generations(done).values()), done.waiting) == ({2}, ())


@pytest.mark.parametrize(
    ("fields", "waits"),
    [
        ({"settled": False, "reason": NodeReason.NODE_NOT_READY}, False),
        ({"reason": NodeReason.TAINTED, "state": NodeState.PENDING}, False),
        ({"reason": NodeReason.AGENT_CRASHES, "state": NodeState.FAILED}, True),
        ({"settled": False, "young": True}, True),
    ],
)
def test_the_next_pool_waits_for_nodes_that_can_have_an_agent(fields: dict[str, Any], *, waits: bool):
    found = planned({"a": moved(), "b": with_old(), "c": with_old()}, report("a", updated=False, **fields))
    assert (found.behind == "a") is waits


def test_a_pool_that_lost_all_devices_of_a_resource_halts_the_rollout():
    live = {"a": moved(KVM), "b": with_old(), "c": with_old()}
    found = planned(live, report("a", inventory=NONE))
    assert generations(found) == {"a": 2, "b": 1, "c": 1}
    assert found.behind == "a"
    for named in (KVM, "a-1"):
        assert named in found.halted
    # without devices before, nothing is lost
    assert planned({**live, "a": moved()}, report("a", inventory=NONE)).halted == ""


def test_devices_that_come_back_let_the_rollout_go_on():
    found = planned({"a": moved(KVM), "b": with_old(), "c": with_old()}, report("a"))
    assert (found.halted, generations(found)["b"]) == ("", 2)


@pytest.mark.parametrize(
    ("reason", "halts"), [("HeldAs", False), ("Cordoned", False), ("Draining", True), ("CompanionMissing", True)]
)
def test_devices_that_are_withheld_by_plan_are_not_lost(reason: str, *, halts: bool):
    planned_one = device(offered=False, withheld=reason)
    broken_one = device(health="Unhealthy", offered=False, reason=reason)
    one, healthy = (broken_one, 0) if reason == "CompanionMissing" else (planned_one, 1)
    seen = inventory("a-1", resources=[counts(healthy=healthy)], devices=[one])
    found = planned({"a": moved(KVM), "b": with_old(), "c": with_old()}, report("a", inventory=seen))
    assert bool(found.halted) is halts


def test_a_configuration_that_agents_cannot_use_halts_the_rollout():
    refusing = report("a", updated=False, reason=NodeReason.CONFIG_ERROR, message="bad glob")
    found = planned({"a": moved(), "b": with_old(), "c": with_old()}, refusing)
    assert "bad glob" in found.halted
    assert "a-1" in found.halted


def test_an_edit_of_a_halted_rollout_still_knows_what_was_lost():
    live = {"a": moved(KVM), "b": with_old(), "c": with_old()}
    found = planned(
        live, report("a", inventory=NONE), generation=3, views=tuple(view(n, ("third", "t")) for n in NAMES)
    )
    assert generations(found) == {"a": 3, "b": 1, "c": 1}
    assert found.turns["a"].had == {KVM}


def test_what_was_lost_long_after_a_finished_rollout_is_not_held_against_the_next():
    live = {name: moved(KVM) for name in NAMES}
    found = planned(
        live, report("a", inventory=NONE), generation=3, views=tuple(view(n, ("third", "t")) for n in NAMES)
    )
    assert found.turns["a"].had == frozenset()


def test_returning_to_the_earlier_spec_leaves_the_pools_alone_that_still_have_it():
    live = {"a": moved(KVM), "b": with_old(), "c": with_old()}
    found = planned(
        live, report("a", updated=False, inventory=NONE), generation=3, views=tuple(view(n, OLD) for n in NAMES)
    )
    assert generations(found) == {"a": 3, "b": 3, "c": 3}
    assert (found.waiting, found.halted) == ((), "")


def test_a_pool_does_not_wait_for_a_fault_of_a_pool_that_the_edit_does_not_concern():
    """Pool a keeps what it has; one of its agents cannot start."""
    live = {name: with_old() for name in NAMES}
    views = (view("a", OLD), view("b"), view("c"))
    ill = report("a", updated=False, reason=NodeReason.IMAGE_PULL_FAILED, state=NodeState.FAILED)
    found = planned(live, ill, views=views)
    assert generations(found) == {"a": 2, "b": 2, "c": 1}
    assert found.turns["a"].changed == 1
    later = planned({"a": LivePool(Turn(2, 1), OLD), "b": moved(KVM), "c": with_old()}, ill, views=views)
    assert generations(later)["c"] == 2


def test_a_new_pool_does_not_wait():
    found = planned({"a": with_old(), "b": with_old()}, earlier={1: pools({"name": "a"}, {"name": "b"})})
    assert generations(found) == {"a": 2, "b": 1, "c": 2}


def test_a_waiting_pool_whose_objects_were_deleted_keeps_its_spec():
    found = planned({"a": with_old(), "b": with_old()})
    assert generations(found) == {"a": 2, "b": 1, "c": 1}


def test_where_a_pool_is_can_be_read_from_its_annotations():
    turn = Turn(7, 5, frozenset({"e.com/x", "e.com/y"}))
    hashes = {"device-operator.io/config-hash": "c", "device-operator.io/template-hash": "t"}
    written = {**turn.annotations(), **hashes}
    assert live_pool(written, hashes) == LivePool(turn, ("c", "t"))
    assert live_pool(None, written).turn == turn
    spoilt = {**written, "device-operator.io/generation": "x", "device-operator.io/had-devices": "{"}
    assert live_pool(spoilt, hashes).turn == replace(turn, generation=0, had=frozenset())
