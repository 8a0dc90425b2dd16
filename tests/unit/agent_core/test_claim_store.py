"""Claims on the disk: read when they changed, written whole, never a reason not to serve."""

import itertools
import os
import tempfile
from pathlib import Path

import pytest
from device_agent.store.claim_files import ClaimStore
from device_agent.table import claims
from device_agent.table.claims import Claim
from unit.table.samples import unit

UID, ANOTHER, THIRD = "0f6f4a52", "11111111", "22222222"


def kept(*names: str) -> tuple[Claim, ...]:
    return tuple(Claim.of(unit(name), exclusive=True) for name in names)


def store(directory: Path, uid: str = UID) -> ClaimStore:
    return ClaimStore(directory, object_uid=uid)


def file(directory: Path, uid: str = UID) -> Path:
    return directory / "device-operator" / "claims" / f"{uid}.json"


def test_nothing_kept_is_no_problem(tmp_path):
    look = store(tmp_path).look()
    assert (look.own, look.others, look.written, look.problems) == (None, (), False, ())


def test_an_earlier_process_left_it_and_this_one_wrote_it(tmp_path):
    assert store(tmp_path).keep(kept("a", "b")) == ""
    later = store(tmp_path)
    assert later.look().own == kept("a", "b")
    assert later.look().own is later.look().own
    later.keep(kept("a"))
    look = later.look()
    assert (look.own, look.written) == (None, True)
    assert store(tmp_path).look().own == kept("a")


def test_another_process_of_the_object_is_noticed_and_a_touch_is_not(tmp_path):
    one, two = store(tmp_path), store(tmp_path)
    one.keep(kept("a"))
    os.utime(file(tmp_path), (1, 1))
    assert one.look().own is None
    two.keep(kept("b"))
    assert one.look().own == kept("b")


def test_others_are_read_when_they_change(tmp_path):
    mine = store(tmp_path)
    store(tmp_path, ANOTHER).keep(kept("a"))
    first = mine.look().others
    assert first == kept("a")
    mine.keep(kept("x"))
    assert mine.look().others == first
    store(tmp_path, ANOTHER).keep(kept("a", "b"))
    assert mine.look().others == kept("a", "b")
    assert mine.look().others is mine.look().others
    file(tmp_path, ANOTHER).unlink()
    assert mine.look().others == ()


def test_the_one_written_last_comes_last(tmp_path):
    store(tmp_path, ANOTHER).keep(kept("a"))
    store(tmp_path, THIRD).keep(kept("b"))
    os.utime(file(tmp_path, ANOTHER), (2, 2))
    os.utime(file(tmp_path, THIRD), (1, 1))
    assert store(tmp_path).look().others == (*kept("b"), *kept("a"))


@pytest.mark.parametrize("content", [b"", b"{gar", b'{"version":2}'])
def test_a_damaged_one_is_told_in_the_same_words_and_spoils_no_others(tmp_path, content):
    store(tmp_path, ANOTHER).keep(kept("a"))
    file(tmp_path, THIRD).write_bytes(content)
    mine = store(tmp_path)
    look = mine.look()
    assert look.others == kept("a")
    (problem,) = look.problems
    assert f"claims/{THIRD}.json cannot be used: " in problem
    file(tmp_path, THIRD).write_bytes(content)
    assert mine.look().problems == look.problems


def test_what_is_no_claims_file_is_left_alone(tmp_path):
    store(tmp_path, ANOTHER).keep(kept("a"))
    file(tmp_path, "locks").with_suffix("").mkdir()
    (file(tmp_path).parent / f".{THIRD}.json.x").write_bytes(b"{")
    look = store(tmp_path).look()
    assert (look.others, look.problems) == (kept("a"), ())


def test_a_directory_in_the_place_of_a_file_is_told(tmp_path):
    file(tmp_path, ANOTHER).mkdir(parents=True)
    assert store(tmp_path).look().problems == (f"claims/{ANOTHER}.json cannot be used: Is a directory",)


def test_a_full_disk_keeps_what_was_there_and_is_told_in_the_same_words(tmp_path, monkeypatch):
    def full(*_arguments, **_fields):
        raise OSError(28, "No space left on device", f"{tmp_path}/.claims.{next(numbers)}")

    mine = store(tmp_path)
    mine.keep(kept("a"))
    numbers = itertools.count()
    monkeypatch.setattr(tempfile, "mkstemp", full)
    said = {mine.keep(kept("b")) for _ in range(3)}
    assert said == {"what is offered could not be kept on the node: No space left on device"}
    assert claims.parse(file(tmp_path).read_bytes()) == kept("a")
    assert mine.look().own is None
