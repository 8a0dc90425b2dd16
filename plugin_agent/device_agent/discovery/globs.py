"""Globs compiled once: fnmatch's rules, case-sensitive, in any of several patterns."""

import fnmatch
import re
from collections.abc import Callable
from functools import lru_cache


@lru_cache(maxsize=1024)
def matcher(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Whether a text matches one of the patterns in full; no patterns match nothing."""
    if not patterns:
        return lambda _text: False
    compiled = re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns))
    return lambda text: compiled.match(text) is not None


def restricts(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """As `matcher`, but no patterns restrict nothing: a source's field that was left out."""
    return matcher(patterns) if patterns else lambda _text: True


def is_literal(segment: str) -> bool:
    """Whether a path segment is no glob."""
    return not any(c in segment for c in "*?[")
