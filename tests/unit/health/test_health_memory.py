"""What is kept on the node's disk: everything that matters, of this boot alone, and never a reason not to start."""

import json
import os
import re
from pathlib import Path

import pytest
from device_agent.store import health_memory as healthmemory
from device_agent.store.node_state import NodeState
from unit.health import news
from unit.health.gpus import Gpus, gpu, mig

UID = "0b7e6a3c-1111-4222-8333-444455556666"


def records():
    gpus = Gpus(gpu(0), gpu(1), mig(2, gi=1))
    gpus.look()
    gpus.xid(news.RESET_XID)
    gpus.xid(news.QUIET_XID)
    gpus.xid(news.QUIET_XID, "GPU-2/1/0")
    gpus.look(GPU_1=news.BAD)
    gpus.units = (gpu(0), gpu(1))
    gpus.scan()
    return gpus.table.health_records()


def without_counts(kept):
    """An epoch counts what one process has seen."""
    return json.loads(healthmemory.dump(kept, boot_id="b"))


def test_what_is_written_is_what_is_read():
    before = records()
    assert len(before) >= 5
    after = healthmemory.parse(healthmemory.dump(before, boot_id="b"), boot_id="b")
    assert without_counts(after) == without_counts(before)
    assert [(r.entry, r.kind, r.name, r.condition.since) for r in after] == [
        (r.entry, r.kind, r.name, r.condition.since) for r in before
    ]


@pytest.mark.parametrize("boot", ["other", ""])
def test_another_boot_knows_nothing(boot):
    assert healthmemory.parse(healthmemory.dump(records(), boot_id="b"), boot_id=boot) == ()


def test_without_a_boot_id_nothing_is_believed():
    assert healthmemory.parse(healthmemory.dump(records(), boot_id=""), boot_id="") == ()


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"version": 2}', b'{"version": 1}',
        b'{"version":1,"bootId":"b","conditions":[{}]}',
        healthmemory.dump(records(), boot_id="b").replace(b"+00:00", b""),
        healthmemory.dump(records(), boot_id="b").replace(b"Unhealthy", b"Ill"),
        re.sub(rb'"20[^"]*\+00:00"', b'"0001-01-01T00:00:00+14:00"', healthmemory.dump(records(), boot_id="b")),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_an_error_with_one_line(raw):
    with pytest.raises(healthmemory.HealthMemoryError) as error:
        healthmemory.parse(raw, boot_id="b")
    assert str(error.value)
    assert "\n" not in str(error.value)


def test_the_node_keeps_it_beside_the_configuration(tmp_path: Path):
    state = NodeState(tmp_path, object_uid=UID)
    assert state.recall_health(boot_id="b") == ((), "")
    assert state.remember_health(records(), boot_id="b") == ""
    path = tmp_path / "device-operator" / "health" / f"{UID}.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    kept, problem = state.recall_health(boot_id="b")
    assert (without_counts(kept), problem) == (without_counts(records()), "")


def test_a_file_of_no_use_is_told_and_passed_over(tmp_path: Path):
    state = NodeState(tmp_path, object_uid=UID)
    state.remember_health(records(), boot_id="b")
    path = tmp_path / "device-operator" / "health" / f"{UID}.json"
    path.write_bytes(b"{")
    kept, problem = state.recall_health(boot_id="b")
    assert kept == ()
    assert problem.startswith("the devices' health kept on the node cannot be used: ")
    path.unlink()
    path.mkdir()
    kept, problem = state.recall_health(boot_id="b")
    assert kept == ()
    assert "cannot be read" in problem
    assert "could not be kept" in state.remember_health(records(), boot_id="b")


def test_a_file_that_is_too_long_is_not_read(tmp_path: Path):
    state = NodeState(tmp_path, object_uid=UID)
    state.remember_health((), boot_id="b")
    path = tmp_path / "device-operator" / "health" / f"{UID}.json"
    os.truncate(path, 33 * 1024 * 1024)
    assert "is longer than" in state.recall_health(boot_id="b")[1]


def test_why_it_cannot_be_kept_is_the_same_text_each_time(tmp_path: Path):
    """It is logged when it changes; the name of a temporary file changes each time."""
    state = NodeState(tmp_path, object_uid=UID)
    directory = tmp_path / "device-operator"
    directory.mkdir()
    (directory / "health").write_text("a file")
    first, second = (state.remember_health(records(), boot_id="b") for _ in range(2))
    assert first == second != ""
    (directory / "health").unlink()
    state.remember_health(records(), boot_id="b")
    kept = directory / "health" / f"{UID}.json"
    kept.unlink()
    kept.mkdir()
    (kept / "full").touch()
    first, second = (state.remember_health(records(), boot_id="b") for _ in range(2))
    assert first == second != ""
