"""Whether the services of a cluster run and answer.

A process that exists proves little: it may be starting, hang, or be on its way out. So `up` asks every service
before it says Ready, and names the one that does not answer with the last lines of its log.
"""

import http.client
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from localcluster.console import LocalClusterError, say
from localcluster.processes import PidFiles, tail, wait_until

_ENDING = 90  # seconds; an API server that was told to end waits up to a minute for its watches
_PROBE = 3  # seconds for one answer


@dataclass(frozen=True, kw_only=True)
class Service:
    """One daemon: its name in the pid files, its log, and the question whether it answers."""

    name: str
    log: Path
    pids: PidFiles
    answers: Callable[[], bool]

    @property
    def runs(self) -> bool:
        return self.pids.alive(self.name) is not None


def settle(service: Service, *, seconds: float = _ENDING) -> None:
    """Returns when a service either answers or does not run, and may be started.

    One that was told to end may run for a while without answering. It still has its port and its files.
    """
    if not service.runs or service.answers():
        return
    say(f"{service.name} runs but does not answer; waiting until it answers or has ended, {seconds:.0f} s at most")
    wait_until(
        lambda: not service.runs or service.answers(),
        seconds=seconds,
        what=f"{service.name} to answer or to end: look at its log, or stop the cluster with `down` and start it again",
        explain=lambda: tail(service.log),
    )


def check_running(services: Iterable[Service]) -> None:
    """Raises for the first service that has ended."""
    for service in services:
        if not service.runs:
            raise LocalClusterError(f"{service.name} has ended\n{tail(service.log)}")


def wait_for_answers(services: Iterable[Service], *, seconds: float = 60) -> None:
    """Returns when all services run and each has answered; raises at once when one of them ends."""
    wanted = list(services)
    silent = list(wanted)

    def all_answer() -> bool:
        silent[:] = [service for service in silent if not service.answers()]
        check_running(wanted)
        return not silent

    wait_until(
        all_answer,
        seconds=seconds,
        what="every service to answer",
        explain=lambda: "\n".join(f"{service.name} does not answer\n{tail(service.log)}" for service in silent),
    )


def answers_http(port: int, path: str) -> bool:
    """Whether a server on this machine's loopback answers 200."""
    return _answers(http.client.HTTPConnection("127.0.0.1", port, timeout=_PROBE), path)


def answers_https(port: int, path: str) -> bool:
    """The same over TLS. Some servers make their own certificate at their start, so it is not verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return _answers(http.client.HTTPSConnection("127.0.0.1", port, timeout=_PROBE, context=context), path)


def _answers(connection: http.client.HTTPConnection, path: str) -> bool:
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
