"""NVIDIA's driver for the process: asked while a configuration wants its devices, at an interval and when told to.

All looks are made by one task. A scan asks for one and waits a moment; what the look shows of the devices' health is
told before the scan that uses it, so that a broken GPU is never offered for lack of news.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from device_agent.contract.document import Document, Resource
from device_agent.contract.values import dataclass
from device_agent.discovery.source import Roots
from device_agent.nvml.access import Access
from device_agent.nvml.model import GpuSample, GpuState, NvmlView, XidEvent
from device_agent.runtime.settings import Settings

if TYPE_CHECKING:
    from device_agent.nvml.session import NvmlSession

logger = logging.getLogger(__name__)

_FRESH_SECONDS: Final = 0.5
"""A look that a scan need not repeat."""
_GAP_SECONDS: Final = 0.2
"""Between looks that events ask for: a GPU in trouble may announce hundreds."""
_HUNG_SECONDS: Final = 1.0
"""How often a driver that hangs is looked at; that costs nothing."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """`looked`: each look. `xid`: each event. `found`: a look shows other devices, and no scan waited for it."""

    looked: Callable[[NvmlView], None]
    xid: Callable[[XidEvent], None]
    found: Callable[[], None]


class GpuWatch:
    """`run` is its task; without an entry that asks for NVIDIA devices it loads nothing."""

    def __init__(
        self, *, driver_root: Path, access: Access, roots: Roots, settings: Settings, listeners: Listeners
    ) -> None:
        self._driver_root = driver_root
        self._access = access
        self._roots = roots
        self._settings = settings
        self._listeners = listeners
        self._session: NvmlSession | None = None
        self._asked = asyncio.Event()
        self._waiting: set[asyncio.Future[None]] = set()
        self._view: NvmlView | None = None
        self._looked_at = 0.0
        self._check_interval: float = 0
        """The shortest that an entry asks for."""

    @property
    def awaited(self) -> bool:
        """The driver was asked for the first time, and has neither answered nor run out of time."""
        return self._session is not None and self._view is None

    async def for_scan(self, document: Document) -> NvmlView | None:
        """What the driver tells now, or told last when it takes its time; None where nobody asks for its devices."""
        if not any(map(_asks, document.resources)):
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
        return self._view

    async def sample(self) -> Sequence[GpuSample]:
        """Telemetry; nothing while no entry asks for NVIDIA devices, or the driver hangs."""
        return await self._session.sample() if self._session else ()

    async def run(self) -> None:
        """Looks, for ever."""
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

    def _begin(self) -> "NvmlSession":
        from device_agent.nvml.session import NvmlSession  # noqa: PLC0415 - without NVIDIA devices nothing is loaded

        session = NvmlSession(
            driver_root=self._driver_root, roots=self._roots, settings=self._settings, access=self._access
        )
        session.on_event = self._listeners.xid
        session.on_wake = self._asked.set
        return session

    async def _let_go(self) -> None:
        session, self._session, self._view = self._session, None, None
        if session is not None:
            logger.info("nvml is no longer asked for")
            await session.close()

    def _take(self, view: NvmlView) -> None:
        changed = self._view is None or _devices(view) != _devices(self._view)
        self._view, self._looked_at = view, time.monotonic()
        self._listeners.looked(view)
        waited = [done for done in self._waiting if not done.done()]
        for done in waited:
            done.set_result(None)
        if changed and not waited:
            self._listeners.found()


def _asks(resource: Resource) -> bool:
    return any(entry.nvml for entry in resource.devices)


def _devices(view: NvmlView) -> tuple[object, ...]:
    """What of a view a scan would see."""
    gpus = tuple(replace(gpu, state=GpuState()) for gpu in view.gpus)
    return gpus, view.driver_version, view.cuda_version, view.unavailable
