"""Latencies side by side: all cases take turns, so that what slows the machine down slows all of them.

A ratio is taken within each round, and the median of the rounds counts. A disturbance would have to last for half of
the rounds and hit one case alone to change the verdict.
"""

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

ROUNDS = 9
TURNS = 10
WARM = 4
"""Calls at the start of each turn that are not counted: the process before had the processor's caches."""


@dataclass(frozen=True, slots=True)
class Case:
    """`calls`: how many are measured in each turn."""

    call: Callable[[], object]
    calls: int = 40


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds: the quantiles of each round."""

    p50s: tuple[float, ...]
    p99s: tuple[float, ...]

    @property
    def p50(self) -> float:
        return statistics.median(self.p50s)

    @property
    def p99(self) -> float:
        return statistics.median(self.p99s)

    def ratios(self, base: "Latency") -> tuple[float, float]:
        """p50 to p50 and p99 to p99."""
        pairs = (zip(self.p50s, base.p50s, strict=True), zip(self.p99s, base.p99s, strict=True))
        p50, p99 = (statistics.median(ours / theirs for ours, theirs in each) for each in pairs)
        return p50, p99


def in_rounds(cases: Mapping[str, Case]) -> dict[str, Latency]:
    """Measures the cases, in their order, turn after turn."""
    for case in cases.values():
        for _ in range(100):
            case.call()
    gc.collect()
    gc.disable()  # a garbage collection in this process must not count as latency of a case
    try:
        rounds = [_round(cases) for _ in range(ROUNDS)]
    finally:
        gc.enable()
    return {
        name: Latency(p50s=tuple(r[name][0] for r in rounds), p99s=tuple(r[name][1] for r in rounds)) for name in cases
    }


def _round(cases: Mapping[str, Case]) -> dict[str, tuple[float, float]]:
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(TURNS):
        for name, case in cases.items():
            for _ in range(WARM):
                case.call()
            for _ in range(case.calls):
                begun = time.perf_counter()
                case.call()
                times[name].append(time.perf_counter() - begun)
    cuts = {name: statistics.quantiles(each, n=100) for name, each in times.items()}
    return {name: (each[49], each[98]) for name, each in cuts.items()}
