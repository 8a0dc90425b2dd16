"""The kernel's uevents: each is a hint to scan, never the news itself.

Uevents come by a netlink socket (kernel Documentation/ABI and lib/kobject_uevent.c). They reach an unprivileged process
in any network namespace, except those of `net` devices, which stay in their own namespace. An overflow loses events, so
it is a hint as well.
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, Self

from device_agent.contract.values import dataclass

NETLINK_KOBJECT_UEVENT: Final = 15  # linux/netlink.h
KERNEL_GROUP: Final = 1
"""Group 2 is udev's own: it says more, but later, and nothing on nodes without udev."""
SETTLE_SECONDS: Final = 0.05
"""Plugging in one adapter causes some twenty uevents within milliseconds: they become one hint."""

_BUFFER = 1 << 20
_MESSAGE = 16 * 1024  # UEVENT_BUFFER_SIZE of linux/kobject.h is 2 KiB in all
# Kernel bookkeeping when containers come and go: never a device that a configuration could select.
_NOISE = frozenset({"bdi", "slab", "module", "drivers", "queues", "cgroup"})


@dataclass(frozen=True, slots=True)
class Uevent:
    """One message. `path` is relative to /sys, with its leading slash."""

    action: str
    path: str
    subsystem: str


def parse(message: bytes) -> Uevent | None:
    """Parses a kernel message: `add@/devices/…` and KEY=value, each ended by NUL. None for anything else."""
    head, *lines = message.split(b"\0")
    action, at, path = head.partition(b"@")
    if not at or not path.startswith(b"/"):
        return None
    values = dict(line.partition(b"=")[::2] for line in lines)
    return Uevent(action=_text(action), path=_text(path), subsystem=_text(values.get(b"SUBSYSTEM", b"")))


def is_news(event: Uevent | None) -> bool:
    """Whether a scan may find something new. None is an overflow, which may have lost any event."""
    return event is None or event.subsystem not in _NOISE


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


class UeventSocket:
    """The kernel's uevents; used as a context manager.

    Raises:
        OSError: the kernel or a sandbox refuses the socket; then only periodic scans notice changes.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT
        )
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            self._socket.bind((0, KERNEL_GROUP))
        except OSError:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def waiting(self) -> Iterator[Uevent | None]:
        """The events that have arrived, without waiting. None stands for an overflow."""
        while True:
            try:
                message, sender = self._socket.recvfrom(_MESSAGE)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                yield None
                continue
            if sender[0] == 0 and (event := parse(message)):  # 0 is the kernel; other processes may send too
                yield event

    async def hints(self, on_hint: Callable[[], None], *, settle: float = SETTLE_SECONDS) -> None:
        """Calls `on_hint` after each burst of uevents, at most once in `settle` seconds. Runs until cancelled.

        Raises:
            OSError: the socket failed for good.
        """
        loop = asyncio.get_running_loop()
        news = asyncio.Event()
        failed: list[OSError] = []

        def arrived() -> None:
            # Read at once: a message left in the socket would wake the loop again and again.
            try:
                told = [is_news(event) for event in self.waiting()]
            except OSError as error:
                failed.append(error)
                loop.remove_reader(self.fileno())
                news.set()
            else:
                if any(told):
                    news.set()

        loop.add_reader(self.fileno(), arrived)
        try:
            while True:
                await news.wait()
                if failed:
                    raise failed[0]
                await asyncio.sleep(settle)
                if not failed:
                    news.clear()
                on_hint()
        finally:
            loop.remove_reader(self.fileno())
