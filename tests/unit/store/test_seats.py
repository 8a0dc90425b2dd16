"""Locks between the agents of one node: real files, real processes."""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from device_agent.store import locks
from device_agent.store.locks import Key, Taken, Wanted
from device_agent.store.node_store import DIRECTORY
from device_agent.store.seats import FILES, SECTION, Seats, SeatTakenError, place
from device_agent.table.hardware import same_hardware
from hypothesis import given
from hypothesis import strategies as st

A, B = "0f6f4a52", "11111111"
DEV, OTHER = "example.com/dev", "example.com/other"
BUS = "/sys/devices/pci0000:00"


Make = Callable[..., Seats]


@pytest.fixture
def seats(tmp_path: Path) -> Iterator[Make]:
    """Makes an agent's locks on one node: of the object with this uid and name."""
    made: list[Seats] = []

    def make(uid: str = A, config: str = "") -> Seats:
        made.append(Seats(tmp_path, object_uid=uid, config=config))
        return made[-1]

    yield make
    for each in made:
        each.close()


def wanted(*names: str, **devices: str) -> Wanted:
    """`devices`: id -> a path, all of the resource DEV."""
    return Wanted(frozenset(names), {(DEV, name): (f"{BUS}/{path}",) for name, path in devices.items()})


@contextmanager
def in_a_process(node: Path, *, uid: str, config: str, paths: tuple[str, ...]) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the seat, DEV, and the devices at these paths."""
    code = (
        "import sys; from pathlib import Path\n"
        "from device_agent.store.locks import Wanted\nfrom device_agent.store.seats import Seats\n"
        f"seats = Seats(Path({str(node)!r}), object_uid={uid!r}, config={config!r})\n"
        f"assert seats.sit()\nseats.announce()\n"
        f"taken = seats.hold(Wanted(frozenset([{DEV!r}]), {{({DEV!r}, p): (p,) for p in {paths!r}}}))\n"
        "print('taken' if taken else 'holds', flush=True)\nsys.stdin.read()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        assert process.stdout.readline() == "holds\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_a_device_is_exclusive_on_its_paths_and_shared_above_them():
    assert locks.of_device([f"{BUS}/a/b"]) == {
        "hardware /sys": False,
        "hardware /sys/devices": False,
        f"hardware {BUS}": False,
        f"hardware {BUS}/a": False,
        f"hardware {BUS}/a/b": True,
    }
    assert locks.of_device([f"{BUS}/a/b", f"{BUS}/a"])[f"hardware {BUS}/a"] is True
    assert list(locks.of_device(["/z/y", "/a"])) == ["hardware /a", "hardware /z", "hardware /z/y"]


def test_another_process_excludes_until_it_is_killed(tmp_path: Path, seats: Make):
    mine, all_of_it = seats(A), wanted(DEV, a="x", b="x/part", c="y")
    other = Wanted(frozenset([OTHER]), {(OTHER, key[1]): paths for key, paths in all_of_it.devices.items()})
    assert mine.sit()
    with in_a_process(tmp_path, uid=B, config="lab", paths=(f"{BUS}/x",)) as process:
        assert not seats(B).sit()
        assert mine.hold(all_of_it) == Taken(frozenset([DEV]), frozenset(), ("lab",))
        assert mine.hold(other) == Taken(frozenset(), frozenset([(OTHER, "a"), (OTHER, "b")]), ("lab",))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert mine.hold(all_of_it) == Taken()
        assert seats(B).sit()


def test_parts_of_one_device_do_not_exclude_each_other_and_the_whole_excludes_each(seats: Make):
    one, other = seats(A), seats(B)
    assert not one.hold(wanted(a="x/1"))
    assert not other.hold(wanted(b="x/2"))
    assert other.hold(wanted(b="x/2", c="x")).devices == {(DEV, "c")}
    assert not one.hold(wanted())
    assert not other.hold(wanted(b="x/2", c="x"))
    assert one.hold(wanted(a="x/1")).devices == {(DEV, "a")}
    assert not other.hold(wanted(b="x/2"))
    assert not one.hold(wanted(a="x/1"))


def test_all_paths_of_a_device_are_taken_or_none(seats: Make):
    one, other = seats(A), seats(B)
    group = Wanted(devices={(DEV, "group"): (f"{BUS}/x", f"{BUS}/y")})
    assert not one.hold(wanted(y="y"))
    assert other.hold(group).devices == {(DEV, "group")}
    assert not one.hold(wanted(x="x", y="y"))


def test_a_device_of_a_name_that_is_taken_is_left_to_others(seats: Make):
    one, other, third = seats(A), seats(B), seats("22222222")
    assert not one.hold(wanted(DEV))
    assert other.hold(wanted(DEV, a="x")).names == {DEV}
    assert not third.hold(Wanted(frozenset([OTHER]), {(OTHER, "a"): (f"{BUS}/x",)}))


def test_what_is_kept_stays_held_through_changes(seats: Make):
    one, other = seats(A), seats(B)
    assert not one.hold(wanted(DEV, a="x"))
    for more in (wanted(DEV, a="x", b="y"), wanted(DEV, a="x", b="x/part"), wanted(DEV, a="x")):
        assert not one.hold(more)
        assert other.hold(wanted(DEV, a="x")).names == {DEV}
        assert other.hold(wanted(a="x")).devices == {(DEV, "a")}


def test_files_that_somebody_removed_are_made_again_with_their_locks(tmp_path: Path, seats: Make):
    one, other = seats(A), seats(B)
    assert not one.hold(wanted(DEV, a="x"))
    for path in (tmp_path / DIRECTORY / SECTION).iterdir():
        path.unlink()
    (tmp_path / DIRECTORY / SECTION).rmdir()
    assert not one.hold(wanted(DEV, a="x"))
    assert other.hold(wanted(DEV, a="x")).names == {DEV}
    assert not seats(A).sit()


def test_without_the_seat_nothing_is_held(seats: Make):
    assert seats(A).sit()
    with pytest.raises(SeatTakenError):
        seats(A).hold(wanted(DEV))
    assert not seats(B).hold(wanted(DEV))


def test_only_live_agents_are_named_and_notes_of_others_are_removed(tmp_path: Path, seats: Make):
    one, other, third = seats(A, "lab"), seats(B, "edge"), seats("22222222")
    for each in (one, other, third):
        assert each.sit()
        each.announce()
    assert not other.hold(wanted(DEV))
    assert third.hold(wanted(DEV)).by == ("edge", "lab")
    other.close()
    assert not one.hold(wanted(DEV))
    assert third.hold(wanted(DEV)).by == ("lab",)
    assert seats("33333333").sit()
    notes = {path.stem for path in (tmp_path / DIRECTORY / SECTION).glob("*.json")}
    assert notes == {A, "22222222"}


@pytest.mark.parametrize("note", [b"", b"[]", b'{"config"', b"x" * 5000])
def test_a_note_that_makes_no_sense_names_nobody(tmp_path: Path, note: bytes, seats: Make):
    one, other = seats(A), seats(B)
    assert not one.hold(wanted(DEV))
    (tmp_path / DIRECTORY / SECTION / f"{A}.json").write_bytes(note)
    assert other.hold(wanted(DEV)) == Taken(frozenset([DEV]))


def test_files_are_for_root_alone(tmp_path: Path, seats: Make):
    one = seats(A)
    assert not one.hold(wanted(DEV, a="x"))
    one.announce()
    directory = tmp_path / DIRECTORY / SECTION
    assert all(path.stat().st_mode & 0o077 == 0 for path in (directory, *directory.iterdir()))


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_twenty_thousand_devices_need_few_open_files_and_short_lists(seats: Make):
    """The kernel's work for a lock grows with the locks of its file: 20,000 in one file take a hundred times as long."""
    devices = {(DEV, str(n)): (f"{BUS}/{n:05}",) for n in range(20_000)}
    one, before = seats(A), open_files()
    assert not one.hold(Wanted(frozenset([DEV]), devices))
    assert open_files() - before == FILES
    names = {name for paths in devices.values() for name in locks.of_device(paths)}
    places = [place(name) for name in names]
    assert len(set(places)) == len(names)
    assert max(Counter(file for file, _ in places).values()) < 1.5 * len(names) / FILES
    other = seats(B)
    assert other.hold(wanted(a="00007", b="x")).devices == {(DEV, "a")}


PATHS = st.sampled_from(["x", "x/1", "x/2", "x/1/a", "y", "y/1"]).map(lambda path: f"{BUS}/{path}")
DEVICES = st.dictionaries(
    st.sampled_from([(DEV, i) for i in "abc"]), st.lists(PATHS, min_size=1, max_size=2).map(tuple)
)


@given(steps=st.lists(st.tuples(st.booleans(), DEVICES), max_size=12))
def test_two_agents_never_have_the_same_hardware_and_none_is_refused_without_cause(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bool, dict[Key, tuple[str, ...]]]]
):
    node = tmp_path_factory.mktemp("node")
    agents = {True: Seats(node, object_uid=A), False: Seats(node, object_uid=B)}
    has: dict[bool, dict[Key, tuple[str, ...]]] = {True: {}, False: {}}
    for who, devices in steps:
        taken = agents[who].hold(Wanted(devices=devices)).devices
        has[who] = {key: paths for key, paths in devices.items() if key not in taken}
        theirs = [path for paths in has[not who].values() for path in paths]
        for key, paths in devices.items():
            assert same_hardware(paths, theirs) == (key in taken)
    for agent in agents.values():
        agent.close()
