"""The transport of the API client against canned answers. What a real API server answers: tests/operator."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web
from device_operator.cluster.client import UNREACHABLE, ApiError, ApiResource, Client
from device_operator.cluster.connection import Connection, connect
from device_operator.runtime import errors
from kubernetes.aio.client.configuration import Configuration

NODES = ApiResource("", "v1", "nodes")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Serve = Callable[[Handler], Awaitable[Client]]


@pytest.fixture
def waits() -> list[float]:
    """The waits of the client, which end at once."""
    return []


@pytest.fixture
async def serve(waits: list[float]) -> AsyncIterator[Serve]:
    """A client of a server that answers every request by one handler."""
    runners: list[web.AppRunner] = []
    clients: list[Client] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    async def start(handler: Handler) -> Client:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        configuration = Configuration()
        configuration.host = "http://{}:{}".format(*runner.addresses[0])
        tokens = iter(("bearer first", "bearer second"))

        def reread(given: Configuration) -> None:
            given.api_key["BearerToken"] = next(tokens, "bearer last")

        configuration.refresh_api_key_hook = reread
        client = Client(Connection(configuration), timeout=5, idle=0.3, sleep=wait)
        clients.append(client)
        return await client.__aenter__()

    yield start
    for client in clients:
        await client.__aexit__()
    for runner in runners:
        await runner.cleanup()


def status(code: int, reason: str, message: str, **headers: str) -> web.Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return web.json_response(body, status=code, headers=headers)


async def test_after_a_429_the_client_waits_as_long_as_it_asks_for(serve: Serve, waits: list[float]) -> None:
    async def busy_once(_: web.Request) -> web.Response:
        if not waits:
            return status(429, "TooManyRequests", "busy", **{"Retry-After": "7"})
        return web.json_response({"kind": "Node"})

    client = await serve(busy_once)
    assert await client.get(NODES, "n") == {"kind": "Node"}
    assert waits == [7]


async def test_the_third_429_is_an_error(serve: Serve, waits: list[float]) -> None:
    async def busy(_: web.Request) -> web.Response:
        return status(429, "TooManyRequests", "busy", **{"Retry-After": "7"})

    client = await serve(busy)
    with pytest.raises(ApiError, match="busy"):
        await client.get(NODES, "n")
    assert waits == [7, 7]


@pytest.mark.parametrize(
    ("code", "reason", "attribute"),
    [
        (404, "NotFound", "not_found"),
        (409, "AlreadyExists", "already_exists"),
        (409, "Conflict", "conflict"),
        (410, "Expired", "gone"),
        (403, "Forbidden", "forbidden"),
    ],
)
async def test_a_refusal_has_the_code_and_message_of_the_server(
    code: int, reason: str, attribute: str, serve: Serve
) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return status(code, reason, "because")

    client = await serve(refuse)
    with pytest.raises(ApiError, match="because") as caught:
        await client.get(NODES, "n")
    kinds = ("not_found", "already_exists", "conflict", "gone", "forbidden")
    assert [kind for kind in kinds if getattr(caught.value, kind)] == [attribute]


async def test_a_refusal_without_a_status_object_has_the_answers_text(serve: Serve) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=502, text="<html>bad gateway</html>")

    client = await serve(refuse)
    with pytest.raises(ApiError, match="bad gateway"):
        await client.get(NODES, "n")


async def test_the_token_is_read_for_each_request(serve: Serve) -> None:
    seen: list[str] = []

    async def note(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return web.json_response({})

    client = await serve(note)
    for _ in range(2):
        await client.get(NODES, "n")
    assert seen == ["bearer first", "bearer second"]


async def test_a_list_is_read_page_by_page(serve: Serve) -> None:
    asked: list[dict[str, str]] = []

    async def page(request: web.Request) -> web.Response:
        asked.append(dict(request.query))
        more = {"continue": "next"} if len(asked) < 3 else {}
        return web.json_response({"metadata": {"resourceVersion": "9", **more}, "items": [len(asked)]})

    client = await serve(page)
    items = [item async for page in client.pages(NODES, labels="a=b", limit=1) for item in page["items"]]
    assert items == [1, 2, 3]
    assert [q.get("continue") for q in asked] == [None, "next", "next"]
    assert all(q["limit"] == "1" and q["labelSelector"] == "a=b" for q in asked)


def streaming(*chunks: bytes, end: bool = True) -> Handler:
    """Sends the chunks. Then it ends the answer, or sends nothing more."""

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if not end:
            await asyncio.Event().wait()
        return response

    return stream


async def test_watch_events_arrive_whole_when_they_are_big_or_cut_into_chunks(serve: Serve) -> None:
    big = {"metadata": {"name": "big", "resourceVersion": "2"}, "status": {"text": "x" * 700_000}}
    raw = b"".join(
        json.dumps({"type": kind, "object": body}).encode() + b"\n"
        for kind, body in (("ADDED", big), ("BOOKMARK", {"metadata": {"resourceVersion": "3"}}))
    )
    client = await serve(streaming(raw[:10], raw[10:350_000], raw[350_000:]))
    events = [(e.kind, e.object) async for e in client.watch(NODES, version="1")]
    assert events == [("ADDED", big), ("BOOKMARK", {"metadata": {"resourceVersion": "3"}})]


async def test_an_error_event_is_raised_with_its_code(serve: Serve) -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    client = await serve(streaming(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n"))
    with pytest.raises(ApiError, match="too old") as caught:
        _ = [event async for event in client.watch(NODES, version="1")]
    assert caught.value.gone


async def test_a_silent_watch_ends(serve: Serve) -> None:
    client = await serve(streaming(b"\n", end=False))
    async with asyncio.timeout(30):
        with pytest.raises(UNREACHABLE):
            _ = [event async for event in client.watch(NODES, version="1")]


async def test_no_server_is_unreachable() -> None:
    configuration = Configuration()
    configuration.host = "http://127.0.0.1:1"
    async with Client(Connection(configuration), timeout=5) as client:
        with pytest.raises(UNREACHABLE):
            await client.get(NODES, "n")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"- 1",
        b"a: 1",
        b"current-context: c",
        b"{current-context: c, contexts: [], clusters: []}",
    ],
)
async def test_an_unusable_kubeconfig_is_reported_in_one_line(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_bytes(content)
    with pytest.raises(errors.UsageError, match="no usable cluster configuration"):
        await connect(kubeconfig=str(file))


async def test_an_answer_that_is_not_json_counts_as_no_answer(serve: Serve) -> None:
    async def page(_: web.Request) -> web.Response:
        return web.Response(text="<html>welcome</html>\n")

    client = await serve(page)
    with pytest.raises(UNREACHABLE, match="get nodes"):
        await client.get(NODES, "n")
    with pytest.raises(UNREACHABLE, match="watch nodes"):
        [event async for event in client.watch(NODES, version="1")]
