"""One thing that is not as it should be."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class Severity(StrEnum):
    """PROBLEM: the exit status is 1. WARNING: it may be meant, or passes by itself. NOTE: to know."""

    PROBLEM = "PROBLEM"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`reason`: one CamelCase word for machines. `where`: kind and name. `todo`: what to do, '' if there is nothing."""

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


def some(names: Iterable[str], *, limit: int = 5) -> str:
    """The first names, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - limit} more" if len(every) > limit else ""
    return ", ".join(every[:limit]) + more
