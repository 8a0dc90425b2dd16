"""What a scan cannot read, as lines of the log: once each, and never thousands."""

import logging
from collections.abc import Collection
from typing import Final

logger = logging.getLogger(__name__)

_MOST: Final = 20
"""The most lines for one scan: a bus that disappears takes many devices along."""


class ScanErrors:
    """Logs what a scan cannot read, if the scan before could."""

    def __init__(self) -> None:
        self._before: Collection[str] = ()

    def log(self, errors: Collection[str]) -> None:
        new = [error for error in errors if error not in self._before]
        self._before = frozenset(errors)
        for error in new[:_MOST]:
            logger.warning("scan", extra={"error": error})
        if len(new) > _MOST:
            logger.warning("more could not be read", extra={"files": len(new) - _MOST})
