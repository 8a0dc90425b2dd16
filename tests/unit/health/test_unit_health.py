"""Health of any device: unhealthyWhen by its thresholds, what a scan sees at once, and a grace for what vanished."""

from dataclasses import replace

import pytest
from device_agent.contract.document import HealthRules, Match
from device_agent.table.snapshot import Health
from unit.table.samples import NAME, NO_GRACE, OTHER, Steps, held, resource, unit, wall

RULES = HealthRules(
    unhealthy_when=(Match("attr.state", ("disabled",)),),
    interval_seconds=1,
    failure_threshold=3,
    recovery_threshold=2,
    removal_grace_seconds=0,
)
WATCHED = resource(health=RULES)
BAD = "attr.state is 'disabled' (health.unhealthyWhen[0])"


def bad(device: str, **fields):
    return unit(device, unfit=BAD, **fields)


# unhealthyWhen


def test_a_device_that_matches_is_unhealthy_after_the_threshold_and_no_other_is():
    steps = Steps(WATCHED)
    steps.scan(unit("a"), unit("b"))
    seen = [steps.scan(bad("a"), unit("b")) for _ in range(4)]
    assert seen == [frozenset(), frozenset(), {NAME}, frozenset()]
    assert steps.seen() == {"a": False, "b": True}
    state = steps.device("a")
    assert (state.reason, state.message, state.since) == ("UnhealthyWhen", BAD, wall(4))


def test_a_device_recovers_after_the_recovery_threshold():
    steps = Steps(WATCHED)
    steps.scan(bad("a"))
    steps.scan(unit("a"))
    assert (steps.seen(), steps.device("a").reason) == ({"a": False}, "Recovering")
    assert BAD in steps.device("a").message
    steps.scan(unit("a"))
    assert steps.seen() == {"a": True}
    assert (steps.device("a").reason, steps.device("a").since) == ("", wall(3))


def test_a_device_that_matches_when_it_is_first_seen_is_not_offered():
    steps = Steps(WATCHED)
    steps.scan(bad("a"), unit("b"))
    assert steps.seen() == {"a": False, "b": True}


def test_a_burst_of_scans_is_one_check():
    steps = Steps(resource(health=replace(RULES, interval_seconds=10)))
    steps.scan(unit("a"))
    for _ in range(25):
        steps.scan(bad("a"))  # one second each
    assert steps.seen() == {"a": True}
    steps.now += 9
    steps.scan(bad("a"))
    assert steps.seen() == {"a": False}


def test_a_single_bad_check_is_shown_until_a_good_one():
    steps = Steps(WATCHED)
    steps.scan(unit("a"))
    steps.scan(bad("a"))
    state = steps.device("a")
    assert (state.health, state.message) == (Health.HEALTHY, f"{BAD}; Unhealthy after 3 such checks in a row")
    steps.scan(unit("a"))
    assert steps.device("a").message == ""


def test_an_edit_that_removes_the_rule_ends_the_failure_at_once():
    steps = Steps(WATCHED)
    steps.scan(bad("a"))
    assert steps.edit(resource(), units=(unit("a"),)) == {NAME}
    assert steps.seen() == {"a": True}


def test_problems_that_a_scan_finds_count_at_once():
    steps = Steps(WATCHED)
    steps.scan(unit("a"))
    steps.scan(unit("a", problem=("CompanionMissing", "/dev/x is missing")))
    assert (steps.seen(), steps.device("a").reason) == ({"a": False}, "CompanionMissing")
    steps.scan(unit("a"))
    assert steps.seen() == {"a": True}


def test_all_replicas_go_and_return_together():
    steps = Steps(WATCHED)
    steps.scan(bad("a", replicas=3))
    assert set(steps.seen().values()) == {False}
    steps.scan(unit("a", replicas=3))
    steps.scan(unit("a", replicas=3))
    assert steps.seen() == {"a": True, "a::1": True, "a::2": True}


# Grace

GRACE = resource(health=HealthRules(removal_grace_seconds=60))


def vanished(*resources, **fields) -> Steps:
    """Devices a and b, known to be free; b vanishes at second 3, and the kubelet is told."""
    steps = Steps(*(resources or (GRACE,)))
    steps.scan(unit("a"), unit("b", **fields))
    steps.list({})
    steps.scan(unit("a"))
    steps.send()
    return steps


def test_a_vanished_device_stays_listed_unhealthy_though_it_is_free():
    steps = vanished()
    for _ in range(50):
        steps.list({})
    assert steps.seen() == {"a": True, "b": False}
    assert (steps.device("b").reason, steps.device("b").since) == ("Missing", wall(3))


def test_a_vanished_device_is_dropped_by_the_first_list_after_the_grace():
    steps = vanished()
    steps.now = 61
    assert steps.list({}) == frozenset()
    assert steps.list({}) == {NAME}
    assert steps.seen() == {"a": True}


def test_the_grace_alone_frees_nothing():
    steps = vanished()
    steps.now = 1000
    steps.list(None)
    steps.list(held("b"))
    assert steps.seen() == {"a": True, "b": False}


def test_a_device_that_returns_in_time_is_the_same_and_its_next_grace_begins_anew():
    steps = vanished()
    steps.now = 50
    assert steps.scan(unit("a"), unit("b")) == {NAME}
    assert steps.send() == {"a": True, "b": True}
    steps.scan(unit("a"))
    steps.send()
    steps.now = 100
    steps.list({})
    assert steps.seen() == {"a": True, "b": False}


def test_a_device_returns_with_the_health_that_it_had():
    steps = Steps(resource(health=replace(RULES, removal_grace_seconds=60)))
    steps.scan(bad("a"), unit("b"))
    steps.scan(unit("b"))
    steps.scan(bad("a"), unit("b"))
    assert (steps.seen(), steps.device("a").reason) == ({"a": False, "b": True}, "UnhealthyWhen")


def test_a_device_that_an_edit_removes_has_no_grace():
    steps = Steps(GRACE)
    steps.scan(unit("a"), unit("b"))
    steps.list({})
    sources = (*GRACE.devices, *GRACE.devices)
    steps.edit(replace(GRACE, devices=sources), units=(unit("a"),))
    steps.send()
    steps.list({})
    assert steps.seen() == {"a": True}


def test_a_device_that_moves_to_another_name_is_not_kept_for_the_grace():
    steps = Steps(GRACE, replace(GRACE, name=OTHER))
    steps.scan(unit("a"), unit("b"))
    steps.list({})
    steps.scan(unit("a"), unit("b", name=OTHER))
    steps.send()
    steps.list({})
    assert steps.seen() == {"a": True}
    assert steps.seen(OTHER) == {"b": True}


def test_surplus_replicas_are_not_kept_for_the_grace():
    steps = Steps(GRACE)
    steps.scan(unit("a", replicas=3))
    steps.list({})
    steps.scan(unit("a", replicas=1))
    steps.send()
    steps.list({})
    assert steps.seen() == {"a": True}


# Restarts


def restarted(steps: Steps, *resources) -> Steps:
    after = Steps(*resources)
    after.now = steps.now
    after.table.restore_health(steps.table.health_records())
    return after


@pytest.mark.parametrize(
    ("found", "reason"),
    [(bad("a"), "UnhealthyWhen"), (unit("a", problem=("CompanionMissing", "x is missing")), "CompanionMissing")],
)
def test_since_survives_a_restart(found, reason):
    steps = Steps(WATCHED)
    steps.scan(found)
    after = restarted(steps, WATCHED)
    after.scan(found)
    state = after.device("a")
    assert (state.health, state.reason, state.since) == (Health.UNHEALTHY, reason, wall(1))


def test_since_of_a_missing_device_that_is_held_survives_a_restart():
    steps = vanished()
    after = restarted(steps, GRACE)
    after.scan(unit("a"))
    after.list(held("b"))
    assert (after.device("b").reason, after.device("b").since) == ("Missing", wall(3))


def test_after_a_restart_devices_neither_found_nor_held_are_forgotten():
    steps = vanished()
    after = restarted(steps, GRACE)
    after.scan(unit("a"))
    assert [r.name for r in after.table.health_records()] == [f"{NAME} b"]
    after.list({})
    assert after.table.health_records() == ()


def test_healthy_devices_take_no_memory_where_nothing_is_checked():
    steps = Steps(resource(health=NO_GRACE))
    steps.scan(*(unit(f"d{i}") for i in range(50)))
    steps.scan(*(unit(f"d{i}", problem=("X", "x")) for i in range(50)))
    steps.scan(*(unit(f"d{i}") for i in range(50)))
    assert steps.table.health_records() == ()


def test_a_dropped_device_leaves_no_record():
    steps = Steps(WATCHED)
    steps.scan(unit("a"), bad("b"))
    steps.list({})
    steps.scan(unit("a"))
    steps.send()
    steps.list({})
    assert [r.name for r in steps.table.health_records()] == [f"{NAME} a"]
