"""Blocking work in a named thread of its own, with a deadline on the loop's side.

A thread that hangs in a driver cannot be ended. So nothing waits for it beyond the deadline, it takes no
new work until it comes back, and being a daemon it does not keep the process from ending.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class WorkerBusyError(RuntimeError):
    """The thread has not come back from an earlier call that ran out of time."""


class Worker:
    """One kind of blocking work, one call at a time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._running: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        return self._running is not None and self._running.is_alive()

    async def call(self, work: Callable[[], T], *, seconds: float | None) -> T:
        """What `work` returns or raises. `seconds` None: whoever cancels the call decides how long is too long.

        Raises:
            WorkerBusyError: an earlier call still hangs.
            TimeoutError: no result within `seconds`; the thread goes on by itself and its result is dropped.
        """
        if self.busy:
            raise WorkerBusyError(f"{self._name} is still busy with an earlier call")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - handed to the caller, whatever it is
                _tell(loop, done, error=error)
            else:
                _tell(loop, done, result=result)

        self._running = threading.Thread(target=run, name=self._name, daemon=True)
        self._running.start()
        try:
            async with asyncio.timeout(seconds):
                return await done
        finally:
            if done.done() and not done.cancelled():
                self._running = None  # its last lines only end the thread


def _tell(
    loop: asyncio.AbstractEventLoop,
    done: "asyncio.Future[Any]",
    *,
    result: Any = None,
    error: BaseException | None = None,
) -> None:
    def finish() -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)

    try:
        loop.call_soon_threadsafe(finish)
    except RuntimeError:
        return  # the loop is gone: nobody waits any more
