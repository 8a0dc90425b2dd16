"""What both benchmarks share: parts that are measured one after the other, a table against budgets, a JSON file."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Result:
    """One line of the table. `budget` None: told, not judged."""

    name: str
    value: float
    unit: str
    budget: float | None = None

    @property
    def exceeded(self) -> bool:
        return self.budget is not None and self.value > self.budget


def parser(description: str | None, *, program: str, parts: Iterable[str]) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--json", type=Path, default=Path(f"bench-{program}.json"), help="default: %(default)s")
    made.add_argument("--without", action="append", default=[], choices=tuple(parts), metavar="NAME")
    return made


def measure(
    parts: Mapping[str, Callable[[], Iterable[Result]]],
    *,
    program: str,
    options: argparse.Namespace,
    failures: tuple[type[Exception], ...],
) -> int:
    """Runs the parts, prints and writes their results; the exit status: 1 for an exceeded budget or a failed part."""
    results: list[Result] = []
    failed: list[str] = []
    for name, part in parts.items():
        if name in options.without:
            print(f"{name}: left out by choice")
            continue
        print(f"{name} ...", flush=True)
        try:
            for result in part():  # what came before a failure is kept
                results.append(result)  # noqa: PERF402
        except failures as error:
            failed.append(name)
            print(f"{name}: NOT MEASURED: {error}; --without {name} leaves it out", file=sys.stderr)
    version = ".".join(map(str, sys.version_info[:3]))
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    busy = ", BUSY WITH OTHER WORK: times are too long" if load > cores + 1 else ""
    print(f"\n{program}, Python {version}, {cores} cores, load {load:.1f}{busy}")
    for r in results:
        budget = "" if r.budget is None else f"{r.budget:10g}  {'EXCEEDED' if r.exceeded else 'ok'}"
        print(f"{r.name:<60} {r.value:10.3f} {r.unit:<7}{budget}")
    written = {"python": version, "results": [asdict(r) for r in results], "failed": failed}
    options.json.write_text(json.dumps(written, indent=1) + "\n")
    return 1 if failed or any(r.exceeded for r in results) else 0
