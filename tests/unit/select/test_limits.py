"""How many devices of an entry are offered, and which."""

import pytest
from device_agent.contract import names
from unit.select.finds import entry, file, ids, pci, reasons, selection, sims, sysfs


def test_an_id_belongs_to_one_resource_of_the_node():
    selected = selection(
        (entry("drm", "sysfs"), [[sysfs("card0", "devices/a/drm/card0", nodes=["/dev/dri/card0"])]]),
        (entry("sound", "sysfs"), [[sysfs("card0", "devices/b/sound/card0", nodes=["/dev/snd/c0"])]]),
    )
    assert ids(selected) == [("drm", "card0")]
    assert selected.excluded[0].reason == "DuplicateIdentity"
    assert "example.com/drm" in selected.excluded[0].message
    assert "such as path" in selected.excluded[0].message


@pytest.mark.parametrize("order", [1, -1])
def test_the_ids_of_replicas_belong_to_one_resource_too(order: int):
    pairs = [
        (entry("a", "sysfs", sharing={"replicas": 3}), [[sysfs("a")]]),
        (entry("b", "sysfs"), [[sysfs("a::2"), sysfs("a::3"), sysfs("a::x")]]),
    ]
    assert len(selection(*pairs[::order]).units) == 3
    assert list(reasons(selection(*pairs[::order])).values()) == ["DuplicateIdentity"]


def test_max_devices_offers_the_first_ids_and_later_entries_do_not_get_the_rest():
    nics = [pci(f"0000:00:0{i}.0") for i in range(4)]
    selected = selection((entry("nic", "pci", maxDevices=2), [nics]), (entry("rest", "pci"), [nics]))
    assert ids(selected) == [("nic", "0000:00:00.0"), ("nic", "0000:00:01.0")]
    assert reasons(selected)["nic", "0000:00:02.0"] == "MaxDevices"
    assert reasons(selected)["rest", "0000:00:02.0"] == "OwnedByEarlierEntry"


@pytest.mark.parametrize(
    ("held", "kept"),
    [
        ({"sim-00003"}, [0, 3]),
        ({"sim-00003::1"}, [0, 3]),
        ({"sim-00003::2"}, [0, 1]),
        ({"sim-00001", "sim-00002", "sim-00003"}, [1, 2, 3]),
    ],
)
def test_max_devices_never_replaces_a_held_device(held: set[str], kept: list[int]):
    fields = entry("x", "simulated", maxDevices=2, sharing={"replicas": 2})
    selected = selection((fields, [sims(4)]), held=frozenset(held))
    assert [int(u.attributes["index"]) for u in selected.units] == kept


def test_an_entry_gives_at_most_sixteen_names_the_first_in_order():
    selected = selection((entry("{index}", "simulated"), [sims(18)]))
    assert sorted(u.resource for u in selected.units) == sorted(f"example.com/{i}" for i in range(18))[:16]
    assert [e.reason for e in selected.excluded] == ["TooManyNames"] * 2
    message = selected.refused["example.com/{index}"]
    assert all(fact in message for fact in ("18 resource names", "at most 16", "example.com/8 and 1 more"))


def test_a_rendered_name_belongs_to_the_first_entry_that_has_it():
    selected = selection((entry("{name}", "sysfs"), [[sysfs("x")]]), (entry("x", "files"), [[file("/dev/y")]]))
    assert ids(selected) == [("x", "x")]
    assert reasons(selected) == {("x", "/dev/y"): "NameTaken"}
    assert "example.com/x" in selected.refused


@pytest.mark.parametrize(("count", "replicas", "fits"), [(20, 1000, True), (21, 1000, False), (3, 10_000, False)])
def test_more_ids_than_a_node_can_offer_are_refused_with_the_arithmetic(count: int, replicas: int, *, fits: bool):
    selected = selection((entry("x", "simulated", sharing={"replicas": replicas}), [sims(count)]))
    assert len(selected.units) == (count if fits else 0)
    assert [e.reason for e in selected.excluded] == ([] if fits else ["TooManyIds"] * count)
    if not fits:
        text = f"{count} devices x {replicas:,} replicas = {count * replicas:,} ids, a node can offer at most 20,000"
        assert text in selected.refused["example.com/x"]
    assert names.MAX_IDS == 20_000
