"""The agent's few requests to the API server, made with the standard library: a client package costs 20 MiB.

Blocking, for a thread of its own. Each request has its own connection and reads the token again, because the kubelet
rotates it. The first request loads the HTTP client, in that thread. So loading it does not delay the first offer of
devices.
"""

import json
import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from device_agent.contract.values import dataclass

if TYPE_CHECKING:
    from http.client import HTTPConnection

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MERGE_PATCH: Final = "application/merge-patch+json"
JSON: Final = "application/json"
_MAX_ANSWER: Final = 4 * 1024 * 1024


class ApiCallError(Exception):
    """The API server refused, or did not answer. `status`: HTTP status, 0 without an answer.

    `retry_after`: seconds that the server asks to wait, or 0.
    """

    def __init__(self, message: str, *, status: int = 0, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class ApiServer:
    """Where the API server is and who asks. `url`: https://host:port; http:// is for tests alone."""

    url: str
    token_file: Path = _ACCOUNT / "token"
    ca_file: Path = _ACCOUNT / "ca.crt"
    timeout: float = 10.0

    @classmethod
    def in_cluster(cls, *, timeout: float) -> "ApiServer":
        """From the pod's environment.

        Raises:
            ApiCallError: not in a pod.
        """
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
        if not host or not port:
            raise ApiCallError(
                "KUBERNETES_SERVICE_HOST and _PORT are not set: outside a pod give --api-server, or --report none"
            )
        return cls(url=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}", timeout=timeout)

    def request(self, method: str, path: str, *, body: dict[str, Any] | None = None, kind: str = JSON) -> Any:
        """The answer's JSON.

        Raises:
            ApiCallError: no answer, or an answer other than 2xx.
        """
        from http.client import HTTPException  # noqa: PLC0415 - see the module

        try:
            connection = self._connection()
            try:
                connection.request(method, path, body=_encoded(body), headers=self._headers(kind))
                answer = connection.getresponse()
                content = answer.read(_MAX_ANSWER)
            finally:
                connection.close()
        except (OSError, HTTPException, ValueError) as error:
            raise ApiCallError(f"{method} {path}: {error}") from error
        if 200 <= answer.status < 300:
            try:
                return json.loads(content)
            except ValueError as error:
                raise ApiCallError(f"{method} {path}: the answer is not JSON") from error
        raise ApiCallError(
            f"{method} {path}: {answer.status} {_reason(content) or answer.reason}",
            status=answer.status,
            retry_after=_seconds(answer.getheader("Retry-After")),
        )

    def _connection(self) -> "HTTPConnection":
        from http.client import HTTPConnection, HTTPSConnection  # noqa: PLC0415 - see the module

        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if parts.scheme == "http":
            return HTTPConnection(host, parts.port, timeout=self.timeout)
        # made anew: the bundle is rotated like the token
        context = ssl.create_default_context(cafile=str(self.ca_file))
        return HTTPSConnection(host, parts.port, timeout=self.timeout, context=context)

    def _headers(self, kind: str) -> dict[str, str]:
        headers = {"Accept": JSON, "Content-Type": kind, "User-Agent": "device-agent"}
        try:
            token = self.token_file.read_text().strip()
        except OSError:
            token = ""  # the server's 401 says what is wrong
        if not (token.isascii() and token.isprintable()):
            raise ValueError(f"there is no token in {self.token_file}")  # the HTTP client's error would show the token
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return headers


def _encoded(body: dict[str, Any] | None) -> bytes | None:
    return (
        None if body is None else json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    )


def _reason(content: bytes) -> str:
    try:
        status = json.loads(content)
    except ValueError:
        return ""
    message = status.get("message") if isinstance(status, dict) else None
    return message[:500] if isinstance(message, str) else ""


def _seconds(text: str | None) -> float:
    # for a date our own back-off is good enough
    return float(text) if text and text.isascii() and text.isdecimal() else 0.0
