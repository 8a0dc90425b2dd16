"""Reads of the node's files that may never return, and what cannot be read.

A driver may block the read of one sysfs file for ever, and a thread that is blocked in the kernel cannot be ended. So
each scan says what it is reading now. If one read takes too long, the scan's thread is left behind, and the next scan
leaves out that path: one device is lost from sight, not all of them (`scan_threads`).
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from device_agent.runtime.errors import AgentError

MOST_HANGING: Final = 32
"""The most threads that are left behind at a time. With more, the scan itself hangs, and is reported so."""
_SHOWN: Final = 160
"""The most characters of a path in a message."""


class UnreadableError(AgentError):
    """A path of the node exists but cannot be read. The message has its name on the node, and the cause."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{_shown(path)}: {why}")


class HangsError(AgentError):
    """Reading the path does not return. It is no `UnreadableError`: code that does without an unreadable fact must not
    do without this one, because the fact may be there.
    """

    def __init__(self, path: str) -> None:
        super().__init__(f"{_shown(path)}: reading it does not return")


def _shown(path: str) -> str:
    """A path as a message can hold it."""
    short = path if len(path) <= _SHOWN else f"{path[:_SHOWN]}…"
    return short if path.isascii() and path.isprintable() else ascii(short)


class Reader:
    """The reads of one scan. Its thread calls `begin` and `end`; other threads look at `current`.

    `hanging`: paths that are not read. `current`: the path that is being read, and since when.
    """

    def __init__(self, hanging: "HangingReads | None" = None) -> None:
        self.current: tuple[str, float] | None = None
        self.left_at = ""
        """The path at which the thread was left behind, or ''."""
        self._hanging = hanging

    def begin(self, path: str) -> None:
        """Before a read that may block.

        Raises:
            HangsError: the path is known to hang, or nobody waits for this scan any more.
        """
        if self._hanging is not None:
            if self.left_at or path in self._hanging.paths:
                raise HangsError(path)
            self.current = (path, self._hanging.clock())

    def end(self) -> None:
        """After the read."""
        self.current = None


class HangingReads:
    """The paths whose reads hang, for all scans. `after`: seconds; `longest`: the most that a slow path may get.

    A read that returns late shows that its path is slow, not dead: it gets twice the time from then on.
    """

    def __init__(self, *, after: float, longest: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.paths: frozenset[str] = frozenset()
        self._after = after
        self._longest = longest
        self._patience: dict[str, float] = {}
        self._lock = threading.Lock()

    def leave(self, reader: Reader) -> str:
        """The path at which the reader's thread must be left behind. '': it does not hang."""
        with self._lock:
            if reader.current is None or len(self.paths) >= MOST_HANGING:
                return ""
            path, since = reader.current
            if self.clock() - since < self._patience.get(path, self._after):
                return ""
            self.paths |= {path}
            reader.left_at = path
            return path

    def returned(self, reader: Reader) -> bool:
        """Notes that a scan's thread ends. Returns whether it had been left behind."""
        with self._lock:
            reader.current = None
            path = reader.left_at
            if path:
                self.paths -= {path}
                if len(self._patience) < MOST_HANGING or path in self._patience:
                    self._patience[path] = min(2 * self._patience.get(path, self._after), self._longest)
            return bool(path)
