"""Nodes that appear and disappear without a kernel event."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from device_agent.contract.document import (
    DeviceEntry,
    DeviceNode,
    Document,
    FilesSource,
    Inject,
    NvmlSource,
    Resource,
)
from device_agent.discovery.node_watch import NodeWatch
from device_agent.nvml.setup import Door
from device_agent.runtime.settings import Settings

SETTINGS = Settings(config_poll=60, hint_coalesce=0.001)
POLLING = Settings(config_poll=0.05, hint_coalesce=0.001)


class Watched:
    """A /dev with a null device that somebody writes to all the time."""

    def __init__(self, dev: Path, settings: Settings = SETTINGS) -> None:
        self.dev = dev
        self.hints = 0
        self.looks = 0
        self.watch = NodeWatch(dev, changed=self._hint, settings=settings, of_drivers={Door.kind: Door.nodes})
        self._look, self.watch._there = self.watch._there, self._counted

    def _hint(self) -> None:
        self.hints += 1

    def _counted(self) -> frozenset[str]:
        self.looks += 1
        return self._look()

    async def hinted(self, *, after: int) -> None:
        await _until(lambda: self.hints > after)

    async def looked(self, *, after: int) -> None:
        """The watch has looked at the directories again."""
        await _until(lambda: self.looks > after)

    async def follow(self, document: Document) -> None:
        """Returns when the watch has looked at the nodes of this document."""
        before = self.looks
        self.watch.follow(document)
        await self.looked(after=before)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 the kernel tells the watch, not us
            await asyncio.sleep(0.005)


def companions(*paths: str, nvml: bool = False) -> Document:
    nodes = tuple(DeviceNode(host_path=path) for path in paths)
    devices = (DeviceEntry(nvml=NvmlSource()),) if nvml else ()
    return Document((Resource(name="a.com/a", devices=devices, inject=Inject(device_nodes=nodes)),))


def files(*paths: str) -> Document:
    return Document((Resource(name="a.com/a", devices=(DeviceEntry(files=FilesSource(paths=paths)),)),))


@pytest.fixture
async def watched(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Watched]:
    made = Watched(tmp_path, getattr(request, "param", SETTINGS))
    task = asyncio.ensure_future(made.watch.run())
    yield made
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("document", "node"),
    [
        (companions("/dev/nvidia-uvm"), "nvidia-uvm"),
        (companions("/dev/net/tun"), "net/tun"),
        (companions("/dev/vfio/{iommuGroup}"), "vfio/17"),
        (companions(nvml=True), "nvidia3"),
        (companions(nvml=True), "nvidia-caps/nvidia-cap7"),
        (files("/dev/widget*"), "widget3"),
        (files("/dev/serial/by-id/usb-[AB]*"), "serial/by-id/usb-A7"),
    ],
)
async def test_a_node_that_comes_or_goes_is_a_hint(watched: Watched, document: Document, node: str) -> None:
    (watched.dev / node).parent.mkdir(parents=True, exist_ok=True)
    await watched.follow(document)
    before = watched.hints
    (watched.dev / node).touch()
    await watched.hinted(after=before)
    before = watched.hints
    (watched.dev / node).unlink()
    await watched.hinted(after=before)


async def test_other_nodes_and_writes_give_no_hint(watched: Watched) -> None:
    (watched.dev / "null").touch()
    await watched.follow(companions("/dev/nvidia-uvm", nvml=True))
    before, looks = watched.hints, watched.looks
    (watched.dev / "null").write_text("x")
    (watched.dev / "ttyACM0").touch()
    await watched.looked(after=looks)
    assert watched.hints == before


@pytest.mark.parametrize("watched", [POLLING], indirect=True)
async def test_a_directory_that_was_missing_is_found(watched: Watched) -> None:
    await watched.follow(companions("/dev/net/tun"))
    assert watched.hints == 0
    (watched.dev / "net").mkdir()
    (watched.dev / "net/tun").touch()
    await watched.hinted(after=0)


async def test_a_link_in_a_directory_that_was_missing_is_found_without_waiting_for_a_poll(watched: Watched) -> None:
    await watched.follow(files("/dev/serial/by-id/*"))
    before = watched.hints
    (watched.dev / "serial").mkdir()
    await watched.hinted(after=before)
    (watched.dev / "serial/by-id").mkdir()
    await watched.hinted(after=before + 1)
    before = watched.hints
    (watched.dev / "serial/by-id/usb-A").symlink_to("../../ttyUSB0")
    await watched.hinted(after=before)


async def test_a_link_that_leads_elsewhere_is_a_hint(watched: Watched) -> None:
    (watched.dev / "by-id").mkdir()
    (watched.dev / "by-id/a").symlink_to("../ttyUSB0")
    await watched.follow(files("/dev/by-id/*"))
    before = watched.hints
    (watched.dev / "new").symlink_to("../ttyUSB1")
    (watched.dev / "new").rename(watched.dev / "by-id/a")
    await watched.hinted(after=before)


async def test_an_edit_is_followed(watched: Watched) -> None:
    await watched.follow(companions("/dev/kvm"))
    await watched.follow(companions("/dev/fuse"))
    before, looks = watched.hints, watched.looks
    (watched.dev / "kvm").touch()
    await watched.looked(after=looks)
    assert watched.hints == before
    (watched.dev / "fuse").touch()
    await watched.hinted(after=before)


async def test_nodes_that_exist_when_the_watch_begins_are_a_hint(watched: Watched) -> None:
    (watched.dev / "kvm").touch()
    watched.watch.follow(companions("/dev/kvm"))
    await watched.hinted(after=0)
