"""Parts of messages: short lists of names, times, and texts of a bounded length. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

MAX_NAMED: Final = 5
MAX_MESSAGE: Final = 512
"""Characters of a message about one node or device."""


def name_some(names: Iterable[str]) -> str:
    """`a`, `a, b`, or `a, b, c, d, e and 7 more`."""
    found = list(names)
    more = len(found) - MAX_NAMED
    return ", ".join(found[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def name_nodes(nodes: Iterable[str]) -> str:
    """`node a`, `nodes a, b`, or `nodes a, b, c, d, e and 7 more`: each once, sorted."""
    found = sorted(set(nodes))
    return f"node{'s' if len(found) > 1 else ''} {name_some(found)}"


def count(number: int, what: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def clip(text: str, limit: int = MAX_MESSAGE) -> str:
    """One line of at most `limit` characters."""
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
