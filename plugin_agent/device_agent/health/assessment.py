"""Sums up all conditions of a device: one reason, one message, one time. Pure.

The message names everything that has failed, and the time is that of the newest failure. So an admin acknowledges what
the message says.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

from device_agent.contract.document import HealthRules
from device_agent.contract.reasons import DeviceReason
from device_agent.contract.times import since_text
from device_agent.contract.values import dataclass
from device_agent.health.state_machine import Failure, HealthCondition, State

MAX_TOLD: Final = 512
"""The most characters of a message about several failures. The inventory cuts longer messages, and no failure may be
cut off.
"""
_BRIEF: Final = 2
"""Up to this many further failures are named with meaning and time. If there are more, all are named by code only."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """What the conditions say of a unit. `since`: when that began, None: nothing is known of it.

    `unanswered`: why the last check gave no answer, or ''.
    """

    offered: bool
    reason: str = ""
    message: str = ""
    since: datetime | None = None
    unanswered: str = ""


FINE: Final = Assessment(offered=True)


def of(conditions: Sequence[HealthCondition], rules: HealthRules, *, unanswered: str, silent: str = "") -> Assessment:
    """The worst condition of a unit decides. `silent`: the reason code for `unanswered`."""
    bad = [c for c in conditions if not c.state.offered]
    if not bad and unanswered:
        # without a time: it begins when the table first has this standing
        return Assessment(offered=True, reason=silent, message=unanswered, unanswered=unanswered)
    if not bad:
        since = max((c.since for c in conditions if c.state is State.HEALTHY), default=None)
        message = next((c.message for c in conditions if c.message), "")
        return Assessment(offered=True, message=message, since=since)
    worst = min(bad, key=lambda c: (c.state is State.RECOVERING, c.since))
    reason, message = worst.cause, worst.message
    if worst.state is State.RECOVERING:
        reason, message = DeviceReason.RECOVERING, _recovering(worst, rules)
    failures = {f.ruling.cause: f for c in bad for f in c.failures}
    if also := _also([f for cause, f in failures.items() if cause != worst.cause]):
        room = MAX_TOLD - len(also)
        message = (message if len(message) <= room else f"{message[: room - 1]}…") + also
    if unanswered:
        message = f"{message}; now {unanswered}"
    newest = max([worst.since, *(f.since for c in bad for f in c.failures)])
    return Assessment(offered=False, reason=reason, message=message, since=newest, unanswered=unanswered)


def _recovering(condition: HealthCondition, rules: HealthRules) -> str:
    return (
        f"good again, Healthy after {rules.recovery_threshold} good checks in a row; "
        f"it was {condition.cause}: {condition.message}"
    )


def _also(others: Collection[Failure]) -> str:
    others = sorted(others, key=lambda f: f.since)
    if len(others) > _BRIEF:
        numbers: dict[str, list[str]] = {}
        for failure in others:
            numbers.setdefault(failure.code.label, []).append(failure.code.number)
        return "; also " + ", ".join(f"{label} {', '.join(of)}" for label, of in numbers.items())
    return "".join(f"; also {f.code} ({f.ruling.meaning}) since {since_text(f.since)}" for f in others)
