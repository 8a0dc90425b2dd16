"""The queue between changes and passes: keys, each at most once, one worker per key at a time.

The contract is that of the work queue of client-go. A key that is added while a worker has it is handed out again when
that worker is done. So no change is lost, and a hundred changes make one pass. A failed key comes back after a wait
that doubles; `forget` resets the wait. A key means "look at this object"; it does not say what changed.
"""

import asyncio
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable


class WorkQueue:
    """Belongs to one event loop. `clock` is the loop's time unless a test gives its own."""

    def __init__(
        self,
        *,
        backoff: float = 0.5,
        backoff_max: float = 60.0,
        clock: Callable[[], float] | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._backoff = backoff
        self._backoff_max = backoff_max
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._jitter = jitter
        self._ready: deque[str] = deque()
        self._waiting: set[str] = set()
        self._working: set[str] = set()
        self._due: dict[str, float] = {}
        self._timers: list[tuple[float, int, str]] = []
        self._order = itertools.count()
        self._failures: dict[str, int] = {}
        self._wake = asyncio.Event()

    def add(self, key: str) -> None:
        """Adds the key now, or when the worker that has it is done."""
        self._due.pop(key, None)
        if key in self._waiting:
            return
        self._waiting.add(key)
        if key not in self._working:
            self._ready.append(key)
            self._wake.set()

    def add_after(self, key: str, seconds: float) -> None:
        """Adds the key after `seconds`. If a key has several waits, the shortest counts."""
        if seconds <= 0:
            self.add(key)
            return
        if key in self._waiting:
            return
        due = self._clock() + seconds
        if due >= self._due.get(key, float("inf")):
            return
        self._due[key] = due
        heapq.heappush(self._timers, (due, next(self._order), key))
        self._wake.set()

    def add_failed(self, key: str) -> float:
        """Adds the key after its back-off, half of it random so that keys spread. Returns the seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        wait = min(self._backoff * 2.0 ** min(failures, 30), self._backoff_max)
        wait *= 0.5 + 0.5 * self._jitter()
        self.add_after(key, wait)
        return wait

    def forget(self, key: str) -> None:
        """Resets the back-off of the key."""
        self._failures.pop(key, None)

    def depth(self) -> int:
        """Keys that wait for a worker now."""
        return len(self._waiting)

    async def get(self) -> str:
        """The next key. No other worker gets it until `done`."""
        while True:
            self._release_due()
            if self._ready:
                key = self._ready.popleft()
                self._waiting.discard(key)
                self._working.add(key)
                return key
            self._wake.clear()
            timeout = self._timers[0][0] - self._clock() if self._timers else None
            try:
                async with asyncio.timeout(timeout):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def done(self, key: str) -> None:
        self._working.discard(key)
        if key in self._waiting:
            self._ready.append(key)
            self._wake.set()

    def _release_due(self) -> None:
        now = self._clock()
        while self._timers and self._timers[0][0] <= now:
            due, _, key = heapq.heappop(self._timers)
            if self._due.get(key) == due:  # otherwise it was added earlier
                self.add(key)
