"""Short lists in messages: the first names, and how many more there are. Pure."""

from collections.abc import Iterable
from typing import Final

MAX_NAMED: Final = 5


def name_some(names: Iterable[str]) -> str:
    """`a`, `a, b`, or `a, b, c, d, e and 7 more`."""
    found = list(names)
    more = len(found) - MAX_NAMED
    return ", ".join(found[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def name_nodes(nodes: Iterable[str]) -> str:
    """`node a`, `nodes a, b`, or `nodes a, b, c, d, e and 7 more`: each once, sorted."""
    found = sorted(set(nodes))
    return f"node{'s' if len(found) > 1 else ''} {name_some(found)}"
