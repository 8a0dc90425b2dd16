"""Supervises the process's tasks: a task that fails is logged and does not end the others.

`keep` is for work that lasts as long as the process. After a failure only this task is restarted (one for one, as
Erlang's supervisors call it). `once` is for work that belongs to one event. It is not repeated: the next event starts
it again, and a late repetition could undo newer work.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

logger = logging.getLogger(__name__)

RESTART_SECONDS: Final = 5.0
"""Pause before a restart, so that a task that fails at once does not fill the log."""

Work = Callable[[], Coroutine[Any, Any, None]]


class Supervisor:
    """Holds every started task until it ends. `restart`: seconds from a failure to the restart."""

    def __init__(self, *, restart: float = RESTART_SECONDS) -> None:
        self._restart = restart
        self._tasks: set[asyncio.Task[None]] = set()

    def keep(self, name: str, work: Work) -> "asyncio.Task[None]":
        """Runs `work` until it returns or is cancelled. Restarts it after an exception."""

        async def run() -> None:
            while True:
                try:
                    return await work()
                except Exception:
                    logger.exception("a task failed and is restarted", extra={"task": name})
                    await asyncio.sleep(self._restart)

        return self._begin(name, run())

    def once(self, name: str, work: Work) -> "asyncio.Task[None]":
        """Runs `work` once. An exception is logged."""

        async def run() -> None:
            try:
                await work()
            except Exception:
                logger.exception("a task failed", extra={"task": name})

        return self._begin(name, run())

    def _begin(self, name: str, run: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(run, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def stop(self) -> None:
        """Cancels all tasks and waits until they end, also tasks that start meanwhile."""
        while tasks := tuple(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
