"""Reads the kubelet's record whenever it changes, and when somebody asks.

The kubelet replaces the file by a rename, which shows as a change of its directory. A thread reads the file, with a
deadline. So devices are served even if the disk hangs. A problem is reported once, when it begins or changes.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from device_agent.kubelet import checkpoint
from device_agent.kubelet.registration import KubeletDirectory
from device_agent.runtime.settings import Settings
from device_agent.runtime.worker import Worker, WorkerBusyError
from device_agent.table.device import Key
from device_agent.table.grants import Grant
from device_agent.table.kubelet_view import Reading

logger = logging.getLogger(__name__)

NO_DOUBT: Final[frozenset[Key]] = frozenset()
_HANGS: Final = "the disk does not answer"
_GONE: Final = f"{checkpoint.FILE}: it was there, and is gone"


class RecordWatch:
    """`deliver` gets each reading. `resent`: when one of our lists was last sent, monotonic seconds, or None."""

    def __init__(
        self,
        directory: KubeletDirectory,
        *,
        deliver: Callable[[Reading], None],
        resent: Callable[[], float | None],
        settings: Settings,
    ) -> None:
        self._directory = directory
        self._deliver = deliver
        self._resent = resent
        self._settings = settings
        self._worker = Worker("record")
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self._stamp: checkpoint.Stamp | None = None
        self._grants: tuple[Grant, ...] | None = None
        self._life: object = None
        self._heard: object = None
        self._told = ""

    async def run(self) -> None:
        """Reads after every change, until it is cancelled."""
        self._directory.listen(self, self._wake.set)
        try:
            while True:
                await self._wake.wait()
                await asyncio.sleep(self._settings.record_coalesce)
                self._wake.clear()
                await self.look(again=False)
        finally:
            self._directory.listen(self, None)

    async def of_this_life(self) -> None:
        """Delivers the record of this life of the kubelet, or why it cannot be used, if that is not done yet."""
        if self._directory.life != self._heard:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.record_wait):
                    await self.look()

    async def look(self, *, again: bool = True) -> None:
        """Delivers the record as it is now. `again`: delivers it even if it is the same as the last time."""
        async with self._turn:
            begun, life = time.monotonic(), self._directory.life
            try:
                stamp, grants = await self._worker.call(self._read, seconds=self._settings.record_deadline)
            except (TimeoutError, WorkerBusyError):
                self._failed(_HANGS, begun=begun, life=life)
                return
            except checkpoint.RecordError as error:
                self._failed(str(error), begun=begun, life=life)
                return
            if grants is None:
                if self._grants and life == self._life:
                    self._failed(_GONE, begun=begun, life=life)
                    return
                grants = ()
            same = grants is self._grants and life == self._life
            self._grants, self._stamp, self._life, self._heard = grants, stamp, life, life
            if same and not again and not self._told:
                return
            if self._told:
                logger.info("the kubelet's record is readable again")
                self._told = ""
            started = self._directory.started
            self._deliver(Reading(grants, begun, resent=self._resent(), life=life, started=started))

    def _read(self) -> tuple[checkpoint.Stamp | None, tuple[Grant, ...] | None]:
        """Runs in the thread, and sets no attribute, because its result may come too late.

        Returns the file's stamp and its grants: the earlier tuple itself if nothing changed. (None, None): no file.
        """
        # the stamp is taken before the content is read: a file that is replaced in between is read again
        before, known = self._stamp, self._grants
        stamp = checkpoint.stamp(self._directory.path)
        if stamp is not None and stamp == before:
            return stamp, known
        grants = checkpoint.read(self._directory.path)
        return stamp, known if grants == known else grants

    def _failed(self, problem: str, *, begun: float, life: object) -> None:
        if problem != self._told:
            logger.warning("the kubelet's record cannot be used", extra={"error": problem})
            self._told = problem
        self._heard = life
        started = self._directory.started
        self._deliver(Reading(begun=begun, life=life, started=started, problem=problem))


class Settling:
    """Finds out whether ids in doubt are free, and whether the record has ids of pods that ended.

    It asks List, sends one of our lists again, and reads the record two seconds later. The order matters: List makes
    the kubelet drop what ended pods had, and each device list makes it write its record
    (pkg/kubelet/cm/devicemanager/manager.go, UpdateAllocatedDevices and genericDeviceUpdateCallback).
    """

    def __init__(
        self,
        *,
        doubtful: Callable[[], frozenset[Key]],
        ask: Callable[[], Awaitable[None]],
        resend: Callable[[], None],
        look: Callable[[], Awaitable[None]],
        settled: Callable[[], None],
        settings: Settings,
    ) -> None:
        self._doubtful = doubtful
        self._ask = ask
        self._resend = resend
        self._look = look
        self._settled = settled
        self._settings = settings
        self._wake = asyncio.Event()
        self._tried = NO_DOUBT

    def stirred(self) -> None:
        """List or record showed something new, or ids were handed out."""
        doubtful = self._doubtful()
        if not doubtful:
            self._tried = NO_DOUBT
        elif doubtful != self._tried:
            self._wake.set()

    async def run(self) -> None:
        """Settles doubts until it is cancelled. Doubts that stay are looked at less and less often."""
        pause = self._settings.settle_first
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause if self._tried else None):
                    await self._wake.wait()
            self._wake.clear()
            # most doubts end by themselves: the record shows what was handed out
            await asyncio.sleep(self._settings.settle_first)
            doubtful = self._doubtful()
            longer = min(2 * pause, self._settings.settle_max)
            pause = longer if doubtful == self._tried else self._settings.settle_first
            self._tried = doubtful
            if doubtful:
                await self._ask()
                self._resend()
                await asyncio.sleep(self._settings.settle_wait)
                await self._look()
                self._settled()
