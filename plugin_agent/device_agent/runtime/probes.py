"""/healthz, /readyz and /metrics over HTTP.

The server has its own threads, so that /healthz can report a loop that hangs. It only reads values that the loop has
published. It supports what probes and scrapes need: one GET or HEAD for each connection, no body.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from device_agent.runtime.exposition import CONTENT_TYPE
from device_agent.runtime.metrics import Metrics

logger = logging.getLogger(__name__)

_CLIENT_SECONDS: Final = 10.0
"""The longest that a request may take to arrive, and its answer to leave."""
_HEAD_BYTES: Final = 8192
_ACCEPT_SECONDS: Final = 0.1
"""Pause after a connection could not be accepted, for example because no file descriptor is free."""
_TEXT: Final = "text/plain; charset=utf-8"
_REASONS: Final = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
                   500: "Internal Server Error", 503: "Service Unavailable"}  # fmt: skip

Page = tuple[int, str, str]
"""Status, content type, text."""


class ProbeServer:
    """Listens on one port; without a host, on all IPv4 and IPv6 addresses."""

    def __init__(self, address: tuple[str, int], *, metrics: Metrics, healthy_within: float) -> None:
        """Binds at once.

        Raises:
            OSError: the address is taken or cannot be bound.
        """
        host = address[0]
        dual = not host and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual or ":" in host else socket.AF_INET
        self._socket = socket.create_server(address, family=family, backlog=64, dualstack_ipv6=dual)
        self.port = int(self._socket.getsockname()[1])
        self._metrics = metrics
        self._healthy_within = healthy_within
        self._stopping = False
        self._thread = threading.Thread(target=self._accept, name="http", daemon=True)
        self._pages: dict[str, Callable[[], Page]] = {
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/metrics": lambda: (200, CONTENT_TYPE, metrics.registry.text()),
        }

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Accepts no more connections."""
        self._stopping = True
        self._socket.shutdown(socket.SHUT_RDWR)  # ends the thread's accept; close would not
        self._thread.join()
        self._socket.close()

    # Pages

    def _healthz(self) -> Page:
        silent = time.monotonic() - self._metrics.status.turned
        if silent > self._healthy_within:
            # this thread also writes the lines that the loop logged before it hung
            logger.warning("the event loop hangs", extra={"seconds": round(silent)})
            return 503, _TEXT, f"the event loop has not run for {silent:.0f} s\n"
        return 200, _TEXT, "ok\n"

    def _readyz(self) -> Page:
        missing = self._metrics.status.missing
        return 503 if missing else 200, _TEXT, "".join(f"{line}\n" for line in missing) or "ok\n"

    # Connections

    def _accept(self) -> None:
        while not self._stopping:
            try:
                connection, client = self._socket.accept()
                threading.Thread(target=self._serve, args=(connection, client[0]), name="http", daemon=True).start()
            except (OSError, RuntimeError) as error:  # RuntimeError: no more threads
                if not self._stopping:
                    logger.debug("http failed", extra={"error": str(error)})
                    time.sleep(_ACCEPT_SECONDS)

    def _serve(self, connection: socket.socket, client: str) -> None:
        try:
            with connection:
                head = _head(connection, until=time.monotonic() + _CLIENT_SECONDS)
                status, answer = self._answer(head)
                connection.settimeout(_CLIENT_SECONDS)
                connection.sendall(answer)
        except OSError as error:
            logger.debug("http failed", extra={"client": client, "error": str(error)})
        else:
            logger.debug("http", extra={"client": client, "request": head.partition("\r\n")[0], "status": status})

    def _answer(self, head: str) -> tuple[int, bytes]:
        """The status, and the whole answer."""
        method, _, rest = head.partition("\r\n")[0].partition(" ")
        target, _, version = rest.partition(" ")
        page = self._pages.get(target.partition("?")[0])
        if not version.startswith("HTTP/"):
            status, kind, text = 400, _TEXT, "this is not an HTTP request\n"
        elif method not in ("GET", "HEAD"):
            status, kind, text = 405, _TEXT, "GET or HEAD\n"
        elif page is None:
            status, kind, text = 404, _TEXT, "{}\n".format(" ".join(self._pages))
        else:
            status, kind, text = _made(page, target)
        body = text.encode()
        fields = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
        allowed = "Allow: GET, HEAD\r\n" if status == 405 else ""
        started = f"HTTP/1.1 {status} {_REASONS[status]}\r\n{fields}{allowed}\r\n".encode()
        return status, started if method == "HEAD" else started + body


def _made(page: Callable[[], Page], target: str) -> Page:
    try:
        return page()
    except Exception:
        logger.exception("a page failed", extra={"path": target})
        return 500, _TEXT, "failed; the agent's log says why\n"


def _head(connection: socket.socket, *, until: float) -> str:
    """The request up to the empty line that ends its head.

    Raises:
        OSError: the client is gone, too slow, or sends too much.
    """
    received = b""
    while b"\r\n\r\n" not in received:
        connection.settimeout(max(0.001, until - time.monotonic()))
        part = connection.recv(_HEAD_BYTES)
        if not part:
            raise ConnectionError("the client went away")
        received += part
        if len(received) > _HEAD_BYTES:
            raise ConnectionError("the request is too long")
    return received.decode("latin-1")
