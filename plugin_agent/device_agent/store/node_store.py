"""The node store: one directory beside the kubelet's plugin sockets, accessible by root alone.

Files are `device-operator/<section>/<object uid>.json`. The kubelet cleans its plugin directory at its start, but
leaves sub-directories (pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go). Sections are separate files: one changes
often, another has megabytes. A file is always replaced as a whole. Its inode changes each time, so no lock can live on
it.

Calls block on the disk. They do not raise because of a file's content or the disk's refusal: a problem is a value.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Generic, TypeVar

from device_agent.contract.values import dataclass
from device_agent.store.files import Stamp, UnusableFileError, private, read_whole, stamp_of, write_whole
from device_agent.store.section import Section, SectionError

T = TypeVar("T")

DIRECTORY: Final = "device-operator"
"""Below the device-plugins directory."""

_SUFFIX: Final = ".json"
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")
_BOOT_ID: Final = Path("sys/kernel/random/boot_id")
_MAX_PROBLEMS: Final = 3


class ObjectUidError(ValueError):
    """The object's uid cannot be used as a file name."""


@dataclass(frozen=True, slots=True)
class KeptFile(Generic[T]):
    """A file as it was last read; `stamp` None: there is no file.

    `problem`: why it gives no items, or ''. `refused`: it may have items, but the disk did not return them.
    """

    stamp: Stamp | None = None
    items: tuple[T, ...] = ()
    problem: str = ""
    refused: bool = False


@dataclass(frozen=True, slots=True)
class OtherFiles(Generic[T]):
    """Other objects' files by name, the one written last at the end. `refused`: the disk did not return all of them."""

    files: Mapping[str, KeptFile[T]]
    problem: str = ""
    refused: bool = False


def boot_id(proc: Path) -> str:
    """The node's boot id, or that in a captured tree; '' if none can be read."""
    for root in (proc, Path("/proc")):
        with suppress(OSError):
            return (root / _BOOT_ID).read_text().strip()
    return ""


def object_file(object_uid: str) -> str:
    """The name of an object's file in each section.

    Raises:
        ObjectUidError: the uid cannot be a file's name.
    """
    if not _UID.fullmatch(object_uid):
        raise ObjectUidError(f"{object_uid!r} is not an object uid")
    return f"{object_uid}{_SUFFIX}"


def is_object_file(name: str) -> bool:
    """Whether a name in a section's directory is an object's file. Others are unfinished files, or not ours."""
    return name.endswith(_SUFFIX) and not name.startswith(".")


class NodeStore:
    """The directory of one node, for the agent of one object.

    `device_plugins`: the kubelet's plugin directory; `object_uid`: the DevicePluginConfig's uid.
    """

    def __init__(self, device_plugins: Path, *, object_uid: str, boot: str) -> None:
        self.own = object_file(object_uid)
        self.boot = boot
        self._root = device_plugins / DIRECTORY

    def directory(self, section: Section[T]) -> Path:
        """Where the section's files are."""
        return self._root / section.name

    def read(self, section: Section[T], known: KeptFile[T] | None = None) -> KeptFile[T]:
        """This object's file. Returns `known` itself if the file has not changed."""
        return self._read(section, self.own, known)

    def read_others(self, section: Section[T], known: Mapping[str, KeptFile[T]]) -> OtherFiles[T]:
        """Other objects' files. Those in `known` that have not changed are not read again."""
        directory = self.directory(section)
        try:
            names = [p.name for p in directory.iterdir() if is_object_file(p.name) and p.name != self.own]
        except FileNotFoundError:
            return OtherFiles({})
        except OSError as error:
            return OtherFiles(known, problem=_refusal(directory, error), refused=True)
        order = sorted((_written(directory / name), name) for name in names)
        newest = [name for _, name in order[-section.max_others :]]
        files = {name: self._read(section, name, known.get(name)) for name in newest}
        problems = [file.problem for file in files.values() if file.problem]
        refused = any(file.refused for file in files.values())
        if len(names) > len(newest):
            problems.append(f"{directory}: only the newest {section.max_others} files of other objects are read")
        more = f"; and {len(problems) - _MAX_PROBLEMS} more" if len(problems) > _MAX_PROBLEMS else ""
        return OtherFiles(files, problem="; ".join(sorted(problems)[:_MAX_PROBLEMS]) + more, refused=refused)

    def write(self, section: Section[T], items: tuple[T, ...]) -> KeptFile[T]:
        """Replaces this object's file.

        If the result has a `problem`, the old file is still there; or the new one, if only the last sync failed.
        """
        directory = self.directory(section)
        path, why = directory / self.own, ""
        try:
            private(self._root, directory)
            return KeptFile(write_whole(path, section.dump(items, boot_id=self.boot)), items)
        except OSError as error:
            why = _words(error)
        except (SectionError, UnusableFileError) as error:
            why = str(error)
        return KeptFile(problem=f"{path} cannot be written: {why}", refused=True)

    def _read(self, section: Section[T], name: str, known: KeptFile[T] | None) -> KeptFile[T]:
        path = self.directory(section) / name
        stamp = None
        try:
            stamp = stamp_of(path)
            if known is not None and known.stamp == stamp and not known.refused:
                return known
            raw, stamp = read_whole(path, limit=section.max_bytes)
            return KeptFile(stamp, section.parse(raw, boot_id=self.boot, theirs=name != self.own))
        except FileNotFoundError:
            return KeptFile()
        except OSError as error:
            return replace(known or KeptFile(), problem=_refusal(path, error), refused=True)
        except (SectionError, UnusableFileError) as error:
            return KeptFile(stamp, problem=f"{path} cannot be used: {error}")


def _written(path: Path) -> int:
    try:
        return path.stat(follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0  # gone meanwhile; other errors are reported when it is read


def _refusal(path: Path, error: OSError) -> str:
    return f"{path} cannot be read: {_words(error)}"


def _words(error: OSError) -> str:
    """The error without a file name: an unfinished file has another name each time."""
    return error.strerror or type(error).__name__
