"""The small parts of the agent's process that need no process."""

import asyncio
import contextlib
import select
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from device_agent.kubelet import sockets
from device_agent.kubelet.podresources import listing
from device_agent.kubelet.proto import podresources_pb2 as pr
from device_agent.report.api_client import ApiCallError, ApiServer
from device_agent.runtime import directory_watch
from device_agent.runtime.directory_watch import DirectoryWatch
from device_agent.runtime.settings import SettingError, Settings
from device_agent.runtime.worker import Worker, WorkerBusyError
from device_agent.table.holders import Holder


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="da-", dir="/tmp") as path:
        yield Path(path)


# Sockets


def bound(path: Path, *, listening: bool) -> socket.socket:
    with sockets.private():
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
    if listening:
        server.listen()
    return server


def test_a_socket_name_is_new_each_time_and_tells_the_object() -> None:
    directory = Path("/var/lib/kubelet/device-plugins")
    names = {sockets.new_path(directory, owner="uid", resource="example.com/a").name for _ in range(100)}
    assert len(names) == 100
    assert all(name.startswith(sockets.prefix("uid")) for name in names)
    assert sockets.prefix("uid") != sockets.prefix("other")


def test_the_longest_possible_socket_path_is_accepted() -> None:
    path = sockets.new_path(Path("/" + "x" * 72), owner="uid", resource="r")
    assert len(str(path)) == 107


@pytest.mark.parametrize("length", [74, 200])
def test_a_socket_path_that_is_too_long_is_refused_with_its_name(length: int) -> None:
    with pytest.raises(sockets.SocketError, match="a socket's path may have 107"):
        sockets.new_path(Path("/" + "x" * (length - 1)), owner="uid", resource="r")


def test_only_own_dead_sockets_are_removed(folder: Path) -> None:
    own = [sockets.new_path(folder, owner="uid", resource=str(n)) for n in range(3)]
    others = sockets.new_path(folder, owner="other", resource="0")
    with contextlib.ExitStack() as stack:
        stack.enter_context(bound(own[0], listening=False))
        alive = stack.enter_context(bound(own[1], listening=True))
        stack.enter_context(bound(others, listening=False))
        own[2].write_text("no socket")
        assert sockets.remove_stale(folder, owner="uid") == (own[0].name,)
        assert {p.name for p in folder.iterdir()} == {own[1].name, own[2].name, others.name}
        alive.close()
        assert sockets.remove_stale(folder, owner="uid") == (own[1].name,)


def test_a_missing_directory_has_nothing_stale(folder: Path) -> None:
    assert sockets.remove_stale(folder / "nowhere", owner="uid") == ()


def test_only_root_can_use_a_socket(folder: Path) -> None:
    with bound(folder / "s", listening=False):
        assert stat.S_IMODE((folder / "s").lstat().st_mode) & 0o077 == 0


def test_a_kubelet_life_ends_with_its_socket(folder: Path) -> None:
    assert sockets.life(folder) is None
    (folder / "kubelet.sock").write_text("")
    assert sockets.life(folder) is None
    (folder / "kubelet.sock").unlink()
    with bound(folder / "kubelet.sock", listening=False):
        first = sockets.life(folder)
        assert first == sockets.life(folder) is not None
        (folder / "kubelet.sock").unlink()
    with bound(folder / "kubelet.sock", listening=False):
        assert sockets.life(folder) not in (None, first)


# Holders


def test_holders_are_collected_over_numa_nodes_containers_and_pods() -> None:
    def container(name: str, **ids: list[str]) -> pr.ContainerResources:
        return pr.ContainerResources(
            name=name,
            devices=[
                pr.ContainerDevices(resource_name=resource.replace("_", "/"), device_ids=[i])
                for resource, those in ids.items()
                for i in those
            ],
        )

    answer = pr.ListPodResourcesResponse(
        pod_resources=[
            pr.PodResources(name="a", namespace="n", containers=[container("x", ours_r=["1", "2"], theirs_r=["1"])]),
            pr.PodResources(name="b", namespace="n", containers=[container("y", ours_r=["2", "2"]), container("z")]),
        ]
    )
    a, b = Holder("n", "a", "x"), Holder("n", "b", "y")
    told = listing(answer)
    assert told.holders == {"ours/r": {"1": (a,), "2": (a, b)}, "theirs/r": {"1": (a,)}}
    assert told.pods == {("n", "a"), ("n", "b")}


# Settings


def test_settings_are_replaced_by_name() -> None:
    settings = Settings().with_values("scan_interval=0.5", "report_bytes=1000")
    assert (settings.scan_interval, settings.report_bytes) == (0.5, 1000)
    assert settings.heartbeat == Settings().heartbeat


@pytest.mark.parametrize("text", ["scan_interval", "=1", "colour=1", "heartbeat=soon", "report_bytes=1.5"])
def test_an_unknown_setting_or_a_value_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(SettingError):
        Settings().with_values(text)


# The worker


async def test_a_worker_returns_the_result_or_raises_the_error() -> None:
    worker = Worker("test")
    assert await worker.call(lambda: threading.current_thread().name, seconds=5) == "test"
    with pytest.raises(ZeroDivisionError):
        await worker.call(lambda: 1 // 0, seconds=5)
    assert await worker.call(lambda: 2, seconds=5) == 2


async def test_a_worker_that_hangs_refuses_new_work_until_it_returns() -> None:
    worker, back = Worker("test"), threading.Event()
    with pytest.raises(TimeoutError):
        await worker.call(lambda: back.wait(30), seconds=0.01)
    with pytest.raises(WorkerBusyError):
        await worker.call(lambda: 1, seconds=5)
    back.set()
    async with asyncio.timeout(5):
        while worker.busy:  # noqa: ASYNC110 - a thread has no event of this loop
            await asyncio.sleep(0.001)
    assert await worker.call(lambda: 1, seconds=5) == 1


# The directory watch


async def _woken(watch: DirectoryWatch, change: object) -> None:
    async with asyncio.timeout(5):
        waiting = asyncio.ensure_future(watch.wait(seconds=60))
        await asyncio.sleep(0)
        change()
        await waiting


async def test_a_change_in_the_directory_wakes_at_once(folder: Path) -> None:
    watch = DirectoryWatch(folder)
    with contextlib.closing(watch):
        await watch.wait(seconds=60)  # new: look around
        await _woken(watch, (folder / "a").touch)
        await _drained(watch)
        await _woken(watch, (folder / "a").unlink)


async def test_a_replaced_directory_is_still_watched(folder: Path) -> None:
    path = folder / "d"
    path.mkdir()
    watch = DirectoryWatch(path)
    with contextlib.closing(watch):
        await watch.wait(seconds=60)
        path.rename(folder / "old")
        path.mkdir()
        await watch.wait(seconds=60)  # the new one: look around
        await _drained(watch)
        await _woken(watch, (path / "a").touch)


async def test_a_missing_directory_is_polled(folder: Path) -> None:
    watch = DirectoryWatch(folder / "d")
    with contextlib.closing(watch):
        await watch.wait(seconds=0.01)
        (folder / "d").mkdir()
        async with asyncio.timeout(5):
            await watch.wait(seconds=60)


async def test_all_changes_before_a_wait_end_that_wait_and_no_other(folder: Path) -> None:
    watch = DirectoryWatch(folder)
    with contextlib.closing(watch):
        await watch.wait(seconds=60)
        for n in range(1000):
            (folder / str(n)).touch()
        assert await _drained(watch) == 1


async def test_writes_wake_a_watch_only_if_it_asks_for_writes(folder: Path) -> None:
    (folder / "a").touch()
    names, writes = DirectoryWatch(folder, writes=False), DirectoryWatch(folder)
    with contextlib.closing(names), contextlib.closing(writes):
        await names.wait(seconds=60)
        await writes.wait(seconds=60)
        waiting = asyncio.ensure_future(names.wait(seconds=60))
        await _woken(writes, lambda: (folder / "a").write_text("x"))
        assert not waiting.done()
        (folder / "b").touch()
        await asyncio.wait_for(waiting, 5)


async def test_without_inotify_the_directory_is_polled_and_one_line_is_logged(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class NoneLeft:
        def __init__(self, path: Path, *, mask: int) -> None:
            raise OSError(24, "Too many open files", str(path))

    monkeypatch.setattr(directory_watch, "_Inotify", NoneLeft)
    watch = DirectoryWatch(folder)
    for _ in range(3):
        await watch.wait(seconds=0.01)
    assert [r.error for r in caplog.records] == [f"[Errno 24] Too many open files: '{folder}'"]


async def test_a_closed_watch_leaves_no_file_open(folder: Path) -> None:
    def open_files() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    before = open_files()
    watch = DirectoryWatch(folder)
    await watch.wait(seconds=60)
    assert open_files() == before + 1
    watch.close()
    assert open_files() == before
    with pytest.raises(FileNotFoundError):
        directory_watch._Inotify(folder / "none", mask=0x100)
    assert open_files() == before


async def _drained(watch: DirectoryWatch) -> int:
    """Waits until nothing is left over from earlier changes. Returns how often `wait` returned.

    The kernel queues an event before the system call that causes it returns.
    """
    inotify = watch._inotify
    returns = 0
    while inotify._seen.is_set() or select.select([inotify._fd], [], [], 0)[0]:
        async with asyncio.timeout(5):
            await watch.wait(seconds=60)
        returns += 1
    return returns


# The API server


def test_an_invalid_token_is_reported_without_its_content(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\nsecret")
    server = ApiServer(url="http://127.0.0.1:9", token_file=tmp_path / "token")
    with pytest.raises(ApiCallError) as told:
        server.request("GET", "/")
    assert "secret" not in str(told.value)
    assert str(told.value) == f"GET /: there is no token in {tmp_path / 'token'}"
