"""Uevents: how the kernel's messages are parsed and become hints."""

import asyncio
import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from device_agent.discovery.hotplug import Uevent, UeventSocket, is_news, parse

LOOP = 97
LOOP_CTL_ADD = 0x4C80  # linux/loop.h
LOOP_CTL_REMOVE = 0x4C81


@pytest.mark.parametrize(
    ("message", "event"),
    [
        (
            b"add@/devices/virtual/block/loop97\0ACTION=add\0DEVPATH=/devices/virtual/block/loop97\0SUBSYSTEM=block\0SEQNUM=7\0",
            Uevent("add", "/devices/virtual/block/loop97", "block"),
        ),
        (b"change@/devices/x\0ACTION=change\0", Uevent("change", "/devices/x", "")),
        (b"remove@/devices/x\0SUBSYSTEM=a=b\0junk\0", Uevent("remove", "/devices/x", "a=b")),
        (b"libudev\0\xfe\xed\xca\xfe", None),
        (b"add@devices/x\0", None),
        (b"", None),
        (b"\xff@/\xff\0", Uevent("\ufffd", "/\ufffd", "")),
    ],
)
def test_kernel_messages_are_parsed_and_others_are_not(message: bytes, event: Uevent | None):
    assert parse(message) == event


class Scripted(UeventSocket):
    """A socket that the test writes into, with errors in between."""

    def __init__(self) -> None:
        ours, self.other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        ours.setblocking(False)
        self._socket = Inbox(ours)  # type: ignore[assignment]

    def send(self, subsystem: str, *, sender: int = 0) -> None:
        self._socket.senders.append(sender)
        self.other.send(f"add@/devices/x\0SUBSYSTEM={subsystem}\0".encode())

    def fail(self, code: int) -> None:
        self._socket.failures.append(code)
        self.other.send(b"")  # wakes the loop


class Inbox:
    def __init__(self, real: socket.socket) -> None:
        self.real = real
        self.senders: list[int] = []
        self.failures: list[int] = []

    def recvfrom(self, size: int) -> tuple[bytes, tuple[int, int]]:
        if self.failures:
            code = self.failures.pop(0)
            self.real.recv(size)
            raise OSError(code, os.strerror(code))
        data = self.real.recv(size)
        return data, (self.senders.pop(0), 1)

    def fileno(self) -> int:
        return self.real.fileno()

    def close(self) -> None:
        self.real.close()


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    with Scripted() as scripted:
        yield scripted
        scripted.other.close()


async def test_a_burst_is_one_hint_and_a_later_event_is_another(scripted: Scripted):
    hints: asyncio.Queue[None] = asyncio.Queue()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        task = group.create_task(scripted.hints(lambda: hints.put_nowait(None), settle=0.05))
        for _ in range(20):
            scripted.send("usb")
        await hints.get()
        assert hints.empty()
        scripted.send("tty")
        await hints.get()
        assert hints.empty()
        task.cancel()


async def test_uevents_during_the_settle_time_belong_to_the_same_hint(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
):
    turn = asyncio.sleep
    order: list[str] = []

    async def settling(_: float) -> None:
        order.append("settles")
        if order == ["settles"]:
            scripted.send("tty")
        while scripted._socket.senders:
            await turn(0)
        order.append("all are read")

    monkeypatch.setattr(asyncio, "sleep", settling)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        task = group.create_task(scripted.hints(lambda: order.append("hint")))
        scripted.send("usb")
        while "hint" not in order:
            await turn(0)
        for _ in range(10):  # a second hint would come within a few turns
            await turn(0)
        task.cancel()
    assert order == ["settles", "all are read", "hint"]


async def test_an_overflow_is_a_hint(scripted: Scripted):
    hints: asyncio.Queue[None] = asyncio.Queue()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        task = group.create_task(scripted.hints(lambda: hints.put_nowait(None), settle=0.001))
        scripted.fail(errno.ENOBUFS)
        await hints.get()
        task.cancel()


def test_messages_of_other_processes_are_ignored(scripted: Scripted):
    scripted.send("usb", sender=4711)
    scripted.send("usb")
    assert [event and event.subsystem for event in scripted.waiting()] == ["usb"]


@pytest.mark.parametrize(
    ("event", "news"),
    [
        (Uevent("add", "/devices/x", "usb"), True),
        (Uevent("bind", "/devices/x", "pci"), True),
        (Uevent("add", "/devices/virtual/bdi/7:0", "bdi"), False),
        (Uevent("add", "/module/nbd", "module"), False),
        (None, True),
    ],
)
def test_the_kernels_bookkeeping_is_ignored(event: Uevent | None, *, news: bool):
    assert is_news(event) is news


async def test_a_broken_socket_raises_its_error(scripted: Scripted):
    scripted.fail(errno.EBADF)
    async with asyncio.timeout(10):
        with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
            await scripted.hints(lambda: None, settle=0.001)


def test_an_overflow_of_the_kernels_own_socket_is_reported():
    with UeventSocket() as events:
        events._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the kernel's minimum, some messages
        trigger = Path("/sys/class/mem/null/uevent")
        for _ in range(64):
            trigger.write_text("change")
        assert None in list(events.waiting())


@contextmanager
def loop_device(number: int) -> Iterator[None]:
    with Path("/dev/loop-control").open("rb") as control:
        fcntl.ioctl(control, LOOP_CTL_ADD, number)
        try:
            yield
        finally:
            fcntl.ioctl(control, LOOP_CTL_REMOVE, number)


async def test_a_real_device_that_comes_and_goes_gives_hints():
    with UeventSocket() as events:
        hints: asyncio.Queue[None] = asyncio.Queue()
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            task = group.create_task(events.hints(lambda: hints.put_nowait(None)))
            await asyncio.sleep(0)
            with loop_device(LOOP):
                await hints.get()
            await hints.get()
            task.cancel()
    with UeventSocket() as events:
        with loop_device(LOOP):
            pass
        seen = {(e.action, e.subsystem) for e in events.waiting() if e and e.path.endswith(f"/loop{LOOP}")}
        assert {("add", "block"), ("remove", "block")} <= seen
