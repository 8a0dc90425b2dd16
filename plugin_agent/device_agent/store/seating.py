"""Gets the locks for what this agent serves on its node (`seats`), and copes with a disk that fails.

- Before anything else the agent takes its object's seat. While another agent has it, this one waits.
- Before a scan's devices are offered, their locks are taken. What another agent has is reported to the table, and tried
  again until it is free.
- A disk that hangs or refuses stops nothing. Then the agent serves without new locks, logs it, and tries again.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Final, Protocol, TypeVar

from device_agent.runtime.settings import Settings
from device_agent.runtime.worker import Worker, WorkerBusyError
from device_agent.store.locks import Taken, Wanted
from device_agent.store.seats import SECTION, Seats, SeatTakenError

logger = logging.getLogger(__name__)

R = TypeVar("R")

_EFFECT: Final = "two agents on this node may offer the same device"
_WAITING: Final = (
    "SeatTaken: another agent of this DevicePluginConfig serves this node; this one waits until that one ends"
)


class Contender(Protocol):
    """What needs the locks: the device table."""

    def wanted(self) -> Wanted:
        """What the lists have now."""

    def apply_taken(self, taken: Taken, *, now: float, wall: datetime) -> frozenset[str]:
        """What other agents have. Returns the names whose list changed."""


class Seating:
    """Keeps the locks of one agent. `changed`: lists changed. `told`: `waiting` changed.

    `lost`: another agent has the seat, and this one serves because the disk gave no answer at its start.
    `look`: finds out who holds what, before something is offered that another agent served until now.
    """

    def __init__(
        self,
        seats: Seats,
        table: Contender,
        *,
        settings: Settings,
        changed: Callable[[frozenset[str]], None],
        told: Callable[[], None],
        lost: Callable[[], None],
        look: Callable[[], Awaitable[None]],
    ) -> None:
        self.waiting = ""
        """Why nothing is served yet, or ''."""
        self.problem = ""
        """Why locks could not be taken, or ''."""
        self._seats = seats
        self._table = table
        self._settings = settings
        self._changed = changed
        self._told = told
        self._lost = lost
        self._look = look
        self._worker = Worker(SECTION)
        self._writer = Worker(f"{SECTION}-note")  # a disk that takes no writes may still give locks
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self._announced = False
        self._taken = Taken()
        self._held: Wanted | None = None

    async def take(self) -> None:
        """Returns when this agent has the seat, or the disk does not tell who has it."""
        while True:
            seated = await self._ask(self._seats.sit)
            if seated or (seated is None and not self.waiting):
                self._wait("")
                return
            self._wait(_WAITING)
            await asyncio.sleep(self._settings.seat_retry)

    @contextlib.asynccontextmanager
    async def secured(self, wanted: Wanted) -> AsyncIterator[None]:
        """Takes the locks for what is about to be offered. Offer it inside: `run` waits meanwhile."""
        async with self._turn:
            await self._hold(wanted)
            yield

    def stirred(self) -> None:
        """The lists may have changed."""
        if self._table.wanted() is not self._held:
            self._wake.set()

    async def run(self) -> None:
        """Frees what is no longer served, and tries again what others have, until cancelled."""
        while True:
            self._wake.clear()
            async with self._turn:
                await self._hold(self._table.wanted())
            if not self._announced:
                self._announced = await self._announce()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._wake.wait()

    def _pause(self) -> float | None:
        if self._taken:
            return self._settings.seat_retry
        return self._settings.store_retry if self.problem or not self._announced else None

    async def _announce(self) -> bool:
        """Writes the note with the object's name, for others. Returns whether it is written."""
        try:
            await self._writer.call(self._seats.announce, seconds=self._settings.store_wait)
        except (TimeoutError, WorkerBusyError, OSError) as error:
            logger.debug("the note of this agent is not written", extra={"error": str(error) or "the disk hangs"})
            return False
        return True

    async def _hold(self, wanted: Wanted) -> None:
        try:
            taken = await self._ask(lambda: self._seats.hold(wanted))
        except SeatTakenError:
            logger.warning("another agent of this DevicePluginConfig serves this node; this one ends")
            self._lost()
            await asyncio.get_running_loop().create_future()  # offers nothing until the end
        if taken is None:
            return
        self._held = wanted
        if (self._taken.names - taken.names) or (self._taken.devices - taken.devices):
            # the kubelet may still be writing down what the other agent gave out last
            await asyncio.sleep(self._settings.seat_settle)
            await self._look()
        if taken != self._taken:
            self._log(taken)
            self._taken = taken
            self._changed(self._table.apply_taken(taken, now=time.monotonic(), wall=datetime.now(tz=UTC)))

    def _log(self, taken: Taken) -> None:
        others = ",".join(taken.by)
        for name in sorted(taken.names - self._taken.names):
            logger.warning("another agent serves the resource name", extra={"resource": name, "configs": others})
        if more := len(taken.devices - self._taken.devices):
            logger.warning("another agent serves devices of this one", extra={"devices": more, "configs": others})

    async def _ask(self, work: Callable[[], R]) -> R | None:
        """None: the disk hangs or refuses."""
        try:
            answer = await self._worker.call(work, seconds=self._settings.store_wait)
        except (TimeoutError, WorkerBusyError):
            self._trouble(f"{self._seats.directory}: the disk hangs")
        except OSError as error:
            self._trouble(f"{self._seats.directory}: {error.strerror or error}")
        else:
            self._trouble("")
            return answer
        return None

    def _trouble(self, problem: str) -> None:
        if problem and problem != self.problem:
            extra = {"section": SECTION, "error": problem, "effect": _EFFECT}
            logger.warning("the node store gives no locks", extra=extra)
        self.problem = problem

    def _wait(self, why: str) -> None:
        if why != self.waiting:
            self.waiting = why
            logger.info("waits for the seat" if why else "has the seat")
            self._told()
