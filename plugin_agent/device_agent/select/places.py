"""An index of sysfs paths. Pure.

Two devices are the same hardware if their sysfs paths are equal, or one is below the other. The index finds what is at,
above or below a path. The time grows with the path's depth, not with the number of devices.
"""

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Kind = TypeVar("Kind", bound=Hashable)
T = TypeVar("T")


class Places(Generic[Kind, T]):
    """Items by their paths. At or below one place, the first item of each kind stands for all of that kind.

    Without kinds, each of 20,000 devices below one bus would be compared with all the others.
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
        """(kind, item) of the places above the path, nearest first, then of those below it."""
        for above in _ancestors(path):
            yield from self._at.get(above, {}).items()
        yield from self._below.get(path, {}).items()


def _ancestors(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
