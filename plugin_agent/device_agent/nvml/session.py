"""NVML for the event loop: all calls run in one thread, so a driver that hangs does not block the agent.

Each call of the library has a deadline. If a call does not return in time, the driver hangs, and the look ends without
an answer. If every call returns in time but the look takes long, the driver is slow: the session waits for the look.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from device_agent.discovery.source import Roots
from device_agent.nvml.access import NOTHING_SET, Access
from device_agent.nvml.driver import CLOSE_SECONDS, Driver, EventCalls
from device_agent.nvml.model import GpuSample, NvmlView, XidEvent, unanswered
from device_agent.runtime.settings import Settings
from device_agent.runtime.worker import Worker, WorkerBusyError

logger = logging.getLogger(__name__)

T = TypeVar("T")

_TURN_SECONDS: Final = 0.2
"""While a look is due, sampling ends after this time."""
_LEAST_SECONDS: Final = 0.005
"""The shortest wait before it checks a call's progress again."""


class NvmlSession:
    """Looks and samples of one driver; one object per process.

    `view`: the newest look. `last`: the newest look that the driver answered. Both are None at first.
    `on_event` gets each XID; `on_wake` is called when a look may show something new. Both run on the event loop.
    """

    def __init__(
        self,
        *,
        driver_root: Path,
        roots: Roots,
        settings: Settings,
        events: bool = True,
        own_dev: Path = Path("/dev"),
        access: Access = NOTHING_SET,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create it in a running loop. `own_dev`: where the library opens device nodes. `clock`: monotonic seconds."""
        self.view: NvmlView | None = None
        self.last: NvmlView | None = None
        self.on_event: Callable[[XidEvent], None] | None = None
        self.on_wake: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._deadline = settings.nvml_deadline
        self._slow = settings.nvml_slow
        self._worker = Worker("nvml")
        self._turn = asyncio.Lock()
        self._waiting = 0
        """The number of looks that wait: sampling ends early for them."""
        self._looking: asyncio.Task[NvmlView] | None = None
        """A look that was started and whose answer was not returned yet."""
        self._begun = 0.0
        self._closed = False
        self._told: tuple[str, ...] = ()
        self._driver = Driver(
            driver_root=driver_root,
            roots=roots,
            events=EventCalls(xid=self._xid, wake=self._wake) if events else None,
            restart_seconds=settings.nvml_restart,
            slow_seconds=settings.nvml_slow,
            own_dev=own_dev,
            access=access,
            clock=clock,
        )

    @property
    def hung(self) -> bool:
        """Whether the thread is still busy with a look or sample."""
        return self._worker.busy

    async def look(self) -> NvmlView:
        """Reads everything now; `unavailable` says why there is no answer. Never raises.

        A look that is not finished in time goes on in the thread. The next call returns its answer.
        """
        self._waiting += 1
        try:
            async with self._turn:
                view = self.view = await self._look()
        finally:
            self._waiting -= 1
        self._tell(view)
        return view

    async def _look(self) -> NvmlView:
        if self._looking is None:
            if self._worker.busy:  # samples still run
                return self._hung()
            self._looking, self._begun = self._start(self._driver.look), self._clock()
        looking = self._looking
        # before the first answer there is no older view to show, so an admin must see early that the driver is slow
        patience = self._slow if self.last is None else None
        if not await self._answered(looking, begun=self._begun, seconds=patience):
            return self._hung() if self._silent_for(self._begun) >= self._deadline else self._slow_start()
        self._looking = None
        try:
            self.last = looking.result()
        except Exception as error:
            logger.exception("nvml look")
            return self._as_before(f"NVML cannot be asked: {error!r}")
        return self.last

    async def sample(self) -> tuple[GpuSample, ...]:
        """Telemetry of every GPU and MIG device that answers; empty while the driver hangs. Never raises.

        If a look is due and the driver is slow, only some GPUs get a new sample; the others keep their older ones.
        """
        async with self._turn:
            if self._worker.busy or self._looking is not None:
                return ()
            begun = self._clock()

            def enough() -> bool:
                due = self._waiting > 0 and self._clock() - begun > _TURN_SECONDS
                return due or self._closed

            sampling = self._start(lambda: self._driver.sample(enough=enough))
            if not await self._answered(sampling, begun=begun):
                sampling.cancel()  # the thread goes on; its result is dropped
                return ()
            try:
                return sampling.result()
            except Exception:
                logger.exception("nvml sample")
                return ()

    async def close(self) -> None:
        """Stops the library, unless the driver hangs."""
        self._closed = True
        self._driver.hurry()
        async with self._turn:
            if self._looking is not None:
                await self._answered(self._looking, begun=self._begun, seconds=self._deadline)
                self._looking.cancel()
                self._looking = None
            with contextlib.suppress(TimeoutError, WorkerBusyError):
                await self._worker.call(self._driver.close, seconds=self._deadline + CLOSE_SECONDS)

    def _start(self, work: Callable[[], T]) -> asyncio.Task[T]:
        return self._loop.create_task(self._worker.call(work, seconds=None))

    async def _answered(self, work: "asyncio.Task[T]", *, begun: float, seconds: float | None = None) -> bool:
        """Waits for the work. True if it ended; False if one of its calls is overdue or `seconds` are over."""
        until = None if seconds is None else self._clock() + seconds
        while not work.done():
            left = self._deadline - self._silent_for(begun)
            if until is not None:
                left = min(left, until - self._clock())
            if left <= 0:
                return False
            await asyncio.wait({work}, timeout=max(left, _LEAST_SECONDS))
        return True

    def _silent_for(self, begun: float) -> float:
        """Seconds since the driver last answered a call, or since `begun`, whichever is later."""
        return self._clock() - max(begun, self._driver.progress[1])

    def _slow_start(self) -> NvmlView:
        return NvmlView(
            unavailable=f"NVML is slow: the first look at the GPUs takes more than {self._slow:g} s, because each call "
            "answers late; run nvidia-smi on the node, and check there whether persistence mode is off"
        )

    def _hung(self) -> NvmlView:
        doing = self._driver.progress[0]
        if not doing and self.view is not None and self.view.unavailable.startswith("NVML hangs"):
            return self.view
        return self._as_before(f"NVML hangs: {doing or 'the driver'} does not answer")

    def _as_before(self, reason: str) -> NvmlView:
        last = self.last
        if last is None:
            return NvmlView(unavailable=reason)
        return replace(last, gpus=unanswered(last.gpus), unavailable=reason, errors=())

    def _tell(self, view: NvmlView) -> None:
        lines = (view.unavailable, *view.errors)
        if lines != self._told:
            for line in lines:
                if line and line not in self._told:
                    logger.warning("nvml", extra={"error": line})
            self._told = lines

    def _xid(self, event: XidEvent) -> None:
        self._on_loop(lambda: self.on_event(event) if self.on_event else None)

    def _wake(self) -> None:
        self._on_loop(lambda: self.on_wake() if self.on_wake else None)

    def _on_loop(self, call: Callable[[], object]) -> None:
        if not self._closed:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(call)
