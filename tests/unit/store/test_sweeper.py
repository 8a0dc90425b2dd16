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
from device_agent.table.claims import CLAIMS, Claim
from device_agent.table.memory import ClaimMemory
from unit.table.samples import NAME, Steps, held, unit

OURS, THEIRS = "0f6f4a52", "11111111"
NOW, AGE, DAY = 100 * 86_400.0, 30 * 86_400.0, 86_400.0
CLAIM = CLAIMS.dump((Claim.of(unit("a", replicas=2), exclusive=True),), boot_id="")


def left(root: Path, name: str, *, days: float, content: bytes = b"{}") -> Path:
    path = root / "device-operator" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (NOW - days * DAY, NOW - days * DAY))
    return path


def claims_in_use(holders):
    """Sweeps as the agent does, with the last answer of PodResources."""
    steps = Steps()
    steps.list(holders)
    return ClaimMemory(steps.table, changed=lambda _: None, ask=lambda: None).in_use()


def swept(root: Path, holders=None, *, boot: str = "this") -> set[str]:
    store = NodeStore(root, object_uid=OURS, boot=boot)
    went = []
    for section, in_use in ((CONFIG, None), (HEALTH, None), (CLAIMS, claims_in_use(holders))):
        went += sweep(store, section, in_use=in_use, now=NOW, age=AGE)
    return set(went)


def health(boot: object) -> bytes:
    return json.dumps({"version": 99, "bootId": boot}).encode()


@pytest.mark.parametrize(
    ("name", "days", "content", "holders", "goes"),
    [
        (f"config/{THEIRS}.json", 31, b"{}", {}, True),
        (f"config/{THEIRS}.json", 29, b"{}", {}, False),
        (f"config/{THEIRS}.json", -31, b"{}", {}, False),
        (f"config/{OURS}.json", 31, b"{}", {}, False),
        (f"config/.{THEIRS}.json.x1", 2, b"{", {}, True),
        (f"config/.{OURS}.json.x1", 2, b"{", {}, True),
        (f"config/.{OURS}.json.x1", 0, b"{", {}, False),
        (f"health/{THEIRS}.json", 0, health("another"), {}, True),
        (f"health/{THEIRS}.json", 99, health("this"), {}, False),
        (f"health/{THEIRS}.json", 99, health(1), {}, False),
        (f"health/{THEIRS}.json", 99, b"{gar", {}, False),
        (f"health/{OURS}.json", 99, health("another"), {}, False),
        (f"claims/{THEIRS}.json", 31, CLAIM, {}, True),
        (f"claims/{THEIRS}.json", 29, CLAIM, {}, False),
        (f"claims/{THEIRS}.json", 31, CLAIM, held("b"), True),
        (f"claims/{THEIRS}.json", 31, CLAIM, held("a"), False),
        (f"claims/{THEIRS}.json", 31, CLAIM, held("a::1"), False),
        (f"claims/{THEIRS}.json", 31, CLAIM, {NAME: {"a": ()}}, True),
        (f"claims/{THEIRS}.json", 31, CLAIM, None, False),
        (f"claims/{THEIRS}.json", 31, b"{gar", None, True),
        (f"claims/{OURS}.json", 31, CLAIM, {}, False),
        ("claims/something-else", 99, b"", {}, False),
        (f"seats/{THEIRS}.json", 99, b"", {}, False),
    ],
)
def test_which_files_are_removed(tmp_path, *, name, days, content, holders, goes):
    path = left(tmp_path, name, days=days, content=content)
    assert swept(tmp_path, holders) == ({name} if goes else set())
    assert path.exists() is not goes


def test_without_a_boot_id_no_health_is_removed(tmp_path):
    left(tmp_path, f"health/{THEIRS}.json", days=0, content=health("another"))
    assert swept(tmp_path, {}, boot="") == set()


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
    assert swept(tmp_path, {}) == set()


async def test_the_sweeper_sweeps_all_sections_by_itself(tmp_path):
    path = left(tmp_path, f"claims/{THEIRS}.json", days=31, content=CLAIM)
    config = left(tmp_path, f"config/{THEIRS}.json", days=31)
    asked = []

    def in_use():
        asked.append(path.exists())
        return claims_in_use(held("a") if len(asked) == 1 else {})

    settings = Settings().with_values("sweep_first=0.01", "sweep_interval=0.01")
    store = NodeStore(tmp_path, object_uid=OURS, boot="this")
    sweeper = Sweeper(store, {CONFIG: None, CLAIMS: in_use}, settings=settings)
    task = asyncio.create_task(sweeper.run())
    async with asyncio.timeout(10):
        while path.exists():  # noqa: ASYNC110 - the file is what there is to wait for
            await asyncio.sleep(0.01)
    task.cancel()
    assert asked[:2] == [True, True]
    assert not config.exists()
