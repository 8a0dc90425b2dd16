"""Locks between the agents of one node. The kernel keeps them, and frees them when their process ends.

They are byte locks of open files (F_OFD_SETLK): one byte for each name, at a place that is made from the name. So
20,000 devices need no 20,000 open files. For each new lock, the kernel walks through all locks of the file. So the
names are spread over FILES files. There 20,000 locks take 0.1 s of the kernel; in a single file they take 11 s.

Two names with one hash would exclude each other; with 62 bits that does not happen. Calls block on the disk.
"""

import fcntl
import hashlib
import json
import os
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from device_agent.store import locks
from device_agent.store.files import UnusableFileError, private, read_whole, write_whole
from device_agent.store.locks import Locks, Taken, Wanted
from device_agent.store.node_store import DIRECTORY, is_object_file, object_file

SECTION: Final = "seats"
FILES: Final = 64

_FLOCK: Final = struct.Struct("@hhqqi4x")
"""struct flock of 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid (0 for F_OFD_SETLK). See fcntl(2)."""
_BITS: Final = 62
"""Of a place. The last byte of a file that can be locked is 2^63 - 1."""
_MAX_NOTE: Final = 4096
_MODE: Final = 0o600


def place(name: str) -> tuple[int, int]:
    """(number of the file, byte in it) of a lock."""
    number = int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest())
    number >>= 64 - _BITS
    return number % FILES, number


class SeatTakenError(Exception):
    """Another live agent has this object's seat on the node."""


class Seats:
    """The locks of one agent. `device_plugins`: the kubelet's plugin directory; `config`: the object's name, or ''.

    Every method raises OSError if the disk refuses, or its file system has no such locks.
    """

    def __init__(self, device_plugins: Path, *, object_uid: str, config: str = "") -> None:
        self.directory = device_plugins / DIRECTORY / SECTION
        self._own = object_file(object_uid)
        self._seat = locks.seat(object_uid)
        self._config = config or object_uid
        self._files: dict[int, _LockFile] = {}
        self._last: tuple[Wanted, Taken] | None = None

    def sit(self) -> bool:
        """Takes this object's seat on the node. False: another live agent of the object has it.

        Removes notes of agents that ended.
        """
        self._prepare()
        if not self._take({self._seat: True}):
            return False
        for path in self._notes():
            if not self._live(path):
                path.unlink(missing_ok=True)
        return True

    def announce(self) -> None:
        """Writes which object this agent serves, for the messages of others. It may run beside the other methods."""
        note = json.dumps({"version": 1, "config": self._config})
        write_whole(self.directory / self._own, note.encode())

    def hold(self, wanted: Wanted) -> Taken:
        """Takes the locks for all of this, and frees all others. Returns what another agent has.

        The locks of a device are taken all or none. Devices of a taken name are not locked.

        Raises:
            SeatTakenError: this agent serves without a seat, because the disk gave no answer; another agent has it now.
        """
        same_files = self._prepare()
        if self._last is not None and not self._last[1] and wanted == self._last[0] and same_files:
            return self._last[1]
        self._last = None
        keep: dict[str, bool] = {}
        if not self._need({self._seat: True}, keep):
            raise SeatTakenError
        names = {name for name in sorted(wanted.names) if not self._need({locks.of_name(name): True}, keep)}
        devices = {
            key
            for key, hardware in wanted.devices.items()
            if key[0] not in names and not self._need(locks.of_device(hardware), keep)
        }
        self._free_others(keep)
        taken = Taken(frozenset(names), frozenset(devices))
        if taken:
            taken = Taken(taken.names, taken.devices, self._others())
        self._last = wanted, taken
        return taken

    def close(self) -> None:
        """Frees all locks."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    # Locks

    def _need(self, wanted: Locks, keep: dict[str, bool]) -> bool:
        """Takes the locks beside those in `keep`, and adds them to it. False: another agent has one of them."""
        stronger = {name: exclusive or keep.get(name, False) for name, exclusive in wanted.items()}
        if not self._take(stronger):
            return False
        keep.update(stronger)
        return True

    def _take(self, wanted: Locks) -> bool:
        """Takes all of these locks, or none. Locks that are already exclusive stay exclusive."""
        before: dict[str, bool | None] = {}
        for name, exclusive in wanted.items():
            file, byte = self._at(name)
            has = file.held.get(byte)
            if has or has == exclusive:
                continue
            if not file.lock(byte, exclusive=exclusive):
                for taken, was in before.items():
                    self._put_back(taken, was)
                return False
            before[name] = has
        return True

    def _put_back(self, name: str, was: bool | None) -> None:  # noqa: FBT001
        file, byte = self._at(name)
        if was is None:
            file.unlock(byte)
        else:
            file.lock(byte, exclusive=was)

    def _free_others(self, keep: Mapping[str, bool]) -> None:
        """Frees what is not in `keep`. Makes exclusive locks shared if `keep` has them as shared."""
        places = {place(name): exclusive for name, exclusive in keep.items()}
        for number, file in self._files.items():
            for byte, has in tuple(file.held.items()):
                needed = places.get((number, byte))
                if needed is None:
                    file.unlock(byte)
                elif has and not needed:
                    file.lock(byte, exclusive=False)

    def _at(self, name: str) -> tuple["_LockFile", int]:
        number, byte = place(name)
        file = self._files.get(number)
        if file is None:
            file = self._files[number] = _LockFile(self.directory / f"{number:02}")
        return file, byte

    def _prepare(self) -> bool:
        """Makes the directory. False: somebody removed files. Locks of such files exclude nobody and are forgotten."""
        private(self.directory.parent, self.directory)
        gone = [number for number, file in self._files.items() if file.replaced()]
        for number in gone:
            self._files.pop(number).close()
        return not gone

    # Names of objects

    def _others(self) -> tuple[str, ...]:
        """The objects whose agents live on this node, beside this one."""
        found = set()
        for path in self._notes():
            with suppress(OSError, UnusableFileError, ValueError, KeyError, TypeError):
                raw, _ = read_whole(path, limit=_MAX_NOTE)
                config = json.loads(raw)["config"]
                if self._live(path):
                    found.add(str(config))
        return tuple(sorted(found))

    def _notes(self) -> list[Path]:
        return [path for path in self.directory.iterdir() if is_object_file(path.name) and path.name != self._own]

    def _live(self, note: Path) -> bool:
        file, byte = self._at(locks.seat(note.stem))
        return file.elsewhere(byte)


class _LockFile:
    """One open file. `held`: byte -> whether this process has it exclusively."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, _MODE)
        self.held: dict[int, bool] = {}

    def lock(self, byte: int, *, exclusive: bool) -> bool:
        """Takes a byte, or changes how it is held. False: another process has it."""
        try:
            self._call(fcntl.F_OFD_SETLK, fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK, byte)
        except BlockingIOError:
            return False
        self.held[byte] = exclusive
        return True

    def unlock(self, byte: int) -> None:
        self._call(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, byte)
        del self.held[byte]

    def elsewhere(self, byte: int) -> bool:
        """Whether another process has the byte."""
        kind, *_ = _FLOCK.unpack(self._call(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, byte))
        return bool(kind != fcntl.F_UNLCK)

    def replaced(self) -> bool:
        """Whether its path is no longer this file."""
        try:
            now = self._path.stat(follow_symlinks=False)
        except FileNotFoundError:
            return True
        mine = os.fstat(self._handle)
        return (now.st_dev, now.st_ino) != (mine.st_dev, mine.st_ino)

    def close(self) -> None:
        """Frees its locks."""
        os.close(self._handle)

    def _call(self, command: int, kind: int, byte: int) -> bytes:
        return fcntl.fcntl(self._handle, command, _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0))
