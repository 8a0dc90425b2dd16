"""The commands of docs/tutorial.md, in their order, with the output that the page shows.

The API server, the operator and the agent are real. The test does what the controllers and the kubelet would do.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agent.standin import Kubelet
from agent.harness import Node
from agents import Agent, ready_node
from kubeapi import CONFIGS, Kube, Owned, eventually, node
from localcluster import Cluster, binaries, places
from real_agent import WHERE, document

PAGE = places.CHECKOUT / "docs/tutorial.md"
MARK = "<!-- run by tests/operator/test_tutorial.py -->"
NAME, RESOURCE = "first", "example.com/first"
CHANGING = "0s"
"""Stands for a time, an age or a hash."""


def steps() -> Iterator[tuple[str, str]]:
    """(command, output) of each command in a marked block."""
    for block in re.findall(rf"{MARK}\n```\n(.*?)```", PAGE.read_text(), re.DOTALL):
        for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            yield command, output


def plain(text: str) -> list[list[str]]:
    """The words of each line, without what differs from run to run."""
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|\b(\d+m)?\d+s\b|<unknown>", CHANGING, text)
    return [line.split() for line in re.sub(r"\bsim-[0-9a-f]{6}-", "sim-", text).splitlines() if line]


@pytest.fixture
def shell(api: Cluster, kube: Kube, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Runs a command line as an admin does; gives its output and errors."""
    plugin = tmp_path / "kubectl-devices"
    plugin.write_text(f'#!/bin/sh\nexec {sys.executable} -m kubectl_devices "$@"\n')
    plugin.chmod(0o755)
    path = os.pathsep.join([str(binaries.path("kubectl").parent), str(tmp_path), os.environ["PATH"]])
    sources = os.pathsep.join(str(places.CHECKOUT / folder) for folder in ("cli", "operator", "plugin_agent"))
    environment = {**os.environ, "KUBECONFIG": str(api.kubeconfig), "PATH": path, "PYTHONPATH": sources}
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    kube.create(accounts, {"metadata": {"name": "default"}})

    def run(line: str) -> str:
        done = subprocess.run(
            ["sh", "-c", line], env=environment, cwd=places.CHECKOUT, capture_output=True, text=True, timeout=60
        )
        return done.stdout + done.stderr

    yield run
    run(f"kubectl delete pod {NAME} --ignore-not-found --force")
    kube.delete(f"{accounts}/default")


@pytest.mark.usefixtures("operator")
def test_the_commands_of_the_tutorial_give_what_it_shows(
    shell: Callable[[str], str], kube: Kube, owned: Owned, node_files: Node, kubelet: Kubelet, start: Callable[..., None]
) -> None:
    def offered() -> None:
        (daemonset,) = eventually("the DaemonSet", lambda: list(owned(NAME).values()))
        Agent(kube, daemonset, WHERE).run()
        node_files.configure(document(owned, NAME))
        start(kube.get(f"{CONFIGS}/{NAME}")["metadata"]["uid"], name=NAME)
        kubelet.wait_for(RESOURCE, 2)

    def rendered() -> None:
        before = node_files.config.read_bytes()
        eventually("the edit is rendered", lambda: document(owned, NAME) != before)
        node_files.configure(document(owned, NAME))

    by_others = {
        "kubectl apply -f examples/first.yaml": offered,
        "kubectl apply -f examples/first-pod.yaml": lambda: kubelet.admit(NAME, RESOURCE, 1),
        "kubectl delete pod": lambda: kubelet.delete(NAME),
    }
    ready_node(kube, node(WHERE))
    told = list(steps())
    assert len(told) == PAGE.read_text().count("\n$ ") >= 10
    for command, shown in told:
        said = shell(command)
        if "patch" in command and "patched" in said:
            rendered()
        for begin, act in by_others.items():
            if command.startswith(begin):
                act()
        if command.startswith(("kubectl get", "kubectl devices")):
            eventually(command, lambda c=command, s=shown: plain(shell(c)) == plain(s))
        else:
            assert plain(said) == plain(shown), command
