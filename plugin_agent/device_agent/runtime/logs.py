"""Writes the log to standard error. The lines of one turn of the event loop are written together.

One write per line takes longer than making the line, and pods wait for the loop. Three kinds of lines are written at
once, together with all lines collected before: warnings and errors, lines of other threads, and lines while no loop
runs. So the order is kept, and a process that crashes has logged why.
"""

import asyncio
import contextlib
import logging
import os
import sys
import threading
from typing import Final

LOG_LEVELS: Final = {
    "Debug": logging.DEBUG,
    "Info": logging.INFO,
    "Warning": logging.WARNING,
    "Error": logging.ERROR,
}
"""By the names that `spec.agent.logLevel` uses."""

_LAST_SECONDS: Final = 0.1


class TurnHandler(logging.Handler):
    """Writes to a file descriptor. `logging` itself flushes it when the interpreter ends."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.append(self.format(record))
        except Exception:  # noqa: BLE001 - a bad log line must not break the work that logs it
            self.handleError(record)
            return
        loop = None if record.levelno >= logging.WARNING else _running_loop()
        if loop is None:
            self.flush()
        elif len(self._lines) == 1:
            loop.call_soon(self.flush)

    def flush(self) -> None:
        """Writes the collected lines. Lines that cannot be written are lost: there is nowhere to report it."""
        self.acquire()
        try:
            lines, self._lines = self._lines, []
            data = "".join(f"{line}\n" for line in lines).encode(errors="backslashreplace")
            with contextlib.suppress(OSError):
                while data:
                    data = data[os.write(self._fd, data) :]
        finally:
            self.release()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that runs in this thread."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def configure(*, level: str, formatter: logging.Formatter) -> None:
    """Logs to standard error. `level` as in LOG_LEVELS."""
    # skip facts that no line of the log shows (logging HOWTO, "Optimization")
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001 - the documented switch
    handler = TurnHandler(sys.stderr.fileno())
    handler.setFormatter(formatter)
    logging.basicConfig(level=LOG_LEVELS[level], handlers=[handler], force=True)
    for noisy in ("asyncio", "grpc"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def exit_now(status: int) -> None:
    """Ends the process from any thread, whatever hangs. Gives the log a moment to be written; that may hang too."""
    last = threading.Thread(target=logging.shutdown, daemon=True)
    last.start()
    last.join(_LAST_SECONDS)
    os._exit(status)
