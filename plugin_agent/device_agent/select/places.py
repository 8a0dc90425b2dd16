"""Places in sysfs and what is at them. Pure.

Two devices are the same hardware when one's sysfs path is the other's, or lies below it. This index answers what is
at a path, above it or below it, in a time that grows with the path's depth and not with the number of devices.
"""

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Kind = TypeVar("Kind", bound=Hashable)
T = TypeVar("T")


class Places(Generic[Kind, T]):
    """Items by their paths. Of the items of one kind at, or below, one place the first answers for all the others.

    Without kinds, a bus with 20,000 devices below it would be gone through for each of them.
    """

    def __init__(self) -> None:
        self._at: dict[str, dict[Kind, T]] = {}
        self._below: dict[str, dict[Kind, T]] = {}

    def __bool__(self) -> bool:
        return bool(self._at)

    def add(self, path: str, item: T, *, kind: Kind) -> None:
        self._at.setdefault(path, {}).setdefault(kind, item)
        for above in _ancestors(path):
            self._below.setdefault(above, {}).setdefault(kind, item)

    def at(self, path: str) -> T | None:
        """The first item at the path itself."""
        return next(iter(self._at.get(path, {}).values()), None)

    def related(self, path: str) -> Iterator[tuple[Kind, T]]:
        """(kind, item) of each kind at every place above the path, nearest first, then of those below the path."""
        for above in _ancestors(path):
            yield from self._at.get(above, {}).items()
        yield from self._below.get(path, {}).items()


def _ancestors(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
