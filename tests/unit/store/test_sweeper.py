"""Files of deleted objects are removed, but no file that is still needed."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from device_agent.health.memory import HEALTH
from device_agent.runtime.settings import Settings
from device_agent.store.configuration import CONFIG
from device_agent.store.node_store import NodeStore
from device_agent.store.sweeper import Sweeper, sweep
from device_agent.table.grants import GRANTS

OURS, THEIRS = "0f6f4a52", "11111111"
NOW, AGE, DAY = 100 * 86_400.0, 30 * 86_400.0, 86_400.0


def left(root: Path, name: str, *, days: float, content: bytes = b"{}") -> Path:
    path = root / "device-operator" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (NOW - days * DAY, NOW - days * DAY))
    return path


def swept(root: Path, *, boot: str = "this") -> set[str]:
    store = NodeStore(root, object_uid=OURS, boot=boot)
    return {name for section in (CONFIG, HEALTH, GRANTS) for name in sweep(store, section, now=NOW, age=AGE)}


def health(boot: object) -> bytes:
    return json.dumps({"version": 99, "bootId": boot}).encode()


@pytest.mark.parametrize(
    ("name", "days", "content", "goes"),
    [
        (f"config/{THEIRS}.json", 31, b"{}", True),
        (f"config/{THEIRS}.json", 29, b"{}", False),
        (f"config/{THEIRS}.json", -31, b"{}", False),
        (f"config/{OURS}.json", 31, b"{}", False),
        (f"config/.{THEIRS}.json.x1", 2, b"{", True),
        (f"config/.{OURS}.json.x1", 2, b"{", True),
        (f"config/.{OURS}.json.x1", 0, b"{", False),
        (f"health/{THEIRS}.json", 0, health("another"), True),
        (f"health/{THEIRS}.json", 99, health("this"), False),
        (f"health/{THEIRS}.json", 99, health(1), False),
        (f"health/{THEIRS}.json", 99, b"{gar", False),
        (f"health/{OURS}.json", 99, health("another"), False),
        (f"grants/{THEIRS}.json", 31, b"{}", True),
        (f"grants/{THEIRS}.json", 29, b"{}", False),
        (f"grants/{THEIRS}.json", 31, b"{gar", True),
        (f"grants/{OURS}.json", 31, b"{}", False),
        ("grants/something-else", 99, b"", False),
        (f"seats/{THEIRS}.json", 99, b"", False),
    ],
)
def test_what_goes_and_what_stays(tmp_path, *, name, days, content, goes):
    path = left(tmp_path, name, days=days, content=content)
    assert swept(tmp_path) == ({name} if goes else set())
    assert path.exists() is not goes


def test_without_a_boot_id_no_health_is_removed(tmp_path):
    left(tmp_path, f"health/{THEIRS}.json", days=0, content=health("another"))
    assert swept(tmp_path, boot="") == set()


def test_own_files_are_touched(tmp_path):
    path = left(tmp_path, f"config/{OURS}.json", days=31)
    swept(tmp_path)
    assert path.stat().st_mtime > NOW


def test_a_node_without_the_directory_has_nothing_to_sweep(tmp_path):
    assert swept(tmp_path) == set()


def test_directories_and_links_stay(tmp_path):
    path = tmp_path / "device-operator" / "config" / f"{THEIRS}.json"
    path.mkdir(parents=True)
    (tmp_path / "device-operator" / "config" / "link.json").symlink_to(path)
    os.utime(path, (0, 0))
    assert swept(tmp_path) == set()


async def test_it_is_looked_after_by_itself(tmp_path):
    paths = [tmp_path / "device-operator" / section / f"{THEIRS}.json" for section in ("grants", "config")]
    settings = Settings().with_values("sweep_first=0.01", "sweep_interval=0.01")
    store = NodeStore(tmp_path, object_uid=OURS, boot="this")
    task = asyncio.create_task(Sweeper(store, (CONFIG, GRANTS), settings=settings).run())
    for _ in range(2):  # it does not end with the first round
        for path in paths:
            left(tmp_path, f"{path.parent.name}/{path.name}", days=31)
        async with asyncio.timeout(10):
            while any(path.exists() for path in paths):  # noqa: ASYNC110 - the files are what there is to wait for
                await asyncio.sleep(0.01)
    task.cancel()
