"""A thin client of the API server: raw JSON over an aiohttp session of our own.

The typed models of the `kubernetes` package are not used: they cost half a second at import, and 100 MiB for 5,000
nodes.
"""

import asyncio
import functools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self

import aiohttp

from device_operator import __version__
from device_operator.cluster.connection import Connection
from device_operator.runtime import errors

Object = dict[str, Any]
"""A Kubernetes object as JSON of the API server."""

PAGE: Final = 500
_MAX_LINE: Final = 16 * 1024 * 1024
"""Bytes of one watch event: an object is at most 1.5 MiB in etcd, its JSON may be longer."""
_RETRY_AFTER_TRIES: Final = 3
_JSON: Final = "application/json"
_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_JSON_PATCH: Final = "application/json-patch+json"


class ApiError(errors.OperatorError):
    """The API server refused. `code`: HTTP status; `reason`, `message`: of the Status object in the answer.

    `retry_after`: seconds that a 429 asks for.
    """

    def __init__(self, *, code: int, reason: str, message: str, request: str, retry_after: float | None = None) -> None:
        super().__init__(f"{message} ({request})")
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def not_found(self) -> bool:
        return self.code == 404

    @property
    def already_exists(self) -> bool:
        return self.reason == "AlreadyExists"

    @property
    def conflict(self) -> bool:
        """Another client wrote the object after it was read."""
        return self.code == 409 and not self.already_exists

    @property
    def gone(self) -> bool:
        """The resourceVersion or continue token is too old (410; Expired or Gone)."""
        return self.code == 410

    @property
    def forbidden(self) -> bool:
        return self.code == 403


UNREACHABLE: Final = (aiohttp.ClientError, asyncio.TimeoutError, OSError)
"""The exceptions of a request without an answer."""


@dataclass(frozen=True, slots=True)
class ApiResource:
    """A kind's address. `group` is empty for core; `namespace` empty for cluster-scoped kinds and all namespaces."""

    group: str
    version: str
    plural: str
    namespace: str = ""

    def path(self, name: str = "", *, subresource: str = "") -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if self.namespace:
            parts += ["namespaces", self.namespace]
        parts += [self.plural, name, subresource]
        return "/".join(p for p in parts if p)

    def __str__(self) -> str:
        kind = f"{self.plural}.{self.group}" if self.group else self.plural
        return f"{kind} in namespace {self.namespace}" if self.namespace else kind


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """`kind` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    kind: str
    object: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """`verb`: as RBAC has it; `method`: of HTTP; `content`, `accept`: media types of `body` and answer."""

    verb: str
    method: str
    resource: ApiResource
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    content: str = _JSON
    accept: str = _JSON

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


Observer = Callable[[str, str, int, float], None]
"""Called after each request with verb, plural, HTTP status (0: no answer), seconds."""


class Client:
    """Requests as coroutines. Every method raises ApiError for a refusal and one of UNREACHABLE for no answer."""

    def __init__(
        self,
        connection: Connection,
        *,
        timeout: float = 30.0,
        idle: float = 90.0,
        observer: Observer | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`timeout`: seconds of one request; `idle`: seconds without a line after which a watch ends."""
        self._connection = connection
        self._sleep = sleep
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=min(10.0, timeout))
        self._watch_timeout = aiohttp.ClientTimeout(total=None, sock_connect=min(10.0, timeout), sock_read=idle)
        self._observe = observer or (lambda *_: None)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._connection.ssl_context or True, limit=0, keepalive_timeout=60)
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers={"User-Agent": f"device-operator/{__version__}"},
            read_bufsize=2**18,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, resource: ApiResource, name: str) -> Object:
        return await self._call(_Request(verb="get", method="GET", resource=resource, path=resource.path(name)))

    async def discover(self, group: str, version: str) -> Object:
        """The APIResourceList of a group's version: every authenticated client may read it."""
        resource = ApiResource(group, version, "")
        return await self._call(_Request(verb="discover", method="GET", resource=resource, path=resource.path()))

    async def pages(
        self,
        resource: ApiResource,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = PAGE,
        metadata_only: bool = False,
    ) -> AsyncIterator[Object]:
        """The list, a page at a time, each the List object with its `metadata` and at most `limit` `items`."""
        accept = _METADATA_LIST if metadata_only else _JSON
        params = _params(limit=str(limit), labelSelector=labels, fieldSelector=fields)
        while True:
            page = await self._call(
                _Request(
                    verb="list", method="GET", resource=resource, path=resource.path(), params=params, accept=accept
                )
            )
            token = page.get("metadata", {}).get("continue", "")
            page["items"] = page.get("items") or []  # an empty list of metadata comes as null
            yield page
            del page  # a page of nodes is 7 MB of JSON: it must be freed before the next one is read
            if not token:
                return
            params["continue"] = token

    async def watch(
        self,
        resource: ApiResource,
        *,
        version: str,
        labels: str = "",
        fields: str = "",
        seconds: int = 290,
        metadata_only: bool = False,
    ) -> AsyncIterator[WatchEvent]:
        """Changes after `version`, until the server ends the stream (after `seconds`) or is silent for too long.

        Raises:
            ApiError: also for an ERROR event, with the code of its Status (410: list again).
        """
        params = _params(
            watch="1",
            allowWatchBookmarks="true",
            resourceVersion=version,
            timeoutSeconds=str(seconds),
            labelSelector=labels,
            fieldSelector=fields,
        )
        request = _Request(
            verb="watch",
            method="GET",
            resource=resource,
            path=resource.path(),
            params=params,
            accept=_METADATA if metadata_only else _JSON,
        )
        async with self._send(request, timeout=self._watch_timeout) as response:
            async for line in _lines(response.content):
                event = _parsed(line, request=str(request))
                if event["type"] == "ERROR":
                    raise _error_of(event["object"], code=int(event["object"].get("code", 500)), request=str(request))
                yield WatchEvent(event["type"], event["object"])

    async def create(self, resource: ApiResource, body: Object) -> Object:
        return await self._call(
            _Request(verb="create", method="POST", resource=resource, path=resource.path(), body=body)
        )

    async def update(self, resource: ApiResource, body: Object, *, dry_run: bool = False) -> Object:
        """`body` has the resourceVersion that was read; another write since then is a conflict."""
        path, params = resource.path(body["metadata"]["name"]), {"dryRun": "All"} if dry_run else {}
        return await self._call(
            _Request(verb="update", method="PUT", resource=resource, path=path, body=body, params=params)
        )

    async def replace_status(self, resource: ApiResource, name: str, *, uid: str, status: Object) -> Object:
        """Replaces the whole status, if the object still has this `uid`."""
        # a merge patch would keep fields that the new status lacks; `test` refuses (422) an object created again
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "add", "path": "/status", "value": status},
        ]
        path = resource.path(name, subresource="status")
        return await self._call(
            _Request(verb="patch", method="PATCH", resource=resource, path=path, body=patch, content=_JSON_PATCH)
        )

    async def delete(self, resource: ApiResource, name: str, *, uid: str) -> None:
        """Deletes the object if it has this `uid`; its dependents are deleted in the background.

        It is not an error if the object is gone, or was created again with another uid.
        """
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        path = resource.path(name)
        try:
            await self._call(_Request(verb="delete", method="DELETE", resource=resource, path=path, body=body))
        except ApiError as error:
            if not (error.not_found or error.conflict):
                raise

    async def _call(self, request: _Request) -> Object:
        for _ in range(_RETRY_AFTER_TRIES - 1):
            try:
                return await self._answer(request)
            except ApiError as error:
                if error.retry_after is None:
                    raise
                await self._sleep(error.retry_after)
        return await self._answer(request)

    async def _answer(self, request: _Request) -> Object:
        async with self._send(request, timeout=self._timeout) as response:
            return _parsed(await response.read(), request=str(request))

    @asynccontextmanager
    async def _send(
        self,
        request: _Request,
        *,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 -- aiohttp's own
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        assert self._session is not None
        headers = {"Accept": request.accept}
        if authorization := await self._connection.authorization():
            headers["Authorization"] = authorization
        data = None
        if request.body is not None:
            data = json.dumps(request.body, separators=(",", ":")).encode()
            headers["Content-Type"] = request.content
        observe = functools.partial(self._observe, request.verb, request.resource.plural)
        started, code = time.monotonic(), 0
        try:
            async with self._session.request(
                request.method,
                self._connection.server + request.path,
                params=request.params,
                data=data,
                headers=headers,
                timeout=timeout,
                server_hostname=self._connection.server_name,
            ) as response:
                code = response.status
                if request.verb == "watch":
                    observe(code, time.monotonic() - started)
                if code >= 400:
                    raise await _refusal(response, request=f"{request} {request.path.rsplit('/', 1)[-1]}")
                yield response
        finally:
            if request.verb != "watch" or code == 0:
                observe(code, time.monotonic() - started)


async def _refusal(response: aiohttp.ClientResponse, *, request: str) -> ApiError:
    raw = await response.read()
    try:
        status = json.loads(raw)
    except ValueError:
        status = {}
    if not isinstance(status, dict):
        status = {}
    fallback = raw[:200].decode("utf-8", "replace") or f"HTTP status {response.status}"
    error = _error_of({"message": fallback, **status}, code=response.status, request=request)
    if response.status == 429:
        seconds = response.headers.get("Retry-After", "")
        error.retry_after = min(float(seconds), 30.0) if seconds.isdigit() else 1.0
    return error


def _parsed(raw: bytes, *, request: str) -> Object:
    try:
        answer: Object = json.loads(raw)
    except ValueError as error:  # a proxy's page, or half an answer
        raise aiohttp.ClientPayloadError(f"the answer to {request} is not JSON: {error}") from error
    return answer


def _error_of(status: Object, *, code: int, request: str) -> ApiError:
    return ApiError(
        code=code, reason=str(status.get("reason", "")), message=str(status.get("message", "")), request=request
    )


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The lines of the stream. aiohttp's iteration refuses lines longer than its buffer; inventories can be longer."""
    pending = bytearray()
    async for chunk in content.iter_any():
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            pending += chunk[start:end]
            if pending.strip():
                yield bytes(pending)
            pending.clear()
            start = end + 1
        pending += chunk[start:]
        if len(pending) > _MAX_LINE:
            raise aiohttp.ClientPayloadError(f"a watch event of more than {_MAX_LINE} bytes")


def _params(**values: str) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}
