"""Keeps one section for one package, whatever the disk does. The rules are the same for all sections.

- Nothing waits for the disk beyond a deadline. Devices are served with or without it.
- The disk is read first. While it hangs or refuses a read, the keeper tries again and writes nothing. A file that can
  be read but makes no sense is useless, and is replaced.
- New items are written as a whole file, again and again until the disk takes it. The last write is at the end of the
  process.
- Items that another process of the same object wrote are taken over, and written together with this process's items.
- A problem is logged when it begins or changes.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar

from device_agent.runtime.settings import Settings
from device_agent.runtime.worker import Worker, WorkerBusyError
from device_agent.store.node_store import KeptFile, NodeStore, OtherFiles
from device_agent.store.section import Section

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

_STILL_SECONDS: Final = 0.01
"""Between looks at a busy thread, when the process ends."""


class Memory(Protocol[T]):
    """The items that a package wants to keep. All calls come on the loop."""

    @property
    def revision(self) -> int:
        """Changes when `items` change."""

    def items(self) -> tuple[T, ...]:
        """The items to keep, in a fixed order."""

    def restore(self, own: tuple[T, ...], *, late: bool, now: float, wall: datetime) -> None:
        """Takes what an earlier process of this object kept, or a second one beside it. `late`: devices may be offered
        already.
        """

    def learn(self, others: tuple[T, ...], *, now: float, wall: datetime) -> None:
        """Takes all items that other objects' agents keep now; those of the file written last come last."""


class _Trouble(Enum):
    """What the log says of each kind of problem."""

    LOST = "a file of the node store cannot be used"
    """An earlier process's file makes no sense. Reported until the process ends, because its content is unknown."""
    UNREAD = "the node store cannot be read"
    """The disk has not returned the file yet."""
    OTHERS = "files of other objects in the node store cannot be used"
    """Files of other objects cannot be read. Not part of `problem`: the agents of those objects report it."""
    UNKEPT = "the node store cannot be written"
    """The disk has not taken the new items."""


class Keeper(Generic[T]):
    """Keeps one section (see the module). `told` is called with `problem` when it changes."""

    def __init__(
        self,
        store: NodeStore,
        section: Section[T],
        memory: Memory[T],
        *,
        settings: Settings,
        told: Callable[[str], None],
    ) -> None:
        self.section = section
        self.problem = ""
        """Why this object's items are not kept, or why those of the process before are lost; '' if all is well."""
        self._store = store
        self._memory = memory
        self._settings = settings
        self._told = told
        self._worker = Worker(section.name)
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self._recalled = False
        self._own: KeptFile[T] | None = None
        self._refused = True
        """This object's file may have unknown items: it must not be overwritten."""
        self._others: Mapping[str, KeptFile[T]] = {}
        self._others_read = self._others_known = not section.others_at_start
        self._attempted: tuple[T, ...] = ()
        """The items of the last write. They may be on the disk although the call did not return in time."""
        self._kept: int | None = memory.revision
        """The revision that is in the file. None: the file has something else."""
        self._troubles: dict[_Trouble, str] = {}

    async def recall(self) -> None:
        """Reads the disk. Await it before anything is offered. If the disk is slow, `run` reads it later."""
        try:
            async with self._turn:
                done = await self._look(end=time.monotonic() + self._settings.store_wait)
        finally:
            self._recalled = True
        if not done:
            self._wake.set()

    def stirred(self) -> None:
        """The memory may have changed."""
        if self._memory.revision != self._kept:
            self._wake.set()

    def look_at_others(self) -> None:
        """Asks for another look at other objects' files. Those that have not changed are not read again."""
        self._others_read = False
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled: reads what is still unread, writes what is new, writes again what somebody removed."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.store_look):
                    await self._wake.wait()
            self._wake.clear()
            async with self._turn:
                end = time.monotonic() + self._settings.store_deadline
                looked = await self._look(end=end)
                kept = await self._keep(end=end)
            if not (looked and kept):
                await asyncio.sleep(self._settings.store_retry)
                self._wake.set()

    async def close(self) -> None:
        """Writes what is new, after `run` was cancelled. It waits for a write that still runs, which may have older
        items.
        """
        end = time.monotonic() + self._settings.store_last
        while self._worker.busy and time.monotonic() < end:  # noqa: ASYNC110 - a thread has no event of this loop
            await asyncio.sleep(_STILL_SECONDS)
        await self._keep(end=end)

    # From the disk

    async def _look(self, *, end: float) -> bool:
        """Reads what has to be read. Returns whether all of it could be read."""
        known, others = self._own, self._others
        own = await self._ask(lambda: self._store.read(self.section, known), end=end)
        if own is None:
            return False
        self._take(own)
        if not self._others_read:
            found = await self._ask(lambda: self._store.read_others(self.section, others), end=end)
            if found is None:
                return False
            self._take_others(found)
        return self._others_read and not own.refused

    def _take(self, own: KeptFile[T]) -> None:
        known, self._refused = self._own, own.refused
        if own.refused:
            self._trouble(_Trouble.UNREAD if known is None else _Trouble.UNKEPT, own.problem)
            return
        self._own = own
        if known is None and own.problem:
            self._trouble(_Trouble.LOST, own.problem)
        if self._others_read:
            self._trouble(_Trouble.UNREAD, "")
        if own == known:
            return
        if own.items and own.items not in (known.items if known else (), self._attempted):
            now, wall = time.monotonic(), datetime.now(tz=UTC)
            self._memory.restore(own.items, late=self._recalled, now=now, wall=wall)
        self._kept = self._memory.revision if self._memory.items() == own.items else None

    def _take_others(self, found: OtherFiles[T]) -> None:
        self._others_read = not found.refused
        self._others_known |= self._others_read
        self._trouble(_Trouble.OTHERS, found.problem)
        if self._own is not None:
            self._trouble(_Trouble.UNREAD, "")
        if found.files != self._others:
            self._others = found.files
            items = tuple(item for file in found.files.values() for item in file.items)
            self._memory.learn(items, now=time.monotonic(), wall=datetime.now(tz=UTC))

    # To the disk

    async def _keep(self, *, end: float) -> bool:
        """Writes what is new. Returns whether the disk has what the memory has."""
        if self._refused:
            return False
        revision = self._memory.revision
        if revision == self._kept:
            self._trouble(_Trouble.UNKEPT, "")
            return True
        items = self._attempted = self._memory.items()
        written = await self._ask(lambda: self._store.write(self.section, items), end=end)
        if written is None:
            return False
        self._trouble(_Trouble.UNKEPT, written.problem)
        if not written.problem:
            self._own, self._kept = written, revision
        return not written.problem

    async def _ask(self, work: Callable[[], R], *, end: float) -> "R | None":
        """None: the disk hangs. The call goes on in its thread, and its effect is read later."""
        try:
            return await self._worker.call(work, seconds=max(end - time.monotonic(), 0))
        except (TimeoutError, WorkerBusyError):
            unread = self._own is None or not self._others_known
            path = self._store.directory(self.section)
            self._trouble(_Trouble.UNREAD if unread else _Trouble.UNKEPT, f"{path}: the disk hangs")
            return None

    # For admins

    def _trouble(self, kind: _Trouble, problem: str) -> None:
        if problem == self._troubles.get(kind, ""):
            return
        if problem:
            self._troubles[kind] = problem
            extra = {"section": self.section.name, "error": problem, "effect": self.section.forgotten}
            logger.warning(kind.value, extra=extra)
        else:
            del self._troubles[kind]
        before, self.problem = self.problem, self._words()
        if self.problem != before:
            self._told(self.problem)

    def _words(self) -> str:
        what, forgotten = self.section.what, self.section.forgotten
        unread = [self._troubles[k] for k in (_Trouble.LOST, _Trouble.UNREAD) if k in self._troubles]
        told = [f"{what} kept on the node: {problem}; {forgotten}" for problem in unread]
        if unkept := self._troubles.get(_Trouble.UNKEPT):
            told.append(f"{what} could not be kept on the node: {unkept}; when the agent restarts, {forgotten}")
        return "; ".join(told)
