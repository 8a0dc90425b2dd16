"""The note in an answer: what is written is what is read, within the limit, and other text is none of ours."""

import json

import pytest
from device_agent.allocate.grant import (
    MAX_BYTES,
    PREFIX,
    GrantedId,
    GrantNote,
    NoteWriter,
    device_text,
    key_of,
    read_note,
)
from device_agent.contract.inventory import Identity
from device_agent.contract.names import replica_id
from device_agent.select.unit import Grants, NodeGrant, Unit
from hypothesis import given
from hypothesis import strategies as st

NAME = "example.com/dev"


def unit(device: str = "a", **fields) -> Unit:
    values = {
        "value": device,
        "identity": Identity.STABLE,
        "source": "pci",
        "attributes": {},
        "nodes": (),
        "grants": Grants(),
        "hardware": (f"devices/{device}",),
    }
    return Unit(entry=NAME, resource=NAME, id=device, **(values | fields))


def note(*units: Unit, ids: dict[str, GrantedId] | None = None, owner: str = "lab", boot: str = "b") -> tuple[str, str]:
    """Of these units, each with its own id alone, or with these ids."""
    texts = {u.id: device_text(u, exclusive=True) for u in units}
    given_ids = ids if ids is not None else {u.id: GrantedId(u.id) for u in units}
    return NoteWriter(owner=owner, boot=boot).write(NAME, given_ids.items(), texts.__getitem__)


def read(text: str) -> GrantNote:
    found = read_note(text)
    assert found is not None
    return found


def test_a_note_says_whose_it_is_and_which_device_each_id_was():
    device = unit(
        "serial-7",
        value="7",
        identity=Identity.VOLATILE,
        source="usb",
        hardware=("devices/usb1/1-1", "devices/usb1/1-2"),
        own_nodes={"/dev/a": "char/4:64", "/dev/kept": "char/4:65", "/dev/unknown": ""},
        grants=Grants(nodes=tuple(NodeGrant(p, "/dev/in", "rw") for p in ("/dev/a", "/dev/unknown", "/dev/shared"))),
        numa_node=1,
        parts=("GPU-1",),
    )
    _, text = note(device, ids={"serial-7::2": GrantedId("serial-7", 2), "serial-7": GrantedId("serial-7")})
    found = read(text)
    assert (found.owner, found.boot) == ("lab", "b")
    assert found.ids == {"serial-7": GrantedId("serial-7", 0), "serial-7::2": GrantedId("serial-7", 2)}
    (kept,) = found.devices.values()
    assert kept.exclusive
    assert kept.nodes == {"/dev/a": "char/4:64", "/dev/unknown": ""}, "those of its own that the container got"
    again = kept.unit(resource=NAME, entry=NAME)
    for field in ("id", "value", "identity", "source", "hardware", "numa_node", "parts", "entry", "resource"):
        assert getattr(again, field) == getattr(device, field)
    assert again.own_nodes == kept.nodes


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_note_says_whether_anybody_else_may_have_the_hardware(*, exclusive: bool):
    text = device_text(unit(), exclusive=exclusive)
    _, written = NoteWriter(owner="", boot="").write(NAME, [("a", GrantedId("a"))], lambda _: text)
    assert read(written).devices["a"].exclusive is exclusive


def test_each_resource_has_an_annotation_of_its_own():
    """With one name for all, the kubelet logs a conflict in a container that has two resources."""
    keys = {key_of(name) for name in (NAME, "example.com/other", "example.org/dev")}
    assert len(keys) == 3
    for key in keys:
        prefix, _, name = key.partition("/")
        assert f"{prefix}/" == PREFIX
        assert name.isalnum()
        assert 0 < len(name) <= 63, "a label's length"
    assert note(unit())[0] == key_of(NAME)


def test_the_order_of_ids_does_not_matter():
    one, two = unit("a"), unit("b")
    assert note(one, two) == note(two, one)
    assert list(read(note(two, one)[1]).ids) == ["a", "b"]


@pytest.mark.parametrize("count", [1, 10, 1000])
def test_a_note_is_within_the_limit_and_has_as_many_devices_as_fit(count: int):
    units = [unit(f"{n:05}", parts=(f"part-{n}",)) for n in range(count)]
    _, text = note(*units)
    found = read(text)
    assert len(text.encode()) <= MAX_BYTES
    assert len(found.ids) == len(found.devices)
    if count <= 10:
        assert len(found.ids) == count
    else:
        assert list(found.ids) == [u.id for u in units][: len(found.ids)], "the first ones"
        assert len(text.encode()) > MAX_BYTES - 2 * len(device_text(units[0], exclusive=True)), "what fits is there"


def test_a_note_of_many_short_ids_is_within_the_limit():
    _, text = note(unit("a"), ids={f"{n:04}": GrantedId("a", n) for n in range(1000)})
    assert MAX_BYTES - 200 < len(text.encode()) <= MAX_BYTES


def test_replicas_of_one_device_cost_their_ids_alone():
    ids = {replica_id("a", n): GrantedId("a", n) for n in range(50)}
    _, text = note(unit("a"), ids=ids)
    assert read(text).ids == ids
    assert len(read(text).devices) == 1


def test_one_device_that_is_longer_than_the_limit_is_left_out():
    _, text = note(unit("a", hardware=("x" * MAX_BYTES,)))
    assert read(text) == GrantNote(version=1, owner="lab", boot="b")


def test_a_note_of_nothing_can_be_read():
    assert read(note()[1]).ids == {}


@given(
    device=st.text(min_size=1, max_size=80),
    ids=st.dictionaries(st.text(max_size=80), st.integers(0, 2**31), min_size=1, max_size=8),
    texts=st.lists(st.text(max_size=80), max_size=4),
    owner=st.text(max_size=40),
    boot=st.text(max_size=40),
)
def test_odd_names_are_read_as_they_were_written(device, ids, texts, owner, boot):
    odd = unit(
        device, value="".join(texts), hardware=tuple(texts), parts=tuple(texts), own_nodes=dict.fromkeys(texts, "x")
    )
    odd_ids = {i: GrantedId(device, replica) for i, replica in ids.items()}
    _, text = note(odd, ids=odd_ids, owner=owner, boot=boot)
    assert text.isascii(), "the kubelet's protobuf refuses other than UTF-8"
    assert len(text) <= MAX_BYTES + len(owner) * 12 + len(boot) * 12
    found = read(text)
    assert (found.owner, found.boot) == (owner, boot)
    assert found.ids.items() <= odd_ids.items()
    for kept in found.devices.values():
        assert (kept.id, kept.hardware, kept.parts) == (device, odd.hardware, odd.parts)


NOTE = note(unit("a"))[1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "null",
        "[]",
        "1",
        "{}",
        "[" * 100_000,
        '{"version":2}',
        '{"version":1}',
        '{"version":1,"owner":1,"boot":"b"}',
        NOTE.replace('"version":1', '"version":2'),
        NOTE.replace('"version":1', '"version":"1"'),
        NOTE.replace('"exclusive":true', '"exclusive":"yes"'),
        NOTE.replace('"Stable"', '"Sometimes"'),
        NOTE.replace('{"device":"a"', '{"device":"b"'),
        NOTE.replace('"replica":0', '"replica":0.5'),
        NOTE.replace('"devices/a"', "1"),
    ],
)
def test_text_that_this_agent_cannot_read_is_no_note(text: str):
    assert text != NOTE
    assert read_note(text) is None


@pytest.mark.parametrize("length", range(0, len(NOTE), 7))
def test_half_a_note_is_none(length: int):
    assert read_note(NOTE[:length]) is None


def test_fields_that_a_newer_agent_added_are_passed_over():
    data = json.loads(NOTE)
    data["new"] = 1
    data["devices"]["a"]["new"] = [1]
    assert read(json.dumps(data)) == read(NOTE)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["owner", "boot", "ids", "devices", "a"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON, st.booleans())
def test_any_json_is_a_note_or_none(data, versioned):
    if versioned and isinstance(data, dict):
        data = {**data, "version": 1}
    found = read_note(json.dumps(data))
    assert found is None or all(of.device in found.devices for of in found.ids.values())
