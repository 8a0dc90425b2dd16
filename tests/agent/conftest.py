"""The agent as a real process beside a stand-in kubelet, with a node of its own in a short temporary folder."""

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent.apiserver import ApiServer
from agent.harness import Node, Start
from agent.standin import Kubelet


@pytest.fixture
def node() -> Iterator[Node]:
    # pytest's own folders are too deep for a socket's 107 bytes
    root = Path(tempfile.mkdtemp(prefix="da-", dir="/tmp"))
    yield Node(root)
    shutil.rmtree(root)


@pytest.fixture
def kubelet(node: Node) -> Iterator[Kubelet]:
    kubelet = Kubelet(node.plugins, pod_resources=node.pod_resources)
    kubelet.start()
    yield kubelet
    kubelet.stop()
    assert kubelet.violations == []


@pytest.fixture
def start(node: Node) -> Iterator[Start]:
    start = Start(node)
    yield start
    traces = []
    for agent in start.agents:
        if agent.process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.terminate()
        if agent.process.poll() is None:
            agent.kill()
        assert agent.process.stderr is not None
        agent.process.stderr.close()
        traces += agent.tracebacks()
    assert traces == [], "\n".join(traces)


@pytest.fixture
def api() -> Iterator[ApiServer]:
    server = ApiServer()
    yield server
    server.stop()
