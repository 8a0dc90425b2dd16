"""For any events in any order: thresholds hold, a GPU never affects another, and time alone heals nothing.

A sequence is a list of moments. At each, things happen to some GPUs, and the library is looked at or not.
"""

import re
from dataclasses import dataclass, field

from device_agent.contract.reasons import DeviceReason
from device_agent.health.news import Answer, Check
from device_agent.table.snapshot import Health
from hypothesis import assume, event, example, given, settings
from hypothesis import strategies as st
from unit.health import news
from unit.health.gpus import RULES, Gpus, gpu, mig, open_failures

GPUS = (0, 1, 2)
UNITS = (gpu(0, replicas=2), gpu(1), mig(2, gi=1), mig(2, gi=2))
CHECKS = {
    "good": news.GOOD,
    "none": news.NONE,
    "bad": news.BAD,
    "asks": news.ASKS,
    "lost": news.LOST,
    "unknown": news.UNKNOWN,
}
XIDS = {"reset": news.RESET_XID, "quiet": news.QUIET_XID, "harmless": news.HARMLESS_XID}
PARTS = ("GPU-0", "GPU-1", "GPU-2", "GPU-2/1", "GPU-2/1/0", "GPU-2/2/0")

checks = st.sampled_from(["good", "good", "none", "none", "bad", "asks", "lost", "unknown"])
looks = st.tuples(st.just("look"), st.fixed_dictionaries(dict.fromkeys(GPUS, checks)))
xids = st.tuples(st.just("xid"), st.tuples(st.sampled_from(PARTS), st.sampled_from(sorted(XIDS))))
bare = st.sampled_from(
    [("hang", None), ("reload", None), ("acknowledge", 0), ("acknowledge", 1), ("time", 1_000_000), ("scan", None)]
)
moments = st.lists(st.one_of(looks, looks, looks, xids, bare), max_size=40)


def apply(gpus: Gpus, moment: tuple, *, only: frozenset[int] = frozenset(GPUS)) -> None:
    """One moment, as far as it concerns these GPUs."""
    kind, what = moment
    if kind == "look":
        gpus.look(**{f"GPU_{n}": CHECKS[what[n]] for n in GPUS if n in only})
    elif kind == "xid" and int(what[0][4]) in only:
        gpus.xid(XIDS[what[1]], what[0])
    elif kind == "hang":
        gpus.hang()
    elif kind == "reload":
        gpus.reload()
    elif kind == "acknowledge" and what in only:
        gpus.acknowledge(f"GPU-{what}")
    elif kind == "time":
        gpus.now += what
    elif kind == "scan":
        gpus.scan()


def clock(gpus: Gpus, moment: tuple) -> None:
    """The time that `apply` would take."""
    gpus.now += {"look": 10, "hang": 10, "reload": 0, "time": 1_000_000}.get(moment[0], 1)


def told(gpus: Gpus) -> dict[str, tuple]:
    """What everybody is told of each device."""
    return {
        d.unit.id: (d.health, d.reason, d.message, d.since, d.unanswered)
        for d in gpus.table.snapshot().resources[0].devices
    }


@settings(deadline=None, max_examples=200)
@given(moments, st.sampled_from(GPUS))
def test_events_of_other_gpus_change_nothing(sequence, mine):
    """A node that has only this GPU reports the same health for it."""
    everything = Gpus(*UNITS)
    alone = Gpus(*(u for u in UNITS if u.parts[0] == f"GPU-{mine}"))
    for moment in sequence:
        apply(everything, moment)
        before = alone.now
        apply(alone, moment, only=frozenset({mine}))
        if alone.now == before:
            clock(alone, moment)
        assert {i: t for i, t in told(everything).items() if i in told(alone)} == told(alone)


@settings(deadline=None, max_examples=200)
@given(moments)
def test_the_list_for_the_kubelet_matches_the_reports(sequence):
    gpus = Gpus(*UNITS)
    for moment in sequence:
        apply(gpus, moment)
        expected = {
            i: device.health is Health.HEALTHY
            for device in gpus.table.snapshot().resources[0].devices
            for i in device.ids
        }
        assert gpus.seen() == expected
        assert len(expected) == 5


@settings(deadline=None, max_examples=200)
@given(moments)
def test_since_moves_with_the_state_or_a_new_failure_and_bad_news_have_a_reason(sequence):
    def state(device) -> tuple:
        healthy = device[0] is Health.HEALTHY
        return device[0], device[1] == DeviceReason.RECOVERING, healthy and bool(device[4])

    gpus = Gpus(*UNITS)
    before = told(gpus)
    for moment in sequence:
        apply(gpus, moment)
        now = told(gpus)
        for device, (health, reason, message, since, unanswered) in now.items():
            one_condition = device in ("GPU-0", "GPU-1")  # a partition tells the worst of several
            if one_condition:
                moved = since != before[device][3]
                # a new failure of a device that is already unhealthy has its own time, which an admin acknowledges
                another = moved and moment[0] == "xid" and reason.startswith("Xid") and since == gpus.wall
                assert another or moved == (state(now[device]) != state(before[device]))
            if health is Health.UNHEALTHY:
                assert reason
                assert message
            else:
                assert reason == ("NoAnswer" if unanswered else "")
        before = now


BURSTS = st.lists(st.tuples(st.sampled_from(PARTS), st.sampled_from([79, 48, 95, 74]), st.sampled_from([0, 1, 20])))


@settings(deadline=None, max_examples=300)
@example([("look", {0: "good", 1: "good", 2: "good"}), ("hang", None)], [], [], [("GPU-0", 79, 0)], "GPU-0")
@given(moments, BURSTS, moments, BURSTS, st.sampled_from([u.id for u in UNITS]))
def test_an_acknowledgement_ends_exactly_what_was_read(before, burst, between, later, read):
    """Anything may happen after an admin has read the inventory and before the annotation is there."""
    gpus = Gpus(*UNITS)

    def happen(sequence, errors):
        for moment in sequence:
            apply(gpus, moment)
        for part, number, seconds in errors:
            gpus.now += seconds - 1  # of which one passes by itself
            gpus.xid(number, part)

    def failures() -> set:
        return open_failures(gpus)

    happen(before, burst)
    device = gpus.device(read)
    assume(device.reason)
    known = {f for f in failures() if f[0] in device.unit.parts}
    for _, number, _ in known:
        assert re.search(rf"(XID|\d,) {number}\b", device.message), device.message
    happen(between, later)
    before_it = failures()
    gpus.acknowledge(read, device.since)
    ended = before_it - failures()
    assert ended <= known, "what came later, or was not told"
    if device.since in {since for _, _, since in known & before_it}:
        assert ended == known & before_it


@settings(deadline=None, max_examples=200)
@given(moments, st.sets(st.integers(0, 40)))
@example(  # a failure of a partition ends while a failure of the whole GPU with the same cause stays
    [
        ("look", {0: "good", 1: "good", 2: "good"}),
        ("xid", ("GPU-2/1", "reset")),
        ("look", {0: "good", 1: "good", 2: "good"}),
        ("reload", None),
        ("xid", ("GPU-2", "reset")),
        ("look", {0: "good", 1: "good", 2: "good"}),
    ],
    {5},
)
def test_restarts_change_nothing(sequence, restarts):
    """An agent's process may end at any moment, and another one begins. sysfs shows the driver's load."""
    steady, restarting = Gpus(*UNITS), Gpus(*UNITS)
    # a new process counts the time between checks from zero; an extra scan of the other table balances that
    for index, moment in enumerate(sequence):
        apply(steady, moment)
        apply(restarting, moment)
        if index in restarts:
            restarting.restart()
            steady.now += 1
            event("restart while a GPU was unhealthy" if False in restarting.seen().values() else "restart")
        assert visible(restarting) == visible(steady)


def visible(gpus: Gpus) -> dict[str, tuple]:
    """What two processes must agree on. A new one does not know since when a device is healthy, or if it answered."""
    return {
        i: (health, reason, message.partition("; now ")[0], since) if health is Health.UNHEALTHY else (health,)
        for i, (health, reason, message, since, _) in told(gpus).items()
    }


@settings(deadline=None, max_examples=200)
@given(st.lists(st.one_of(st.sampled_from(["good", "none", "bad", "lost", "unknown", "time", "hang", "restart"]))))
def test_a_failure_that_needs_a_reset_never_ends_without_one(sequence):
    """There was no reset, reload, reboot or acknowledgement."""
    gpus = Gpus(*UNITS)
    gpus.xid(news.RESET_XID)
    since = gpus.device("GPU-0").since
    for what in sequence:
        if what in CHECKS:
            gpus.look(**{f"GPU_{n}": CHECKS[what] for n in GPUS})
        elif what == "restart":
            gpus.restart()
        else:
            apply(gpus, (what, 1_000_000))
        state = gpus.device("GPU-0")
        assert (state.health, state.reason, state.since) == (Health.UNHEALTHY, "Xid79", since)


@dataclass
class History:
    """The news about one GPU, and what must follow from it. It does not use the state machine's table."""

    healthy: bool | None = None
    answers: list[Answer] = field(default_factory=list)
    broken: bool = False
    """A failure waits for a reset."""
    asked: bool = False
    """The driver has asked for an action since."""
    load: int = 0
    """Of the driver that told of the failure."""

    def look(self, check: Check, load: int) -> None:
        self.asked |= check.action not in ("", "None")
        if load != self.load or (self.asked and check.action == "None"):
            self.broken = False
        if check.answer is Answer.UNKNOWN:
            return
        good = check.answer is Answer.GOOD
        if good and self.broken:
            return
        self.answers.append(check.answer)
        if self.healthy is None:
            self.healthy = good
        elif check.answer is Answer.LOST or self.last(RULES.failure_threshold, good=False):
            self.healthy = False
        elif self.last(RULES.recovery_threshold, good=True):
            self.healthy = True

    def last(self, number: int, *, good: bool) -> bool:
        tail = self.answers[-number:]
        return len(tail) == number and all((answer is Answer.GOOD) == good for answer in tail)

    def xid(self, number: int, load: int) -> None:
        if number == news.HARMLESS_XID:
            return
        self.healthy = False
        self.answers.clear()
        if number == news.RESET_XID:
            self.asked &= self.broken
            self.broken, self.load = True, load


@settings(deadline=None, max_examples=400)
@given(moments)
def test_no_flip_without_its_threshold(sequence):
    gpus = Gpus(*UNITS)
    history = {n: History() for n in GPUS[:2]}
    for moment in sequence:
        kind, what = moment
        acknowledged = {n for n in history if kind == "acknowledge" and what == n and gpus.device(f"GPU-{n}").reason}
        apply(gpus, moment)
        for n, mine in history.items():
            if kind == "look":
                mine.look(CHECKS[what[n]], gpus.load.epoch)
            elif kind == "xid" and what[0] == f"GPU-{n}":
                mine.xid(XIDS[what[1]], gpus.load.epoch)
            elif n in acknowledged:
                mine.broken = False
            expected = mine.healthy is not False
            assert (gpus.device(f"GPU-{n}").health is Health.HEALTHY) == expected, (n, moment)
    event(f"unhealthy at the end: {sum(h.healthy is False for h in history.values())}")
