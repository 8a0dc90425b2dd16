"""Logs what a scan cannot read: each line once, and never thousands of lines."""

import logging
from collections.abc import Collection
from typing import Final

logger = logging.getLogger(__name__)

_MOST: Final = 20
"""The most lines of one scan: a bus that disappears takes many devices with it."""


class ScanErrors:
    """Logs what a scan cannot read, unless the scan before could not read it either."""

    def __init__(self) -> None:
        self._before: Collection[str] = ()

    def log(self, errors: Collection[str]) -> None:
        new = [error for error in errors if error not in self._before]
        self._before = frozenset(errors)
        for error in new[:_MOST]:
            logger.warning("the scan has a problem", extra={"error": error})
        if len(new) > _MOST:
            logger.warning("the scan has more problems", extra={"files": len(new) - _MOST})
