"""News of driver libraries, brought into the device table: looks and faults of their devices, and links between these.

A scan brings devices, this brings what happens to them. What a look shows is told before the scan that uses it, so that
a broken device is never offered for lack of news.
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
        """To be called when a library shows other devices than before and no scan waits for its answer."""

    def looked(self, look: Look, *, links: Links) -> None:
        """A library was asked about all its devices. `links`: between them."""
        self._table.apply_links(links, source=look.source)
        self._changed(self._apply(look))

    def fault(self, fault: Fault) -> None:
        """A driver announced a fault.

        Nobody is told of one that means nothing to any entry: there may be hundreds a second.
        """
        before = self._table.health_revision
        changed = self._apply(fault)
        if changed or self._table.health_revision != before:
            self._changed(changed)

    def _apply(self, news: Look | Fault) -> frozenset[str]:
        return self._table.apply_health(news, now=time.monotonic(), wall=datetime.now(tz=UTC))
