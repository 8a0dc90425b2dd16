"""Waiting for a change in one directory: inotify where there is a directory, a slow poll always.

The directory may be missing, appear, or be replaced by another of the same name; a missed event costs one
poll interval. The caller re-reads what it cares about after every return.
"""

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Final

from asyncinotify import Inotify, Mask

logger = logging.getLogger(__name__)

_NAMES: Final = Mask.CREATE | Mask.DELETE | Mask.MOVED_TO | Mask.MOVED_FROM | Mask.DELETE_SELF | Mask.MOVE_SELF


class DirectoryWatch:
    """One directory of which changes are awaited, by one task.

    `writes` False: only names that come and go count. In /dev every program that writes to /dev/null is a write.
    """

    def __init__(self, path: Path, *, writes: bool = True) -> None:
        self._path = path
        self._mask = _NAMES | Mask.CLOSE_WRITE if writes else _NAMES
        self._inotify: Inotify | None = None
        self._watched: tuple[int, int] | None = None
        self._complained = False

    async def wait(self, *, seconds: float) -> None:
        """Returns after a change in the directory, at once when the watch is new, and at the latest in `seconds`."""
        if self._attach():
            return
        if self._inotify is None:
            await asyncio.sleep(seconds)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._inotify.get()

    def close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()
        self._inotify, self._watched = None, None

    def _attach(self) -> bool:
        """Whether the directory at the path has just come under watch."""
        try:
            found = self._path.stat()
        except OSError:
            self.close()
            return False
        identity = (found.st_dev, found.st_ino)
        if identity == self._watched:
            return False
        self.close()
        try:
            inotify = Inotify()
        except OSError as error:
            self._complain(error)
            return False
        try:
            inotify.add_watch(self._path, self._mask)
        except OSError as error:
            inotify.close()
            self._complain(error)
            return False
        self._inotify, self._watched = inotify, identity
        return True

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            logger.warning("no inotify, polling alone", extra={"path": str(self._path), "error": str(error)})
            self._complained = True
