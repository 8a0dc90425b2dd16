"""The rules for all sections: what is read first, what is written when, and a disk that hangs, refuses or is shared."""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from device_agent.runtime.settings import Settings
from device_agent.store.keeper import Keeper
from device_agent.store.node_store import KeptFile, NodeStore, OtherFiles
from device_agent.store.section import Section
from unit.store.kept import (
    ANOTHER,
    BOOT,
    FIRST_NOTES,
    NOTES,
    UID,
    Note,
    Notebook,
    keep,
    on_disk,
    path,
)


class Disk(NodeStore):
    """Its calls hang while their event is not set, and writes are refused with `refusal`."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, object_uid=UID, boot=BOOT)
        self.reads, self.others, self.writes = (threading.Event() for _ in range(3))
        for event in (self.reads, self.others, self.writes):
            event.set()
        self.writing = threading.Event()
        self.written: list[tuple[str, ...]] = []
        self.refusal = ""

    def read(self, section: Section[Any], known: KeptFile[Any] | None = None) -> KeptFile[Any]:
        self.reads.wait(30)
        return super().read(section, known)

    def read_others(self, section: Section[Any], known: Any) -> OtherFiles[Any]:
        self.others.wait(30)
        return super().read_others(section, known)

    def write(self, section: Section[Any], items: tuple[Any, ...]) -> KeptFile[Any]:
        self.writing.set()
        self.writes.wait(30)
        self.written.append(tuple(note.text for note in items))
        return KeptFile(problem=self.refusal, refused=True) if self.refusal else super().write(section, items)


class Process:
    def __init__(
        self,
        directory: Path,
        *,
        section: Section[Note] = NOTES,
        wait: float = 5.0,
        last: float = 20.0,
        look: float = 60.0,
    ) -> None:
        self.directory = directory
        self.disk = Disk(directory)
        self.notebook = Notebook()
        self.told: list[str] = []
        settings = Settings(store_wait=wait, store_deadline=wait, store_retry=0.02, store_last=last, store_look=look)
        self.keeper = Keeper(self.disk, section, self.notebook, settings=settings, told=self.told.append)

    async def note(self, *texts: str) -> None:
        """One round of `run` with what is new; none if nothing is. It ends before the next try."""
        self.stir(*texts)
        running = asyncio.create_task(self.keeper.run())
        await asyncio.sleep(0)
        await until(lambda: not self.keeper._turn.locked())
        running.cancel()

    def resumed(self) -> "asyncio.Task[None]":
        """`run` from the next try on."""
        self.keeper._wake.set()
        return asyncio.create_task(self.keeper.run())

    def stir(self, *texts: str) -> None:
        self.notebook.add(*texts)()
        self.keeper.stirred()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - files and threads have no event of this loop
            await asyncio.sleep(0.005)


# What is new


async def test_what_is_new_is_written_once(tmp_path: Path) -> None:
    process = Process(tmp_path)
    await process.keeper.recall()
    for _ in range(3):
        await process.note("a")
        assert on_disk(tmp_path) == ["a"]
    assert process.disk.written == [("a",)]
    await process.note("a", "b")
    assert process.disk.written == [("a",), ("a", "b")]


async def test_items_of_an_earlier_process_are_kept_and_not_rewritten_without_a_change(tmp_path: Path) -> None:
    keep(tmp_path, "a", "old")
    process = Process(tmp_path)
    await process.keeper.recall()
    assert process.notebook.heard == [("own", "a", "old")]
    await process.note("a")
    assert process.disk.written == []
    await process.note("b")
    assert on_disk(tmp_path) == ["a", "b", "old"]


async def test_a_hanging_disk_delays_a_write_only_until_the_deadline_and_is_written_later(
    tmp_path: Path,
) -> None:
    process = Process(tmp_path, wait=0.05)
    await process.keeper.recall()
    process.disk.writes.clear()
    begun = time.monotonic()
    for number in range(3):
        await process.note(f"a{number}")
    assert time.monotonic() - begun < 5
    assert len(process.notebook.own) == 3
    assert "the disk hangs" in process.keeper.problem
    process.disk.writes.set()
    running = process.resumed()
    await until(lambda: on_disk(tmp_path) == ["a0", "a1", "a2"] and process.keeper.problem == "")
    running.cancel()


async def test_what_is_new_while_a_write_hangs_is_written_after_it(tmp_path: Path) -> None:
    process = Process(tmp_path, wait=0.1)
    await process.keeper.recall()
    process.disk.writes.clear()
    process.stir("a")
    running = asyncio.create_task(process.keeper.run())
    await until(process.disk.writing.is_set)
    process.stir("b")
    await until(lambda: "the disk hangs" in process.keeper.problem)
    process.disk.writes.set()
    await until(lambda: on_disk(tmp_path) == ["a", "b"])
    running.cancel()


async def test_a_refused_write_is_retried_and_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    process = Process(tmp_path)
    process.disk.refusal = "no room"
    await process.keeper.recall()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await process.note("a")
    assert len(process.disk.written) == 3
    (record,) = caplog.records
    assert (record.section, record.error, record.effect) == ("notes", "no room", NOTES.forgotten)  # type: ignore[attr-defined]
    assert "no room" in process.keeper.problem
    process.disk.refusal = ""
    await process.note("a")
    assert (on_disk(tmp_path), process.keeper.problem) == (["a"], "")
    assert [bool(problem) for problem in process.told] == [True, False]


# A start


async def test_a_disk_that_hangs_at_the_start_is_not_overwritten_before_it_is_read(tmp_path: Path) -> None:
    keep(tmp_path, "old")
    process = Process(tmp_path, wait=0.05, last=0.05)
    process.disk.reads.clear()
    begun = time.monotonic()
    await process.keeper.recall()
    await process.note("a")
    await process.keeper.close()
    assert time.monotonic() - begun < 5
    assert (process.disk.written, on_disk(tmp_path)) == ([], ["old"])
    assert "the disk hangs" in process.keeper.problem
    process.disk.reads.set()
    running = process.resumed()
    await until(lambda: on_disk(tmp_path) == ["a", "old"])
    assert process.notebook.heard == [("late", "old")]
    await until(lambda: process.keeper.problem == "")
    running.cancel()


async def test_hanging_files_of_other_objects_do_not_block_the_own_file(tmp_path: Path) -> None:
    keep(tmp_path, "mine")
    keep(tmp_path, "theirs", uid=ANOTHER)
    process = Process(tmp_path, section=FIRST_NOTES, wait=0.2)
    process.disk.others.clear()
    await process.keeper.recall()
    assert process.notebook.heard == [("own", "mine")]
    assert "the disk hangs" in process.keeper.problem
    running = asyncio.create_task(process.keeper.run())
    process.disk.others.set()
    await until(lambda: process.notebook.others == ["theirs"])
    await until(lambda: process.keeper.problem == "")
    running.cancel()


@pytest.mark.parametrize("content", [b"{", b"", b'{"version":9}'])
async def test_a_damaged_file_is_reported_until_the_end_and_replaced_by_the_first_write(
    tmp_path: Path, content: bytes
) -> None:
    keep(tmp_path)
    path(tmp_path).write_bytes(content)
    process = Process(tmp_path)
    await process.keeper.recall()
    await process.note()
    assert path(tmp_path).read_bytes() == content
    await process.note("a")
    await process.note("b")
    assert on_disk(tmp_path) == ["a", "b"]
    assert process.keeper.problem.endswith(f"; {NOTES.forgotten}")
    assert len(process.told) == 1


async def test_a_refused_file_is_not_overwritten_and_is_read_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keep(tmp_path, "old")
    away = path(tmp_path).parent.rename(tmp_path / "away")
    path(tmp_path).parent.write_text("in the way")
    process = Process(tmp_path, section=FIRST_NOTES)
    with caplog.at_level(logging.WARNING):
        await process.keeper.recall()
        for number in range(3):
            await process.note(f"a{number}")
    assert {record.error for record in caplog.records} == {  # type: ignore[attr-defined]
        f"{path(tmp_path)} cannot be read: Not a directory",
        f"{path(tmp_path).parent} cannot be read: Not a directory",
    }
    assert len(caplog.records) == 2
    assert process.disk.written == []
    path(tmp_path).parent.unlink()
    away.rename(path(tmp_path).parent)
    running = process.resumed()
    await until(lambda: on_disk(tmp_path) == ["a0", "a1", "a2", "old"])
    assert process.keeper.problem == ""
    running.cancel()


# Other objects


@pytest.mark.parametrize(("section", "heard"), [(FIRST_NOTES, [("others", "theirs")]), (NOTES, [])])
async def test_others_are_read_at_the_start_or_never_for_one_that_wants_that(
    tmp_path: Path, section: Section[Note], heard: list[tuple[str, ...]]
) -> None:
    keep(tmp_path, "theirs", uid=ANOTHER)
    process = Process(tmp_path, section=section)
    await process.keeper.recall()
    keep(tmp_path, "more", uid=ANOTHER)
    await process.note("a")
    assert process.notebook.heard == heard


async def test_others_are_read_again_on_request_and_told_only_if_they_changed(tmp_path: Path) -> None:
    keep(tmp_path, "theirs", uid=ANOTHER)
    process = Process(tmp_path, section=FIRST_NOTES)
    await process.keeper.recall()
    process.keeper.look_at_others()
    await process.note("a")
    assert process.notebook.heard == [("others", "theirs")]
    keep(tmp_path, "more", uid=ANOTHER)
    process.keeper.look_at_others()
    await process.note("b")
    assert process.notebook.heard == [("others", "theirs"), ("others", "more")]


async def test_a_damaged_file_of_another_object_is_logged_once_and_not_reported_as_ours(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keep(tmp_path, "x", uid=ANOTHER)
    path(tmp_path, ANOTHER).write_bytes(b"{")
    process = Process(tmp_path, section=FIRST_NOTES)
    with caplog.at_level(logging.WARNING):
        await process.keeper.recall()
        await process.note("a")
    (record,) = caplog.records
    assert str(path(tmp_path, ANOTHER)) in record.error  # type: ignore[attr-defined]
    assert (process.keeper.problem, on_disk(tmp_path)) == ("", ["a"])


async def test_a_refused_file_of_another_object_is_read_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path, "theirs", uid=ANOTHER)
    process = Process(tmp_path, section=FIRST_NOTES)
    real = os.open

    def refuse(file: Any, *arguments: Any) -> int:
        if Path(file) == path(tmp_path, ANOTHER):
            raise OSError(5, "Input/output error")
        return real(file, *arguments)

    with monkeypatch.context() as broken:
        broken.setattr(os, "open", refuse)
        await process.keeper.recall()
        await process.note("a")
    assert (process.notebook.others, on_disk(tmp_path)) == ([], ["a"])
    running = process.resumed()
    await until(lambda: process.notebook.others == ["theirs"])
    running.cancel()


# Another process of the same object


async def test_two_processes_of_one_object_lose_nothing(tmp_path: Path) -> None:
    one, two = Process(tmp_path), Process(tmp_path)
    for process in (one, two):
        await process.keeper.recall()
    await one.note("a")
    keep(tmp_path, "b")  # as one that had not seen a
    await one.note("c")
    assert on_disk(tmp_path) == ["a", "b", "c"]
    await two.note("d")
    assert on_disk(tmp_path) == ["a", "b", "c", "d"]
    written = len(one.disk.written) + len(two.disk.written)
    for process in (one, two, one, two):
        await process.note("a", "b", "c", "d")
    assert len(one.disk.written) + len(two.disk.written) <= written + 1, "they come to rest"


async def test_a_touch_is_no_news_and_a_removed_or_damaged_file_is_repaired_with_the_next_change(
    tmp_path: Path,
) -> None:
    process = Process(tmp_path)
    await process.keeper.recall()
    await process.note("a")
    os.utime(path(tmp_path), (1, 1))
    await process.note("a")
    assert (process.notebook.heard, process.disk.written) == ([], [("a",)])
    path(tmp_path).unlink()
    await process.note("b")
    assert on_disk(tmp_path) == ["a", "b"]
    path(tmp_path).write_bytes(b"{")
    await process.note("c")
    assert (on_disk(tmp_path), process.notebook.heard, process.keeper.problem) == (["a", "b", "c"], [], "")


# In the background, and at the end


async def test_a_file_that_somebody_removed_is_written_again_without_any_change(tmp_path: Path) -> None:
    process = Process(tmp_path, look=0.02)
    await process.keeper.recall()
    running = asyncio.create_task(process.keeper.run())
    process.stir("a")
    await until(lambda: on_disk(tmp_path) == ["a"])
    path(tmp_path).unlink()
    await until(lambda: on_disk(tmp_path) == ["a"])
    running.cancel()


async def test_changes_are_written_in_the_background_until_the_disk_takes_them(tmp_path: Path) -> None:
    process = Process(tmp_path)
    await process.keeper.recall()
    running = asyncio.create_task(process.keeper.run())
    process.stir("a")
    await until(lambda: on_disk(tmp_path) == ["a"])
    process.disk.refusal = "no room"
    process.stir("b")
    await until(lambda: len(process.disk.written) > 3)
    process.disk.refusal = ""
    await until(lambda: on_disk(tmp_path) == ["a", "b"])
    running.cancel()


async def test_changes_during_the_last_write_are_kept_too(tmp_path: Path) -> None:
    process = Process(tmp_path, wait=30)
    await process.keeper.recall()
    process.disk.writes.clear()
    process.stir("a")
    running = asyncio.create_task(process.keeper.run())
    await until(process.disk.writing.is_set)
    process.stir("b")
    running.cancel()
    closing = asyncio.create_task(process.keeper.close())
    await asyncio.sleep(0)
    process.disk.writes.set()
    await asyncio.wait_for(closing, 20)
    assert on_disk(tmp_path) == ["a", "b"]


async def test_the_end_does_not_wait_for_a_disk_that_hangs(tmp_path: Path) -> None:
    process = Process(tmp_path, wait=0.05, last=0.05)
    await process.keeper.recall()
    process.disk.writes.clear()
    await process.note("a")
    begun = time.monotonic()
    await process.keeper.close()
    assert time.monotonic() - begun < 5
    process.disk.writes.set()
