"""The kubelet's record is read after each change, whatever the disk does."""

import asyncio
import base64
import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from device_agent.kubelet import checkpoint
from device_agent.kubelet.checkpoint import FILE
from device_agent.kubelet.record_watch import RecordWatch
from device_agent.runtime.settings import Settings
from device_agent.table.kubelet_view import Reading
from unit.table.samples import NAME

FIRST_LIFE, NEXT_LIFE = (1, 1), (2, 2)


def record(*ids: str) -> bytes:
    """A container has these ids."""
    answer = base64.b64encode(b"").decode()
    entry = {"PodUID": "u", "ContainerName": "c", "ResourceName": NAME, "DeviceIDs": {"-1": ids}, "AllocResp": answer}
    data = {"PodDeviceEntries": [entry] if ids else None, "RegisteredDevices": None}
    return json.dumps({"Data": data, "Checksum": 1}).encode()


class Directory:
    """The kubelet's directory, of which the test tells the news."""

    started = 0.0

    def __init__(self, path: Path) -> None:
        self.path = path
        self.life: object = FIRST_LIFE
        self.listeners: dict[object, Callable[[], None]] = {}

    def listen(self, key: object, listener: Callable[[], None] | None) -> None:
        if listener is None:
            self.listeners.pop(key, None)
        else:
            self.listeners[key] = listener

    def replace(self, raw: bytes) -> None:
        (self.path / "new").write_bytes(raw)
        (self.path / "new").replace(self.path / FILE)

    def changed(self) -> None:
        for listener in self.listeners.values():
            listener()


class Watched:
    def __init__(self, path: Path, **settings: float) -> None:
        self.directory = Directory(path)
        self.readings: list[Reading] = []
        self.resent: float | None = None
        self.watch = RecordWatch(
            self.directory,  # type: ignore[arg-type]
            deliver=self.readings.append,
            resent=lambda: self.resent,
            settings=Settings(**settings),
        )

    async def look(self, *, again: bool = True) -> list[Reading]:
        """What this look delivers."""
        before = len(self.readings)
        await self.watch.look(again=again)
        return self.readings[before:]

    async def ids(self, *, again: bool = True) -> list[list[str]]:
        return [ids_of(reading) for reading in await self.look(again=again)]


def ids_of(reading: Reading) -> list[str]:
    return [i for grant in reading.grants for i in grant.ids]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


class HangingDisk:
    """Reads of the record wait for `free`. `reads`: how often one was begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free, self.begun = threading.Event(), threading.Event()
        self.reads = 0
        self._real = checkpoint.read
        monkeypatch.setattr(checkpoint, "read", self._read)

    def _read(self, directory: Path) -> Any:
        self.reads += 1
        self.begun.set()
        self.free.wait(30)
        return self._real(directory)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - threads have no event of this loop
            await asyncio.sleep(0.002)


# A look


async def test_a_look_delivers_what_was_given_when_it_was_begun_and_in_which_life(watched: Watched) -> None:
    watched.directory.replace(record("a", "b"))
    watched.resent = 5.0
    before = time.monotonic()
    (reading,) = await watched.look()
    assert ids_of(reading) == ["a", "b"]
    assert before <= reading.begun <= time.monotonic()
    assert (reading.resent, reading.life, reading.problem) == (5.0, FIRST_LIFE, "")


async def test_the_time_is_that_before_the_file_was_opened(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = HangingDisk(monkeypatch)
    looking = asyncio.create_task(watched.look())
    await until(disk.begun.is_set)
    opened = time.monotonic()
    disk.free.set()
    (reading,) = await looking
    assert reading.begun <= opened


async def test_the_life_is_that_before_the_file_was_opened(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kubelet of before wrote must not be taken for what the next one has."""
    disk = HangingDisk(monkeypatch)
    looking = asyncio.create_task(watched.look())
    await until(disk.begun.is_set)
    watched.directory.life = NEXT_LIFE
    disk.free.set()
    (reading,) = await looking
    assert reading.life == FIRST_LIFE


async def test_a_file_that_is_the_same_is_news_only_for_those_who_ask(watched: Watched) -> None:
    watched.directory.replace(record("a"))
    (first,) = await watched.look()
    assert await watched.look(again=False) == []
    (second,) = await watched.look()
    assert second.grants is first.grants
    assert second.begun > first.begun


async def test_a_file_that_was_not_replaced_is_not_read_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = HangingDisk(monkeypatch)
    disk.free.set()
    watched.directory.replace(record("a"))
    for _ in range(3):
        await watched.look()
    assert disk.reads == 1
    watched.directory.replace(record("b"))
    assert await watched.ids() == [["b"]]


async def test_an_equal_file_is_no_news(watched: Watched) -> None:
    watched.directory.replace(record("a"))
    await watched.look()
    watched.directory.replace(record("a"))
    assert await watched.look(again=False) == []


async def test_the_same_file_in_another_life_of_the_kubelet_is_news(watched: Watched) -> None:
    watched.directory.replace(record("a"))
    await watched.look()
    watched.directory.life = NEXT_LIFE
    (reading,) = await watched.look(again=False)
    assert (ids_of(reading), reading.life) == (["a"], NEXT_LIFE)


async def test_a_file_that_was_replaced_while_it_was_read_is_read_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = checkpoint.read

    def slow(directory: Path) -> Any:
        grants = real(directory)
        watched.directory.replace(record("b"))
        monkeypatch.setattr(checkpoint, "read", real)
        return grants

    watched.directory.replace(record("a"))
    monkeypatch.setattr(checkpoint, "read", slow)
    assert await watched.ids(again=False) == [["a"]]
    assert await watched.ids(again=False) == [["b"]]


# No file, and no entries


async def test_a_node_without_a_record_has_given_nothing(watched: Watched) -> None:
    (reading,) = await watched.look()
    assert (reading.grants, reading.problem) == ((), "")


async def test_a_record_without_entries_says_that_all_was_given_back(watched: Watched) -> None:
    watched.directory.replace(record("a"))
    await watched.look()
    watched.directory.replace(record())
    (reading,) = await watched.look(again=False)
    assert (reading.grants, reading.problem) == ((), "")


async def test_a_record_that_somebody_removed_is_a_problem_and_frees_nothing(watched: Watched) -> None:
    watched.directory.replace(record("a"))
    await watched.look()
    (watched.directory.path / FILE).unlink()
    for _ in range(2):
        (reading,) = await watched.look()
        assert FILE in reading.problem
        assert reading.life == FIRST_LIFE
    watched.directory.replace(record("b"))
    (reading,) = await watched.look(again=False)
    assert (ids_of(reading), reading.problem) == (["b"], "")


async def test_a_kubelet_that_starts_without_a_record_begins_with_nothing(watched: Watched) -> None:
    watched.directory.replace(record("a"))
    await watched.look()
    (watched.directory.path / FILE).unlink()
    watched.directory.life = NEXT_LIFE
    (reading,) = await watched.look(again=False)
    assert (reading.grants, reading.life, reading.problem) == ((), NEXT_LIFE, "")


# A record that cannot be used


async def test_a_torn_record_is_told_once_and_until_it_is_readable(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.directory.replace(record("a"))
    await watched.look()
    watched.directory.replace(record("a")[:-9])
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            (reading,) = await watched.look(again=False)
            assert FILE in reading.problem
            assert (reading.grants, reading.life) == ((), FIRST_LIFE)
        watched.directory.replace(record("a"))
        (reading,) = await watched.look(again=False)
    assert (ids_of(reading), reading.problem) == (["a"], "")
    assert [line.levelno for line in caplog.records] == [logging.WARNING, logging.INFO]


async def test_another_problem_is_told_anew(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for raw in (b"{", b"{", b"[]"):
            watched.directory.replace(raw)
            await watched.look()
    assert len(caplog.records) == 2


async def test_a_disk_that_hangs_is_a_problem_and_what_it_gives_late_is_read_anew(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.directory.replace(record("a"))
    await watched.look()
    watched.directory.replace(record("b"))
    disk = HangingDisk(monkeypatch)
    watched.watch._settings = Settings(record_deadline=0.02)
    for _ in range(2):
        (reading,) = await watched.look()
        assert (reading.grants, bool(reading.problem), reading.life) == ((), True, FIRST_LIFE)
    assert disk.reads == 1, "no second thread waits beside the first"
    disk.free.set()
    await until(lambda: not watched.watch._worker.busy)
    watched.watch._settings = Settings()
    (reading,) = await watched.look(again=False)
    assert (ids_of(reading), reading.problem) == (["b"], "")


async def test_looks_come_one_after_the_other(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the second would find the thread busy, and would tell of a disk that hangs."""
    disk = HangingDisk(monkeypatch)
    looks = asyncio.gather(watched.look(), watched.look())
    await until(disk.begun.is_set)
    disk.free.set()
    await looks
    assert [reading.problem for reading in watched.readings] == ["", ""]


# A kubelet that starts


async def test_the_record_of_a_life_is_delivered_once_to_those_who_wait_for_it(watched: Watched) -> None:
    watched.directory.replace(record("a"))
    for life in (FIRST_LIFE, NEXT_LIFE):
        watched.directory.life = life
        for _ in range(2):
            await watched.watch.of_this_life()
            assert watched.readings[-1].life == life
    assert len(watched.readings) == 2


async def test_a_torn_record_counts_as_delivered(watched: Watched) -> None:
    watched.directory.replace(b"{")
    for _ in range(2):
        await watched.watch.of_this_life()
    assert len(watched.readings) == 1


async def test_who_waits_for_the_record_does_not_wait_for_a_disk_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, disk = Watched(tmp_path, record_wait=0.01), HangingDisk(monkeypatch)
    async with asyncio.timeout(10):
        await watched.watch.of_this_life()
    assert disk.begun.is_set()
    assert watched.readings == []
    disk.free.set()
    await until(lambda: not watched.watch._worker.busy)
    await watched.watch.of_this_life()
    assert [reading.problem for reading in watched.readings] == [""]


# Changes


async def test_each_change_of_the_directory_is_a_look_until_the_end(watched: Watched) -> None:
    running = asyncio.create_task(watched.watch.run())
    await until(lambda: watched.directory.listeners)
    for ids in (["a"], ["b"], ["a", "b"]):
        watched.directory.replace(record(*ids))
        watched.directory.changed()
        await until(lambda ids=ids: watched.readings and ids_of(watched.readings[-1]) == ids)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert watched.directory.listeners == {}


async def test_a_burst_of_changes_is_one_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched, disk = Watched(tmp_path, record_coalesce=0.3), HangingDisk(monkeypatch)
    disk.free.set()
    running = asyncio.create_task(watched.watch.run())
    await until(lambda: watched.directory.listeners)
    for n in range(20):
        watched.directory.replace(record(f"{n}"))
        watched.directory.changed()
        await asyncio.sleep(0)
    await until(lambda: watched.readings)
    running.cancel()
    assert disk.reads == 1
    assert ids_of(watched.readings[-1]) == ["19"]


async def test_a_change_of_anything_else_is_looked_at_once_and_is_no_news(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []
    real = checkpoint.stamp
    monkeypatch.setattr(checkpoint, "stamp", lambda directory: looks.append(directory) or real(directory))
    watched.directory.replace(record("a"))
    running = asyncio.create_task(watched.watch.run())
    await until(lambda: watched.directory.listeners)
    for expected in (1, 2, 3):
        watched.directory.changed()
        await until(lambda expected=expected: len(looks) >= expected)
        await until(lambda: not watched.watch._turn.locked())
    for _ in range(20):  # a look too many would come after `record_coalesce`
        await asyncio.sleep(Settings().record_coalesce / 5)
    running.cancel()
    assert len(looks) == 3
    assert [ids_of(reading) for reading in watched.readings] == [["a"]]


async def test_a_change_during_a_look_is_looked_at_after_it(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    watched.directory.replace(record("a"))
    disk = HangingDisk(monkeypatch)
    running = asyncio.create_task(watched.watch.run())
    await until(lambda: watched.directory.listeners)
    watched.directory.changed()
    await until(disk.begun.is_set)
    watched.directory.replace(record("b"))
    watched.directory.changed()
    disk.free.set()
    await until(lambda: watched.readings and ids_of(watched.readings[-1]) == ["b"])
    running.cancel()
