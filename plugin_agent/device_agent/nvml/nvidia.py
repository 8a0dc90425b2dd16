"""NVIDIA's driver in the agent's process. It is read at an interval and for each scan, while a configuration uses it.

One task makes all looks. A scan asks for a look and waits for it, up to a limit. The health news of a look reaches the
table before the scan that uses the look, so that no broken GPU is offered.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from device_agent.contract.document import Document, Resource
from device_agent.discovery.driver import Opener
from device_agent.discovery.driver_library import DriverHost
from device_agent.discovery.driver_news import DriverNews
from device_agent.nvml import health_news
from device_agent.nvml.links import links_of
from device_agent.nvml.model import GpuSample, GpuState, NvmlView, XidEvent
from device_agent.nvml.report import GpuReport
from device_agent.nvml.session import NvmlSession
from device_agent.nvml.setup import Nvidia, asks
from device_agent.nvml.source import opener
from device_agent.nvml.storms import Storms
from device_agent.table.snapshot import TableSnapshot

logger = logging.getLogger(__name__)

_FRESH_SECONDS: Final = 0.5
"""A scan uses a look that is at most this old."""
_GAP_SECONDS: Final = 0.2
"""The least pause between looks: a broken GPU may announce hundreds of events, and each asks for a look."""
_HUNG_SECONDS: Final = 1.0
"""The interval of looks while the driver hangs. Such a look is cheap: it makes no call."""


class NvidiaDriver:
    """The driver behind `setup.Door`. It loads the library while an entry asks for NVIDIA devices."""

    def __init__(self, setup: Nvidia, *, host: DriverHost, news: DriverNews) -> None:
        self._setup = setup
        self._roots = host.roots
        self._settings = host.settings
        self._news = news
        self._report = GpuReport(
            setup.report,
            registry=host.registry,
            config=host.config,
            sys=host.roots.sys,
            sample_interval=host.settings.sample_interval,
        )
        self._storms = Storms()
        self._session: NvmlSession | None = None
        self._asked = asyncio.Event()
        self._waiting: set[asyncio.Future[None]] = set()
        self._view: NvmlView | None = None
        self._looked_at = 0.0
        self._check_interval: float = 0
        """The shortest `intervalSeconds` of the entries with NVIDIA devices."""

    @property
    def awaited(self) -> bool:
        """Whether the first look is still in progress."""
        return self._session is not None and self._view is None

    async def for_scan(self, document: Document) -> Opener | None:
        """The newest look as a source for a scan; an older one if the driver is slow. None if no entry uses it."""
        if not asks(document):
            await self._let_go()
            return None
        self._check_interval = min(r.health.interval_seconds for r in document.resources if _asks(r))
        if self._session is None:
            self._session = self._begin()
        if self._view is None or time.monotonic() - self._looked_at > _FRESH_SECONDS:
            done = asyncio.get_running_loop().create_future()
            self._waiting.add(done)
            self._asked.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.nvml_first):
                    await done
            self._waiting.discard(done)
        return opener(self._view, document)

    def publish(self, snapshot: TableSnapshot) -> None:
        """Takes the table's new state, for the holders in the telemetry."""
        self._report.publish(snapshot)

    async def scanned(self, document: Document, snapshot: TableSnapshot) -> None:
        """Updates the node labels after a scan."""
        await self._report.scanned(document, self._view, snapshot)

    async def samples(self) -> None:
        """Takes samples for ever where telemetry is wanted."""
        await self._report.sample(self._sample)

    async def _sample(self) -> Sequence[GpuSample]:
        """Telemetry samples; none while no entry uses the driver, or while the driver hangs."""
        return await self._session.sample() if self._session else ()

    async def run(self) -> None:
        """Makes looks, for ever."""
        while True:
            session = self._session
            self._asked.clear()
            if session is None:
                await self._asked.wait()
                continue
            view = await session.look()
            if session is self._session:
                self._take(view)
            await asyncio.sleep(_GAP_SECONDS)
            pause = _HUNG_SECONDS if session.hung else min(self._settings.nvml_interval, self._check_interval)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._asked.wait()

    def _begin(self) -> NvmlSession:
        session = NvmlSession(
            driver_root=self._setup.driver_root,
            roots=self._roots,
            settings=self._settings,
            access=self._setup.access,
        )
        session.on_event = self._xid
        session.on_wake = self._asked.set
        return session

    def _xid(self, event: XidEvent) -> None:
        if self._storms.is_news(event):
            gpus = self._view.gpus if self._view is not None else ()
            gpu = next((gpu for gpu in gpus if gpu.uuid == event.uuid), None)
            self._news.fault(health_news.fault(event, gpu))

    async def _let_go(self) -> None:
        session, self._session, self._view = self._session, None, None
        if session is not None:
            logger.info("nvml stopped: no resource uses it")
            await session.close()

    def _take(self, view: NvmlView) -> None:
        changed = self._view is None or _devices(view) != _devices(self._view)
        self._view, self._looked_at = view, time.monotonic()
        self._news.looked(health_news.look(view), links=links_of(view))
        waited = [done for done in self._waiting if not done.done()]
        for done in waited:
            done.set_result(None)
        if changed and not waited:
            self._news.found()


def _asks(resource: Resource) -> bool:
    return any(entry.nvml for entry in resource.devices)


def _devices(view: NvmlView) -> tuple[object, ...]:
    """The part of a view that a scan sees: all but the GPUs' state."""
    gpus = tuple(replace(gpu, state=GpuState()) for gpu in view.gpus)
    return gpus, view.driver_version, view.cuda_version, view.unavailable
