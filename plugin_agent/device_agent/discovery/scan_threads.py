"""Runs scans in threads, one at a time. A thread in which a read hangs is left behind, and the scan begins again."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final, TypeVar

from device_agent.discovery.reads import HangingReads, Reader
from device_agent.runtime.worker import Worker

logger = logging.getLogger(__name__)

T = TypeVar("T")
_LOOK: Final = 0.25
"""Seconds between looks at what a scan is reading."""


class ScanThreads:
    """`returned`: called in the loop when a read that hung has returned, so that its device can be read again."""

    def __init__(self, hanging: HangingReads, *, returned: Callable[[], None]) -> None:
        self._hanging = hanging
        self._returned = returned
        self._worker = Worker("scan")

    @property
    def busy(self) -> bool:
        """Whether the last scan runs on, although nobody waits for it."""
        return self._worker.busy

    async def call(self, scan: Callable[[Reader], T], *, seconds: float) -> T:
        """Returns or raises what `scan` does. `seconds`: the deadline of each try.

        Raises:
            WorkerBusyError, TimeoutError: as `Worker.call`.
        """
        while True:
            reader = Reader(self._hanging)
            running = asyncio.ensure_future(self._run(scan, reader, seconds))
            try:
                while not running.done():
                    await asyncio.wait((running,), timeout=_LOOK)
                    if not running.done() and (path := self._hanging.leave(reader)):
                        logger.warning("a read hangs; the scan goes on without it", extra={"path": path})
                        self._worker = Worker("scan")
                        break
                else:
                    return running.result()
            finally:
                running.cancel()

    async def _run(self, scan: Callable[[Reader], T], reader: Reader, seconds: float) -> T:
        loop = asyncio.get_running_loop()

        def in_thread() -> T:
            try:
                return scan(reader)
            finally:
                if self._hanging.returned(reader):
                    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                        loop.call_soon_threadsafe(self._returned)

        return await self._worker.call(in_thread, seconds=seconds)
