"""Waiting for a change in one directory: inotify where there is a directory, a slow poll always.

The directory may be missing, appear, or be replaced by another of the same name; a missed event costs one
poll interval. The caller re-reads what it cares about after every return, so what an event says is not read.
"""

import asyncio
import contextlib
import ctypes
import logging
import os
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

_CLOSE_WRITE: Final = 0x008
_NAMES: Final = 0x040 | 0x080 | 0x100 | 0x200 | 0x400 | 0x800
"""inotify(7): IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE, IN_DELETE_SELF, IN_MOVE_SELF."""
_READ_BYTES: Final = 65536


class DirectoryWatch:
    """One directory of which changes are awaited, by one task.

    `writes` False: only names that come and go count. In /dev every program that writes to /dev/null is a write.
    """

    def __init__(self, path: Path, *, writes: bool = True) -> None:
        self._path = path
        self._mask = _NAMES | _CLOSE_WRITE if writes else _NAMES
        self._inotify: _Inotify | None = None
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
                await self._inotify.changed()

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
            self._inotify = _Inotify(self._path, mask=self._mask)
        except OSError as error:
            self._complain(error)
            return False
        self._watched = identity
        return True

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            logger.warning("no inotify, polling alone", extra={"path": str(self._path), "error": str(error)})
            self._complained = True


class _Inotify:
    """One inotify instance with one watch, read by the running loop.

    Raises:
        OSError: no instance or no watch is left for this user, or the directory has gone.
    """

    def __init__(self, path: Path, *, mask: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = _checked(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), path)
        try:
            _checked(libc.inotify_add_watch(self._fd, os.fsencode(path), ctypes.c_uint32(mask)), path)
        except OSError:
            os.close(self._fd)
            raise
        self._seen = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._read)

    async def changed(self) -> None:
        """Returns once something has happened since the last call."""
        await self._seen.wait()
        self._seen.clear()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            os.read(self._fd, _READ_BYTES)
        self._seen.set()

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)


def _checked(result: int, path: Path) -> int:
    """What a call of libc returned.

    Raises:
        OSError: it failed.
    """
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
    return result
