"""Passes the cordons of the inventory's spec to the device table, and says which of them name no device."""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

from device_agent.contract.inventory import InventoryCordon
from device_agent.table.device_table import DeviceTable

logger = logging.getLogger(__name__)


class Cordoning:
    """`changed` gets the names whose list changed, maybe none."""

    def __init__(self, table: DeviceTable, *, changed: Callable[[frozenset[str]], None]) -> None:
        self._table = table
        self._changed = changed

    @property
    def text(self) -> str:
        """Which items name no device, for the inventory, or ''."""
        return self._table.unknown_cordons()

    def wanted(self) -> tuple[InventoryCordon, ...]:
        """The cordons of an inventory that is created anew."""
        return self._table.cordons.spec

    def objects(self) -> tuple[str, ...]:
        """The other DevicePluginConfigs whose cordons count on this node, or would if they still existed."""
        return self._table.cordons.objects

    def drop(self, deleted: frozenset[str]) -> None:
        """Takes those of `objects` that were deleted."""
        if deleted != self._table.cordons.deleted:
            logger.info("cordons of deleted objects end", extra={"objects": ",".join(sorted(deleted)) or "-"})
            self._changed(self._table.drop_cordons(deleted, now=time.monotonic(), wall=datetime.now(tz=UTC)))

    def read(self, cordoned: tuple[InventoryCordon, ...]) -> None:
        """Takes `spec.cordoned`. Nothing happens if it is as before."""
        before = self._table.cordons
        changed = self._table.apply_cordons(cordoned, now=time.monotonic(), wall=datetime.now(tz=UTC))
        if self._table.cordons.spec != before.spec:
            ids = ",".join(item.id for item in cordoned)
            logger.info("cordons changed", extra={"devices": ids or "-", "error": self.text})
        if self._table.cordons is not before or changed:
            self._changed(changed)
