"""Each DevicePluginConfig: do its conditions say what they should, and are they recent?"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from device_agent.contract.config_reasons import ConditionReason
from device_agent.contract.node_reasons import NodeReason
from device_agent.contract.status import ConditionStatus, ConditionType, ConfigStatus, read_config_status

from kubectl_devices.model.soundness.finding import CheckReason, Finding, Severity, age
from kubectl_devices.model.soundness.observed import Object, Observed, moment

STATUS_OLD: Final = timedelta(minutes=10)
"""The operator writes each status at least every five minutes."""
JUST_MADE: Final = timedelta(seconds=30)


def configs(seen: Observed) -> Iterator[Finding]:
    if seen.configs is not None and not seen.configs and not seen.kinds_missing:
        yield Finding(
            severity=Severity.NOTE,
            reason=CheckReason.NO_CONFIG,
            where="DevicePluginConfigs",
            what="there is none, so no devices are served",
            todo="kubectl apply -f examples/…",
        )
    for raw in seen.configs or ():
        yield from _config(raw, seen)


def _config(raw: Object, seen: Observed) -> Iterator[Finding]:
    meta = raw["metadata"]
    where = f"DevicePluginConfig {meta['name']}"
    status = read_config_status(raw.get("status"))
    made = moment(meta.get("creationTimestamp")) or seen.now
    accepted = status.condition(ConditionType.ACCEPTED)
    if accepted is None or accepted.observed_generation != meta.get("generation"):
        fresh = accepted is None and seen.now - made < JUST_MADE
        yield Finding(
            severity=Severity.WARNING if fresh else Severity.PROBLEM,
            reason=CheckReason.NOT_JUDGED,
            where=where,
            what="the operator has not judged this generation yet",
            todo="wait a moment; if it stays, the operator is the cause",
        )
    if raw["spec"].get("paused"):
        yield Finding(
            severity=Severity.WARNING,
            reason=NodeReason.PAUSED,
            where=where,
            what="spec.paused is true: the operator changes nothing",
            todo=f'kubectl patch dpc {meta["name"]} --type=merge -p \'{{"spec":{{"paused":false}}}}\'',
        )
    written = moment(status.last_update_time)
    if written is not None and seen.now - written > STATUS_OLD:
        what = f"its status is {age(seen.now - written)} old: what follows may be over"
        yield Finding(reason=CheckReason.STATUS_OLD, where=where, what=what, todo="see to the operator")
    yield from _conditions(where, status)
    if status.summary is not None and status.summary.status == ConditionReason.ALL_WITHHELD:
        yield Finding(
            severity=Severity.WARNING,
            reason=ConditionReason.ALL_WITHHELD,
            where=where,
            what=status.summary.message,
            todo=_meaning(ConditionReason.ALL_WITHHELD),
        )


_WRONG: Final = (
    (ConditionType.ACCEPTED, ConditionStatus.FALSE, Severity.PROBLEM),
    (ConditionType.READY, ConditionStatus.FALSE, Severity.PROBLEM),
    (ConditionType.READY, ConditionStatus.UNKNOWN, Severity.PROBLEM),
    (ConditionType.DEGRADED, ConditionStatus.TRUE, Severity.PROBLEM),
    (ConditionType.PROGRESSING, ConditionStatus.TRUE, Severity.WARNING),
)
"""Which status of which condition is not as it should be."""


def _conditions(where: str, status: ConfigStatus) -> Iterator[Finding]:
    """One finding for each reason: Ready and Degraded often have the same cause."""
    told: set[str] = set()
    for kind, wrong, severity in _WRONG:
        found = status.condition(kind)
        if found is None or found.status is not wrong or found.reason in told:
            continue
        told.add(found.reason)
        what, todo = f"{kind} is {wrong}: {found.message}", _meaning(found.reason)
        yield Finding(severity=severity, reason=found.reason, where=where, what=what, todo=todo)


def _meaning(reason: str) -> str:
    """What the reason means and what to do; '' for a word of Kubernetes or of a newer operator."""
    for words in (ConditionReason, NodeReason):
        for word in words:
            if word == reason:
                return word.meaning
    return ""
