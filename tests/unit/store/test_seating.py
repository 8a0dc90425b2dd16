"""The agent's locks on a disk that works, refuses or hangs; the table gets what others have."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from device_agent.runtime.settings import Settings
from device_agent.store.locks import Taken, Wanted
from device_agent.store.node_store import DIRECTORY
from device_agent.store.seating import Seating
from device_agent.store.seats import Seats

UID, ANOTHER = "0f6f4a52", "11111111"
DEV = Wanted(frozenset(["example.com/dev"]))
FAST = replace(Settings(), seat_retry=0.01, seat_settle=0.01, store_retry=0.01, store_wait=5.0)


class Lists:
    """In place of the device table. `heard`: what others have, in that order."""

    def __init__(self) -> None:
        self.want = DEV
        self.heard: list[Taken] = []

    def wanted(self) -> Wanted:
        return self.want

    def apply_taken(self, taken: Taken, *, now: float, wall: datetime) -> frozenset[str]:
        self.heard.append(taken)
        return frozenset()


class Case:
    def __init__(self, seats: Seats, settings: Settings = FAST) -> None:
        self.lists = Lists()
        self.lost = 0
        self.looked = 0
        self.seats = seats
        self.seating = Seating(
            seats,
            self.lists,
            settings=settings,
            changed=lambda _: None,
            told=lambda: None,
            lost=self._lose,
            look=self._look,
        )

    def _lose(self) -> None:
        self.lost += 1

    async def _look(self) -> None:
        assert self.lists.heard[-1], "before the table is told"
        self.looked += 1


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what another process holds has no event
            await asyncio.sleep(0.005)


@asynccontextmanager
async def running(work):
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def other(tmp_path: Path):
    seats = Seats(tmp_path, object_uid=UID)
    yield seats
    seats.close()


@pytest.fixture
def case(tmp_path: Path):
    case = Case(Seats(tmp_path, object_uid=UID))
    yield case
    case.seats.close()


async def test_the_second_of_an_object_waits_until_the_first_ends(case: Case, other: Seats):
    assert other.sit()
    async with running(case.seating.take()) as taking:
        await until(lambda: case.seating.waiting)
        assert case.seating.waiting.startswith("SeatTaken: ")
        assert not taking.done()
        other.close()
        await until(taking.done)
    assert case.seating.waiting == ""


async def test_what_another_has_is_told_and_tried_again_until_it_is_free(case: Case, tmp_path: Path):
    rival = Seats(tmp_path, object_uid=ANOTHER, config="lab")
    assert rival.sit()
    rival.announce()
    assert not rival.hold(DEV)
    await case.seating.take()
    async with case.seating.secured(DEV):
        assert case.lists.heard == [Taken(DEV.names, by=("lab",))]
        assert case.looked == 0
    async with running(case.seating.run()):
        rival.close()
        await until(lambda: case.lists.heard[-1] == Taken())
        assert case.looked == 1


async def test_what_is_no_longer_served_is_free_for_others(case: Case, tmp_path: Path):
    rival = Seats(tmp_path, object_uid=ANOTHER)
    await case.seating.take()
    async with case.seating.secured(DEV):
        assert rival.hold(DEV).names
    async with running(case.seating.run()):
        case.lists.want = Wanted()
        case.seating.stirred()
        await until(lambda: not rival.hold(DEV))
    rival.close()


async def test_locks_of_a_scan_are_not_given_back_before_its_devices_are_in_the_lists(case: Case, tmp_path: Path):
    rival = Seats(tmp_path, object_uid=ANOTHER)
    case.lists.want = Wanted()
    await case.seating.take()
    async with running(case.seating.run()):
        async with case.seating.secured(DEV):
            for _ in range(5):
                case.seating.stirred()
                await asyncio.sleep(0.01)
                assert rival.hold(DEV).names
            case.lists.want = DEV
        case.seating.stirred()
        assert rival.hold(DEV).names
    rival.close()


async def test_a_disk_that_refuses_stops_nothing_and_is_tried_again(case: Case, tmp_path: Path):
    (tmp_path / DIRECTORY).write_text("in the way")
    await case.seating.take()
    async with case.seating.secured(DEV):
        assert str(tmp_path / DIRECTORY) in case.seating.problem
    async with running(case.seating.run()):
        (tmp_path / DIRECTORY).unlink()
        await until(lambda: not case.seating.problem)
    assert case.lists.heard == []
    rival = Seats(tmp_path, object_uid=ANOTHER)
    assert rival.hold(DEV).names
    rival.close()


class HangingSeats(Seats):
    may_go: threading.Event

    def sit(self) -> bool:
        self.may_go.wait(10)
        return super().sit()

    def hold(self, wanted: Wanted) -> Taken:
        self.may_go.wait(10)
        return super().hold(wanted)


async def test_a_disk_that_hangs_stops_nothing_and_a_seat_that_another_has_ends_this_one(tmp_path: Path, other: Seats):
    seats = HangingSeats(tmp_path, object_uid=UID)
    seats.may_go = threading.Event()
    case = Case(seats, replace(FAST, store_wait=0.05))
    assert other.sit()
    await case.seating.take()
    async with case.seating.secured(DEV):
        assert "the disk hangs" in case.seating.problem
        assert case.seating.waiting == ""
    async with running(case.seating.run()):
        seats.may_go.set()
        await until(lambda: case.lost)
    assert case.lists.heard == []
    seats.close()


class UnwritableSeats(Seats):
    may_go: threading.Event

    def announce(self) -> None:
        self.may_go.wait(10)
        raise OSError(5, "Input/output error")


async def test_a_disk_that_takes_no_writes_still_gives_locks(tmp_path: Path):
    seats, rival = UnwritableSeats(tmp_path, object_uid=UID), Seats(tmp_path, object_uid=ANOTHER)
    seats.may_go = threading.Event()
    case = Case(seats, replace(FAST, store_wait=0.05))
    await case.seating.take()
    async with running(case.seating.run()):
        for _ in range(2):
            async with case.seating.secured(DEV):
                assert (case.seating.problem, rival.hold(DEV).names) == ("", DEV.names)
            seats.may_go.set()
    for each in (seats, rival):
        each.close()


async def test_who_saw_the_seat_taken_waits_also_while_the_disk_hangs(tmp_path: Path, other: Seats):
    seats = HangingSeats(tmp_path, object_uid=UID)
    seats.may_go = threading.Event()
    seats.may_go.set()
    case = Case(seats, replace(FAST, store_wait=0.05))
    assert other.sit()
    async with running(case.seating.take()) as taking:
        await until(lambda: case.seating.waiting)
        seats.may_go.clear()
        await until(lambda: case.seating.problem)
        assert not taking.done()
        other.close()
        seats.may_go.set()
        await until(taking.done)
    seats.close()
