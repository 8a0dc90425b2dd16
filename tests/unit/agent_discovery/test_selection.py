"""Who owns what, what one device is, and the reason for each one left out."""

from typing import Any

import pytest
from device_agent.contract import names
from device_agent.discovery.found import FoundDevice
from device_agent.units import Identity
from unit.agent_discovery.finds import entry, file, ids, pci, reasons, selection, sysfs

INCLUDE = {"attribute": "numaNode", "values": ["0", "1*"]}


def sim(index: int, **fields: Any) -> FoundDevice:
    name = f"sim-{index:05}"
    return FoundDevice("simulated", name, None, {"name": name, "index": str(index)}, **fields)


def test_include_must_match_in_full_and_an_absent_attribute_never_does():
    nics = [
        pci(f"0000:00:0{i}.0", numaNode=n) if n else pci(f"0000:00:0{i}.0") for i, n in enumerate(["0", "2", "", "12"])
    ]
    fields = entry("nic", "pci")
    fields["devices"] = [{"pci": {}, "include": [INCLUDE, {"attribute": "pci.class", "values": ["02*"]}]}]
    selected = selection((fields, [nics]))
    assert [u.id for u in selected.units] == ["0000:00:00.0", "0000:00:03.0"]
    assert {e.id: (e.reason, e.message) for e in selected.excluded} == {
        "0000:00:01.0": ("NotIncluded", "devices[0].include[0]: numaNode is '2', not 0 or 1*"),
        "0000:00:02.0": ("NotIncluded", "devices[0].include[0]: numaNode is absent"),
    }


def test_what_an_entry_excludes_a_later_one_may_take():
    nics = [pci("0000:00:01.0", driver="a"), pci("0000:00:02.0", driver="b")]
    first = entry("first", "pci", exclude=[{"attribute": "driver", "values": ["x", "b"]}])
    selected = selection((first, [nics]), (entry("rest", "pci"), [nics]))
    assert ids(selected) == [("first", "0000:00:01.0"), ("rest", "0000:00:02.0")]
    assert reasons(selected) == {
        ("first", "0000:00:02.0"): "Excluded",
        ("rest", "0000:00:01.0"): "OwnedByEarlierEntry",
    }
    assert selected.excluded[0].message == "exclude[0]: driver is 'b'"


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (pci("0000:00:02.0"), sysfs("vda", "devices/pci0000:00/0000:00:02.0/virtio1/block/vda"), True),
        (sysfs("vda", "devices/pci0000:00/0000:00:02.0/virtio1/block/vda"), pci("0000:00:02.0"), True),
        (sysfs("kvm", "devices/virtual/misc/kvm"), file("/dev/kvm", place="devices/virtual/misc/kvm"), True),
        (pci("0000:00:02.0"), sysfs("a", "devices/pci0000:00/0000:00:02.01/a"), False),
        (file("/dev/snd", nodes=["/dev/snd/pcm0", "/dev/snd/pcm1"]), file("/dev/snd/pcm1"), True),
        (file("/dev/a"), file("/dev/b"), False),
    ],
)
def test_the_same_hardware_is_offered_once_whichever_source_finds_it(
    first: FoundDevice, second: FoundDevice, *, same: bool
):
    selected = selection((entry("one", first.source), [[first]]), (entry("two", second.source), [[second]]))
    assert len(selected.units) == (1 if same else 2)
    if same:
        assert selected.excluded[0].reason == "OwnedByEarlierEntry"
        assert "example.com/one" in selected.excluded[0].message


@pytest.mark.parametrize("find", [sysfs("video0", usb__port="1-4"), sim(3)], ids=["in sysfs", "nowhere"])
def test_what_is_left_out_is_of_the_hardware_that_its_device_was_of(find: FoundDevice):
    before = selection((entry("camera", "sysfs"), [[find]]))
    exclude = [{"attribute": "name", "values": [find.name]}]
    after = selection((entry("camera", "sysfs", exclude=exclude), [[find]]))
    assert tuple(e.hardware for e in after.excluded) == before.units[0].hardware


def test_ownership_none_observes_what_others_own_under_ids_of_its_own():
    nics = [pci("0000:00:01.0")]
    watch = entry("watch", "pci", ownership="None")
    selected = selection((watch, [nics]), (entry("nic", "pci"), [nics]), (watch | {"name": "example.com/w2"}, [nics]))
    assert [u.resource for u in selected.units] == ["example.com/watch", "example.com/nic", "example.com/w2"]
    assert selected.units[1].id == "0000:00:01.0"
    assert len({u.id for u in selected.units}) == 3
    assert selected.excluded == ()


def test_two_sources_of_one_entry_that_find_one_device_offer_it_once_and_without_complaint():
    kvm = (
        [sysfs("kvm", "devices/virtual/misc/kvm", nodes=["/dev/kvm"])],
        [file("/dev/kvm", place="devices/virtual/misc/kvm")],
    )
    fields = entry("kvm", "sysfs", "files")
    fields["devices"][0] = {**fields["devices"][0], "include": [{"attribute": "name", "values": ["other"]}]}
    selected = selection((fields, kvm))
    assert [u.source for u in selected.units] == ["files"]
    assert selected.excluded == ()


@pytest.mark.parametrize("ownership", ["Exclusive", "None"])
def test_of_two_sources_that_find_one_device_the_first_describes_it(ownership: str):
    kvm = [sysfs("kvm", "devices/virtual/misc/kvm")], [file("/dev/kvm", place="devices/virtual/misc/kvm")]
    (unit,) = selection((entry("kvm", "sysfs", "files", ownership=ownership), kvm)).units
    assert (unit.source, unit.value) == ("sysfs", "kvm")


def test_nested_finds_of_one_source_are_devices_of_their_own_and_of_two_sources_one():
    disk, part = sysfs("sda", "devices/x/block/sda"), sysfs("sda1", "devices/x/block/sda/sda1")
    assert len(selection((entry("disk", "sysfs"), [[disk, part]])).units) == 2
    selected = selection((entry("disk", "sysfs", "sysfs"), [[disk], [part]]))
    assert ids(selected) == [("disk", "sda")]
    assert (
        selected.excluded[0].message == "it belongs to devices[0] of this entry, which selects the same hardware as sda"
    )


@pytest.mark.parametrize(
    ("find", "value", "identity"),
    [
        (pci("0000:00:01.0"), "0000:00:01.0", Identity.STABLE),
        (pci("0000:00:01.0", driver="vfio-pci", group="7"), "7", Identity.VOLATILE),
        (sysfs("video0"), "video0", Identity.VOLATILE),
        (file("/dev/kvm"), "/dev/kvm", Identity.VOLATILE),
        (sim(3), "sim-00003", Identity.STABLE),
    ],
)
def test_each_source_has_a_unit_of_its_own_by_default(find: FoundDevice, value: str, identity: Identity):
    (unit,) = selection((entry("x", find.source), [[find]])).units
    assert (unit.value, unit.id, unit.identity) == (value, value, identity)


def test_devices_that_agree_on_the_unit_are_one_with_all_nodes_and_the_problem_of_any():
    parts = [
        sysfs("video0", nodes=["/dev/video0"], usb__port="1-4", usb__vendor="046d"),
        sysfs("video1", nodes=["/dev/video1"], usb__port="1-4", usb__vendor="046d"),
        sysfs("video2", nodes=["/dev/video2"], usb__port="1-5"),
    ]
    broken = FoundDevice(
        "sysfs",
        "media0",
        "devices/m",
        {"name": "media0", "usb.port": "1-4"},
        problem=("DeviceNodeMissing", "gone"),
        numa_node=1,
    )
    selected = selection((entry("camera", "sysfs", "sysfs", unit="usb.port"), [parts, [broken]]))
    assert [u.id for u in selected.units] == ["1-4", "1-5"]
    camera = selected.units[0]
    assert camera.nodes == ("/dev/video0", "/dev/video1")
    assert camera.problem == ("DeviceNodeMissing", "media0: gone")
    assert camera.attributes["usb.vendor"] == "046d"
    assert camera.attributes["name"] == "video0,video1,media0"
    assert camera.hardware == ("devices/m", "devices/virtual/tty/video0", "devices/virtual/tty/video1")
    assert camera.numa_node == 1
    assert camera.identity is Identity.STABLE


def test_unit_node_makes_one_device_of_all_with_an_id_of_the_entry():
    selected = selection(
        (entry("all", "pci", unit="node"), [[pci("0000:00:01.0"), pci("0000:00:02.0")]]),
        (entry("files", "files", unit="node"), [[file("/dev/a"), file("/dev/b")]]),
    )
    assert ids(selected) == [("all", "example.com/all"), ("files", "example.com/files")]
    assert len(selected.units[0].hardware) == 2


def test_a_device_without_the_units_attribute_is_left_out_with_one_that_it_has():
    selected = selection((entry("x", "sysfs", unit="usb.serial"), [[sysfs("a", usb__port="1-1"), sysfs("b")]]))
    assert [(e.reason, e.message) for e in selected.excluded] == [
        ("MissingAttribute", "unit: it has no usb.serial; use a unit that it has, such as usb.port"),
        ("MissingAttribute", "unit: it has no usb.serial; use a unit that it has, such as name"),
    ]


def test_two_adapters_with_one_serial_are_a_duplicate_and_two_nodes_of_one_adapter_are_not():
    ttys = [
        sysfs("ttyUSB10", usb__serial="A", usb__port="1-3"),
        sysfs("ttyUSB0", usb__serial="A", usb__port="1-2"),
        sysfs("ttyUSB1", usb__serial="A", usb__port="1-2"),
    ]
    selected = selection((entry("x", "sysfs", unit="usb.serial"), [ttys]))
    assert ids(selected) == [("x", "A")]
    assert len(selected.units[0].hardware) == 2
    assert [(e.id, e.reason, e.message) for e in selected.excluded] == [
        ("ttyUSB10", "DuplicateIdentity", "usb.serial is 'A', as of ttyUSB0: use unit: usb.port")
    ]


def test_a_default_unit_that_two_devices_share_is_a_duplicate_with_a_hint():
    cards = (
        [sysfs("card0", "devices/a/drm/card0")],
        [sysfs("card0", "devices/b/sound/card0", pci__address="0000:00:1f.3")],
    )
    selected = selection((entry("x", "sysfs", "sysfs"), cards))
    assert len(selected.units) == 1
    assert selected.excluded[0].reason == "DuplicateIdentity"
    assert selected.excluded[0].message.endswith("use unit: pci.address")


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


# IOMMU groups


def vfio_group(*members: FoundDevice, **fields: Any) -> Any:
    groups: dict[str, list[FoundDevice]] = {}
    for member in members:
        groups.setdefault(member.attributes["iommuGroup"], []).append(member)
    chosen = [m for m in members if m.attributes.get("driver") != "unasked"]
    return selection((entry("gpu", "pci", **fields), [chosen]), groups=groups)


GPU = pci("0000:01:00.0", driver="vfio-pci", group="1", pci_class="030200")
AUDIO = pci("0000:01:00.1", driver="vfio-pci", group="1", pci_class="040300")


def test_a_group_on_vfio_is_one_device_with_its_node_once():
    (unit,) = vfio_group(GPU, AUDIO).units
    assert unit.id == "1"
    assert unit.nodes == ("/dev/vfio/1", "/dev/vfio/vfio")
    assert [n.host_path for n in unit.grants.nodes] == ["/dev/vfio/1", "/dev/vfio/vfio"]
    assert unit.hardware == (GPU.sysfs_path, AUDIO.sysfs_path)


@pytest.mark.parametrize(
    "member",
    [
        pci("0000:01:00.1", group="1"),
        pci("0000:01:00.1", group="1", driver="pci-stub"),
        pci("0000:01:00.1", group="1", driver="mlx5-vfio-pci"),
        pci("0000:00:01.0", group="1", driver="pcieport", pci_class="060400"),
        pci("0000:00:01.0", group="1", driver="shpchp", pci_class="060400"),
    ],
)
def test_members_without_host_driver_and_bridges_leave_a_group_viable(member: FoundDevice):
    selected = selection((entry("gpu", "pci"), [[GPU]]), groups={"1": [GPU, member]})
    assert ids(selected) == [("gpu", "1")]


def test_a_member_with_a_host_driver_leaves_the_group_out_and_itself_in():
    audio = pci("0000:01:00.1", driver="snd_hda_intel", group="1")
    selected = vfio_group(GPU, audio)
    assert ids(selected) == [("gpu", "0000:01:00.1")]
    assert [(e.id, e.reason, e.message) for e in selected.excluded] == [
        (
            "0000:01:00.0",
            "GroupNotViable",
            "IOMMU group 1 also holds 0000:01:00.1 (driver snd_hda_intel): bind all of the group to vfio-pci, or none",
        )
    ]


def test_a_unit_that_would_split_a_group_is_not_viable():
    selected = vfio_group(GPU, AUDIO, unit="pci.address")
    assert selected.units == ()
    assert {e.reason for e in selected.excluded} == {"GroupNotViable"}
    assert "use unit: iommuGroup" in selected.excluded[0].message
    assert ids(vfio_group(GPU, unit="pci.address")) == [("gpu", "0000:01:00.0")]
    assert ids(vfio_group(GPU, AUDIO, unit="node")) == [("gpu", "example.com/gpu")]


def test_a_group_is_owned_whole():
    free = pci("0000:01:00.1", group="1")
    selected = selection(
        (entry("gpu", "pci"), [[GPU]]),
        (entry("rest", "pci"), [[free]]),
        groups={"1": [GPU, free]},
    )
    assert ids(selected) == [("gpu", "1")]
    assert reasons(selected) == {("rest", "0000:01:00.1"): "OwnedByEarlierEntry"}
    assert selected.units[0].hardware == (GPU.sysfs_path, free.sysfs_path)
    both = vfio_group(GPU, free)
    assert ids(both) == [("gpu", "1")]
    assert both.excluded == ()


def test_groups_share_the_vfio_container_without_being_one_hardware():
    other = pci("0000:02:00.0", driver="vfio-pci", group="2")
    selected = selection(
        (entry("a", "pci"), [[GPU]]), (entry("b", "pci"), [[other]]), groups={"1": [GPU], "2": [other]}
    )
    assert ids(selected) == [("a", "1"), ("b", "2")]


def test_a_function_on_vfio_without_a_group_is_left_out():
    selected = selection((entry("gpu", "pci"), [[pci("0000:01:00.0", driver="vfio-pci")]]))
    assert selected.excluded[0].reason == "MissingAttribute"
    assert "no IOMMU group" in selected.excluded[0].message


# How many


def sims(count: int) -> list[FoundDevice]:
    return [sim(i) for i in range(count)]


def test_max_devices_takes_the_first_ids_and_keeps_the_rest_from_everybody():
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
def test_max_devices_never_exchanges_a_held_device(held: set[str], kept: list[int]):
    fields = entry("x", "simulated", maxDevices=2, sharing={"replicas": 2})
    selected = selection((fields, [sims(4)]), held=frozenset(held))
    assert [int(u.attributes["index"]) for u in selected.units] == kept


def test_names_are_rendered_and_made_valid():
    ttys = [
        sysfs("a", attr__profile="1g.5gb+me"),
        sysfs("b", attr__profile="!!"),
        sysfs("c"),
        sysfs("d", attr__profile="x" * 80),
    ]
    selected = selection((entry("mig-{attr.profile}", "sysfs"), [ttys]))
    assert selected.units[0].resource == "example.com/mig-1g.5gb.me"
    assert len(selected.units[2].resource.partition("/")[2]) == 63
    assert all(u.entry == "example.com/mig-{attr.profile}" for u in selected.units)
    assert [(e.id, e.reason) for e in selected.excluded] == [("c", "MissingAttribute")]
    nameless = selection((entry("{attr.profile}", "sysfs"), [ttys]))
    assert [(e.id, e.reason) for e in nameless.excluded] == [("b", "UnsafeValue"), ("c", "MissingAttribute")]


def test_an_entry_gives_at_most_sixteen_names_the_first_in_order():
    selected = selection((entry("{index}", "simulated"), [sims(18)]))
    assert sorted(u.resource for u in selected.units) == sorted(f"example.com/{i}" for i in range(18))[:16]
    assert [e.reason for e in selected.excluded] == ["TooManyNames"] * 2
    assert selected.refused == {
        "example.com/{index}": "18 resource names, at most 16 per entry and node: left out are example.com/8 and 1 more"
    }


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


def test_replicas_may_differ_per_device_and_the_first_match_counts():
    per = [
        {"match": {"attribute": "index", "values": ["1"]}, "replicas": 4},
        {"match": {"attribute": "name", "values": ["sim*1"]}, "replicas": 9},
        {"match": {"attribute": "index", "values": ["2"]}, "replicas": 1},
    ]
    selected = selection((entry("x", "simulated", sharing={"replicas": 2, "perDevice": per}), [sims(3)]))
    assert [u.replicas for u in selected.units] == [2, 4, 1]


def test_a_long_value_is_cut_in_the_id_and_kept_in_full():
    path = f"/dev/serial/by-id/{'x' * 80}"
    (unit,) = selection((entry("x", "files"), [[file(path)]])).units
    assert len(unit.id) == 63
    assert unit.value == path
