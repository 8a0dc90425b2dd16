"""The kubelet's own record, as its source writes it: read whole, or a RecordError of one line."""

import base64
import contextlib
import json
import os
from pathlib import Path

import pytest
from device_agent.allocate.grant import key_of
from device_agent.kubelet import checkpoint
from device_agent.kubelet.checkpoint import FILE, RecordError, parse, read, stamp
from device_agent.kubelet.proto import deviceplugin_pb2 as dp
from device_agent.table.grants import Grant
from hypothesis import given
from hypothesis import strategies as st
from unit.table.samples import NAME, Steps, unit

UUID = "GPU-0f6f4a52-1111-2222-3333-444444444444"
THEIRS = "example.net/x"


def entry(ids=None, *, answer: bytes = b"", pod: str = "uid", container: str = "main", resource: str = THEIRS) -> dict:
    return {
        "PodUID": pod,
        "ContainerName": container,
        "ResourceName": resource,
        "DeviceIDs": ids,
        "AllocResp": base64.b64encode(answer).decode(),
    }


def record(*entries: object, registered: object = None) -> bytes:
    """Go's encoding/json: an empty slice or map that was never made is null."""
    data = {"PodDeviceEntries": list(entries) or None, "RegisteredDevices": registered}
    return json.dumps({"Data": data, "Checksum": 1632964065}, separators=(",", ":")).encode()


def ours() -> tuple[bytes, Grant]:
    """One of our answers, and what is to be read of it."""
    steps = Steps()
    steps.scan(unit("a", replicas=3), unit("b"))
    ids = ("a", "a::2", "b")
    name, text = steps.table.note(NAME, ids)
    answer = dp.ContainerAllocateResponse(
        annotations={name: text},
        envs={"PCI": "0000:3b:00.0"},
        devices=[dp.DeviceSpec(host_path=p, container_path="/dev/y", permissions="rw") for p in ("/dev/b", "/dev/a")],
    )
    grant = steps.grant(*ids, pod="uid-1")
    assert grant.note is not None
    expected = Grant("uid-1", "main", NAME, ids, note=grant.note, nodes=("/dev/a", "/dev/b"))
    return answer.SerializeToString(), expected


def test_our_answers_are_read_by_their_note():
    answer, expected = ours()
    raw = record(entry({"-1": ["b"], "0": ["a", "a::2"]}, answer=answer, pod="uid-1", resource=NAME))
    assert parse(raw) == (expected,)


def test_a_note_of_another_resource_does_not_count():
    answer, _ = ours()
    (found,) = parse(record(entry({"-1": ["a"]}, answer=answer)))
    assert key_of(THEIRS) != key_of(NAME)
    assert found.note is None


def test_an_answer_without_a_note_gives_nodes_and_words():
    answer = dp.ContainerAllocateResponse(
        envs={"VISIBLE": f"{UUID},x"},
        annotations={"a": "at 0000:3B:00.0."},
        mounts=[dp.Mount(host_path="/sys/bus/pci/devices/0000:3c:00.0/config", container_path="/x")],
        devices=[dp.DeviceSpec(host_path="/dev/x1", container_path="/dev/0000:ff:00.0")],
        cdi_devices=[dp.CDIDevice(name="vendor.com/gpu=0000:3d:00.0")],
    )
    (found,) = parse(record(entry({"-1": ["x", "0000:3e:00.0"]}, answer=answer.SerializeToString())))
    assert found == Grant(
        "uid",
        "main",
        THEIRS,
        ("0000:3e:00.0", "x"),
        nodes=("/dev/x1",),
        words=("0000:3b:00.0", "0000:3c:00.0", "0000:3d:00.0", "0000:3e:00.0", UUID),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("10000:3b:00.0 x", ("10000:3b:00.0",)),
        ("0000:3b:00.01", ()),
        ("x0000:3b:00.0", ()),
        ("0000:3b:00.9", ()),
        ("aa:0000:3b:00.0", ()),
        ("0f6f4a52-1111-2222-3333-444444444444", ("0f6f4a52-1111-2222-3333-444444444444",)),
        ("0f6f4a52-1111-2222-3333-4444444444445", ()),
        (f"MIG-{UUID}", ()),
        (f"a={UUID};b={UUID}", (UUID,)),
    ],
)
def test_words_are_whole_addresses_and_uuids(text: str, words: tuple[str, ...]):
    answer = dp.ContainerAllocateResponse(envs={"X": text}).SerializeToString()
    (found,) = parse(record(entry({"-1": ["x"]}, answer=answer)))
    if text.startswith("MIG-"):
        assert UUID in found.words
    else:
        assert found.words == words


@pytest.mark.parametrize("ids", [None, {}, {"-1": None}, {"-1": []}, {"0": None, "1": []}], ids=json.dumps)
def test_an_entry_without_ids_is_a_grant_of_none(ids):
    (found,) = parse(record(entry(ids)))
    assert found.ids == ()


def test_ids_of_all_numa_nodes_are_one_grant_each_once():
    (found,) = parse(record(entry({"0": ["b", "a"], "1": ["c"], "-1": ["a"]})))
    assert found.ids == ("a", "b", "c")


@pytest.mark.parametrize(
    "raw", [record(), record(registered={NAME: ["a"]}), b'{"Data":{"PodDeviceEntries":[]},"Checksum":0}']
)
def test_a_record_without_entries_says_that_nobody_has_anything(raw: bytes):
    assert parse(raw) == ()


@pytest.mark.parametrize("response", [None, ""])
def test_an_entry_without_an_answer_still_has_its_ids(response: object):
    (found,) = parse(record({**entry({"-1": ["a"]}), "AllocResp": response}))
    assert found == Grant("uid", "main", THEIRS, ("a",))


# What is not of this form


ANSWER, _ = ours()
WHOLE = record(entry({"-1": ["a"]}, answer=ANSWER, resource=NAME), entry({"0": ["x"]}))


@pytest.mark.parametrize("length", range(len(WHOLE)))
def test_a_record_that_is_torn_anywhere_is_an_error(length: int):
    with pytest.raises(RecordError) as error:
        parse(WHOLE[:length])
    assert FILE in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "raw",
    [
        b"\0" * 4096,
        b"\xff\xfe",
        b"[" * 100_000,
        b"null",
        b"[]",
        b"1",
        b"{}",
        b'{"Data":null}',
        b'{"Data":{}}',
        b'{"Data":{"PodDeviceEntries":1}}',
        b'{"Data":{"PodDeviceEntries":"x"}}',
        b'{"Data":{"PodDeviceEntries":{"a":1}}}',
        b'{"Data":{"PodDeviceEntries":{}}}',
        b'{"Data":{"PodDeviceEntries":0}}',
        b'{"Data":{"PodDeviceEntries":""}}',
        b'{"Data":{"PodDeviceEntries":[null]}}',
        b'{"Data":{"PodDeviceEntries":[{}]}}',
        *(record({**entry({"-1": ["a"]}), **odd}) for odd in (
            {"DeviceIDs": ["a"]}, {"DeviceIDs": []}, {"DeviceIDs": {"-1": ""}}, {"DeviceIDs": {"-1": [None]}}, {"DeviceIDs": {"-1": 1}}, {"DeviceIDs": "a"}, {"DeviceIDs": {"-1": "abc"}},
            {"DeviceIDs": {"-1": [1]}}, {"DeviceIDs": {"-1": {"a": 1}}},
            {"AllocResp": "%"}, {"AllocResp": 1}, {"AllocResp": "/w=="}, {"AllocResp": "\u00e4"},
            {"PodUID": None}, {"ResourceName": 1}, {"ContainerName": ["x"]},
        )),
        *(record({k: v for k, v in entry({"-1": ["a"]}).items() if k != name}) for name in entry()),
    ],
)  # fmt: skip
def test_another_form_is_an_error_of_one_short_line(raw: bytes):
    with pytest.raises(RecordError) as error:
        parse(raw)
    assert FILE in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
ENTRY = st.fixed_dictionaries(dict.fromkeys(entry(), JSON))
ANSWERS = st.binary(max_size=40).map(lambda answer: base64.b64encode(answer).decode())


@given(
    JSON
    | st.fixed_dictionaries({"Data": JSON})
    | st.fixed_dictionaries({"Data": st.fixed_dictionaries({"PodDeviceEntries": JSON | st.lists(JSON | ENTRY)})})
    | ANSWERS.map(lambda a: {"Data": {"PodDeviceEntries": [{**entry({"-1": ["a"]}), "AllocResp": a}]}})
)
def test_any_json_is_read_or_is_a_record_error(data):
    _read(json.dumps(data).encode())


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_are_a_record_error(raw: bytes):
    _read(raw)


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255))
def test_a_record_with_a_broken_byte_is_read_or_is_a_record_error(place: int, byte: int):
    _read(WHOLE[:place] + bytes([byte]) + WHOLE[place + 1 :])


def _read(raw: bytes) -> None:
    grants: tuple[Grant, ...] = ()
    with contextlib.suppress(RecordError):
        grants = parse(raw)
    for grant in grants:
        assert all(isinstance(text, str) for text in (grant.pod, grant.container, grant.resource, *grant.ids))


# The file


def test_no_file_is_no_record_yet(tmp_path: Path):
    assert (stamp(tmp_path), read(tmp_path)) == (None, None)


def test_a_file_without_entries_is_a_record(tmp_path: Path):
    (tmp_path / FILE).write_bytes(record())
    assert read(tmp_path) == ()


def test_a_file_is_told_from_another_by_inode_time_and_size(tmp_path: Path):
    path = tmp_path / FILE
    path.write_bytes(b"a")
    os.utime(path, ns=(1, 1))
    first = stamp(tmp_path)
    assert stamp(tmp_path) == first
    os.utime(path, ns=(1, 2))
    touched = stamp(tmp_path)
    path.write_bytes(b"ab")
    os.utime(path, ns=(1, 2))
    longer = stamp(tmp_path)
    (tmp_path / "new").write_bytes(b"ab")
    os.utime(tmp_path / "new", ns=(1, 2))
    (tmp_path / "new").replace(path)
    assert len({first, touched, longer, stamp(tmp_path)}) == 4


@pytest.mark.parametrize("call", [read, stamp])
def test_a_file_that_cannot_be_read_is_an_error_with_the_cause(tmp_path: Path, call, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "open" if call is read else "stat", refuse)
    with pytest.raises(RecordError, match="Input/output error"):
        call(tmp_path)


def test_a_directory_in_its_place_is_an_error(tmp_path: Path):
    (tmp_path / FILE).mkdir()
    with pytest.raises(RecordError, match="directory"):
        read(tmp_path)


def test_a_file_longer_than_any_record_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checkpoint, "MAX_BYTES", len(WHOLE) - 1)
    (tmp_path / FILE).write_bytes(WHOLE)
    with pytest.raises(RecordError, match="longer than"):
        read(tmp_path)
    monkeypatch.setattr(checkpoint, "MAX_BYTES", len(WHOLE))
    assert len(read(tmp_path) or ()) == 2
