"""The server of one resource, as far as it needs no kubelet."""

import asyncio
import logging
from pathlib import Path

import pytest
from device_agent.contract.document import Document
from device_agent.kubelet.plugin import ResourceServer
from device_agent.runtime.metrics import Metrics
from device_agent.table.device_table import DeviceTable


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


@pytest.mark.parametrize("turns", range(4))
async def test_a_start_that_is_given_up_leaves_neither_a_socket_nor_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, turns: int
) -> None:
    """A resource may go while its server starts."""
    caplog.set_level(logging.WARNING)
    server = ResourceServer(
        "example.com/a",
        table=DeviceTable(Document(resources=())),
        metrics=Metrics(version=""),
        coalesce_seconds=0,
        on_stream=lambda: None,
        on_allocated=lambda *_: None,
    )
    starting = asyncio.create_task(server.start(tmp_path, owner="uid"))
    for _ in range(turns):
        await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await server.stop()
    assert names(tmp_path) == []
    assert caplog.records == []
