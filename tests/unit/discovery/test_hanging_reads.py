"""A read that never returns, or fails, takes one device from sight; the others are followed on."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from device_agent.contract.document import Document, parse_resource
from device_agent.contract.reasons import ExclusionReason
from device_agent.discovery.reads import MOST_HANGING, HangingReads, HangsError, Reader
from device_agent.discovery.scan_threads import ScanThreads
from device_agent.discovery.scanner import Scanner
from device_agent.runtime.worker import WorkerBusyError
from device_agent.select.found import Findings
from unit.discovery.tree import HostTreeBuilder

WIDGETS = {
    "name": "example.com/widget",
    "devices": [{"sysfs": {"subsystem": "misc"}}],
    "exclude": [{"attribute": "attr.state", "values": ["no"]}],
}
PCI = {"name": "example.com/pci", "devices": [{"pci": {}}]}
FILES = {"name": "example.com/file", "devices": [{"files": {"paths": ["/dev/box/*"]}}]}


def document(*entries: dict) -> Document:
    return Document(tuple(parse_resource(e, path=f"resources[{i}]") for i, e in enumerate(entries)))


@pytest.fixture
def widgets(host: HostTreeBuilder) -> HostTreeBuilder:
    for name in ("w0", "w1", "w2"):
        host.obj(f"devices/virtual/misc/{name}", "misc", devname=name, state="good")
    return host


def state_of(name: str) -> str:
    return f"/devices/virtual/misc/{name}/state"


class Files:
    """The calls by which the agent reads files. `ends` of a path -> what a call does before it goes on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.before: dict[str, Callable[[], object]] = {}
        real = {name: getattr(os, name) for name in ("read", "listdir", "scandir")}

        def call(name: str, path: str, *arguments: object) -> object:
            for end, act in self.before.items():
                if path.endswith(end):
                    act()
            return real[name](*arguments)

        monkeypatch.setattr(os, "read", lambda fd, n: call("read", str(Path(f"/proc/self/fd/{fd}").readlink()), fd, n))
        monkeypatch.setattr(os, "listdir", lambda path: call("listdir", str(path), path))
        monkeypatch.setattr(os, "scandir", lambda path: call("scandir", str(path), path))

    def fail(self, end: str, number: int) -> None:
        def act() -> None:
            raise OSError(number, os.strerror(number))

        self.before[end] = act


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Files:
    return Files(monkeypatch)


@pytest.fixture
def hang(calls: Files) -> Iterator[Callable[[str], threading.Event]]:
    """Makes reads of a path hang until the event is set."""
    events: list[threading.Event] = []

    def make(end: str) -> threading.Event:
        events.append(event := threading.Event())
        calls.before[end] = event.wait
        return event

    yield make
    for event in events:
        event.set()


def by_name(findings: Findings) -> dict[str, object]:
    return {find.name: find.left_out and find.left_out[0] for finds in findings.by_entry[0] for find in finds}


# Reads that hang


async def test_a_hanging_read_leaves_out_its_device_until_it_returns(widgets: HostTreeBuilder, hang):
    released, returned = hang(state_of("w1")), asyncio.Event()
    threads = ScanThreads(HangingReads(after=0.05, longest=10.0), returned=returned.set)
    scanner = Scanner(widgets.roots)

    async def scan() -> Findings:
        return await threads.call(lambda reader: scanner.scan(document(WIDGETS), reader=reader), seconds=30)

    unreadable = {"w0": None, "w1": ExclusionReason.UNREADABLE, "w2": None}
    first = await scan()
    assert by_name(first) == unreadable
    message = next(f.left_out[1] for f in first.by_entry[0][0] if f.left_out)
    assert state_of("w1") in message
    assert by_name(await scan()) == unreadable
    assert not threads.busy
    assert not returned.is_set()
    released.set()
    await asyncio.wait_for(returned.wait(), 10)
    assert by_name(await scan()) == {"w0": None, "w1": None, "w2": None}


async def test_each_hanging_device_is_left_out(widgets: HostTreeBuilder, hang):
    for name in ("w0", "w2"):
        hang(state_of(name))
    threads = ScanThreads(HangingReads(after=0.05, longest=10.0), returned=lambda: None)
    scanner = Scanner(widgets.roots)
    found = await threads.call(lambda reader: scanner.scan(document(WIDGETS), reader=reader), seconds=30)
    assert by_name(found) == {"w0": ExclusionReason.UNREADABLE, "w1": None, "w2": ExclusionReason.UNREADABLE}


async def test_an_object_whose_directory_hangs_hides_no_other(widgets: HostTreeBuilder, hang):
    hang("/devices/virtual/misc/w1")
    threads = ScanThreads(HangingReads(after=0.05, longest=10.0), returned=lambda: None)
    scanner = Scanner(widgets.roots)
    found = await threads.call(lambda reader: scanner.scan(document(WIDGETS), reader=reader), seconds=30)
    assert by_name(found) == {"w0": None, "w1": ExclusionReason.UNREADABLE, "w2": None}


async def test_a_function_that_hangs_hides_no_other_function(host: HostTreeBuilder, hang):
    for slot in (1, 2):
        host.pci(f"0000:00:0{slot}.0", "8086:1521")
    hang("/0000:00:02.0/vendor")
    threads = ScanThreads(HangingReads(after=0.05, longest=10.0), returned=lambda: None)
    found = await threads.call(lambda reader: Scanner(host.roots).scan(document(PCI), reader=reader), seconds=30)
    assert by_name(found) == {"0000:00:01.0": None, "0000:00:02.0": ExclusionReason.UNREADABLE}


async def test_a_scan_that_takes_long_without_a_hanging_read_runs_into_its_deadline():
    ended = threading.Event()
    threads = ScanThreads(HangingReads(after=0.05, longest=10.0), returned=lambda: None)
    with pytest.raises(TimeoutError):
        await threads.call(lambda _reader: ended.wait(), seconds=0.3)
    assert threads.busy
    with pytest.raises(WorkerBusyError):
        await threads.call(lambda _reader: None, seconds=1)
    ended.set()


def reading(reads: HangingReads, path: str) -> Reader:
    reader = Reader(reads)
    reader.begin(path)
    return reader


def test_a_read_that_returned_late_gets_twice_the_time():
    now = [0.0]
    reads = HangingReads(after=2, longest=10, clock=lambda: now[0])
    for patience in (2, 4, 8, 10, 10):
        reader = reading(reads, "/sys/slow")
        now[0] += patience - 0.1
        assert reads.leave(reader) == ""
        now[0] += 0.1
        assert reads.leave(reader) == "/sys/slow"
        with pytest.raises(HangsError, match="/sys/slow"):
            Reader(reads).begin("/sys/slow")
        assert reads.returned(reader)
        assert reads.paths == frozenset()


def test_a_scan_that_was_left_behind_reads_nothing_more():
    now = [0.0]
    reads = HangingReads(after=2, longest=10, clock=lambda: now[0])
    reader = reading(reads, "/sys/a")
    now[0] = 3
    reads.leave(reader)
    reader.end()
    with pytest.raises(HangsError):
        reader.begin("/sys/b")


def test_a_read_that_ends_in_time_hangs_nowhere():
    now = [0.0]
    reads = HangingReads(after=2, longest=10, clock=lambda: now[0])
    reader = reading(reads, "/sys/a")
    reader.end()
    now[0] = 3
    assert reads.leave(reader) == ""
    assert not reads.returned(reader)


def test_only_so_many_threads_are_left_behind():
    now = [0.0]
    reads = HangingReads(after=2, longest=10, clock=lambda: now[0])
    for number in range(MOST_HANGING + 1):
        reader = reading(reads, f"/sys/{number}")
        now[0] += 3
        assert bool(reads.leave(reader)) is (number < MOST_HANGING)
    assert len(reads.paths) == MOST_HANGING


# Reads that fail


@pytest.mark.parametrize("number", [errno.EIO, errno.ETIMEDOUT, errno.EMFILE, errno.EREMOTEIO])
def test_a_device_whose_file_cannot_be_read_is_left_out(widgets: HostTreeBuilder, calls: Files, number: int):
    calls.fail(state_of("w1"), number)
    found = by_name(Scanner(widgets.roots).scan(document(WIDGETS)))
    assert found == {"w0": None, "w1": ExclusionReason.UNREADABLE, "w2": None}


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP, errno.ENODATA, errno.EACCES, errno.ENODEV])
def test_a_driver_that_has_no_value_leaves_the_attribute_absent(widgets: HostTreeBuilder, calls: Files, number: int):
    calls.fail(state_of("w1"), number)
    (found,) = Scanner(widgets.roots).scan(document(WIDGETS)).by_entry[0]
    assert {f.name: f.attributes.get("attr.state") for f in found} == {"w0": "good", "w1": None, "w2": "good"}


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.EACCES])
@pytest.mark.parametrize(
    ("entry", "directory"), [(PCI, "bus/pci/devices"), (WIDGETS, "class/misc"), (FILES, "dev/box")], ids=str
)
def test_a_directory_that_cannot_be_listed_is_no_empty_directory(
    widgets: HostTreeBuilder, calls: Files, entry: dict, directory: str, number: int
):
    widgets.node("box/a")
    calls.fail(f"/{directory}", number)
    findings = Scanner(widgets.roots).scan(document(entry))
    assert findings.failed.keys() == {(0, 0)}
    assert directory in findings.failed[0, 0]
    assert os.strerror(number) in findings.failed[0, 0]
    assert findings.nothing == {}
    assert findings.errors
