"""List and watch against a stream that misbehaves. What a real API server streams: tests/operator."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from device_operator.cluster import collection
from device_operator.cluster.client import ApiError, ApiResource, Client, WatchEvent
from device_operator.cluster.collection import Change, Collection
from device_operator.runtime.errors import PermissionMissingError


class Server:
    """Ends each watch as soon as it has sent what `streams` has next; with nothing left it ends the test.

    An exception among `streams` is the answer to that watch. `lists`: how often it was listed.
    """

    def __init__(self, *streams: list[WatchEvent] | Exception) -> None:
        self.streams = list(streams)
        self.lists = 0
        self.done = asyncio.Event()

    async def pages(self, *_: object, **__: object) -> AsyncIterator[dict[str, Any]]:
        self.lists += 1
        yield {"metadata": {"resourceVersion": "1"}, "items": []}

    async def watch(self, *_: object, **__: object) -> AsyncIterator[WatchEvent]:
        if not self.streams:
            self.done.set()
            await asyncio.Event().wait()
        answer = self.streams.pop(0)
        if isinstance(answer, Exception):
            raise answer
        for event in answer:
            yield event


BOOKMARK = WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "2"}})


async def waits_of(server: Server, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the collection waits before each new attempt, until the server has no more to say, or it ends."""
    waited: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        if seconds:
            waited.append(seconds)
        await sleep(0)

    monkeypatch.setattr(collection.asyncio, "sleep", noted)
    changes: list[Change[dict[str, Any]]] = []
    watched: Collection[dict[str, Any]] = Collection(
        ApiResource("", "v1", "nodes"), prune=lambda raw, _: raw, changed=changes.append, clock=lambda: sum(waited)
    )
    task, done = asyncio.create_task(watched.run(cast("Client", server))), asyncio.create_task(server.done.wait())
    async with asyncio.timeout(5):
        await asyncio.wait([task, done], return_when=asyncio.FIRST_COMPLETED)
    if not done.done():
        await task
    task.cancel()
    return waited


@pytest.mark.parametrize(
    ("stream", "waits"), [([], True), ([BOOKMARK], False)], ids=["tells nothing", "tells something"]
)
async def test_a_watch_that_ends_at_once_is_opened_again_after_a_wait(
    stream: list[WatchEvent], *, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = await waits_of(Server(*(list(stream) for _ in range(4))), monkeypatch)
    assert len(waited) == (4 if waits else 0)
    assert waited == sorted(waited), "each wait is longer than the one before"


def refused(code: int) -> ApiError:
    return ApiError(code=code, reason="Test", message="no", request="watch nodes")


async def test_a_server_that_was_away_is_asked_often_and_listed_at_once_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server(*(OSError("refused") for _ in range(20)), refused(410))
    waited = await waits_of(server, monkeypatch)
    assert len(waited) == 20, "none after the answer"
    assert max(waited) <= 5
    assert server.lists == 2


async def test_a_server_that_refuses_is_asked_less_and_less(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = await waits_of(Server(*(refused(503) for _ in range(12))), monkeypatch)
    assert len(waited) == 12
    assert max(waited) > 10
    waited = await waits_of(Server(*(refused(410) for _ in range(4))), monkeypatch)
    assert len(waited) == 3, "only the first time at once"


async def test_a_permission_that_an_api_server_lacks_at_its_start_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server(OSError("refused"), refused(403), refused(403), [BOOKMARK], *(refused(403) for _ in range(3)))
    assert len(await waits_of(server, monkeypatch)) == 6


async def test_a_permission_that_stays_away_for_a_minute_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(*(refused(403) for _ in range(100)))
    with pytest.raises(PermissionMissingError):
        await waits_of(server, monkeypatch)
    assert 100 - len(server.streams) < 20
