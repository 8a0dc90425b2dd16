"""What an operator process tells of itself: its memory, its processor time, its passes, its writes to the API server."""

import os
import re
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from operator_process import OperatorProcess

_REQUESTS = re.compile(
    r'^device_operator_api_requests_total\{code="\d+",resource="([^"]*)",verb="(?:create|update|patch|delete)"\} (\S+)$',
    re.MULTILINE,
)
_PASSES = re.compile(r"^device_operator_reconcile_seconds_(count|sum)\{[^}]*\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Since the process began. Seconds. `written`: requests that write, by resource, whatever the answer."""

    passes: float
    in_passes: float
    processor: float
    written: Counter[str]

    @classmethod
    def take(cls, operator: OperatorProcess) -> Self:
        code, text = operator.probe("/metrics")
        assert code == 200, f"no metrics: {code}"
        passes, written = {"count": 0.0, "sum": 0.0}, Counter[str]()
        for name, value in _PASSES.findall(text):
            passes[name] += float(value)
        for resource, value in _REQUESTS.findall(text):
            written[resource] += int(float(value))
        return cls(passes=passes["count"], in_passes=passes["sum"], processor=_processor(operator), written=written)

    def __sub__(self, before: "Reading") -> "Reading":
        return Reading(
            passes=self.passes - before.passes,
            in_passes=self.in_passes - before.in_passes,
            processor=self.processor - before.processor,
            written=self.written - before.written,
        )

    @property
    def mean_pass(self) -> float:
        return self.in_passes / max(1, self.passes)

    @property
    def writes(self) -> int:
        """Without the renewals of the Lease, which come at a fixed rate."""
        return self.written.total() - self.written["leases"]


def memory(operator: OperatorProcess) -> tuple[float, float]:
    """MiB: now, at most so far."""
    lines = Path(f"/proc/{operator.process.pid}/status").read_text().splitlines()
    found = {line.split()[0]: float(line.split()[1]) / 1024 for line in lines if line.startswith(("VmRSS", "VmHWM"))}
    return found["VmRSS:"], found["VmHWM:"]


def rest(operator: OperatorProcess) -> Reading:
    """Returns when two seconds went by without a pass."""
    last, since = Reading.take(operator), time.monotonic()
    while time.monotonic() - since < 2.0:
        time.sleep(0.2)
        now = Reading.take(operator)
        if now.passes != last.passes:
            last, since = now, time.monotonic()
    return Reading.take(operator)


def _processor(operator: OperatorProcess) -> float:
    fields = Path(f"/proc/{operator.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
