"""List and watch against a stream that misbehaves. What a real API server streams: tests/operator."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from device_operator.cluster import collection
from device_operator.cluster.client import ApiResource, Client, WatchEvent
from device_operator.cluster.collection import Change, Collection


class Server:
    """Ends each watch as soon as it has sent what `streams` has next; with nothing left it ends the test."""

    def __init__(self, *streams: list[WatchEvent]) -> None:
        self.streams = list(streams)
        self.done = asyncio.Event()

    async def pages(self, *_: object, **__: object) -> AsyncIterator[dict[str, Any]]:
        yield {"metadata": {"resourceVersion": "1"}, "items": []}

    async def watch(self, *_: object, **__: object) -> AsyncIterator[WatchEvent]:
        if not self.streams:
            self.done.set()
            await asyncio.Event().wait()
        for event in self.streams.pop(0):
            yield event


BOOKMARK = WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "2"}})


@pytest.mark.parametrize(
    ("stream", "waits"), [([], True), ([BOOKMARK], False)], ids=["tells nothing", "tells something"]
)
async def test_a_watch_that_ends_at_once_is_opened_again_after_a_wait(
    stream: list[WatchEvent], *, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        if seconds:
            waited.append(seconds)
        await sleep(0)

    monkeypatch.setattr(collection.asyncio, "sleep", noted)
    server = Server(*(list(stream) for _ in range(4)))
    changes: list[Change[dict[str, Any]]] = []
    watched: Collection[dict[str, Any]] = Collection(
        ApiResource("", "v1", "nodes"), prune=lambda raw, _: raw, changed=changes.append
    )
    task = asyncio.create_task(watched.run(cast("Client", server)))
    async with asyncio.timeout(5):
        await server.done.wait()
    task.cancel()
    assert len(waited) == (4 if waits else 0)
    assert waited == sorted(waited), "each wait is longer than the one before"
