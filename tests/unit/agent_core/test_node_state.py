"""What outlives the agent: kept whole or not at all, and never a reason not to start."""

import hashlib
import itertools
import os
import stat
import tempfile

import pytest
from device_agent.contract.document import DeviceEntry, FilesSource, Resource, dump
from device_agent.contract.names import MAX_DOCUMENT_BYTES
from device_agent.store.node_state import NodeState
from unit.table.samples import document, resource

UID = "0f6f4a52-6d5e-4b5c-9d7e-8f0a1b2c3d4e"


def state(directory) -> NodeState:
    return NodeState(directory, object_uid=UID)


def kept(directory):
    return directory / "device-operator" / "config" / f"{UID}.json"


def test_what_was_accepted_is_there_after_a_restart_byte_for_byte(tmp_path):
    raw = dump(document())
    assert state(tmp_path).remember(raw) is None
    found, problem = state(tmp_path).recall()
    assert problem == ""
    assert (found.document, found.raw, found.sha256) == (document(), raw, hashlib.sha256(raw).hexdigest())


def test_the_last_one_counts_and_no_other_file_is_left(tmp_path):
    other = document(resource("example.com/second"))
    state(tmp_path).remember(dump(document()))
    state(tmp_path).remember(dump(other))
    assert state(tmp_path).recall()[0].document == other
    assert [path.name for path in kept(tmp_path).parent.iterdir()] == [kept(tmp_path).name]


def test_each_object_has_its_own(tmp_path):
    state(tmp_path).remember(dump(document()))
    assert NodeState(tmp_path, object_uid="another").recall() == (None, "")


def test_nothing_kept_is_no_problem(tmp_path):
    assert state(tmp_path).recall() == (None, "")
    assert list(tmp_path.iterdir()) == []


def test_only_root_can_look_into_the_directory_whatever_it_was(tmp_path):
    (tmp_path / "device-operator").mkdir(mode=0o755)
    before = os.umask(0)
    try:
        state(tmp_path).remember(dump(document()))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "device-operator").stat().st_mode) == 0o700
    assert stat.S_IMODE(kept(tmp_path).parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(kept(tmp_path).stat().st_mode) == 0o600


UNSERVABLE = dump(document(Resource(name="example.com/x", devices=(DeviceEntry(files=FilesSource(paths=("/etc",))),))))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not valid JSON"),
        (dump(document())[:-20], "not valid JSON"),
        (b"\xff\xfe\x00", "not valid JSON"),
        (b"[]", "contract version"),
        (b'{"contractVersion": 99, "resources": []}', "contract version 99"),
        (dump(document()).replace(b'"name"', b'"nane"'), "did you mean name"),
        (UNSERVABLE, "below /dev"),
        (b"[" * 100_000, "cannot be used"),
        (b" " * (MAX_DOCUMENT_BYTES + 1), "longer than"),
    ],
    ids=[
        "empty",
        "cut off",
        "no text",
        "no object",
        "another version",
        "a misspelt field",
        "unservable",
        "deep",
        "long",
    ],
)
def test_a_damaged_file_is_told_and_not_used(tmp_path, content, why):
    kept(tmp_path).parent.mkdir(parents=True)
    kept(tmp_path).write_bytes(content)
    found, problem = state(tmp_path).recall()
    assert found is None
    assert problem.startswith("the configuration kept on the node")
    assert why in problem
    assert "\n" not in problem


def test_a_directory_in_the_files_place_is_told(tmp_path):
    kept(tmp_path).mkdir(parents=True)
    found, problem = state(tmp_path).recall()
    assert found is None
    assert "cannot be read" in problem
    assert "could not be kept" in state(tmp_path).remember(dump(document()))
    assert kept(tmp_path).is_dir()


def test_a_failed_write_keeps_what_was_there_and_leaves_no_rest(tmp_path, monkeypatch):
    state(tmp_path).remember(dump(document()))

    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left" in state(tmp_path).remember(dump(document(resource("example.com/second"))))
    assert [path.name for path in kept(tmp_path).parent.iterdir()] == [kept(tmp_path).name]
    assert state(tmp_path).recall()[0].document == document()


def test_a_missing_device_plugins_directory_is_told_and_not_made(tmp_path):
    assert "could not be kept" in state(tmp_path / "none").remember(dump(document()))
    assert not (tmp_path / "none").exists()


def test_a_failure_is_told_in_the_same_words_each_time(tmp_path, monkeypatch):
    def full(*_arguments, **_fields):
        raise OSError(28, "No space left on device", f"{tmp_path}/.config.{next(numbers)}")

    numbers = itertools.count()
    monkeypatch.setattr(tempfile, "mkstemp", full)
    said = {state(tmp_path).remember(dump(document())) for _ in range(3)}
    assert said == {f"the configuration could not be kept in {tmp_path}/device-operator: No space left on device"}


@pytest.mark.parametrize("uid", ["", "..", "../x", "a/b", "a\n", ".hidden", "x" * 64])
def test_a_uid_that_is_no_file_name_is_refused(tmp_path, uid):
    with pytest.raises(ValueError, match="no object uid"):
        NodeState(tmp_path, object_uid=uid)
