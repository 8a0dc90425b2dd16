"""Passes an admin's acknowledgement from the inventory's annotation to the device table, and keeps the replies.

The annotation stays on the object and comes with each answer of the API server, so it is read again and again. The
reply to an item that ended failures stays until the item is removed. Each reading may change a list.
"""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

from device_agent.health.acknowledgement import Reply
from device_agent.table.device_table import DeviceTable

logger = logging.getLogger(__name__)


class Acknowledgement:
    """`text`: the replies, for the inventory. `changed` gets the names whose list changed, maybe none."""

    def __init__(self, table: DeviceTable, *, changed: Callable[[frozenset[str]], None]) -> None:
        self.text = ""
        self._table = table
        self._changed = changed
        self._taken: dict[str, str] = {}
        """Item -> the reply it got when it was taken."""

    def read(self, annotation: str) -> None:
        """Takes the annotation's text, or ''."""
        changed, replies = self._table.acknowledge(annotation, now=time.monotonic(), wall=datetime.now(tz=UTC))
        before, self.text = self.text, "; ".join(map(self._words, replies))
        self._taken = {r.item: self._taken[r.item] for r in replies if r.item in self._taken}
        parts = [part for reply in replies for part in reply.parts]
        if parts:
            logger.info("failures acknowledged", extra={"parts": ",".join(parts), "annotation": annotation})
        if self.text != before:
            for reply in replies:
                if reply.failing:
                    extra = {"annotation": reply.item, "error": reply.words}
                    logger.warning("the acknowledgement matches no failure", extra=extra)
        if parts or changed or self.text != before:
            self._changed(changed)

    def _words(self, reply: Reply) -> str:
        if reply.parts:
            self._taken[reply.item] = reply.words
        return reply.words if reply.failing else self._taken.get(reply.item, reply.words)
