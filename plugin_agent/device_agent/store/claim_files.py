"""The claims of all objects on the node's disk: `claims/<object uid>.json` below the agents' directory.

One file for each object, not one for each device: it is written before anything new is offered, and one file is one
wait for the disk. It is replaced as a whole, so it is another inode each time, and no lock can live on it.

Calls block on the disk and come one at a time. None of them raises for what is on it.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from device_agent.contract.values import dataclass
from device_agent.store.files import private, write_whole
from device_agent.store.node_state import DIRECTORY
from device_agent.table import claims
from device_agent.table.claims import Claim, ClaimsError

CLAIMS: Final = "claims"
MAX_BYTES: Final = 32 * 1024 * 1024
"""20,000 devices of 32 resources would be less; anything beyond is not ours."""

_Stamp = tuple[int, int, int]
"""Inode, time of the last change in nanoseconds, size: another content has another one."""


@dataclass(frozen=True, slots=True)
class Look:
    """What the disk has. A tuple of claims is the same object as the last time when nothing changed.

    `own`: as an earlier process of this object left it, or one beside this process; None when it is what this one
    wrote. `written`: whether a file of this object is there. `problems`: a line for each that cannot be read.
    """

    own: tuple[Claim, ...] | None
    others: tuple[Claim, ...]
    written: bool
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _File:
    stamp: _Stamp
    claims: tuple[Claim, ...]
    problem: str = ""


class ClaimStore:
    """`device_plugins`: the kubelet's plugin directory; `object_uid`: a name for a file, as `NodeState` demands it."""

    def __init__(self, device_plugins: Path, *, object_uid: str) -> None:
        self._root = device_plugins / DIRECTORY
        self._directory = self._root / CLAIMS
        self._name = f"{object_uid}.json"
        self._files: dict[str, _File] = {}
        self._others: tuple[Claim, ...] = ()
        self._mine: _Stamp | None = None

    def look(self) -> Look:
        """Reads what is not as it was the last time."""
        problem = ""
        try:
            stamps = dict(_stamps(self._directory))
        except FileNotFoundError:
            stamps = {}
        except OSError as error:
            stamps = {name: file.stamp for name, file in self._files.items()}
            problem = f"the claims kept on the node cannot be read: {error.strerror}"
        files: dict[str, _File] = {}
        # the one written last comes last: of two that tell of one id it counts
        for name, stamp in sorted(stamps.items(), key=lambda item: (item[1][1], item[0])):
            known = self._files.get(name)
            files[name] = known if known and known.stamp == stamp else _read(self._directory / name, stamp)
        if files != self._files:
            self._files = files
            self._others = tuple(c for name, file in files.items() if name != self._name for c in file.claims)
        own = files.get(self._name)
        problems = (problem, *(file.problem for file in files.values()))
        return Look(
            own=own.claims if own and not self._is_mine(own.stamp) else None,
            others=self._others,
            written=own is not None,
            problems=tuple(sorted(filter(None, problems))),
        )

    def _is_mine(self, stamp: _Stamp) -> bool:
        """Touched is not written."""
        return self._mine is not None and (stamp[0], stamp[2]) == (self._mine[0], self._mine[2])

    def keep(self, kept: tuple[Claim, ...]) -> str:
        """Writes this object's claims. Returns why that failed, or ''."""
        path = self._directory / self._name
        try:
            private(self._root, self._directory)
            write_whole(path, claims.dump(kept))
            self._mine = _stamp(path.stat())
        except OSError as error:
            # without the name of the temporary file, which is another one each time
            return f"what is offered could not be kept on the node: {error.strerror or error}"
        self._files[self._name] = _File(stamp=self._mine, claims=())
        return ""


def read(path: Path) -> tuple[Claim, ...]:
    """The claims of one object.

    Raises:
        OSError: as the disk says.
        ClaimsError: it is not what an agent writes.
    """
    with path.open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise ClaimsError(f"it is longer than {MAX_BYTES:,} bytes")
    return claims.parse(raw)


def _read(path: Path, stamp: _Stamp) -> _File:
    try:
        return _File(stamp=stamp, claims=read(path))
    except OSError as error:
        problem = error.strerror or str(error)
    except ClaimsError as error:
        problem = str(error)
    return _File(stamp=stamp, claims=(), problem=f"claims/{path.name} cannot be used: {problem}")


def _stamps(directory: Path) -> Iterator[tuple[str, _Stamp]]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(".json") and not entry.name.startswith("."):
                try:
                    yield entry.name, _stamp(entry.stat(follow_symlinks=False))
                except FileNotFoundError:
                    continue  # replaced or removed meanwhile: the next look sees it


def _stamp(status: os.stat_result) -> _Stamp:
    return status.st_ino, status.st_mtime_ns, status.st_size
