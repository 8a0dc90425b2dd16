"""Claims between the disk and the table: what is read first, what is written before what, and a disk that hangs."""

import asyncio
import logging
import threading
import time
from pathlib import Path

import pytest
from device_agent.runtime.settings import Settings
from device_agent.store.claim_files import ClaimStore
from device_agent.store.claim_watch import ClaimWatch
from device_agent.table.claims import Claim
from unit.table.samples import NAME, OTHER, Steps, document, held, resource, selection, unit

UID, ANOTHER = "0f6f4a52", "11111111"


class Disk(ClaimStore):
    """Hangs while `free` is not set."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, object_uid=UID)
        self.free = threading.Event()
        self.free.set()
        self.writes: list[tuple[str, ...]] = []
        self.answer = ""

    def look(self):
        self.free.wait(10)
        return super().look()

    def keep(self, kept):
        self.free.wait(10)
        self.writes.append(tuple(claim.id for claim in kept))
        return self.answer or super().keep(kept)


class Process:
    def __init__(self, directory: Path, *, deadline: float = 5.0) -> None:
        self.steps = Steps(resource(), resource(OTHER))
        self.disk = Disk(directory)
        self.asked = 0
        self.changed: list[frozenset[str]] = []
        self.watch = ClaimWatch(
            self.steps.table,
            self.disk,
            settings=Settings().with_values(f"claims_deadline={deadline}"),
            changed=self.changed.append,
            ask=self.ask,
        )

    def ask(self) -> None:
        self.asked += 1

    async def scan(self, *units) -> None:
        await self.watch.before(document(resource(), resource(OTHER)), selection(*units))
        self.steps.scan(*units)


def kept(directory: Path, uid: str, *names: str, resource_name: str = NAME) -> None:
    claims = tuple(Claim.of(unit(name, name=resource_name), exclusive=True) for name in names)
    assert ClaimStore(directory, object_uid=uid).keep(claims) == ""


def on_disk(directory: Path) -> list[str]:
    own = ClaimStore(directory, object_uid=UID).look().own
    return [claim.id for claim in own or ()]


async def test_new_devices_are_written_before_they_are_offered_and_only_then(tmp_path):
    process = Process(tmp_path)
    await process.watch.recall()
    await process.watch.before(document(), selection(unit("a")))
    assert on_disk(tmp_path) == ["a"]
    assert process.steps.table.resources() == ()
    for _ in range(3):
        await process.scan(unit("a"))
    assert process.disk.writes == [("a",)]
    await process.scan(unit("a"), unit("b"))
    assert process.disk.writes == [("a",), ("a", "b")]


async def test_what_an_earlier_process_kept_is_added_to_and_not_written_again_as_it_is(tmp_path):
    kept(tmp_path, UID, "a", "old")
    process = Process(tmp_path)
    await process.watch.recall()
    await process.scan(unit("a"))
    assert process.disk.writes == []
    await process.scan(unit("a"), unit("b"))
    assert on_disk(tmp_path) == ["a", "b", "old"]


async def test_names_of_others_have_pod_resources_asked_soon(tmp_path):
    process = Process(tmp_path)
    await process.watch.recall()
    await process.scan(unit("a"))
    assert process.asked == 0
    kept(tmp_path, ANOTHER, "z", resource_name="example.net/z")
    await process.scan(unit("a"))
    assert process.asked == 1
    assert process.steps.table.could_serve("example.net/z")
    await process.scan(unit("a"))
    assert process.asked == 1


async def test_a_disk_that_hangs_at_the_start_is_waited_for_once_and_not_written_over(tmp_path):
    kept(tmp_path, UID, "old")
    process = Process(tmp_path, deadline=0.05)
    process.disk.free.clear()
    begun = time.monotonic()
    await process.watch.recall()
    await process.scan(unit("x", name=OTHER, hardware="devices/old"))
    assert time.monotonic() - begun < 3
    process.steps.list(held("old"))
    assert process.steps.seen(OTHER) == {"x": True}
    assert process.disk.writes == []
    process.disk.free.set()
    async with asyncio.timeout(10):
        while not process.changed:
            await asyncio.sleep(0.01)
            await process.scan(unit("x", name=OTHER, hardware="devices/old"))
    process.steps.list(held("old"))
    assert process.steps.seen(OTHER) == {"x": False}
    assert process.steps.device("x", name=OTHER).reason == "HeldAs"
    assert on_disk(tmp_path) == ["old", "x"]


async def test_a_write_that_fails_is_tried_again_and_told_once(tmp_path, caplog: pytest.LogCaptureFixture):
    process = Process(tmp_path)
    process.disk.answer = "no room"
    await process.watch.recall()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await process.scan(unit("a"))
    assert len(process.disk.writes) == 3
    assert [record.error for record in caplog.records] == ["no room"]
    assert process.steps.seen() == {"a": True}
    process.disk.answer = ""
    await process.scan(unit("a"))
    assert on_disk(tmp_path) == ["a"]


async def test_a_process_beside_it_of_the_same_object_loses_nothing(tmp_path):
    one, two = Process(tmp_path), Process(tmp_path)
    for process in (one, two):
        await process.watch.recall()
    await one.scan(unit("a"))
    kept(tmp_path, UID, "b")  # as one that had not seen a
    await one.scan(unit("a"))
    assert on_disk(tmp_path) == ["a", "b"]
    await two.scan(unit("c"))
    await one.scan(unit("a"))
    assert on_disk(tmp_path) == ["a", "b", "c"]
