"""Health for the process: news of drivers and admins go to the table, what it knows of health goes to the node's disk.

Memory first: what an earlier process knew is in the table before the first scan is, or a broken device would be
offered for a moment at each restart. It is written at each change, in a thread of its own.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from device_agent.health.watchlist import Record
from device_agent.runtime.settings import Settings
from device_agent.runtime.worker import Worker, WorkerBusyError
from device_agent.store.node_state import NodeState
from device_agent.table.device_table import DeviceTable

logger = logging.getLogger(__name__)

_STILL_SECONDS: Final = 0.01
"""Between looks at a write that is being waited for at the end."""
_BOOT_ID: Final = Path("sys/kernel/random/boot_id")


def boot_id(proc: Path) -> str:
    """Which boot of the node it is; of a captured tree the captured one, '' where none can be read."""
    for root in (proc, Path("/proc")):
        with contextlib.suppress(OSError):
            return (root / _BOOT_ID).read_text().strip()
    return ""


class HealthWatch:
    """`changed` gets the names whose list changed, as every event of the table gives them."""

    def __init__(
        self,
        table: DeviceTable,
        state: NodeState,
        *,
        boot: str,
        settings: Settings,
        changed: Callable[[frozenset[str]], None],
    ) -> None:
        self._table = table
        self._state = state
        self._boot = boot
        self._settings = settings
        self._changed = changed
        self._worker = Worker("health")
        self._wake = asyncio.Event()
        self._kept = 0
        self._not_kept = ""
        self._not_read = ""
        self._unread = False
        """What an earlier process kept has not been read yet, and must not be written over."""

    # Memory

    @property
    def problem(self) -> str:
        """Why what is known does not outlive this process, or did not outlive the one before; '' where it does."""
        read = self._not_read and f"{self._not_read}; devices that had failed may be offered"
        kept = self._not_kept and f"{self._not_kept}; when the agent restarts, devices that have failed may be offered"
        return "; ".join(filter(None, (read, kept)))

    async def recall(self) -> None:
        """What an earlier process knew, before anything else is said. A disk that hangs is not waited for."""
        try:
            self._table.restore_health(await self._read(seconds=self._settings.health_recall))
            others = await self._read_others(seconds=self._settings.health_recall)
            self._table.inherit(others, now=time.monotonic(), wall=datetime.now(tz=UTC))
        except (TimeoutError, WorkerBusyError):
            logger.warning("the devices' health kept on the node cannot be read in time")
            self._unread, self._not_read = True, "the disk hangs: the devices' health kept on the node is not read yet"
            return
        self._kept = self._table.health_revision

    async def _read(self, *, seconds: float) -> tuple[Record, ...]:
        records, problem = await self._worker.call(
            lambda: self._state.recall_health(boot_id=self._boot), seconds=seconds
        )
        if problem:
            logger.warning("health starts anew", extra={"error": problem})
        self._not_read = problem  # to the end of the process: nobody knows what it said
        return records

    async def _read_others(self, *, seconds: float) -> tuple[Record, ...]:
        """What other objects' agents knew. Of the disk's troubles with it each of them tells for itself."""
        records, problem = await self._worker.call(
            lambda: self._state.recall_others(boot_id=self._boot), seconds=seconds
        )
        if problem:
            logger.warning("not all that was kept of health is known", extra={"error": problem})
        return records

    async def _recall_late(self) -> None:
        """What could not be read in time, before it is written over."""
        while self._unread:
            try:
                records = await self._read(seconds=self._settings.health_deadline)
                records += await self._read_others(seconds=self._settings.health_deadline)
            except (TimeoutError, WorkerBusyError):
                await asyncio.sleep(self._settings.health_retry)
                continue
            self._unread = False
            self._tell(self._table.inherit(records, now=time.monotonic(), wall=datetime.now(tz=UTC)))

    def stirred(self) -> None:
        """The table may know something new."""
        if self._table.health_revision != self._kept:
            self._wake.set()

    async def run(self) -> None:
        """Keeps what is known, for ever."""
        await self._recall_late()
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not await self._keep(seconds=self._settings.health_deadline):
                await asyncio.sleep(self._settings.health_retry)
                self._wake.set()

    async def close(self) -> None:
        """The last news, when there is still time; a write that was begun before the end may have older ones."""
        end = time.monotonic() + self._settings.health_last
        while self._worker.busy and time.monotonic() < end:  # noqa: ASYNC110 - a thread has no event of this loop
            await asyncio.sleep(_STILL_SECONDS)
        if self._table.health_revision != self._kept and not self._unread:
            await self._keep(seconds=max(end - time.monotonic(), 0))

    async def _keep(self, *, seconds: float) -> bool:
        revision, records = self._table.health_revision, self._table.health_records()
        try:
            problem = await self._worker.call(
                lambda: self._state.remember_health(records, boot_id=self._boot), seconds=seconds
            )
        except (TimeoutError, WorkerBusyError):
            problem = "the devices' health could not be kept on the node: the disk hangs"
        if not problem:
            self._kept = revision
        elif problem != self._not_kept:
            logger.warning("the devices' health is not kept on the node", extra={"error": problem})
        if problem != self._not_kept:
            self._not_kept = problem
            self._changed(frozenset())  # which everybody is to be told
        return not problem

    def _tell(self, changed: frozenset[str]) -> None:
        self.stirred()
        self._changed(changed)
