"""Runs the levels of tests one after the other, says how long each took, and fails when one fails.

tests/levels.py check|all|bench|soak|LEVEL...     LEVEL: static unit agent operator cluster bench soak

What a level needs is built before its tests start (tests/prepare.py): no build counts against a test's time limit.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PYTHON = str(BIN / "python")
PYTEST = [PYTHON, "-m", "pytest", "-q"]

STATIC = [  # the slowest first: they run side by side
    [str(BIN / "mypy"), "-p", "device_operator", "-p", "device_agent", "-p", "kubectl_devices", "-p", "localcluster"],
    [str(BIN / "ruff"), "check", "."],
    [str(BIN / "ruff"), "format", "--check", "."],
    [str(BIN / "lint-imports"), "--no-cache"],
    [str(BIN / "yamllint"), "--strict", "-c", ".yamllint.yaml", "crds", "examples"],
    ["sh", "-c", f"git ls-files -z '*.sh' .ci/run | xargs -0 {BIN / 'shellcheck'}"],
    [PYTHON, "scripts/api_reference.py", "--check"],
    [PYTHON, "scripts/reasons.py", "--check"],
    [PYTHON, "scripts/command_reference.py", "--check"],
    ["env", "NO_MKDOCS_2_WARNING=1", PYTHON, "-m", "mkdocs", "build", "--strict"],  # --quiet would silence it
    [str(BIN / "hadolint"), "Dockerfile.agent", "Dockerfile.operator"],
]
UNIT = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "tests/unit").iterdir()
    if path.match("test_*.py") or any(path.rglob("test_*.py"))
)
AGENT = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests/agent").glob("test_*.py"))
LEVELS: dict[str, list[list[str]]] = {
    "static": STATIC,
    "unit": [[*PYTEST, *UNIT[::2]], [*PYTEST, *UNIT[1::2]]],
    "agent": [[*PYTEST, *AGENT[::2]], [*PYTEST, *AGENT[1::2]]],
    "operator": [[*PYTEST, "tests/operator"]],
    "cluster": [[*PYTEST, "tests/cluster"]],
    "soak": [
        ["env", "TABLE_SEQUENCES=20000", *PYTEST, "tests/unit/table/test_device_table_sequences.py"],
        ["env", "FAULTS=300", *PYTEST, "-s", "tests/cluster/test_faults.py"],
        ["env", "OUTAGE=60", *PYTEST, "tests/operator/test_outage.py"],
    ],
    "bench": [
        [PYTHON, "tests/bench/bench_agent.py"],
        [PYTHON, "tests/bench/bench_operator.py"],
    ],
}
SIDE_BY_SIDE = ("static", "unit", "agent")  # their commands share nothing; a cluster has the machine to itself
GROUPS = {"check": ["static", "unit"], "all": ["static", "unit", "agent", "operator", "cluster"]}
SOURCES = ("operator", "plugin_agent", "cli", "tests/cluster")  # of this checkout, whatever is installed
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(str(ROOT / folder) for folder in SOURCES),
    "MYPYPATH": "tests/cluster",
}


def main(names: list[str]) -> int:
    chosen = [level for name in names for level in GROUPS.get(name, [name])]
    if not chosen or any(level not in LEVELS for level in chosen):
        print(__doc__)
        return 2
    left_out = [level for level in GROUPS["all"] if level not in chosen]
    results = []
    for level in chosen:
        begun = time.monotonic()
        code = _run([PYTHON, "tests/prepare.py", level])
        prepared = time.monotonic()
        if code == 0:
            code = _run_side_by_side(LEVELS[level]) if level in SIDE_BY_SIDE else max(map(_run, LEVELS[level]))
        results.append((level, code, prepared - begun, time.monotonic() - prepared))
    print("\nlevel      result  preparing    tests  (seconds)")
    for level, code, preparing, tests in results:
        print(f"{level:<10} {'FAILED' if code else 'ok':<7} {preparing:9.1f}  {tests:7.1f}")
    if left_out and not {"bench", "soak"} & set(chosen):
        print(f"not run, by choice: {', '.join(left_out)}")
    return max(code for _, code, _, _ in results)


def _run(command: Sequence[str]) -> int:
    print(f"\n{_shown(command)}", flush=True)
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, check=False).returncode


def _run_side_by_side(commands: Sequence[Sequence[str]]) -> int:
    """As many at once as there are processors. Each one's output comes in one piece, in the order of the commands."""

    def finished(command: Sequence[str]) -> tuple[int, str]:
        begun = time.monotonic()
        done = subprocess.run(
            command, cwd=ROOT, env=ENVIRONMENT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        return done.returncode, f"\n{_shown(command)}\n{done.stdout}({time.monotonic() - begun:.1f} s)"

    print(f"\n{len(commands)} commands side by side", flush=True)
    codes = []
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for code, said in pool.map(finished, commands):
            print(said, flush=True)
            codes.append(code)
    return max(codes)


def _shown(command: Sequence[str]) -> str:
    return f"$ {' '.join([Path(command[0]).name, *command[1:]])}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
