"""Files that outlive the process: written whole or not at all, readable for root alone."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

_MODE = 0o700


def private(*directories: Path) -> None:
    """Make each where it is missing, for root alone whatever it was.

    Raises:
        OSError: the one above it is missing, or the disk refuses.
    """
    for path in directories:
        path.mkdir(mode=_MODE, exist_ok=True)
        path.chmod(_MODE)


def write_whole(path: Path, content: bytes) -> None:
    """Write so that a crash at any moment leaves the old content or the new one, never a part.

    Raises:
        OSError: as the disk says.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)  # the rename itself
    finally:
        os.close(directory)
