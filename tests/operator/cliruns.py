"""`kubectl devices` as its user runs it, in this process: arguments in; exit status, output and errors out."""

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubectl_devices.__main__ import main
from localcluster import places

SOURCES = ("cli", "operator", "plugin_agent")


@dataclass(frozen=True)
class Answer:
    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        """The cells of a table without its heading; a cell that may be long is the last."""
        return [line.split() for line in self.out.splitlines()[1:]]

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run(kubeconfig: Path, *arguments: str) -> Answer:
    out, err = io.StringIO(), io.StringIO()
    command, *rest = arguments
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main([command, "--kubeconfig", str(kubeconfig), *rest])
        except SystemExit as ended:
            status = int(ended.code or 0)
    return Answer(status, out.getvalue(), err.getvalue())


def start(kubeconfig: Path, *arguments: str) -> "subprocess.Popen[str]":
    """As a process, for commands that wait for something that the test does meanwhile."""
    command, *rest = arguments
    return subprocess.Popen(
        [sys.executable, "-m", "kubectl_devices", command, "--kubeconfig", str(kubeconfig), *rest],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(str(places.CHECKOUT / folder) for folder in SOURCES)},
    )
