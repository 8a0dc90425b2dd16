"""Writes files that running programs read."""

import contextlib
import os
import stat
from pathlib import Path


def write(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Writes a file in one step, and only when its text or its mode differs.

    A program that watches its configuration may end when the file is written, and no reader may see half of it.
    """
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if path.read_text() == text and stat.S_IMODE(path.stat().st_mode) == mode:
            return
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w") as file:
        os.fchmod(descriptor, mode)
        file.write(text)
    unfinished.rename(path)
