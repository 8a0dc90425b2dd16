"""Matches names that the kernel gives (fnmatch's rules, case-sensitive), and sorts them. Pure."""

import fnmatch
import re
from collections.abc import Callable
from functools import lru_cache

_DIGITS = re.compile(r"(\d+)")


def natural(name: str) -> tuple[str | int, ...]:
    """Sort key that puts ttyUSB2 before ttyUSB10."""
    return tuple(int(part) if i % 2 else part for i, part in enumerate(_DIGITS.split(name)))


@lru_cache(maxsize=1024)
def matcher(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Whether a text matches one of the patterns in full. Without patterns nothing matches."""
    if not patterns:
        return lambda _text: False
    compiled = re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns))
    return lambda text: compiled.match(text) is not None


def restricts(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """As `matcher`, but without patterns everything matches: the source's field was left out."""
    return matcher(patterns) if patterns else lambda _text: True


def is_literal(segment: str) -> bool:
    """Whether a path segment is no glob."""
    return literal_part(segment) == segment


def literal_part(segment: str) -> str:
    """The text before the first wildcard of a path segment."""
    return segment[: min((i for i, c in enumerate(segment) if c in "*?["), default=len(segment))]
