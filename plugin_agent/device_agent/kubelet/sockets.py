"""The agent's sockets in the kubelet's device-plugins directory: new names, stale sockets, the kubelet's own socket.

gRPC's C core takes over a socket that it finds at its path, and unlinks the path when either server stops. So every
server gets a name that was never used before, and only our own dead sockets are removed.
"""

import contextlib
import hashlib
import os
import secrets
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

KUBELET_SOCKET: Final = "kubelet.sock"
MAX_PATH: Final = 107
"""Bytes of a socket's path (struct sockaddr_un less its final zero); gRPC's C core refuses more."""

_CONNECT_SECONDS: Final = 0.2


class SocketError(Exception):
    """No socket can be made in the kubelet's directory. The message is one line for an admin."""


def prefix(owner: str) -> str:
    """The beginning of all socket names of this object's agents, on any node. `owner`: the object's uid or name."""
    return f"devop-{_digest(owner)}-"


def new_path(directory: Path, *, owner: str, resource: str) -> Path:
    """A path that no socket had before. It is directly in the directory: the kubelet looks only at the top level.

    Raises:
        SocketError: the path is too long for a socket.
    """
    path = directory / f"{prefix(owner)}{_digest(resource)}-{secrets.token_hex(4)}.sock"
    if (length := len(os.fsencode(path))) > MAX_PATH:
        raise SocketError(
            f"{path} has {length} bytes and a socket's path may have {MAX_PATH}: "
            "the kubelet's directory needs a shorter path"
        )
    return path


@contextlib.contextmanager
def private() -> Iterator[None]:
    """Sockets that are bound inside are accessible by root alone: a socket's mode follows the umask."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def remove_stale(directory: Path, *, owner: str) -> tuple[str, ...]:
    """Removes sockets with our prefix that nobody serves. Returns their names. Served and foreign sockets stay."""
    removed = []
    with contextlib.suppress(OSError):
        for path in sorted(directory.iterdir()):
            if path.name.startswith(prefix(owner)) and exists(path) and not _answers(path):
                with contextlib.suppress(OSError):
                    path.unlink()
                    removed.append(path.name)
    return tuple(removed)


def exists(path: Path) -> bool:
    """Whether there is a socket at the path."""
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return False


def life(directory: Path) -> tuple[int, int] | None:
    """Identifies one life of the kubelet: inode and change time of its socket. None: there is no socket."""
    try:
        found = (directory / KUBELET_SOCKET).stat()
    except OSError:
        return None
    return (found.st_ino, found.st_ctime_ns) if stat.S_ISSOCK(found.st_mode) else None


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True  # busy or unknown: leave it
    return True


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]
