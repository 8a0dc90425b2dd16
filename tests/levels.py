"""Runs the levels of tests one after the other, says how long each took, and fails when one fails.

tests/levels.py check|all|bench|LEVEL...     LEVEL: static unit agent operator cluster bench
"""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PYTEST = [str(BIN / "python"), "-m", "pytest", "-q"]

STATIC = [
    [str(BIN / "ruff"), "check", "."],
    [str(BIN / "ruff"), "format", "--check", "."],
    [str(BIN / "mypy")],
    [str(BIN / "mypy"), "--config-file", "pyproject.toml", "-p", "localcluster"],
    [str(BIN / "lint-imports"), "--no-cache"],
    [str(BIN / "yamllint"), "--strict", "-c", ".yamllint.yaml", "crds", "examples"],
    ["sh", "-c", f"git ls-files -z '*.sh' .ci/run | xargs -0 {BIN / 'shellcheck'}"],
    [str(BIN / "python"), "scripts/api_reference.py", "--check"],
    [str(BIN / "python"), "scripts/reasons.py", "--check"],
    [str(BIN / "hadolint"), "Dockerfile.agent", "Dockerfile.operator"],
]
LEVELS: dict[str, list[list[str]]] = {
    "static": STATIC,
    "unit": [[*PYTEST, "tests/unit"]],
    "agent": [[*PYTEST, "tests/agent"]],
    "operator": [[*PYTEST, "tests/operator"]],
    "cluster": [[*PYTEST, "tests/cluster"]],
    "bench": [
        [str(BIN / "python"), "tests/bench/bench_agent.py"],
        [str(BIN / "python"), "tests/bench/bench_operator.py"],
    ],
}
GROUPS = {"check": ["static", "unit"], "all": ["static", "unit", "agent", "operator", "cluster"]}


def main(names: list[str]) -> int:
    chosen = [level for name in names for level in GROUPS.get(name, [name])]
    if not chosen or any(level not in LEVELS for level in chosen):
        print(__doc__)
        return 2
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'tests/cluster'}", "MYPYPATH": "tests/cluster"}
    left_out = [level for level in GROUPS["all"] if level not in chosen]
    results = []
    for level in chosen:
        begun = time.monotonic()
        codes = [_run(command, env) for command in LEVELS[level]]
        results.append((level, max(codes), time.monotonic() - begun))
    print("\nlevel      result  seconds")
    for level, code, seconds in results:
        print(f"{level:<10} {'FAILED' if code else 'ok':<7} {seconds:7.1f}")
    if left_out and "bench" not in chosen:
        print(f"not run, by choice: {', '.join(left_out)}")
    return max(code for _, code, _ in results)


def _run(command: list[str], env: dict[str, str]) -> int:
    print(f"\n$ {' '.join(Path(c).name if i == 0 else c for i, c in enumerate(command))}", flush=True)
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
