"""How the device table's steps grow with the number of ids: each is measured at two sizes in this process."""

import gc
import math
import time
from collections.abc import Callable, Iterator

from device_agent.select.unit import Unit
from measuring import Result
from unit.table.samples import NAME, OTHER, Steps, held, resource, unit

FEW, MANY = 2_000, 20_000
REPEATS = 5
ROOM = 2.0
"""What the processor's caches may add: 20,000 devices fit in none. A quadratic step is at 100."""


def table_steps() -> Iterator[Result]:
    few, many = _fastest(FEW), _fastest(MANY)
    most = round(ROOM * MANY * math.log(MANY) / (FEW * math.log(FEW)))
    for name, seconds in many.items():
        yield Result(f"{name}, {MANY:,} ids", seconds, "s")
        yield Result(f"the same against {FEW:,} ids", seconds / few[name], "x", most)


def _fastest(count: int) -> dict[str, float]:
    """Seconds of each step, the fastest of the repeats: the work is the same each time."""
    here, there = ([unit(f"device-{n:05}", name=name) for n in range(count)] for name in (NAME, OTHER))
    best: dict[str, float] = {}
    for _ in range(REPEATS):
        for name, step in _steps(here, there):
            gc.collect()
            begun = time.perf_counter()
            step()
            best[name] = min(best.get(name, math.inf), time.perf_counter() - begun)
    return best


def _steps(here: list[Unit], there: list[Unit]) -> Iterator[tuple[str, Callable[[], object]]]:
    """What one table goes through, in this order."""
    steps = Steps(resource(NAME))
    held_one = held(here[0].id)
    yield "table: first scan", lambda: steps.scan(*here)
    yield "table: list for the kubelet", lambda: steps.send(NAME)
    yield "table: first answer of List", lambda: steps.list({})
    yield "table: scan that changes nothing", lambda: steps.scan(*here)
    yield "table: answer of List, one is held", lambda: steps.list(held_one)
    yield "table: rename with one held", lambda: steps.edit(resource(OTHER), units=tuple(there))
    yield "table: answer of List after it", lambda: steps.list(held_one)
