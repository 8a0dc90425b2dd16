"""One thing that is not as it should be."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class Severity(StrEnum):
    """PROBLEM: the exit status is 1. WARNING: it may be meant, or passes by itself. NOTE: to know."""

    PROBLEM = "PROBLEM"
    WARNING = "warning"
    NOTE = "note"


class CheckReason(StrEnum):
    """Findings that only `check` has. Others have a word of `contract.reasons`, or one of Kubernetes."""

    KIND_MISSING = "KindMissing"
    VERSION_NOT_SERVED = "VersionNotServed"
    KIND_NOT_ESTABLISHED = "KindNotEstablished"
    OPERATOR_MISSING = "OperatorMissing"
    OPERATOR_SCALED_DOWN = "OperatorScaledDown"
    OPERATOR_UNAVAILABLE = "OperatorUnavailable"
    OPERATOR_NEVER_LED = "OperatorNeverLed"
    OPERATOR_GONE = "OperatorGone"
    TWO_OPERATORS = "TwoOperators"
    SERVICE_ACCOUNT_MISSING = "ServiceAccountMissing"
    NODES_WITHOUT_AGENT = "NodesWithoutAgent"
    NODES_NOT_READY = "NodesNotReady"
    NODES_WITHOUT_POOL = "NodesWithoutPool"
    INVENTORY_OLD = "InventoryOld"
    CORDON_WITHOUT_DEVICE = "CordonWithoutDevice"
    NOT_JUDGED = "NotJudged"
    STATUS_OLD = "StatusOld"
    NO_CONFIG = "NoConfig"
    NOTHING_CHECKED = "NothingChecked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`reason`: one word for machines. `where`: kind and name. `todo`: what to do, '' if there is nothing to do."""

    severity: Severity = Severity.PROBLEM
    reason: str
    where: str
    what: str
    todo: str = ""


def age(duration: timedelta) -> str:
    """As kubectl shows ages: 12s, 4m12s, 3h5m, 2d3h."""
    seconds = max(int(duration.total_seconds()), 0)
    for size, unit, smaller, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if seconds >= size:
            rest = seconds % size // smaller
            return f"{seconds // size}{unit}" + (f"{rest}{small}" if rest else "")
    return f"{seconds}s"
