"""One scan's view of one of the node's file systems, wherever it is mounted.

In a pod the node's /sys is at /host/sys, in a test or for `device-agent scan` it is a captured tree. Links
are followed within that tree alone: an absolute target means the mount it was made for, and one that leads
outside does not exist. What was looked up is remembered, so a tree lives for one scan and no longer.
"""

import errno
import os
import posixpath
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from device_agent.select.kernel_names import natural

MAX_VALUE: Final = 128
"""Bytes of a sysfs file that an attribute keeps."""

_BLANKS = b" \t\r\n\0"
_REPLACED = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, 0xFFFD], "_")
_REPLACED |= dict.fromkeys(map(ord, "\t\r\n\v\f"), " ")


def clean(raw: bytes) -> str:
    """Text that hardware gave us: stripped, at most 128 bytes; line ends become spaces, control characters '_'.

    A USB serial is written by whoever made the stick, and ends up in logs, ids and environments.
    """
    text = raw.strip(_BLANKS)[:MAX_VALUE].decode("utf-8", "replace")
    return text.translate(_REPLACED).strip()


class HostTree:
    """A directory that stands for `mount` (`/sys`, `/dev`). All paths are relative to it, '' is itself.

    `errors` collects what exists and could not be read, one line each.
    """

    def __init__(self, root: Path, *, mount: str) -> None:
        self.root = os.fspath(root)
        self.mount = mount
        self.errors: list[str] = []
        self._real: dict[str, str | None] = {"": ""}
        self._links: dict[str, str | None] = {}
        self._texts: dict[str, str | None] = {}

    def at(self, path: str) -> str:
        """Where `path` lies for this process."""
        return f"{self.root}/{path}" if path else self.root

    def host(self, path: str) -> str:
        """What `path` is called on the node."""
        return f"{self.mount}/{path}" if path else self.mount

    def failed(self, path: str, error: OSError) -> None:
        self.errors.append(f"{self.host(path)}: {error.strerror or error}")

    def link(self, path: str) -> str | None:
        """The last name of a link's target, as with `driver` and `subsystem`; None where there is no link."""
        if path not in self._links:
            try:
                self._links[path] = posixpath.basename(os.readlink(self.at(path)))  # noqa: PTH115 hot: a Path costs more than the call
            except OSError:
                self._links[path] = None
        return self._links[path]

    def real(self, path: str) -> str | None:
        """`path` without links, None when it leads nowhere, in circles, or out of the tree."""
        if path in self._real:
            return self._real[path]
        self._real[path] = None  # met again on the way: a circle
        head, _, name = path.rpartition("/")
        parent = self.real(head)
        found = None
        if parent is not None:
            straight = f"{parent}/{name}" if parent else name
            found = self.real(straight) if straight != path else self._follow(parent, straight)
        self._real[path] = found
        return found

    def _follow(self, parent: str, path: str) -> str | None:
        try:
            target = os.readlink(self.at(path))  # noqa: PTH115 as above
        except OSError as error:
            return path if error.errno == errno.EINVAL else None
        if target.startswith("/"):
            inside = posixpath.normpath(target)
            if not inside.startswith(f"{self.mount}/"):
                return None
            return self.real(inside.removeprefix(f"{self.mount}/"))
        inside = posixpath.normpath(posixpath.join(parent, target))
        if inside == ".." or inside.startswith("../"):
            return None
        return self.real("" if inside == "." else inside)

    def names(self, path: str) -> list[str]:
        """The names in a directory in natural order; none where it does not exist."""
        try:
            return sorted(os.listdir(self.at(path)), key=natural)  # noqa: PTH208 as above
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self.failed(path, error)
            return []

    def text(self, path: str) -> str | None:
        """A file's value as `clean` gives it; None where it is absent, empty, unreadable or write-only."""
        if path not in self._texts:
            raw = self.raw(path)
            self._texts[path] = (clean(raw) or None) if raw is not None else None
        return self._texts[path]

    def raw(self, path: str) -> bytes | None:
        """The first 4 KiB of a file, None where it cannot be read."""
        try:
            # O_NONBLOCK: a captured tree may hold a FIFO; O_NOFOLLOW: whoever follows links does it by `real`
            fd = os.open(self.at(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return os.read(fd, 4096)
        except OSError:
            return None
        finally:
            os.close(fd)


class DevTree(HostTree):
    """The node's /dev.

    A captured tree often has plain files for device nodes, as only root makes real ones. It is told by
    /dev/null: in a live /dev that is a character device, and there a plain file is never a device.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root, mount="/dev")
        null = self._stat("null")
        self.captured = null is None or not stat.S_ISCHR(null.st_mode)
        self._nodes: dict[str, bool] = {}

    def _stat(self, path: str) -> os.stat_result | None:
        try:
            return os.lstat(self.at(path))
        except OSError:
            return None

    def is_node(self, path: str) -> bool:
        """Whether `path`, links resolved before, is a device node."""
        if path not in self._nodes:
            status = self._stat(path)
            self._nodes[path] = status is not None and (
                stat.S_ISCHR(status.st_mode)
                or stat.S_ISBLK(status.st_mode)
                or (self.captured and stat.S_ISREG(status.st_mode))
            )
        return self._nodes[path]

    def is_directory(self, path: str) -> bool:
        status = self._stat(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def number(self, path: str) -> str | None:
        """Where sysfs has the node's device: `char/10:232`, `block/254:0`; None for a captured plain file."""
        status = self._stat(path)
        if status is None or not (stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)):
            return None
        kind = "char" if stat.S_ISCHR(status.st_mode) else "block"
        return f"{kind}/{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"

    def exists(self, path: str) -> bool:
        """Whether `path` leads to something: a node, or a directory."""
        real = self.real(path)
        return real is not None and (self.is_node(real) or self.is_directory(real))

    def nodes_below(self, path: str) -> tuple[str, ...]:
        """The device nodes in a directory, links in it resolved, sorted and each once."""
        found: set[str] = set()
        self._collect(path, found, depth=8)
        return tuple(sorted(found))

    def _collect(self, path: str, found: set[str], *, depth: int) -> None:
        for name in self.names(path):
            inner = f"{path}/{name}"
            real = self.real(inner)
            if real is None:
                continue
            if self.is_node(real):
                found.add(real)
            # a link to a directory leads to nodes that are not below this one
            elif real == inner and depth and self.is_directory(real):
                self._collect(inner, found, depth=depth - 1)


def host_paths(paths: Iterable[str]) -> tuple[str, ...]:
    """Paths below /dev as the node calls them, sorted."""
    return tuple(sorted(f"/dev/{path}" for path in paths))
