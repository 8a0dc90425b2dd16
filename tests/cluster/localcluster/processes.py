"""Running commands and keeping daemons without a service manager.

A daemon is known by a pid file and by a tag in its environment. Both must agree before a signal is sent, because
the kernel may have given the pid to another process. Nothing is ended by its name.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from localcluster.console import LocalClusterError

TAG = "DEVICE_OPERATOR_CLUSTER"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# The shell leaves at once, so the daemon becomes a child of its namespace's first process, which reaps it.
_LAUNCH = 'log=$1; shift; setsid "$@" </dev/null >>"$log" 2>&1 & echo $!'


def run(
    command: Sequence[str | Path],
    *,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    """Runs a command to its end and returns its standard output; an error carries what the command said."""
    try:
        done = subprocess.run(
            [str(part) for part in command],
            input="" if stdin is None else stdin,
            env=None if env is None else dict(env),
            cwd=cwd,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError as missing:
        raise LocalClusterError(f"the program {command[0]} is not there: {missing}") from missing
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip())[-3000:]
        shown = " ".join(str(part) for part in command)[:300]
        raise LocalClusterError(f"`{shown}` ended with {done.returncode}: {said}")
    return done.stdout


def succeeds(command: Sequence[str | Path]) -> bool:
    """Whether a command ends with 0; what it says is dropped."""
    done = subprocess.run(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return done.returncode == 0


def daemon_environment(tag: Path, *, path: str = SYSTEM_PATH) -> dict[str, str]:
    """A daemon's whole environment: no proxy or credential setting of the user's shell reaches the cluster."""
    return {"PATH": path, "HOME": "/root", "LC_ALL": "C.UTF-8", TAG: str(tag)}


def spawn(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    log: Path,
    cwd: Path,
    inside: int | None = None,
) -> int:
    """Starts a daemon, in the namespaces of the process `inside` when given, and returns its pid out here."""
    enter = [] if inside is None else enter_command(inside)
    printed = run([*enter, "bash", "-c", _LAUNCH, "launch", log, *command], env=env, cwd=cwd)
    pid = int(printed)
    if inside is None:
        return pid
    for child in children(inside):
        if _innermost_pid(child) == pid:
            return child
    raise LocalClusterError(f"{command[0]} ended as soon as it was started:\n{tail(log)}")


def enter_command(inside: int) -> list[str]:
    return ["nsenter", "-t", str(inside), "-m", "-n", "-p", "-u", "-i", "--"]


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def is_running(pid: int) -> bool:
    """Whether a process lives. A zombie does not. A process with a thread that still ends does, because its sockets
    and files are still open.
    """
    with contextlib.suppress(OSError):
        return any(_state(task) not in ("", "Z", "X") for task in Path(f"/proc/{pid}/task").iterdir())
    return False


def _state(task: Path) -> str:
    with contextlib.suppress(OSError):
        for line in (task / "status").read_text().splitlines():
            if line.startswith("State:"):
                return line.split()[1]
    return ""


def carries(pid: int, tag: Path) -> bool:
    with contextlib.suppress(OSError):
        return f"{TAG}={tag}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def tagged(tag: Path) -> Iterator[int]:
    """Every living process of this machine that carries the tag."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and carries(int(entry.name), tag) and is_running(int(entry.name)):
            yield int(entry.name)


def title(pid: int) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return f"pid {pid} ({b' '.join(words)[:100].decode(errors='replace').strip()})"
    return f"pid {pid}"


def wait_until(
    condition: Callable[[], bool],
    *,
    seconds: float,
    what: str,
    explain: Callable[[], str] = lambda: "",
    interval: float = 0.1,
) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise LocalClusterError(f"gave up after {seconds:.0f} s waiting for {what}\n{explain()}".rstrip())
        time.sleep(interval)


def tail(log: Path, lines: int = 15) -> str:
    """The last lines of a log, with its path, for an error message."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return f"(no log at {log})"
    return "\n".join([f"last lines of {log}:", *(line[:400] for line in text.splitlines()[-lines:])])


def _innermost_pid(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return None


class PidFiles:
    """The daemons of one cluster: a folder of pid files, all of processes with the cluster's tag."""

    def __init__(self, folder: Path, tag: Path) -> None:
        self.folder = folder
        self.tag = tag

    def record(self, name: str, pid: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{name}.pid").write_text(f"{pid}\n")

    def forget(self, name: str) -> None:
        (self.folder / f"{name}.pid").unlink(missing_ok=True)

    def alive(self, name: str) -> int | None:
        """The pid of a daemon that runs and is ours, else None."""
        try:
            pid = int((self.folder / f"{name}.pid").read_text())
        except (OSError, ValueError):
            return None
        return pid if is_running(pid) and carries(pid, self.tag) else None

    def all_alive(self) -> dict[str, int]:
        names = sorted(file.stem for file in self.folder.glob("*.pid"))
        return {name: pid for name in names if (pid := self.alive(name)) is not None}

    def send(self, name: str, signal_number: int) -> bool:
        """Signals a daemon; False when it does not run."""
        pid = self.alive(name)
        if pid is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal_number)
        return True

    def end(self, name: str, signal_number: int = signal.SIGTERM, *, patience: float = 10) -> None:
        """Ends a daemon and returns when it is gone; one that outlasts `patience` seconds is killed."""
        pid = self.alive(name)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal_number)
            deadline = time.monotonic() + patience
            while is_running(pid) and time.monotonic() < deadline:
                time.sleep(0.02)
            if self.alive(name) is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not is_running(pid), seconds=20, what=f"the end of {name}, {title(pid)}")
        self.forget(name)
