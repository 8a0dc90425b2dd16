"""The supervisor of the process's tasks: no part takes the others along, and none fails in silence.

One for one, as Erlang's supervisors call it: a task that ends by a defect is logged with its traceback and started
again by itself. That is for work that is to go on as long as the process does. Work that belongs to one occasion is
not repeated: the next occasion brings it anew, and an old one that came late would undo what a newer one did.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

logger = logging.getLogger(__name__)

RESTART_SECONDS: Final = 5.0
"""After a defect: what fails at once must not fill the log."""

Work = Callable[[], Coroutine[Any, Any, None]]


class Supervisor:
    """Holds every task it started, until the task has ended. `restart`: seconds from a defect to the next start."""

    def __init__(self, *, restart: float = RESTART_SECONDS) -> None:
        self._restart = restart
        self._tasks: set[asyncio.Task[None]] = set()

    def keep(self, name: str, work: Work) -> "asyncio.Task[None]":
        """Runs until it returns or is cancelled."""

        async def run() -> None:
            while True:
                try:
                    return await work()
                except Exception:
                    logger.exception("a task failed and is started again", extra={"task": name})
                    await asyncio.sleep(self._restart)

        return self._begin(name, run())

    def once(self, name: str, work: Work) -> "asyncio.Task[None]":
        """Runs once, whatever comes of it."""

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
        """Cancels all and waits for their ends, also of those that were begun meanwhile."""
        while tasks := tuple(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
