"""Hardware that comes and goes for real: loop devices, which the kernel adds and removes on request, with uevents."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOOP_CTL_ADD = 0x4C80  # linux/loop.h
LOOP_CTL_REMOVE = 0x4C81


def add_loop(number: int) -> None:
    with Path("/dev/loop-control").open("rb") as control:
        fcntl.ioctl(control, LOOP_CTL_ADD, number)


def remove_loop(number: int) -> None:
    with Path("/dev/loop-control").open("rb") as control:
        fcntl.ioctl(control, LOOP_CTL_REMOVE, number)


@contextmanager
def loops(*numbers: int) -> Iterator[None]:
    """These loop devices exist while the block runs, and none of them after it."""
    _remove(numbers)  # what an interrupted run has left
    try:
        for number in numbers:
            add_loop(number)
        yield
    finally:
        _remove(numbers)


def _remove(numbers: tuple[int, ...]) -> None:
    for number in numbers:
        if Path(f"/dev/loop{number}").exists():
            remove_loop(number)


def make_node(path: Path) -> None:
    """A character device like /dev/null under another name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))


def announce() -> None:
    """Makes the kernel send a uevent. A node made by hand causes none."""
    Path("/sys/class/mem/null/uevent").write_text("change")
