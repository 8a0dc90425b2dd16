"""The agent as a real process, on a node whose folders are temporary."""

import contextlib
import hashlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from agent.standin import until

FAST = {
    "scan_interval": 0.2,
    "config_poll": 0.5,
    "directory_poll": 0.2,
    "holders_poll_min": 0.2,
    "holders_poll_max": 0.3,
    "holders_soon": 0.05,
    "allocatable_poll": 0.5,
    "settle_first": 0.1,
    "settle_wait": 2.05,
    "settle_max": 2.0,
    "report_first": 0.05,
    "report_interval": 0.1,
    "report_spread": 0.4,
    "inventory_poll": 0.3,
    "cordon_look": 0.3,
}
"""Intervals at about a tenth of their real values. Deadlines keep their real values."""


def document(*resources: dict[str, Any]) -> dict[str, Any]:
    return {"contractVersion": 1, "resources": list(resources)}


NO_GRACE = {"removalGraceSeconds": 0}
"""A vanished device is dropped as soon as no pod can hold it."""


def simulated(name: str = "example.com/sim", count: int = 4, **fields: Any) -> dict[str, Any]:
    return {"name": name, "devices": [{"simulated": {"count": count}}], "health": NO_GRACE, **fields}


def files(name: str, *paths: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "devices": [{"files": {"paths": list(paths)}}], "health": NO_GRACE, **fields}


class Node:
    """One node's folders: the kubelet's, the host's /dev and /sys, the mounted configuration."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.plugins = root / "device-plugins"
        self.pod_resources = root / "pod-resources" / "kubelet.sock"
        self.host = root / "host"
        self.mount = root / "config"
        for path in (self.plugins, self.host / "dev", self.host / "sys", self.host / "proc", self.mount):
            path.mkdir(parents=True)
        self._mounts = 0

    @property
    def config(self) -> Path:
        return self.mount / "config.json"

    def configure(self, content: dict[str, Any] | bytes) -> str:
        """Writes it as the kubelet mounts a ConfigMap: a new directory, and `..data` swapped to it. Its SHA-256."""
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        self._mounts += 1
        target = self.mount / f"..v{self._mounts}"
        target.mkdir()
        (target / "config.json").write_bytes(raw)
        link = self.mount / "..data_tmp"
        link.symlink_to(target.name)
        link.rename(self.mount / "..data")
        if not self.config.is_symlink():
            self.config.symlink_to("..data/config.json")
        return hashlib.sha256(raw).hexdigest()

    def device(self, name: str) -> Path:
        """Makes /dev/<name>, a character device."""
        path = self.host / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, 0o660 | stat.S_IFCHR, os.makedev(1, 3))
        return path

    def sockets(self) -> set[str]:
        """Names of plugin sockets, the kubelet's left out."""
        found = set()
        for path in self.plugins.iterdir():
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                if stat.S_ISSOCK(path.lstat().st_mode) and path.name != "kubelet.sock":
                    found.add(path.name)
        return found


class AgentProcess:
    """`device-agent serve` as a process; its log is read as it comes, unless `unread`.

    `prelude`: code that runs in it first, to make a driver or a disk behave as they do at their worst.
    """

    def __init__(
        self,
        node: Node,
        *arguments: str,
        settings: dict[str, float] | None = None,
        env: dict[str, str],
        unread: bool = False,
        prelude: str = "",
    ) -> None:
        values = FAST | (settings or {})
        self._port = _free_port() if unread else 0
        run = "import sys\nfrom device_agent.__main__ import main\nsys.exit(main())"
        program = ["-c", f"{prelude}\n{run}"] if prelude else ["-m", "device_agent"]
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [
                sys.executable, "-W", "error", *program, "serve",
                "--config", str(node.config), "--kubelet-dir", str(node.plugins),
                "--pod-resources", str(node.pod_resources), "--host-root", str(node.host),
                "--listen", f"127.0.0.1:{self._port}", "--log-format", "json", "--log-level", "Debug",
                *(f"--set={name}={value}" for name, value in values.items()),
                *arguments,
            ],
            stderr=subprocess.DEVNULL if unread else subprocess.PIPE, text=True, env={**os.environ, **env},
        )  # fmt: skip
        self.log: list[dict[str, Any]] = []
        self.noise: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        if self.process.stderr is None:
            return
        for line in self.process.stderr:
            try:
                self.log.append(json.loads(line))
            except ValueError:
                self.noise.append(line)

    def said(self, message: str, **fields: Any) -> list[dict[str, Any]]:
        """The records with this message and these fields."""
        return [r for r in tuple(self.log) if r["message"] == message and all(r.get(k) == v for k, v in fields.items())]

    def wait_said(self, message: str, *, seconds: float = 10.0, **fields: Any) -> dict[str, Any]:
        until(lambda: self.said(message, **fields), seconds=seconds, what=f"log {message} {fields}")
        return self.said(message, **fields)[0]

    @property
    def port(self) -> int:
        return self._port or int(self.wait_said("probes")["port"])

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def wait_ready(self) -> None:
        def ready() -> bool:
            try:
                return self.get("/readyz")[0] == 200
            except urllib.error.URLError:
                return False  # not listening yet

        until(ready, what="ready")

    def metric(self, sample: str) -> float | None:
        """The value of a sample, written as in the exposition."""
        for line in self.get("/metrics")[1].splitlines():
            name, _, value = line.rpartition(" ")
            if name == sample:
                return float(value)
        return None

    def terminate(self) -> int:
        """The exit status after SIGTERM. An agent that has stopped cleanly logs `stopped`."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(10)
        self._reader.join(5)
        return status

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)
        self._reader.join(5)

    def tracebacks(self) -> list[str]:
        return [f"{r['logger']}: {r['message']}: {r['traceback']}" for r in self.log if "traceback" in r] + self.noise


class Start:
    """Starts agents, and ends those that still run."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.agents: list[AgentProcess] = []

    def __call__(
        self,
        *arguments: str,
        settings: dict[str, float] | None = None,
        env: dict[str, str] | None = None,
        unread: bool = False,
        prelude: str = "",
    ) -> AgentProcess:
        identity = {"CONFIG_UID": "0b7e6a3c-1111-4222-8333-444455556666"}
        if not any(argument.startswith("--report") for argument in arguments):
            arguments = ("--report=none", *arguments)
        environment = identity | (env or {})
        agent = AgentProcess(self._node, *arguments, settings=settings, env=environment, unread=unread, prelude=prelude)
        self.agents.append(agent)
        return agent


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
