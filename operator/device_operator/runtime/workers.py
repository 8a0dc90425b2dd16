"""The workers that take names from the queue and run passes. They decide when an object gets its next pass."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from device_operator.runtime.workqueue import WorkQueue

logger = logging.getLogger(__name__)

_SHARE = 4.0
"""After a pass of n seconds the object rests for 4 n, so its passes take at most a fifth of the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """The outcome of a pass. `again`: seconds until the next one is due without any change; None: never."""

    result: str
    again: float | None = None


class Pacer:
    """Puts names into the queue a short time after a change, so that several changes make one pass."""

    def __init__(self, queue: WorkQueue, *, coalesce: float) -> None:
        self._queue = queue
        self._coalesce = coalesce
        self._seconds: dict[str, float] = {}

    def enqueue(self, name: str) -> None:
        self._queue.add_after(name, max(self._coalesce, _SHARE * self._seconds.get(name, 0.0)))

    def took(self, name: str, seconds: float | None) -> None:
        """Notes how long the last pass of the object took; None: it is gone."""
        if seconds is None:
            self._seconds.pop(name, None)
        else:
            self._seconds[name] = seconds


class Workers:
    """`observe(result, seconds)` is called after each pass; `result` is accepted, rejected, gone or failed.

    `refusals`: what a pass raises when the API server refuses or does not answer. Anything else is logged as a defect.
    """

    def __init__(
        self,
        *,
        queue: WorkQueue,
        reconcile: Callable[[str], Awaitable[Pass]],
        refusals: tuple[type[Exception], ...],
        pacer: Pacer,
        observe: Callable[[str, float], None] = lambda *_: None,
    ) -> None:
        self._queue = queue
        self._reconcile = reconcile
        self._refusals = refusals
        self._pacer = pacer
        self._observe = observe

    async def run(self) -> None:
        """One worker, for ever."""
        while True:
            name = await self._queue.get()
            started = time.monotonic()
            try:
                done = await self._reconcile(name)
            except self._refusals as error:
                self._failed(name, started, f"{error}" or type(error).__name__)
            except Exception:
                # a defect in the pass of one object must not stop the others
                logger.exception("pass failed", extra={"config": name})
                self._failed(name, started, None)
            else:
                self._done(name, started, done)
            finally:
                self._queue.done(name)
            await asyncio.sleep(0)

    def _done(self, name: str, started: float, done: Pass) -> None:
        seconds = time.monotonic() - started
        self._queue.forget(name)
        self._observe(done.result, seconds)
        self._pacer.took(name, None if done.again is None else seconds)
        if done.again is not None:
            self._queue.add_after(name, done.again)

    def _failed(self, name: str, started: float, error: str | None) -> None:
        wait = self._queue.add_failed(name)
        self._observe("failed", time.monotonic() - started)
        if error is not None:
            logger.warning("pass not finished", extra={"config": name, "error": error, "wait": round(wait, 1)})
