"""Limits repeated XIDs: programs and broken GPUs can announce the same error hundreds of times a second."""

import logging
import math
from dataclasses import replace
from typing import Final

from device_agent.nvml.model import XidEvent

logger = logging.getLogger(__name__)

_SAME_SECONDS: Final = 0.1
"""A repeated error of the same part within this time is dropped, because each one costs a pass of the whole table."""
_LOGGED_SECONDS: Final = 60.0
"""The least time between two log lines about the same error of a GPU."""


class Storms:
    """Remembers which XIDs were passed on and logged."""

    def __init__(self) -> None:
        self._passed: dict[XidEvent, float] = {}
        self._logged: dict[tuple[str, int], float] = {}

    def is_news(self, event: XidEvent) -> bool:
        """Whether to pass the event on. Logs it at most once in _LOGGED_SECONDS."""
        same = replace(event, at=0.0)
        if event.at - self._passed.get(same, -math.inf) < _SAME_SECONDS:
            return False
        self._passed = {e: at for e, at in self._passed.items() if event.at - at < _SAME_SECONDS}
        self._passed[same] = event.at
        if event.at - self._logged.get((event.uuid, event.xid), -math.inf) >= _LOGGED_SECONDS:
            logger.info("xid", extra={"gpu": event.uuid, "xid": event.xid, "gi": event.gi, "ci": event.ci})
            self._logged[event.uuid, event.xid] = event.at
        return True
