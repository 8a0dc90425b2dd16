"""A view of one of the node's file systems during one scan, wherever it is mounted.

In a pod the node's /sys is at /host/sys; in a test or for `device-agent scan` it is a captured tree. A link is
followed within that tree alone: an absolute target is looked up in the tree, and a link out of it counts as missing.
Lookups are remembered, so a tree is used for one scan only.
"""

import errno
import os
import posixpath
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from device_agent.discovery.reads import Reader, UnreadableError
from device_agent.select.kernel_names import natural

MAX_VALUE: Final = 128
"""The most bytes of a sysfs file that an attribute keeps."""

MAX_LINKS: Final = 40
"""The most links in one path, as in the kernel (MAXSYMLINKS)."""

_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO})
"""The object does not exist, or went away during the scan."""
_NO_VALUE: Final = _GONE | {
    errno.EACCES,
    errno.EAGAIN,
    errno.EINVAL,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENODATA,
    errno.ENOSYS,
    errno.ENOTSUP,
    errno.ENOTTY,
    errno.EPERM,
}
"""With these, a driver says that the file has no value now, such as `speed` of a network port without a link."""
_BLANKS = b" \t\r\n\0"
_REPLACED = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, 0xFFFD], "_")
_REPLACED |= dict.fromkeys(map(ord, "\t\r\n\v\f"), " ")


def clean(raw: bytes) -> str:
    """Makes text from hardware safe: stripped, at most 128 bytes; line ends become spaces, control characters '_'.

    Whoever made a USB stick chose its serial number, and that ends up in logs, ids and environments.
    """
    text = raw.strip(_BLANKS)[:MAX_VALUE].decode("utf-8", "replace")
    return text.translate(_REPLACED).strip()


class HostTree:
    """A directory that stands for `mount` (`/sys`, `/dev`). All paths are relative to it; '' is the directory itself.

    `reader`: is told of each read that may block. Every method that reads may raise its `HangsError`.
    """

    def __init__(self, root: Path, *, mount: str, reader: Reader | None = None) -> None:
        self.root = os.fspath(root)
        self.mount = mount
        self._reader = reader or Reader()
        self._real: dict[str, str | None] = {"": ""}
        self._targets: dict[str, str | None] = {}
        self._texts: dict[str, str | None] = {}

    def at(self, path: str) -> str:
        """Where `path` is for this process."""
        return f"{self.root}/{path}" if path else self.root

    def host(self, path: str) -> str:
        """The name of `path` on the node."""
        return f"{self.mount}/{path}" if path else self.mount

    def link(self, path: str) -> str | None:
        """The last name of a link's target, as for `driver` and `subsystem`; None if there is no link."""
        try:
            target = self._target(path)
        except UnreadableError:
            return None
        return posixpath.basename(target) if target else None

    def is_plain(self, path: str) -> bool:
        """Whether `path` exists and is no link."""
        try:
            return self._target(path) == ""
        except UnreadableError:
            return False

    def _target(self, path: str) -> str | None:
        """Where the link at `path` leads; '' if it is no link, None if nothing is there.

        Raises:
            UnreadableError: it cannot be determined.
        """
        if path not in self._targets:
            self._targets[path] = self._read_link(path)
        return self._targets[path]

    def _read_link(self, path: str) -> str | None:
        try:
            return os.readlink(self.at(path))  # noqa: PTH115 hot: a Path costs more than the call
        except OSError as error:
            if error.errno == errno.EINVAL:
                return ""
            if error.errno in _GONE:
                return None
            raise self.unreadable(path, error) from error
        except ValueError as error:
            raise UnreadableError(self.host(path), "its name has a NUL byte") from error

    def unreadable(self, path: str, error: OSError) -> UnreadableError:
        return UnreadableError(self.host(path), error.strerror or str(error))

    def real(self, path: str) -> str | None:
        """`path` without links; None if it leads nowhere or out of the tree.

        Raises:
            UnreadableError: it leads in a circle, over too many links, or through an unreadable part.
        """
        if path not in self._real:
            self._real[path] = self._resolve(path)
        return self._real[path]

    def _resolve(self, path: str) -> str | None:
        head, _, name = path.rpartition("/")
        known = self._real.get(head)  # the directory is often known: its objects are looked up one after the other
        found, rest = (known, [name]) if known is not None else ("", path.split("/")[::-1])
        links = 0
        while rest:
            name = rest.pop()
            if name in ("", "."):
                continue
            if name == "..":
                if not found:
                    return None
                found = found.rpartition("/")[0]
                continue
            step = f"{found}/{name}" if found else name
            try:
                target = self._target(step)
            except UnreadableError as error:
                raise error if step == path else UnreadableError(self.host(path), f"it leads to {error}") from error
            if target is None:
                return None
            if not target:
                found = step
                continue
            links += 1
            if links > MAX_LINKS:
                raise UnreadableError(
                    self.host(path), f"it leads over more than {MAX_LINKS} symbolic links, or in a circle"
                )
            if target.startswith("/"):
                if not target.startswith(f"{self.mount}/"):
                    return None
                found, target = "", target.removeprefix(f"{self.mount}/")
            rest += target.split("/")[::-1]
        return found

    def names(self, path: str) -> list[str]:
        """The names in a directory in natural order; none if it does not exist.

        Raises:
            UnreadableError: it exists but cannot be listed.
        """
        self._reader.begin(self.host(path))
        try:
            return sorted(os.listdir(self.at(path)), key=natural)  # noqa: PTH208 as above
        except OSError as error:
            if error.errno in _GONE:
                return []
            raise self.unreadable(path, error) from error
        finally:
            self._reader.end()

    def text(self, path: str) -> str | None:
        """A file's value as `clean` gives it; None if it is absent, empty, unreadable or write-only."""
        if path not in self._texts:
            raw = self.raw(path)
            self._texts[path] = (clean(raw) or None) if raw is not None else None
        return self._texts[path]

    def asked(self, path: str) -> str | None:
        """A file's value as `clean` gives it; None if the device has none.

        Raises:
            UnreadableError: the driver may have a value, but the read failed.
        """
        if self._texts.get(path) is None:  # `text` also keeps None for a read that failed
            try:
                self._texts[path] = clean(self._read(path)) or None
            except OSError as error:
                if error.errno not in _NO_VALUE:
                    raise self.unreadable(path, error) from error
                self._texts[path] = None
        return self._texts[path]

    def raw(self, path: str) -> bytes | None:
        """The first 4 KiB of a file; None if it cannot be read."""
        try:
            return self._read(path)
        except OSError:
            return None

    def required(self, path: str) -> str | None:
        """A file's value as `clean` gives it; None if its directory is gone.

        Raises:
            UnreadableError: the directory exists, but the file is absent, empty or unreadable.
        """
        try:
            value = clean(self._read(path))
        except OSError as error:
            if error.errno in _GONE and not os.path.isdir(self.at(posixpath.dirname(path))):  # noqa: PTH112 as above
                return None
            raise self.unreadable(path, error) from error
        if not value:
            raise UnreadableError(self.host(path), "is empty")
        return value

    def _read(self, path: str) -> bytes:
        self._reader.begin(self.host(path))
        try:
            # O_NONBLOCK: a captured tree may hold a FIFO; O_NOFOLLOW: only `real` follows links
            fd = os.open(self.at(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                return os.read(fd, 4096)
            finally:
                os.close(fd)
        finally:
            self._reader.end()


class DevTree(HostTree):
    """The node's /dev.

    A captured tree often has plain files in place of device nodes, because only root can make real ones. /dev/null
    shows which kind of tree it is. If it is a character device, /dev is live, and a plain file is never a device.
    """

    def __init__(self, root: Path, *, reader: Reader | None = None) -> None:
        super().__init__(root, mount="/dev", reader=reader)
        null = self._stat("null")
        self.captured = null is None or not stat.S_ISCHR(null.st_mode)
        self._nodes: dict[str, bool] = {}

    def _stat(self, path: str) -> os.stat_result | None:
        try:
            return os.lstat(self.at(path))
        except OSError:
            return None

    def is_node(self, path: str) -> bool:
        """Whether `path` is a device node. Links must be resolved before."""
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
        """Where sysfs has the node's device, such as `char/10:232`; None for a plain file of a captured tree."""
        status = self._stat(path)
        if status is None or not (stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)):
            return None
        kind = "char" if stat.S_ISCHR(status.st_mode) else "block"
        return f"{kind}/{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"

    def exists(self, path: str) -> bool:
        """Whether `path` leads to something: a node, or a directory."""
        try:
            real = self.real(path)
        except UnreadableError:
            return False
        return real is not None and (self.is_node(real) or self.is_directory(real))

    def nodes_below(self, path: str) -> tuple[str, ...]:
        """The device nodes below a directory, with links resolved; sorted, each once."""
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
    """The full names on the node of paths below /dev, sorted."""
    return tuple(sorted(f"/dev/{path}" for path in paths))
