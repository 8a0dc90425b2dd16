"""Runs blocking work in a named thread, with a deadline for the caller.

A thread that hangs in a driver cannot be ended. So nothing waits for it after the deadline, and it gets no new work
until it returns. It is a daemon thread, so it does not keep the process from ending.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class WorkerBusyError(RuntimeError):
    """The thread still works on an earlier call that ran out of time."""


class Worker:
    """One kind of blocking work, one call at a time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._running: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        return self._running is not None and self._running.is_alive()

    async def call(self, work: Callable[[], T], *, seconds: float | None) -> T:
        """Returns or raises what `work` does. `seconds` None: no deadline; the caller can cancel the call.

        Raises:
            WorkerBusyError: an earlier call still hangs.
            TimeoutError: no result within `seconds`; the thread goes on, and its result is dropped.
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
                self._running = None  # the thread is about to end


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
        return  # the loop is closed: nothing waits for the result
