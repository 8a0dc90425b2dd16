"""What a scan cannot read, as lines of the log: once each, and never thousands."""

import logging
from collections.abc import Collection
from typing import Final

logger = logging.getLogger(__name__)

_MOST: Final = 20
"""Lines for one scan; a bus that goes takes many devices along."""


class ScanErrors:
    """Compares what each scan could not read with the one before."""

    def __init__(self) -> None:
        self._before: Collection[str] = ()

    def log(self, errors: Collection[str]) -> None:
        new = [error for error in errors if error not in self._before]
        self._before = frozenset(errors)
        for error in new[:_MOST]:
            logger.warning("scan", extra={"error": error})
        if len(new) > _MOST:
            logger.warning("more could not be read", extra={"files": len(new) - _MOST})
