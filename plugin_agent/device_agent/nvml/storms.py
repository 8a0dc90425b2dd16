"""XIDs that come in storms: programs and broken GPUs announce the same error hundreds of times a second."""

import logging
import math
from dataclasses import replace
from typing import Final

from device_agent.nvml.model import XidEvent

logger = logging.getLogger(__name__)

_SAME_SECONDS: Final = 0.1
"""The same error of the same part within this time is the same news: the whole table works through each."""
_LOGGED_SECONDS: Final = 60.0
"""Between two lines of the log on the same error of a GPU."""


class Storms:
    """What was passed on, and what was logged."""

    def __init__(self) -> None:
        self._passed: dict[XidEvent, float] = {}
        self._logged: dict[tuple[str, int], float] = {}

    def is_news(self, event: XidEvent) -> bool:
        """Whether to pass it on. Logs it, now and then."""
        same = replace(event, at=0.0)
        if event.at - self._passed.get(same, -math.inf) < _SAME_SECONDS:
            return False
        self._passed = {e: at for e, at in self._passed.items() if event.at - at < _SAME_SECONDS}
        self._passed[same] = event.at
        if event.at - self._logged.get((event.uuid, event.xid), -math.inf) >= _LOGGED_SECONDS:
            logger.info("xid", extra={"gpu": event.uuid, "xid": event.xid, "gi": event.gi, "ci": event.ci})
            self._logged[event.uuid, event.xid] = event.at
        return True
