"""Single files of the node store: read within a bound, written whole or not at all, for root alone."""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

Stamp = tuple[int, int, int]
"""Time of the last change in nanoseconds, inode, size: another content has another stamp."""

_DIRECTORY_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
_CHUNK: Final = 1024 * 1024


class UnusableFileError(ValueError):
    """What stands under the name is nothing that an agent writes. The message is one line."""


def stamp_of(path: Path) -> Stamp:
    """The stamp of a regular file.

    Raises:
        OSError: as the disk says.
        UnusableFileError: a directory, a symbolic link, a FIFO, a device.
    """
    return _stamp(path.stat(follow_symlinks=False))


def read_whole(path: Path, *, limit: int) -> tuple[bytes, Stamp]:
    """The content of a regular file. Opening never waits, as it would for the writer of a FIFO.

    Raises:
        OSError: as the disk says.
        UnusableFileError: no regular file, or longer than `limit` bytes.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        stamp = _stamp(os.fstat(handle))
        content = bytearray()
        while len(content) <= limit and (chunk := os.read(handle, _CHUNK)):
            content += chunk
    finally:
        os.close(handle)
    if len(content) > limit:
        raise UnusableFileError(f"it is longer than {limit:,} bytes")
    return bytes(content), stamp


def private(*directories: Path) -> None:
    """Make each where it is missing, for root alone whatever it was.

    Raises:
        OSError: the one above it is missing, or the disk refuses.
    """
    for path in directories:
        path.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)
        path.chmod(_DIRECTORY_MODE)


def write_whole(path: Path, content: bytes) -> Stamp:
    """Write so that a crash at any moment leaves the old content or the new one, never a part.

    Raises:
        OSError: as the disk says.
    """
    unfinished = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    try:
        handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
        try:
            left = memoryview(content)
            while left:
                left = left[os.write(handle, left) :]
            os.fsync(handle)
            stamp = _stamp(os.fstat(handle))
        finally:
            os.close(handle)
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)  # the rename itself
    finally:
        os.close(directory)
    return stamp


def _stamp(status: os.stat_result) -> Stamp:
    if not stat.S_ISREG(status.st_mode):
        raise UnusableFileError("it is no regular file")
    return status.st_mtime_ns, status.st_ino, status.st_size
