"""One request to the API server, with JSON in and out. The `kubernetes` package keeps credentials and connections."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any, Final, Protocol

from kubectl_devices import errors
from kubectl_devices.cluster.kinds import Kind

Object = dict[str, Any]
MERGE_PATCH: Final = "application/merge-patch+json"
_PAGE: Final = 500
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_VERBS: Final = {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete"}


class Transport(Protocol):
    """Sends one request. `path` begins with a slash.

    Raises:
        errors.UnreachableError: there is no answer.
    """

    def __call__(
        self, method: str, path: str, *, query: Mapping[str, str], body: object, content_type: str, timeout: float
    ) -> tuple[int, bytes, str]:
        """Status, body, and the header Date."""
        ...


class Api:
    """`timeout`: seconds for one request."""

    def __init__(self, transport: Transport, *, timeout: float = 30.0) -> None:
        self._transport = transport
        self._timeout = timeout
        self._date = ""

    @property
    def now(self) -> datetime:
        """On the clock of the API server, as the last answer had it; the clock here may be wrong."""
        try:
            return parsedate_to_datetime(self._date).astimezone(UTC)
        except ValueError:
            return datetime.now(UTC)

    def get(self, kind: Kind, name: str, *, namespace: str = "", sub: str = "") -> Object:
        return self._json("GET", kind, name, namespace=namespace, sub=sub)

    def items(self, kind: Kind, *, namespace: str = "", labels: str = "", fields: str = "") -> list[Object]:
        """All objects; in a namespace, if one is given. They come in pages, so that a big cluster answers in time."""
        return list(self._pages(kind, namespace, {"labelSelector": labels, "fieldSelector": fields}))

    def create(self, kind: Kind, body: Object, *, namespace: str = "", name: str = "", sub: str = "") -> Object:
        """`name` and `sub`: for a subresource such as eviction."""
        return self._json("POST", kind, name, namespace=namespace, sub=sub, body=body)

    def merge(self, kind: Kind, name: str, body: Object) -> Object:
        """A merge patch. With `metadata.resourceVersion` in it, the object must be as it was read."""
        return self._json("PATCH", kind, name, body=body, content_type=MERGE_PATCH)

    def delete(self, kind: Kind, name: str, *, namespace: str = "") -> None:
        self._json("DELETE", kind, name, namespace=namespace)

    def text(
        self, kind: Kind, name: str, *, namespace: str = "", sub: str = "", query: Mapping[str, str] = _NONE
    ) -> str:
        """An answer that is no JSON, such as a log."""
        raw = self._send("GET", kind, name, namespace=namespace, sub=sub, query=query)
        return raw.decode("utf-8", "replace")

    def _pages(self, kind: Kind, namespace: str, query: Mapping[str, str]) -> Iterator[Object]:
        more = {"limit": str(_PAGE), **{k: v for k, v in query.items() if v}}
        while True:
            page = self._json("GET", kind, "", namespace=namespace, query=more)
            yield from page.get("items") or ()
            token = page.get("metadata", {}).get("continue")
            if not token:
                return
            more = {**more, "continue": token}

    def _json(self, method: str, kind: Kind, name: str, **request: Any) -> Object:
        raw = self._send(method, kind, name, **request)
        try:
            answer = json.loads(raw)
        except ValueError as error:
            raise errors.RefusedError(f"{kind.path(name)}: the answer is not JSON: {raw[:80]!r}") from error
        if not isinstance(answer, dict):
            raise errors.RefusedError(f"{kind.path(name)}: the answer is not an object")
        return answer

    def _send(
        self,
        method: str,
        kind: Kind,
        name: str,
        *,
        namespace: str = "",
        sub: str = "",
        query: Mapping[str, str] = _NONE,
        body: object = None,
        content_type: str = "application/json",
    ) -> bytes:
        status, raw, date = self._transport(
            method,
            kind.path(name, namespace=namespace, sub=sub),
            query=query,
            body=body,
            content_type=content_type,
            timeout=self._timeout,
        )
        self._date = date or self._date
        if status < 400:
            return raw
        verb = "list" if method == "GET" and not name else _VERBS[method]
        resource = f"{kind.resource}/{sub.partition('/')[0]}" if sub else kind.resource
        raise refusal(status, _message(raw), verb=verb, resource=resource, name=name, namespace=namespace)


def refusal(
    status: int, message: str, *, verb: str, resource: str, name: str = "", namespace: str = ""
) -> errors.CliError:
    """The exception for an answer of the API server."""
    what = f"{resource} {name}".strip()
    if status == 401:
        return errors.RefusedError("the API server does not accept your credentials (401); log in again")
    if status == 403 and "forbidden: User" in message:
        return errors.ForbiddenError(verb, resource, namespace=namespace)
    if status == 404:
        return errors.NotFoundError(f"{what}: not found")
    kind = {409: errors.ConflictError, 429: errors.TooManyError}.get(status, errors.RefusedError)
    return kind(f"{what}: {message or f'HTTP status {status}'}")


def _message(raw: bytes) -> str:
    """The text of a Status object, in one line."""
    try:
        status = json.loads(raw)
    except ValueError:
        return " ".join(raw[:200].decode("utf-8", "replace").split())
    return " ".join(str(status.get("message", "")).split()) if isinstance(status, dict) else ""
