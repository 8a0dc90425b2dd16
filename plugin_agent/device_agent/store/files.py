"""Single files of the node store: read up to a limit, replaced whole or not at all, accessible by root alone."""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

Stamp = tuple[int, int, int]
"""Modification time in nanoseconds, inode, size: shows that a file was replaced. `write_whole` makes a new inode.

A touch gives another stamp too. An edit in place keeps the stamp if the size stays and the file system's clock has not
moved on.
"""

_DIRECTORY_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
_CHUNK: Final = 1024 * 1024


class UnusableFileError(ValueError):
    """The path is not a file that an agent writes. The message is one line."""


def stamp_of(path: Path) -> Stamp:
    """The stamp of a regular file.

    Raises:
        OSError: the disk refuses.
        UnusableFileError: it is a directory, a symbolic link, a FIFO or a device.
    """
    return _stamp(path.stat(follow_symlinks=False))


def read_whole(path: Path, *, limit: int) -> tuple[bytes, Stamp]:
    """The content of a regular file, and its stamp. Opening never blocks, not even a FIFO that has no writer.

    Raises:
        OSError: the disk refuses.
        UnusableFileError: it is not a regular file, or longer than `limit` bytes.
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
    """Makes the directories if they are missing. Makes all of them accessible by root alone.

    Raises:
        OSError: the parent directory is missing, or the disk refuses.
    """
    for path in directories:
        path.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)
        path.chmod(_DIRECTORY_MODE)


def write_whole(path: Path, content: bytes) -> Stamp:
    """Replaces a file. A crash at any moment leaves the old or the new content, never a part.

    Raises:
        OSError: the disk refuses.
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
        os.fsync(directory)  # brings the rename to the disk
    finally:
        os.close(directory)
    return stamp


def _stamp(status: os.stat_result) -> Stamp:
    if not stat.S_ISREG(status.st_mode):
        raise UnusableFileError("it is not a regular file")
    return status.st_mtime_ns, status.st_ino, status.st_size
