"""Limits a fault to the object of the node where it happens.

If one device cannot be read, it is left out with the reason `Unreadable`, and the scan goes on. An unreadable tree is
expected: the message names the path and the cause. Any other exception is a defect of the agent: its traceback is
logged once.
"""

import contextlib
import logging
from collections.abc import Iterator
from typing import Final

from device_agent.contract.reasons import ExclusionReason
from device_agent.discovery.reads import HangsError, UnreadableError
from device_agent.select.found import FoundDevice

logger = logging.getLogger(__name__)

_MOST: Final = 1000
"""The most defects that one process logs."""


class Boundary:
    """Remembers from scan to scan which defects are already logged."""

    def __init__(self) -> None:
        self._logged: set[tuple[str, type[Exception]]] = set()

    @contextlib.contextmanager
    def around(
        self,
        source: str,
        name: str,
        place: str,
        *,
        into: list[FoundDevice],
        sysfs_path: str | None = None,
        label: str = "",
    ) -> Iterator[None]:
        """Wraps the work on one object, `place` on the node. An exception becomes a find that is left out.

        `sysfs_path` and `label`: the find's, if they are known.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 whatever it is, the other objects must be found
            into.append(
                FoundDevice(
                    source=source,
                    name=name,
                    sysfs_path=sysfs_path,
                    attributes={"name": name},
                    left_out=(ExclusionReason.UNREADABLE, self.explain(error, place)),
                    label=label,
                )
            )

    def explain(self, error: Exception, place: str) -> str:
        """What happened, for an admin; a defect is logged with its traceback."""
        if isinstance(error, UnreadableError | HangsError):
            return str(error)
        if isinstance(error, OSError):
            return str(UnreadableError(place, error.strerror or str(error)))
        key = (place, type(error))
        if key not in self._logged and len(self._logged) < _MOST:
            self._logged.add(key)
            logger.error(
                "an object cannot be read because of a defect of the agent", exc_info=error, extra={"path": place}
            )
        return str(UnreadableError(place, f"{error!r}; the agent's log has the details"))
