"""The lines of one turn of the loop are one write, and no line is lost."""

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from device_agent.runtime import logs
from device_agent.runtime.logs import TurnHandler


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Ends to read and to write; a read never waits."""
    ends = os.pipe()
    os.set_blocking(ends[0], False)
    yield ends
    for end in ends:
        os.close(end)


@pytest.fixture
def log(pipe: tuple[int, int]) -> Iterator[logging.Logger]:
    made = logging.getLogger("lines of a turn")
    made.setLevel(logging.DEBUG)
    made.propagate = False
    handler = TurnHandler(pipe[1])
    made.addHandler(handler)
    yield made
    made.removeHandler(handler)


def read(pipe: tuple[int, int]) -> str:
    """What has been written since."""
    try:
        return os.read(pipe[0], 1 << 16).decode()
    except BlockingIOError:
        return ""


async def test_lines_of_one_turn_are_one_write(
    pipe: tuple[int, int], log: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[bytes] = []
    real = os.write

    def counted(fd: int, data: bytes) -> int:
        if fd == pipe[1]:
            writes.append(data)
        return real(fd, data)

    monkeypatch.setattr(os, "write", counted)
    for n in range(100):
        log.info("line %d", n)
    assert writes == []
    await asyncio.sleep(0)
    assert writes == ["".join(f"line {n}\n" for n in range(100)).encode()]
    log.info("the next turn")
    await asyncio.sleep(0)
    assert writes[1:] == [b"the next turn\n"]


async def test_a_warning_is_written_at_once_with_all_lines_before_it(
    pipe: tuple[int, int], log: logging.Logger
) -> None:
    log.info("first")
    log.warning("second")
    assert read(pipe) == "first\nsecond\n"
    await asyncio.sleep(0)
    assert read(pipe) == ""


async def test_a_line_of_another_thread_is_written_at_once_with_all_lines_before_it(
    pipe: tuple[int, int], log: logging.Logger
) -> None:
    log.info("first")
    thread = threading.Thread(target=log.info, args=("second",))
    thread.start()
    thread.join()
    log.info("third")
    assert read(pipe) == "first\nsecond\n"
    await asyncio.sleep(0)
    assert read(pipe) == "third\n"


def test_without_a_loop_every_line_is_written_at_once(pipe: tuple[int, int], log: logging.Logger) -> None:
    log.debug("first")
    assert read(pipe) == "first\n"


def test_lines_of_threads_and_of_the_loop_stay_whole_and_in_order(pipe: tuple[int, int], log: logging.Logger) -> None:
    async def main() -> None:
        threads = [threading.Thread(target=lambda t=t: [log.info("%d %d", t, n) for n in range(50)]) for t in range(4)]
        for thread in threads:
            thread.start()
        for n in range(50):
            log.info("loop %d", n)
            await asyncio.sleep(0)
        for thread in threads:
            thread.join()

    asyncio.run(main())
    lines = read(pipe).splitlines()
    assert len(lines) == 250
    for who in ("0", "1", "2", "3", "loop"):
        assert [line for line in lines if line.split()[0] == who] == [f"{who} {n}" for n in range(50)]


def test_a_closed_log_pipe_stops_nothing(pipe: tuple[int, int]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    handler = TurnHandler(writer)
    handler.handle(logging.makeLogRecord({"msg": "lost", "levelno": logging.INFO}))
    os.close(writer)


def test_a_line_that_cannot_be_formatted_does_not_lose_the_others(
    pipe: tuple[int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    handler = TurnHandler(pipe[1])
    handler.handle(logging.makeLogRecord({"msg": "%d", "args": ("no number",), "levelno": logging.INFO}))
    handler.handle(logging.makeLogRecord({"msg": "after it", "levelno": logging.INFO}))
    assert read(pipe) == "after it\n"
    assert "no number" in capsys.readouterr().err


END = {
    "returns": "return",
    "raises": "raise RuntimeError('a defect')",
    "exits": "sys.exit(3)",
    "is ended by another thread": "threading.Thread(target=logs.exit_now, args=(0,)).start(); time.sleep(30)",
}


@pytest.mark.parametrize("end", END)
def test_lines_of_the_last_turn_are_written_however_the_process_ends(end: str) -> None:
    code = f"""
import asyncio, logging, sys, threading, time
from device_agent.runtime import logs
logs.configure(level="Info", formatter=logging.Formatter())
async def main():
    logging.info("first")
    logging.info("last")
    {END[end]}
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False)
    assert done.stderr.splitlines()[:2] == ["first", "last"]


def test_a_log_that_hangs_does_not_keep_the_process_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
import logging, os, threading
from device_agent.runtime import logs
logs.configure(level="Info", formatter=logging.Formatter())
threading.Thread(target=logging.root.handlers[0].acquire, daemon=True).start()
while logging.root.handlers[0].lock.acquire(blocking=False):
    logging.root.handlers[0].lock.release()
logs.exit_now(7)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=20, check=False)
    assert done.returncode == 7


def test_the_levels_are_those_of_the_configuration() -> None:
    assert [logs.LOG_LEVELS[name] for name in ("Debug", "Info", "Warning", "Error")] == [10, 20, 30, 40]
