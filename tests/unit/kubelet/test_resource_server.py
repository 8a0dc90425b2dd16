"""The server of one resource: its socket, and when the table is told what the kubelet knows."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc.aio
import pytest
from device_agent.contract.document import Document
from device_agent.kubelet import rpc
from device_agent.kubelet.plugin import ResourceServer
from device_agent.kubelet.proto import deviceplugin_pb2 as dp
from device_agent.runtime.metrics import Metrics
from device_agent.table.device_table import DeviceTable
from unit.table.samples import NAME, Steps, unit

TOO_LARGE = "the device list exceeds what the kubelet accepts, new devices wait"


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def server_of(table: DeviceTable, resource: str = NAME) -> ResourceServer:
    return ResourceServer(
        resource,
        table=table,
        metrics=Metrics(version=""),
        coalesce_seconds=0,
        on_stream=lambda: None,
        on_allocated=lambda *_: None,
    )


@pytest.mark.parametrize("turns", range(4))
async def test_a_cancelled_start_leaves_no_socket_and_logs_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, turns: int
) -> None:
    """A resource may go while its server starts."""
    caplog.set_level(logging.WARNING)
    server = server_of(DeviceTable(Document(resources=())), "example.com/a")
    starting = asyncio.create_task(server.start(tmp_path, owner="uid"))
    for _ in range(turns):
        await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await server.stop()
    assert names(tmp_path) == []
    assert caplog.records == []


# What the kubelet was told

Stream = grpc.aio.UnaryStreamCall[dp.Empty, dp.ListAndWatchResponse]


@contextlib.asynccontextmanager
async def served(table: DeviceTable, directory: Path) -> AsyncIterator[tuple[ResourceServer, Stream]]:
    """The server, and a device stream to it."""
    server = server_of(table)
    await server.start(directory, owner="uid")
    try:
        async with grpc.aio.insecure_channel(f"unix:{server.path}", options=(rpc.LOCAL_AUTHORITY,)) as channel:
            watch = channel.unary_stream(
                rpc.LIST_AND_WATCH.path,
                request_serializer=dp.Empty.SerializeToString,
                response_deserializer=dp.ListAndWatchResponse.FromString,
            )
            yield server, watch(dp.Empty())
    finally:
        await server.stop()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what it waits for happens in the C core
            await asyncio.sleep(0.001)


async def health(stream: Stream) -> dict[str, str]:
    answer = await asyncio.wait_for(stream.read(), 10)
    return {device.ID: device.health for device in answer.devices}


def much_later(steps: Steps) -> frozenset[str]:
    """PodResources shows all devices free, long after every list was sent."""
    steps.now = asyncio.get_running_loop().time() + 100
    return steps.list({})


async def test_the_table_is_told_of_a_list_that_was_written(tmp_path: Path) -> None:
    steps = Steps()
    steps.scan(unit("a"), unit("b"))
    async with served(steps.table, tmp_path) as (server, stream):
        assert await health(stream) == {"a": "Healthy", "b": "Healthy"}
        steps.scan(unit("a"))
        server.refresh()
        assert await health(stream) == {"a": "Healthy", "b": "Unhealthy"}
        await until(lambda: server.sent == steps.table.listed(NAME))
        assert much_later(steps) == {NAME}


async def test_the_table_is_not_told_of_a_list_that_is_too_large(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet still has b as Healthy and may give it out, so b has to stay."""
    steps = Steps()
    steps.scan(unit("a"), unit("b"))
    async with served(steps.table, tmp_path) as (server, stream):
        await health(stream)
        with monkeypatch.context() as small:
            small.setattr(rpc, "MESSAGE_LIMIT", 10)
            steps.scan(unit("a"))
            server.refresh()
            await until(lambda: TOO_LARGE in caplog.messages)
            assert much_later(steps) == frozenset()
            assert steps.seen() == {"a": True, "b": False}
        server.refresh()
        assert await health(stream) == {"a": "Healthy", "b": "Unhealthy"}
        await until(lambda: server.sent == steps.table.listed(NAME))
        assert much_later(steps) == {NAME}


async def test_new_devices_of_a_too_large_list_wait_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the kubelet would keep removed devices as Healthy. They could never go, and new ones would have no
    room.
    """
    steps, new = Steps(), "c" * 60
    steps.scan(unit("a"), unit("b"))
    async with served(steps.table, tmp_path) as (server, stream):
        await health(stream)
        monkeypatch.setattr(rpc, "MESSAGE_LIMIT", 100)
        steps.scan(unit("a"), unit(new))
        server.refresh()
        assert await health(stream) == {"a": "Healthy", "b": "Unhealthy"}
        await until(lambda: len(server.sent) == len(steps.table.listed(NAME)) - 1)
        assert much_later(steps) == {NAME}
        server.refresh()
        assert await health(stream) == {"a": "Healthy", new: "Healthy"}


class Broken:
    """A stream on which no write succeeds: it hangs until the stream is over, or `fails`."""

    def __init__(self, *, fails: bool) -> None:
        self.writing = asyncio.Event()
        self._fails = fails

    async def write(self, _: dp.ListAndWatchResponse) -> None:
        self.writing.set()
        if self._fails:
            raise grpc.aio.UsageError("the stream is over")
        await asyncio.Event().wait()


@pytest.mark.parametrize("fails", [False, True])
async def test_the_table_is_not_told_of_a_list_whose_stream_ended_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    behaviours = []
    made = rpc.stream

    def stream(method: rpc.Method, behaviour: Callable) -> rpc.Handler:
        behaviours.append(behaviour)
        return made(method, behaviour)

    monkeypatch.setattr(rpc, "stream", stream)
    steps = Steps()
    steps.scan(unit("a"), unit("b"))
    steps.scan(unit("a"))
    broken, server = Broken(fails=fails), server_of(steps.table)
    await server.start(tmp_path, owner="uid")
    (list_and_watch,) = behaviours
    watching = asyncio.create_task(list_and_watch(dp.Empty(), broken))
    await asyncio.wait_for(broken.writing.wait(), 10)
    watching.cancel()
    with pytest.raises((asyncio.CancelledError, grpc.aio.UsageError)):
        await watching
    await server.stop()
    assert server.sent == ()
    assert much_later(steps) == frozenset()
    assert steps.seen() == {"a": True, "b": False}
