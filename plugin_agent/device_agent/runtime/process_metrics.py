"""The kernel's figures on this process, under the names that all Prometheus client libraries use."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from device_agent.runtime.exposition import Family

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class ProcessMetrics:
    """Reads /proc at each scrape. Gives no samples if it cannot be read. proc(5): the fields of `stat`."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc

    def collect(self) -> Iterator[Family]:
        try:
            # the second field is a name in parentheses, which may hold anything
            fields = (self._proc / "self/stat").read_text().rpartition(")")[2].split()
            booted = self._booted()
            open_files = sum(1 for _ in (self._proc / "self/fd").iterdir())
        except OSError:
            return
        user, kernel, started, virtual, resident = (int(fields[n]) for n in (11, 12, 19, 20, 21))
        for name, text, kind, value in (
            ("process_virtual_memory_bytes", "Virtual memory size in bytes.", "gauge", virtual),
            ("process_resident_memory_bytes", "Resident memory size in bytes.", "gauge", resident * _PAGE),
            ("process_start_time_seconds", "Start of the process, Unix time.", "gauge", booted + started / _TICKS),
            ("process_cpu_seconds_total", "Processor time, user and system.", "counter", (user + kernel) / _TICKS),
            ("process_open_fds", "Open file descriptors.", "gauge", open_files),
            ("process_max_fds", "Most file descriptors it may open.", "gauge", _most_files()),
        ):
            family = Family(name, text, kind)
            family.add((), value)
            yield family

    def _booted(self) -> int:
        """Unix time of the node's boot."""
        for line in (self._proc / "stat").read_text().splitlines():
            if line.startswith("btime "):
                return int(line.split()[1])
        return 0


def _most_files() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
