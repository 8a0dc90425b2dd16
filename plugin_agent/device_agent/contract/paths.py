"""Paths as an admin writes them: which ones are refused, and how to write them."""

import re
from typing import Final

MAX_PATH: Final = 512
"""The most characters of a path, as written in the document."""


def is_plain(path: str) -> bool:
    """Whether the path has no `..`, `.` or empty segment, and is not the root."""
    return not {"", ".", ".."}.intersection(path.removeprefix("/").split("/"))


def problem(path: str, *, below: str) -> str:
    """Why the text cannot be an absolute path below the directory, with the cure, or ''."""
    if len(path) > MAX_PATH:
        return f"{path[:32]!r}… has {len(path):,} characters, a path may have {MAX_PATH}; name a shorter one"
    if "\0" in path:
        return f"{path!r} has a NUL character; remove it"
    if not path.startswith(below):
        near = f"/dev/{path}" if below == "/dev/" and not path.startswith("/") else f"{below}…"
        where = "an absolute path" if below == "/" else f"an absolute path below {below.rstrip('/')}"
        return f"{path!r} must be {where}: write it as {near}"
    segments = set(path.removeprefix("/").split("/"))
    if segments & {".", ".."}:
        return f"{path!r} must be written without '..' and '.': name the place itself"
    if "" in segments:
        short = re.sub("/+", "/", path).rstrip("/")
        if short in ("", "/dev"):
            return f"{path!r} must be a file or directory below {below}"
        return f"{path!r} must be written without '//' and without a slash at the end: write {short}"
    return ""
