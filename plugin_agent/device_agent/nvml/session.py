"""NVML for the event loop: every call in one thread with a deadline, so that a driver that hangs holds nobody up."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from device_agent.discovery.found import Roots
from device_agent.nvml.driver import CLOSE_SECONDS, Driver, Listeners, unanswered
from device_agent.nvml.model import GpuSample, NvmlView, XidEvent
from device_agent.settings import Settings
from device_agent.worker import Worker, WorkerBusyError

logger = logging.getLogger(__name__)


class NvmlSession:
    """One per process. `view` is the newest look, `last` the newest that the driver answered; None before it.

    `on_event` gets each XID, `on_wake` the hint that a look is worth while; both run on the loop.
    """

    def __init__(
        self,
        *,
        driver_root: Path,
        roots: Roots,
        settings: Settings,
        events: bool = True,
        own_dev: Path = Path("/dev"),
    ) -> None:
        """Within a running loop. `own_dev`: where the library opens its nodes, another place only for a fake one."""
        self.view: NvmlView | None = None
        self.last: NvmlView | None = None
        self.on_event: Callable[[XidEvent], None] | None = None
        self.on_wake: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._deadline = settings.nvml_deadline
        self._worker = Worker("nvml")
        self._turn = asyncio.Lock()
        self._closed = False
        self._told: tuple[str, ...] = ()
        self._driver = Driver(
            driver_root=driver_root,
            roots=roots,
            listeners=Listeners(xid=self._xid, wake=self._wake) if events else None,
            restart_seconds=settings.nvml_restart,
            own_dev=own_dev,
        )

    @property
    def hung(self) -> bool:
        """A call has not come back in time, and still has not."""
        return self._worker.busy

    async def look(self) -> NvmlView:
        """Everything as it is now, or after the deadline why there is no answer. Never raises."""
        async with self._turn:
            try:
                view = await self._worker.call(self._driver.look, seconds=self._deadline)
            except (TimeoutError, WorkerBusyError):
                view = self._hung()
            except Exception as error:
                logger.exception("nvml look")
                view = self._as_before(f"NVML cannot be asked: {error!r}")
            else:
                self.last = view
            self.view = view
        self._tell(view)
        return view

    async def sample(self) -> tuple[GpuSample, ...]:
        """Telemetry of every GPU and MIG device that answers; nothing while the driver hangs. Never raises."""
        async with self._turn:
            try:
                return await self._worker.call(self._driver.sample, seconds=self._deadline)
            except (TimeoutError, WorkerBusyError):
                return ()
            except Exception:
                logger.exception("nvml sample")
                return ()

    async def close(self) -> None:
        """Lets go of the driver, unless it hangs."""
        self._closed = True
        async with self._turn:
            with contextlib.suppress(TimeoutError, WorkerBusyError):
                await self._worker.call(self._driver.close, seconds=self._deadline + CLOSE_SECONDS)

    def _hung(self) -> NvmlView:
        doing = self._driver.doing
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
            with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits any more
                self._loop.call_soon_threadsafe(call)
