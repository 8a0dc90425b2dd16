"""A disk that fails at any call: nothing is raised, no kept item is lost, and a working disk ends the problem.

Every `os` function that touches a file counts its calls below the store's directory. One of them fails, or hangs.
"""

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from device_agent.contract.document import dump
from device_agent.health.memory import HEALTH
from device_agent.runtime.settings import Settings
from device_agent.store.configuration import CONFIG, KeptDocument
from device_agent.store.keeper import Keeper
from device_agent.store.section import Section
from device_agent.store.sweeper import sweep
from device_agent.table.grants import GRANTS, Grant, SeenGrant
from unit.store.kept import ANOTHER, NOTES, Notebook, notes, path, store
from unit.store.test_memories import failed
from unit.table.samples import NAME, document

CALLS = ("open", "read", "write", "fstat", "stat", "fsync", "close", "replace", "rename", "unlink", "mkdir", "chmod", "listdir", "scandir", "utime")  # fmt: skip
ERRORS = (errno.EIO, errno.EACCES, errno.ENOSPC, errno.EROFS, errno.ENOTDIR, errno.ELOOP, errno.ESTALE, errno.EMFILE)
SECTIONS: list[tuple[Section[Any], tuple[Any, ...], tuple[Any, ...]]] = [
    (CONFIG, (KeptDocument(dump(document()).decode()),), (KeptDocument("{}"),)),
    (HEALTH, failed("GPU-0"), failed("GPU-1")),
    (GRANTS, (SeenGrant(Grant("uid-a", "c", NAME, ("a",))),), (SeenGrant(Grant("uid-b", "c", NAME, ("b",))),)),
    (NOTES, notes("a"), notes("b")),
]


class Disk:
    """Calls of the process's threads that are about the store: by a path below `root`, or by a handle of one."""

    def __init__(self, root: Path, fail: Callable[[int], None]) -> None:
        self.calls = 0
        self.named: set[str] = set()
        self._root = str(root)
        self._fail = fail
        self._handles: set[int] = set()

    def call(self, real: Callable[..., Any], name: str, *arguments: Any, **fields: Any) -> Any:
        first = arguments[0] if arguments else None
        ours = first in self._handles if isinstance(first, int) else str(first).startswith(self._root)
        if not ours:
            return real(*arguments, **fields)
        self.calls += 1
        self.named.add(name)
        if name == "close":
            self._handles.discard(first)
            real(first)  # as Linux does: the handle is gone, whatever close says
            self._fail(self.calls)
            return None
        self._fail(self.calls)
        made = real(*arguments, **fields)
        if name == "open":
            self._handles.add(made)
        return made


@contextmanager
def disk(root: Path, fail: Callable[[int], None]) -> Iterator[Disk]:
    disk = Disk(root, fail)
    with pytest.MonkeyPatch.context() as patched:
        for name in CALLS:
            real = getattr(os, name)

            def call(*arguments: Any, real: Any = real, name: str = name, **fields: Any) -> Any:
                return disk.call(real, name, *arguments, **fields)

            patched.setattr(os, name, call)
        yield disk


def failing(at: int, number: int, *, for_ever: bool) -> Callable[[int], None]:
    def fail(call: int) -> None:
        if call == at or (for_ever and call > at):
            raise OSError(number, os.strerror(number))

    return fail


def hanging(at: int, free: threading.Event) -> Callable[[int], None]:
    def hang(call: int) -> None:
        if call == at:
            free.wait(30)

    return hang


class Room(Notebook):
    """A notebook with items of any section."""

    def __init__(self) -> None:
        super().__init__()
        self.own: tuple[Any, ...] = ()

    def items(self) -> tuple[Any, ...]:
        return tuple(sorted(self.own, key=repr))

    def put(self, items: tuple[Any, ...]) -> Callable[[], None]:
        def put() -> None:
            self.own += tuple(item for item in items if item not in self.own)
            self.revision += 1

        return put

    def restore(self, own: tuple[Any, ...], **_when: Any) -> None:
        self.own += tuple(item for item in own if item not in self.own)

    def learn(self, others: tuple[Any, ...], **_when: Any) -> None:
        self.others = list(others)


QUICK = Settings(store_wait=5, store_deadline=5, store_retry=0.005, store_last=5)


def keeper(root: Path, section: Section[Any], room: Room, *, settings: Settings = QUICK) -> Keeper[Any]:
    return Keeper(store(root), section, room, settings=settings, told=lambda _: None)


async def a_round(kept: Keeper[Any]) -> None:
    """One round of `run`, if something is new."""
    kept.stirred()
    running = asyncio.create_task(kept.run())
    await asyncio.sleep(0)
    while kept._turn.locked():  # noqa: ASYNC110 - the disk's thread has no event of this loop
        await asyncio.sleep(0.001)
    running.cancel()


async def put(kept: Keeper[Any], room: Room, new: tuple[Any, ...]) -> None:
    room.put(new)()
    await a_round(kept)


def lay(root: Path, section: Section[Any], before: tuple[Any, ...]) -> None:
    """The disk at a start: this object's file, another's, and an unfinished one that a killed agent left."""
    root.mkdir()
    assert store(root).write(section, before).problem == ""
    assert store(root, ANOTHER).write(section, before).problem == ""
    path(root, section=section.name).with_name(".half.json.x").write_bytes(b"{")


async def a_life(root: Path, section: Section[Any], room: Room, new: tuple[Any, ...]) -> Keeper[Any]:
    """A start, a scan, a sweep, a change and an end."""
    kept = keeper(root, section, room)
    await kept.recall()
    await put(kept, room, new)
    with suppress(OSError):  # which the sweeper tells
        sweep(store(root), section, now=0, age=1e9)
    room.revision += 1
    await a_round(kept)
    await kept.close()
    return kept


def readable(root: Path, section: Section[Any]) -> set[Any]:
    file = store(root).read(section)
    assert (file.problem, file.refused) == ("", False), "never a part of a file"
    return set(file.items)


async def calls_of(root: Path, section: Section[Any], before: tuple[Any, ...], new: tuple[Any, ...]) -> int:
    lay(root, section, before)
    with disk(root, lambda _: None) as counted:
        await a_life(root, section, Room(), new)
    assert counted.named >= {"open", "read", "write", "fstat", "stat", "fsync", "close", "mkdir", "chmod", "utime"}
    return counted.calls


@pytest.mark.parametrize("for_ever", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize(("section", "before", "new"), SECTIONS, ids=[s.name for s, _, _ in SECTIONS])
async def test_after_any_failed_call_nothing_is_lost_and_a_working_disk_gets_everything(
    tmp_path: Path,
    section: Section[Any],
    before: tuple[Any, ...],
    new: tuple[Any, ...],
    *,
    for_ever: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _handle: None)  # hundreds of runs; other tests check that it is called
    calls = await calls_of(tmp_path / "counted", section, before, new)
    assert calls > 20
    for at in range(1, calls + 1):
        number = ERRORS[at % len(ERRORS)]
        root = tmp_path / f"{at}"
        lay(root, section, before)
        room = Room()
        with disk(root, failing(at, number, for_ever=for_ever)) as broken:
            kept = await a_life(root, section, room, new)
        assert broken.calls >= at, "the fault came to pass"
        assert set(new) <= set(room.own), "served, whatever is kept"
        assert readable(root, section) >= set(before), "what was there stays"
        running = asyncio.create_task(kept.run())
        kept.stirred()
        async with asyncio.timeout(10):
            while kept.problem or readable(root, section) != {*before, *new}:
                kept.stirred()
                await asyncio.sleep(0.002)
        running.cancel()
        assert set(room.own) == {*before, *new}


@pytest.mark.parametrize(("section", "before", "new"), SECTIONS, ids=[s.name for s, _, _ in SECTIONS])
async def test_a_disk_that_hangs_at_any_call_delays_nothing_and_gets_everything_later(
    tmp_path: Path,
    section: Section[Any],
    before: tuple[Any, ...],
    new: tuple[Any, ...],
) -> None:
    settings = Settings(store_wait=0.02, store_deadline=0.02, store_retry=0.005, store_last=0.02)
    lay(tmp_path / "counted", section, before)
    with disk(tmp_path / "counted", lambda _: None) as counted:
        room = Room()
        kept = keeper(tmp_path / "counted", section, room)
        await kept.recall()
        await put(kept, room, new)
    for at in range(1, counted.calls + 1):
        root, free = tmp_path / f"{at}", threading.Event()
        lay(root, section, before)
        room = Room()
        with disk(root, hanging(at, free)):
            kept = keeper(root, section, room, settings=settings)
            async with asyncio.timeout(5):
                await kept.recall()
                await put(kept, room, new)
            assert set(new) <= set(room.own)
            running = asyncio.create_task(kept.run())
            free.set()
            async with asyncio.timeout(10):
                while kept.problem or set(store(root).read(section).items) != {*before, *new}:
                    kept.stirred()
                    await asyncio.sleep(0.002)
            running.cancel()
            await kept.close()


@pytest.mark.parametrize("call", ["read", "stat"])
@pytest.mark.parametrize(("section", "before", "new"), SECTIONS, ids=[s.name for s, _, _ in SECTIONS])
async def test_an_unreadable_file_is_not_overwritten_although_writes_work(
    tmp_path: Path,
    section: Section[Any],
    before: tuple[Any, ...],
    new: tuple[Any, ...],
    *,
    call: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root, room, real = tmp_path / "node", Room(), getattr(os, call)
    lay(root, section, before)

    def refuse(first: Any, *arguments: Any, **fields: Any) -> Any:
        if isinstance(first, int) or str(first).startswith(str(root)):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(first, *arguments, **fields)

    with monkeypatch.context() as broken:
        broken.setattr(os, call, refuse)
        kept = keeper(root, section, room)
        await kept.recall()
        await put(kept, room, new)
        await kept.close()
        assert "Input/output error" in kept.problem
    assert readable(root, section) == set(before)
    await a_round(kept)
    assert (readable(root, section), kept.problem) == ({*before, *new}, "")
