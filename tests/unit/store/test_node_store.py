"""The files of the node store: read if they changed, written whole or not at all; a problem is never an exception."""

import os
import re
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from device_agent.store.node_store import KeptFile, NodeStore, ObjectUidError, boot_id
from unit.store.kept import ANOTHER, NOTES, THIRD, UID, Note, keep, notes, on_disk, path, store


def test_an_empty_store_is_no_problem_and_makes_no_directory(tmp_path: Path) -> None:
    assert store(tmp_path).read(NOTES) == KeptFile()
    found = store(tmp_path).read_others(NOTES, {})
    assert (found.files, found.problem, found.refused) == ({}, "", False)
    assert list(tmp_path.iterdir()) == []


def test_the_last_written_items_are_read_and_no_other_file_is_left(tmp_path: Path) -> None:
    keep(tmp_path, "a")
    keep(tmp_path, "a", "b")
    assert store(tmp_path).read(NOTES).items == notes("a", "b")
    assert [file.name for file in path(tmp_path).parent.iterdir()] == [path(tmp_path).name]
    assert on_disk(tmp_path, ANOTHER) == [], "each object has its own"


def test_a_file_that_this_store_wrote_is_not_read_again(tmp_path: Path) -> None:
    mine = store(tmp_path)
    written = mine.write(NOTES, notes("a"))
    assert mine.read(NOTES, written) is written
    keep(tmp_path, "b")
    assert mine.read(NOTES, written).items == notes("b")


def test_a_file_that_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    keep(tmp_path, "a")
    keep(tmp_path, "b", uid=ANOTHER)
    mine = store(tmp_path)
    first, others = mine.read(NOTES), mine.read_others(NOTES, {}).files
    assert mine.read(NOTES, first) is first
    again = mine.read_others(NOTES, others).files
    assert all(again[name] is file for name, file in others.items())
    path(tmp_path).unlink()
    path(tmp_path, ANOTHER).unlink()
    assert mine.read(NOTES, first) == KeptFile()
    assert mine.read_others(NOTES, others).files == {}


def test_files_of_others_come_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    keep(tmp_path, "a", uid=ANOTHER)
    keep(tmp_path, "b", uid=THIRD)
    keep(tmp_path, "own")
    os.utime(path(tmp_path, ANOTHER), (2, 2))
    os.utime(path(tmp_path, THIRD), (1, 1))
    files = store(tmp_path).read_others(NOTES, {}).files
    assert [note.text for file in files.values() for note in file.items] == ["b", "a"]


def test_the_newest_files_are_read_when_there_are_too_many(tmp_path: Path) -> None:
    few = replace(NOTES, max_others=5)
    for number in range(9):
        keep(tmp_path, str(number), uid=f"uid-{number}")
        os.utime(path(tmp_path, f"uid-{number}"), (number, number))
    found = store(tmp_path).read_others(few, {})
    assert [note.text for file in found.files.values() for note in file.items] == list("45678")
    assert "only the newest 5 files" in found.problem


def test_only_their_own_object_reads_items_that_are_not_shared(tmp_path: Path) -> None:
    private = replace(NOTES, shared=("shared", "yes"))
    store(tmp_path, ANOTHER).write(private, (Note("a"), Note("b", shared="no")))
    (theirs,) = store(tmp_path).read_others(private, {}).files.values()
    assert theirs.items == notes("a")
    assert len(store(tmp_path, ANOTHER).read(private).items) == 2


def test_an_existing_directory_is_made_accessible_by_root_alone(tmp_path: Path) -> None:
    (tmp_path / "device-operator").mkdir(mode=0o755)
    before = os.umask(0)
    try:
        keep(tmp_path, "a")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "device-operator").stat().st_mode) == 0o700
    assert stat.S_IMODE(path(tmp_path).parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path(tmp_path).stat().st_mode) == 0o600


def link(file: Path) -> None:
    (file.parent / "elsewhere").write_bytes(NOTES.dump(notes("x"), boot_id=""))
    file.symlink_to("elsewhere")


def long(file: Path) -> None:
    file.touch()
    os.truncate(file, NOTES.max_bytes + 1)


DAMAGED = {
    "empty": lambda file: file.touch(),
    "torn": lambda file: file.write_bytes(NOTES.dump(notes("a"), boot_id="")[:-5]),
    "another version": lambda file: file.write_bytes(b'{"version":2,"items":[]}'),
    "long": long,
    "a directory": lambda file: file.mkdir(),
    "a FIFO": os.mkfifo,
    "a symbolic link": link,
    "a link to nothing": lambda file: file.symlink_to("gone"),
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_an_unusable_file_gives_one_stable_problem_and_does_not_hide_others(tmp_path: Path, damage) -> None:
    keep(tmp_path, "a", uid=ANOTHER)
    damage(path(tmp_path, THIRD))
    damage(path(tmp_path))
    own = store(tmp_path).read(NOTES)
    assert (own.items, own.refused) == ((), False)
    assert own.problem.startswith(f"{path(tmp_path)} cannot be used: ")
    found = store(tmp_path).read_others(NOTES, {})
    assert [file.items for file in found.files.values() if file.items] == [notes("a")]
    assert found.problem.startswith(f"{path(tmp_path, THIRD)} cannot be used: ")
    assert "\n" not in found.problem
    assert store(tmp_path).read_others(NOTES, found.files).problem == found.problem
    written = store(tmp_path).write(NOTES, notes("new"))
    if path(tmp_path).is_dir():
        assert "cannot be written: Is a directory" in written.problem
    else:
        assert (written.problem, on_disk(tmp_path)) == ("", ["new"])


def test_many_problems_are_shown_as_the_first_ones_and_a_number(tmp_path: Path) -> None:
    path(tmp_path).parent.mkdir(parents=True)
    for number in range(9):
        path(tmp_path, f"uid-{number}").touch()
    problem = store(tmp_path).read_others(NOTES, {}).problem
    assert problem.count("cannot be used") == 3
    assert problem.endswith("; and 6 more")


def test_files_that_belong_to_no_object_are_ignored(tmp_path: Path) -> None:
    keep(tmp_path, "a", uid=ANOTHER)
    (path(tmp_path).parent / "locks").mkdir()
    (path(tmp_path).parent / f".{THIRD}.json.x").write_bytes(b"{")
    found = store(tmp_path).read_others(NOTES, {})
    assert (list(found.files), found.problem) == ([path(tmp_path, ANOTHER).name], "")


def test_a_file_that_disappears_during_the_read_does_not_hide_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path, "a", uid=ANOTHER)
    keep(tmp_path, "b", uid=THIRD)
    real = os.open

    def gone(file, *arguments):
        if Path(file) == path(tmp_path, THIRD):
            raise FileNotFoundError(2, "No such file or directory")
        return real(file, *arguments)

    monkeypatch.setattr(os, "open", gone)
    found = store(tmp_path).read_others(NOTES, {})
    assert [file.items for file in found.files.values() if file.items] == [notes("a")]
    assert found.problem == ""


def test_known_items_stay_while_the_disk_refuses_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path, "a", uid=ANOTHER)
    mine = store(tmp_path)
    known = mine.read_others(NOTES, {}).files
    keep(tmp_path, "a", "b", uid=ANOTHER)
    with monkeypatch.context() as broken:
        broken.setattr(os, "open", lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        refused = mine.read_others(NOTES, known)
    (file,) = refused.files.values()
    assert (file.items, file.refused) == (notes("a"), True)
    assert "Input/output error" in refused.problem
    (file,) = mine.read_others(NOTES, refused.files).files.values()
    assert (file.items, file.refused) == (notes("a", "b"), False)


def test_a_missing_device_plugins_directory_is_reported_and_not_made(tmp_path: Path) -> None:
    assert "cannot be written: No such file" in store(tmp_path / "none").write(NOTES, notes("a")).problem
    assert not (tmp_path / "none").exists()


def test_items_that_are_too_long_are_reported_and_not_written(tmp_path: Path) -> None:
    keep(tmp_path, "a")
    written = store(tmp_path).write(replace(NOTES, max_bytes=100), notes("x" * 100))
    assert "longer than 100 bytes" in written.problem
    assert on_disk(tmp_path) == ["a"]


@pytest.mark.parametrize("uid", ["", "..", "../x", "a/b", "a\n", ".hidden", "x" * 64])
def test_a_uid_that_cannot_be_a_file_name_is_refused(tmp_path: Path, uid: str) -> None:
    with pytest.raises(ObjectUidError, match=re.escape(repr(uid))):
        NodeStore(tmp_path, object_uid=uid, boot="")


def test_the_boot_is_that_of_a_captured_tree_or_of_this_machine(tmp_path: Path) -> None:
    here = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert boot_id(tmp_path) == here
    captured = tmp_path / "sys/kernel/random/boot_id"
    captured.parent.mkdir(parents=True)
    captured.write_text("theirs\n")
    assert boot_id(tmp_path) == "theirs"
    assert store(tmp_path, UID).own == f"{UID}.json"
