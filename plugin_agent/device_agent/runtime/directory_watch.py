"""Waits for a change in one directory: by inotify where it works, and always by a slow poll.

The directory may be missing, may appear, or may be replaced by another one of the same name. A missed event costs one
poll interval. The caller reads what it needs after each return, so the content of events is ignored.
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
    """Waits for changes in one directory, for one task.

    `writes` False: only names that appear or disappear count. In /dev, each write to /dev/null would be an event.
    """

    def __init__(self, path: Path, *, writes: bool = True) -> None:
        self._path = path
        self._mask = _NAMES | _CLOSE_WRITE if writes else _NAMES
        self._inotify: _Inotify | None = None
        self._watched: tuple[int, int] | None = None
        self._complained = False

    async def wait(self, *, seconds: float) -> None:
        """Returns after a change, at once if the watch is new, and at the latest after `seconds`."""
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
        """Starts to watch the directory at the path. Returns whether the watch is new."""
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
            logger.warning(
                "inotify is not available, the directory is polled",
                extra={"path": str(self._path), "error": str(error)},
            )
            self._complained = True


class _Inotify:
    """One inotify instance with one watch, read by the running loop.

    Raises:
        OSError: no instance or no watch is left for this user, or the directory is gone.
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
        """Returns after the next event, or at once if one came since the last call."""
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
    """The result of a libc call.

    Raises:
        OSError: the call failed.
    """
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
    return result
