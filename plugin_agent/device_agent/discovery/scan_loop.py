"""Scans the node again and again, and brings each result into the device table.

The loop is level-triggered, like a controller's. A hint says that something may have changed, but not what. Without
hints the node is still scanned at intervals. A driver may block the read of a file for ever. So a scan runs in a thread
(`scan_threads`): its device is left out after two seconds. A scan that takes too long without such a read has a
deadline; until it returns, the last result counts.

A configuration is in force after the first scan that used it. The holders of devices are asked for before that first
scan: `maxDevices` must not replace a device that an earlier process gave out.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from device_agent.contract.document import Document
from device_agent.contract.values import dataclass
from device_agent.discovery.driver import DriverFeed, Opener
from device_agent.discovery.hotplug import UeventSocket
from device_agent.discovery.reads import HangingReads, HangsError, Reader
from device_agent.discovery.scan_errors import ScanErrors
from device_agent.discovery.scan_threads import ScanThreads
from device_agent.discovery.scanner import Scanner
from device_agent.runtime.metrics import Metrics
from device_agent.runtime.settings import Settings
from device_agent.runtime.worker import WorkerBusyError
from device_agent.select.selection import select
from device_agent.select.unit import Selection
from device_agent.store.configuration import CheckedDocument, MountedConfiguration
from device_agent.store.locks import Wanted
from device_agent.table.device_table import DeviceTable

logger = logging.getLogger(__name__)

_HUNG_SECONDS: Final = 5.0
"""Seconds between looks at a scan that hangs."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A scan that is in the table. `changed`: names whose list changed, appeared or disappeared."""

    accepted: CheckedDocument
    changed: frozenset[str]


@dataclass(frozen=True, slots=True)
class ScanCalls:
    """`first`: awaited before the first scan. `in_force`: a configuration came in force. `applied`: each scan.

    `secured`: takes the locks for a scan's devices; they are offered inside.
    """

    first: Callable[[], Awaitable[None]]
    in_force: Callable[[], None]
    applied: Callable[[Applied], None]
    secured: Callable[[Wanted], contextlib.AbstractAsyncContextManager[None]]


class ScanLoop:
    """Scans what `configuration` wants. `in_force`: the configuration that selected the table's devices.

    `feeds`: driver libraries, each asked before a scan.
    """

    def __init__(
        self,
        scanner: Scanner,
        *,
        configuration: MountedConfiguration,
        feeds: Sequence[DriverFeed],
        table: DeviceTable,
        metrics: Metrics,
        settings: Settings,
        calls: ScanCalls,
    ) -> None:
        self.in_force: CheckedDocument | None = None
        self._scanner = scanner
        self._configuration = configuration
        self._feeds = tuple(feeds)
        self._table = table
        self._metrics = metrics
        self._settings = settings
        self._calls = calls
        self._hanging = HangingReads(after=settings.read_deadline, longest=settings.scan_deadline)
        self._threads = ScanThreads(self._hanging, returned=self.soon)
        self._errors = ScanErrors()
        self._hint = asyncio.Event()
        self._begun = False

    def soon(self) -> None:
        """Asks for a scan soon: something may have changed."""
        self._hint.set()

    async def listen(self) -> None:
        """Takes the kernel's hints until it is cancelled. Returns at once if the kernel gives none."""
        try:
            with UeventSocket() as uevents:
                await uevents.hints(self.soon, settle=self._settings.hint_coalesce)
        except OSError as error:
            logger.warning("no uevents, periodic scans alone notice changes", extra={"error": str(error)})

    async def run(self) -> None:
        """Scans until it is cancelled."""
        while True:
            self._hint.clear()
            if (wanted := self._configuration.wanted) is not None:
                await self._scan(wanted)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._hint.wait()

    def _pause(self) -> float:
        """Seconds until the next periodic scan. Entries with `unhealthyWhen` may need it sooner."""
        if self._threads.busy:
            return _HUNG_SECONDS
        resources = self.in_force.document.resources if self.in_force else ()
        checks = (r.health.interval_seconds for r in resources if r.health.unhealthy_when)
        return min(self._settings.scan_interval, min(checks, default=math.inf))

    async def _scan(self, wanted: CheckedDocument) -> None:
        self._table.configure(wanted.document)
        if not self._begun:
            await self._calls.first()
            self._begun = True
        drivers = await self._ask_drivers(wanted.document)
        begun = time.monotonic()
        held = self._table.held_ids()
        hardware = self._table.hardware()
        known = frozenset(r.entry for r in self._table.snapshot().resources if r.devices) if drivers else frozenset()
        try:
            selection, errors = await self._threads.call(
                lambda reader: self._look(
                    wanted.document, drivers, held=held, known=known, hardware=hardware, reader=reader
                ),
                seconds=self._settings.scan_deadline,
            )
        except (TimeoutError, WorkerBusyError):
            self._complain(("the scan hangs; the last result stays",))
            return
        except Exception:
            logger.exception("the scan failed; the last result stays")
            self._metrics.scan_failed()
            return
        self._metrics.scanned(seconds=time.monotonic() - begun)
        self._complain((*errors, *(str(HangsError(path)) for path in sorted(self._hanging.paths))))
        async with self._calls.secured(self._table.wanted_with(selection)):
            changed = self._table.apply_selection(selection, now=time.monotonic(), wall=datetime.now(tz=UTC))
        if wanted is not self.in_force:
            self.in_force = wanted
            self._calls.in_force()
            logger.info("configuration in force", extra={"sha256": wanted.sha256})
        self._calls.applied(Applied(accepted=wanted, changed=changed))

    async def _ask_drivers(self, document: Document) -> dict[str, Opener]:
        answers = await asyncio.gather(*(feed.for_scan(document) for feed in self._feeds))
        return {feed.kind: opener for feed, opener in zip(self._feeds, answers, strict=True) if opener is not None}

    def _look(
        self,
        document: Document,
        drivers: Mapping[str, Opener],
        *,
        held: frozenset[str],
        known: frozenset[str],
        hardware: frozenset[str],
        reader: Reader,
    ) -> tuple[Selection, tuple[str, ...]]:
        """In the scan's thread: it reads the node's files."""
        findings = self._scanner.scan(document, drivers=drivers, known=known, reader=reader)
        selection = select(document, findings, dev=self._scanner.device_nodes(), held=held)
        left = hardware.difference(path for unit in selection.units for path in unit.hardware)
        if left:
            selection = replace(selection, still_there=self._scanner.still_there(left))
        return selection, findings.errors

    def _complain(self, errors: tuple[str, ...]) -> None:
        if errors:
            self._metrics.scan_failed()
        self._errors.log(errors)
