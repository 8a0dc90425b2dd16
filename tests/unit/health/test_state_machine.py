"""The state machine: each row, each threshold, and what ends a failure."""

import itertools
from dataclasses import replace

import pytest
from device_agent.contract.document import Clears, HealthRules
from device_agent.contract.times import since_text
from device_agent.health import assessment
from device_agent.health.news import NO_ACTION, Answer, Check, Code, DriverLoad, Ruling
from device_agent.health.state_machine import (
    TRANSITIONS,
    Failure,
    HealthCondition,
    Signal,
    State,
    checked,
    failed,
    step,
)
from unit.table.samples import wall

RULES = HealthRules(failure_threshold=3, recovery_threshold=2)
U, H, N, R, M = State.UNKNOWN, State.HEALTHY, State.UNHEALTHY, State.RECOVERING, State.MISSING
G, B, F, V, T = Signal.GOOD, Signal.BAD, Signal.FAILED, Signal.VANISHED, Signal.RETURNED


def states(*signals: Signal, start: State = U, rules: HealthRules = RULES) -> list[State]:
    """The state after each signal."""
    condition = HealthCondition(since=wall(0), state=start)
    seen = []
    for second, signal in enumerate(signals, 1):
        condition = step(condition, signal, rules, wall=wall(second))
        seen.append(condition.state)
    return seen


@pytest.mark.parametrize(
    ("start", "signals", "expected"),
    [
        (U, [G], [H]),
        (U, [B], [N]),
        (U, [F], [N]),
        (H, [B, B, B], [H, H, N]),
        (H, [B, B, G, B, B], [H] * 5),
        (H, [F], [N]),
        (N, [G, G], [R, H]),
        (N, [G, B, G, G], [R, N, R, H]),
        (N, [G, F], [R, N]),
        (N, [B, F, B], [N, N, N]),
        (H, [V, G, B, F, T], [M, M, M, M, H]),
        (N, [V, T], [M, N]),
        (R, [V, T], [M, R]),
        (U, [V, T, B], [M, U, N]),
    ],
    ids=lambda v: "-".join(v) if isinstance(v, list) else v,
)
def test_signals_lead_to_states(start, signals, expected):
    assert states(*signals, start=start) == expected


def test_a_recovery_threshold_of_one_is_one_good_check():
    assert states(G, start=N, rules=replace(RULES, recovery_threshold=1)) == [H]


def test_since_changes_only_with_the_state():
    condition = HealthCondition(since=wall(0), state=H)
    moved = []
    for second, signal in enumerate((B, B, B, B, G, G, G), 1):
        after = step(condition, signal, RULES, wall=wall(second))
        assert (after.since != condition.since) == (after.state is not condition.state)
        if after.since != condition.since:
            moved.append((second, after.state))
        condition = after
    assert moved == [(3, N), (5, R), (6, H)]


def test_every_state_has_a_row_for_each_possible_signal():
    present = set(itertools.product((U, H, N, R), (G, B, F, V)))
    assert TRANSITIONS.keys() == present | {(M, T)}


def test_no_answer_changes_nothing():
    for state in State:
        condition = HealthCondition(since=wall(0), state=state, run=1)
        assert checked(condition, Check(Answer.UNKNOWN, message="?"), RULES, wall=wall(1)) == condition


def failure(clears: Clears = Clears.RESET, *, cause: str = "Xid79") -> Failure:
    ruling = Ruling(cause=cause, meaning=f"{cause} happened", message=f"{cause} happened; call", clears=clears)
    return Failure(ruling=ruling, code=Code("XID", cause.removeprefix("Xid")), since=wall(0), load=DriverLoad("m", 1))


@pytest.mark.parametrize(
    ("looks", "cleared"),
    [
        ([("", DriverLoad("m", 1))] * 5, False),
        ([(NO_ACTION, DriverLoad("m", 1))] * 5, False),
        ([("Reset", DriverLoad("m", 1)), (NO_ACTION, DriverLoad("m", 1))], True),
        ([("Reset", DriverLoad("m", 1)), ("", DriverLoad("m", 1)), (NO_ACTION, DriverLoad("m", 1))], True),
        ([("Reset", DriverLoad("m", 1)), ("Reboot", DriverLoad("m", 1))], False),
        ([("", DriverLoad("n", 2))], True),
        ([("", DriverLoad("m", 2))], False),
        ([("", DriverLoad("", 2))], True),
        ([("", DriverLoad("", 1))], False),
    ],
    ids=[
        "no word for an action",
        "none was asked for",
        "asked for, and no more",
        "the same with silence between",
        "asked for still",
        "another load of the module",
        "the library alone was started anew",
        "another load where sysfs tells nothing",
        "the same load where sysfs tells nothing",
    ],
)
def test_what_ends_a_failure_that_needs_a_reset(looks, cleared):
    now: Failure | None = failure()
    for action, load in looks:
        assert now is not None
        now = now.after(action=action, load=load)
    assert (now is None) == cleared


@pytest.mark.parametrize(("module", "cleared"), [("n", True), ("m", False), ("", False)])
def test_after_a_restart_of_the_agent_only_the_module_shows_a_reload(module, cleared):
    before = replace(failure(), load=DriverLoad("m", 0))
    assert (before.after(action="", load=DriverLoad(module, 1)) is None) == cleared


def test_a_reload_later_in_the_new_process_is_seen_by_its_count():
    now = replace(failure(), load=DriverLoad("", 0)).after(action="", load=DriverLoad("", 1))
    assert now is not None
    assert now.after(action="", load=DriverLoad("", 2)) is None


def test_good_checks_do_not_count_while_a_failure_blocks():
    condition = failed(HealthCondition(since=wall(0), state=H), failure(), RULES, wall=wall(1))
    for second in range(2, 10):
        assert checked(condition, Check(Answer.GOOD), RULES, wall=wall(second)) == condition


def test_a_quiet_failure_ends_with_good_checks_and_begins_anew_when_it_comes_again():
    quiet = failure(Clears.QUIET, cause="Xid74")
    condition = failed(HealthCondition(since=wall(0), state=H), quiet, RULES, wall=wall(1))
    condition = checked(condition, Check(Answer.GOOD), RULES, wall=wall(2))
    assert (condition.state, condition.failures) == (R, (quiet,))
    condition = failed(condition, quiet, RULES, wall=wall(3))
    assert (condition.state, condition.since) == (N, wall(3))
    for second in (4, 5):
        condition = checked(condition, Check(Answer.GOOD), RULES, wall=wall(second))
    assert (condition.state, condition.failures, condition.cause) == (H, (), "")


def test_the_first_failure_that_needs_a_reset_is_the_cause():
    condition = HealthCondition(since=wall(0), state=H)
    for second, (clears, cause) in enumerate(
        [(Clears.QUIET, "Xid74"), (Clears.RESET, "Xid79"), (Clears.RESET, "Xid119")], 1
    ):
        happened = replace(failure(clears, cause=cause), since=wall(second))
        condition = failed(condition, happened, RULES, wall=wall(second))
    assert condition.cause == "Xid79"
    assert condition.message == "Xid79 happened; call"
    message = assessment.of([condition], RULES, unanswered="").message
    assert message == (
        f"Xid79 happened; call; also XID 74 (Xid74 happened) since {since_text(wall(1))}"
        f"; also XID 119 (Xid119 happened) since {since_text(wall(3))}"
    )
    assert condition.since == wall(3), "of the newest"


def test_a_failed_check_below_the_threshold_is_in_the_message():
    condition = checked(
        HealthCondition(since=wall(0), state=H), Check(Answer.BAD, "Ecc", "it is bad"), RULES, wall=wall(1)
    )
    assert (condition.state, condition.message) == (H, "it is bad; Unhealthy after 3 such checks in a row")
    assert checked(condition, Check(Answer.GOOD), RULES, wall=wall(2)).message == ""


def test_a_lost_device_needs_no_threshold():
    condition = checked(
        HealthCondition(since=wall(0), state=H), Check(Answer.LOST, "GpuLost", "gone"), RULES, wall=wall(1)
    )
    assert (condition.state, condition.cause) == (N, "GpuLost")


def test_a_failure_of_an_unknown_load_gets_the_load_of_the_next_look():
    now = replace(failure(), load=DriverLoad()).after(action="", load=DriverLoad("m", 1))
    assert now is not None
    assert now.load == DriverLoad("m", 1)
    assert now.after(action="", load=DriverLoad("n", 2)) is None
