"""The operator as a process, as it runs in its Deployment."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

IMAGE = "example.com/device-agent:test"
_SETTINGS = {
    "lease-duration-seconds": 3.0,
    "lease-renew-deadline-seconds": 2.0,
    "lease-retry-seconds": 0.3,
    "coalesce-seconds": 0.02,
    "status-seconds": 0.1,
    "status-holders-seconds": 0.2,
    "status-bytes-per-second": 1e9,
    "failed-create-seconds": 0.5,
    "node-settle-seconds": 0.001,
    "backoff-max-seconds": 2.0,
}


class OperatorProcess:
    """`settings`: flags, with underscores. They replace those that make tests quick."""

    def __init__(self, *, log: Path, **settings: object) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        given = {
            **_SETTINGS,
            "agent-image": IMAGE,
            "listen": f"127.0.0.1:{self.port}",
            "log-level": "debug",
            **{name.replace("_", "-"): value for name, value in settings.items()},
        }
        self.log = log
        self._began = log.stat().st_size if log.exists() else 0
        flags = [f"--{name}={value}" for name, value in given.items()]
        with log.open("ab") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "device_operator", "run", *flags],
                stderr=stream,
                stdout=stream,
                env={**os.environ, "PYTHONWARNINGS": "default"},
            )

    @property
    def text(self) -> str:
        """What it has logged."""
        with self.log.open("rb") as stream:
            stream.seek(self._began)
            return stream.read().decode()

    def probe(self, path: str) -> tuple[int, str]:
        """(0, '') while it does not listen."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the series that have these labels."""
        total = 0.0
        for line in self.probe("/metrics")[1].splitlines():
            if re.match(rf"device_operator_{name}[ {{]", line) and all(f'{k}="{v}"' in line for k, v in labels.items()):
                total += float(line.rsplit(" ", 1)[1])
        return total

    @property
    def leading(self) -> bool:
        return self.probe("/readyz") == (200, "leading")

    def wait_leading(self, *, seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not self.leading:
            assert self.process.poll() is None, f"it ended with {self.process.returncode}:\n{self.text}"
            assert time.monotonic() < deadline, f"not leading:\n{self.text}"
            time.sleep(0.05)

    def end(self, number: int = signal.SIGTERM, *, seconds: float = 15.0) -> int:
        """Its exit status; negative: killed by a signal."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(seconds)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
