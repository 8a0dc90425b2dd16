"""Places in sysfs and who is at them. Pure.

Two devices are the same hardware when one's sysfs path is the other's, or lies below it. This index answers which
earlier ones are at a path, above it, or below it, in the time that the path's depth takes.
"""

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Places(Generic[T]):
    """Items by their paths. `kind`: of the items below one place, the first of each kind is kept.

    Without kinds, a bus with 20,000 devices below it would be gone through for each of them.
    """

    def __init__(self, kind: Callable[[T], Hashable]) -> None:
        self._kind = kind
        self._at: dict[str, T] = {}
        self._below: dict[str, dict[Hashable, T]] = {}

    def add(self, path: str, item: T) -> None:
        """The first at a path has it."""
        if self._at.setdefault(path, item) is item:
            kind = self._kind(item)
            for above in ancestors(path):
                self._below.setdefault(above, {}).setdefault(kind, item)

    def at(self, path: str) -> T | None:
        return self._at.get(path)

    def above(self, path: str) -> Iterator[T]:
        """The items that `path` lies below, nearest first."""
        return (self._at[above] for above in ancestors(path) if above in self._at)

    def below(self, path: str) -> Iterator[T]:
        """One item of each kind that lies below `path`."""
        return iter(self._below.get(path, {}).values())


def ancestors(path: str) -> Iterator[str]:
    """The paths that `path` lies below, nearest first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
