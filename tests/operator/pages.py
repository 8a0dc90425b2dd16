"""The commands of a page of docs/, run as an admin runs them, with the output that the page shows."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from localcluster import Cluster, binaries, places

Shell = Callable[[str], str]
_SOURCES = ("cli", "operator", "plugin_agent")
_CHANGING = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|\b(\d+m)?\d+s\b|<unknown>")


def text(name: str) -> str:
    return (places.CHECKOUT / "docs" / name).read_text()


def steps(name: str, test: str) -> list[tuple[str, str]]:
    """(command, output) of each command in a block that is marked as run by this test.

    Raises:
        AssertionError: the page has commands in other blocks, or none at all.
    """
    found = [
        step
        for block in re.findall(rf"<!-- run by: {test} -->\n```\n(.*?)```", text(name), re.DOTALL)
        for step in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    ]
    assert len(found) == text(name).count("\n$ ") > 0
    return found


def plain(output: str) -> list[list[str]]:
    """The words of each line, without times, ages and hashes."""
    same = re.sub(r"\bsim-[0-9a-f]{6}-", "sim-", _CHANGING.sub("0s", output))
    return [line.split() for line in same.splitlines() if line]


def shell(cluster: Cluster, folder: Path, *, where: Path = places.CHECKOUT) -> Shell:
    """Runs a command line and gives its output, then its errors. `folder` gets the plugin's program."""
    plugin = folder / "kubectl-devices"
    plugin.write_text(f'#!/bin/sh\nexec {sys.executable} -m kubectl_devices "$@"\n')
    plugin.chmod(0o755)
    environment = {
        **os.environ,
        "KUBECONFIG": str(cluster.kubeconfig),
        "PATH": os.pathsep.join([str(binaries.path("kubectl").parent), str(folder), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(str(places.CHECKOUT / source) for source in _SOURCES),
    }

    def run(line: str) -> str:
        done = subprocess.run(
            ["sh", "-c", line], env=environment, cwd=where, capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout + done.stderr

    return run
