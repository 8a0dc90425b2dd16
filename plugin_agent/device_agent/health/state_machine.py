"""When a device is Healthy: the state machine, as a table, and what ends a failure. Pure.

Three kinds of news drive it:
- A check asks the device. A number of good or bad checks in a row changes the state. No answer changes nothing.
- A failure is an event: the device is broken at once. It stays until it clears, by one of two rules. Quiet: it does not
  occur again during the good checks that recovery takes. Reset: the driver asked for an action and no longer asks, or
  the driver was loaded again. A reboot ends all failures, because nothing is remembered. An admin may end one.
- A scan finds the device gone, or back.

No transition depends on a clock, so time alone never makes a broken device healthy.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from device_agent.contract.document import Clears, HealthRules
from device_agent.contract.values import dataclass
from device_agent.health.news import NO_ACTION, UNKNOWN_LOAD, Answer, Check, Code, DriverLoad, Ruling


class State(StrEnum):
    """Unknown: no check has had an answer yet. Healthy and Unknown devices are offered."""

    UNKNOWN = "Unknown"
    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    RECOVERING = "Recovering"
    MISSING = "Missing"

    @property
    def offered(self) -> bool:
        return self in (State.HEALTHY, State.UNKNOWN)


class Signal(StrEnum):
    """One piece of news of a device. Failed: broken at once, without a threshold."""

    GOOD = "Good"
    BAD = "Bad"
    FAILED = "Failed"
    VANISHED = "Vanished"
    RETURNED = "Returned"


class Threshold(StrEnum):
    """The field of HealthRules that says how many signals in a row a transition needs."""

    FAILURE = "failure_threshold"
    RECOVERY = "recovery_threshold"


@dataclass(frozen=True, slots=True)
class Row:
    """`to` None: the state before the device went missing. `after`: signals in a row that it needs; None: one."""

    to: State | None
    after: Threshold | None = None


TRANSITIONS: Final[Mapping[tuple[State, Signal], Row]] = {
    # a new device takes the result of its first check
    (State.UNKNOWN, Signal.GOOD): Row(State.HEALTHY),
    (State.UNKNOWN, Signal.BAD): Row(State.UNHEALTHY),
    (State.UNKNOWN, Signal.FAILED): Row(State.UNHEALTHY),
    (State.UNKNOWN, Signal.VANISHED): Row(State.MISSING),
    (State.HEALTHY, Signal.GOOD): Row(State.HEALTHY),
    (State.HEALTHY, Signal.BAD): Row(State.UNHEALTHY, after=Threshold.FAILURE),
    (State.HEALTHY, Signal.FAILED): Row(State.UNHEALTHY),
    (State.HEALTHY, Signal.VANISHED): Row(State.MISSING),
    (State.UNHEALTHY, Signal.GOOD): Row(State.RECOVERING),
    (State.UNHEALTHY, Signal.BAD): Row(State.UNHEALTHY),
    (State.UNHEALTHY, Signal.FAILED): Row(State.UNHEALTHY),
    (State.UNHEALTHY, Signal.VANISHED): Row(State.MISSING),
    (State.RECOVERING, Signal.GOOD): Row(State.HEALTHY, after=Threshold.RECOVERY),
    (State.RECOVERING, Signal.BAD): Row(State.UNHEALTHY),
    (State.RECOVERING, Signal.FAILED): Row(State.UNHEALTHY),
    (State.RECOVERING, Signal.VANISHED): Row(State.MISSING),
    (State.MISSING, Signal.RETURNED): Row(None),
}
"""A pair that is not in the table changes nothing: a missing device cannot be checked."""

AT_ONCE: Final = HealthRules(failure_threshold=1, recovery_threshold=1)
"""Rules for what a scan sees itself, such as a missing node or companion: one signal is enough."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A fault that counts until it is cleared. `asked`: the driver has asked for an action since."""

    ruling: Ruling
    code: Code
    since: datetime
    load: DriverLoad = UNKNOWN_LOAD
    asked: bool = False

    @property
    def blocks(self) -> bool:
        """Whether something other than good checks must end it."""
        return self.ruling.clears is Clears.RESET

    def after(self, *, action: str, load: DriverLoad) -> "Failure | None":
        """This failure after an answered look. None: the look cleared it."""
        if not self.blocks:
            return self
        if self.load.replaced_by(load) or (self.asked and action == NO_ACTION):
            return None
        known = DriverLoad(module=self.load.module or load.module, epoch=self.load.epoch or load.epoch)
        return replace(self, load=known, asked=self.asked or action not in ("", NO_ACTION))


@dataclass(frozen=True, slots=True)
class HealthCondition:
    """A device's health. `since`: when the state or the newest failure began.

    `run`: signals in a row that the state waits for. `cause` and `message`: why it is, or was, unhealthy.
    `before`: what a missing device returns to. `ended`: failures that began by then are over; None: none has ended.
    """

    since: datetime
    state: State = State.UNKNOWN
    cause: str = ""
    message: str = ""
    run: int = 0
    failures: tuple[Failure, ...] = ()
    before: State = State.UNKNOWN
    ended: datetime | None = None

    @property
    def blocked(self) -> bool:
        return any(failure.blocks for failure in self.failures)


def step(condition: HealthCondition, signal: Signal, rules: HealthRules, *, wall: datetime) -> HealthCondition:
    """The condition after one signal."""
    row = TRANSITIONS.get((condition.state, signal))
    if row is None:
        return condition
    run = condition.run + 1 if row.after else 0
    to = row.to or condition.before
    if row.after and run < getattr(rules, row.after):
        return replace(condition, run=run)
    if to is State.RECOVERING and condition.state is not State.RECOVERING:
        # this good check is the first of those that recovery takes
        to, run = (State.HEALTHY, 0) if rules.recovery_threshold <= 1 else (State.RECOVERING, 1)
    else:
        run = 0
    if to is condition.state:
        return replace(condition, run=run)
    before = condition.state if to is State.MISSING else State.UNKNOWN
    after = replace(condition, state=to, since=wall, run=run, before=before)
    return replace(over(after, after.failures), cause="", message="") if to is State.HEALTHY else after


def checked(condition: HealthCondition, check: Check, rules: HealthRules, *, wall: datetime) -> HealthCondition:
    """The condition after a check that counts. Failures that the look cleared must be removed before."""
    if check.answer is Answer.UNKNOWN:
        return condition
    if check.answer is Answer.GOOD:
        if condition.blocked:
            return condition
        after = step(condition, Signal.GOOD, rules, wall=wall)
        return replace(after, message="") if after.state is State.HEALTHY else after
    signal = Signal.FAILED if check.answer is Answer.LOST else Signal.BAD
    after = step(condition, signal, rules, wall=wall)
    if after.state is State.HEALTHY:
        text = f"{check.message}; Unhealthy after {rules.failure_threshold} such checks in a row"
        return replace(after, message=text)
    if after.failures or after.state is State.MISSING:
        return after
    return replace(after, cause=check.cause, message=check.message)


def failed(condition: HealthCondition, failure: Failure, rules: HealthRules, *, wall: datetime) -> HealthCondition:
    """The condition after a failure. A failure of the same cause continues the earlier one.

    A new failure sets a new time. An acknowledgement ends everything that began by its time, and it is read repeatedly.
    So the time shown must be that of the newest failure shown.
    """
    earlier = next((f for f in condition.failures if f.ruling.cause == failure.ruling.cause), None)
    if earlier is not None:
        failure = replace(failure, since=earlier.since, asked=earlier.asked)
    others = tuple(f for f in condition.failures if f is not earlier)
    failures = tuple(sorted((*others, failure), key=lambda f: (f.since, f.ruling.cause)))
    after = step(condition, Signal.FAILED, rules, wall=wall)
    if earlier is None:
        after = replace(after, since=failure.since)
    return with_failures(replace(after, before=_broken_before(after)), failures)


def with_failures(condition: HealthCondition, failures: tuple[Failure, ...]) -> HealthCondition:
    """The condition with these failures; the first gives the message. Without failures the last message stays until it
    is Healthy.
    """
    if not failures:
        return replace(condition, failures=())
    # the first failure often causes the others; one that needs a reset is worse than one that passes
    first = min(failures, key=lambda f: not f.blocks)
    return replace(condition, failures=failures, cause=first.ruling.cause, message=first.ruling.message)


def over(condition: HealthCondition, gone: Collection[Failure]) -> HealthCondition:
    """The condition after some failures ended, for any reason but an edit of the rules."""
    if not gone:
        return condition
    ended = max(f.since for f in gone)
    ended = ended if condition.ended is None else max(ended, condition.ended)
    return with_failures(replace(condition, ended=ended), tuple(f for f in condition.failures if f not in gone))


def _broken_before(condition: HealthCondition) -> State:
    return State.UNHEALTHY if condition.state is State.MISSING else condition.before
