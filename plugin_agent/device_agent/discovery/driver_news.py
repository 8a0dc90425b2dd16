"""Brings news of driver libraries into the device table: looks, faults and links of their devices.

A scan finds devices; news tell what happens to them. A look is applied before the scan that uses it, so that a broken
device is never offered.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from device_agent.allocate.topology import Links
from device_agent.health.news import Fault, Look
from device_agent.table.device_table import DeviceTable


class DriverNews:
    """A library calls it on the event loop. `changed` gets the names whose list changed; `found` asks for a scan."""

    def __init__(
        self, table: DeviceTable, *, changed: Callable[[frozenset[str]], None], found: Callable[[], None]
    ) -> None:
        self._table = table
        self._changed = changed
        self.found = found
        """Called when a library shows other devices than before, and no scan waits for its answer."""

    def looked(self, look: Look, *, links: Links) -> None:
        """Applies a look at all devices of a library. `links`: the links between them."""
        self._table.apply_links(links, source=look.source)
        self._changed(self._apply(look))

    def fault(self, fault: Fault) -> None:
        """Applies a fault that a driver announced.

        A fault that matters to no entry is ignored: there may be hundreds a second.
        """
        before = self._table.health_revision
        changed = self._apply(fault)
        if changed or self._table.health_revision != before:
            self._changed(changed)

    def _apply(self, news: Look | Fault) -> frozenset[str]:
        return self._table.apply_health(news, now=time.monotonic(), wall=datetime.now(tz=UTC))
