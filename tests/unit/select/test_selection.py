"""Which entry owns which find, and the reason for each one left out."""

from typing import Any

import pytest
from device_agent.select.found import FoundDevice
from unit.select.finds import entry, file, ids, pci, reasons, selection, sim, sysfs

INCLUDE = {"attribute": "numaNode", "values": ["0", "1*"]}


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


def test_a_later_entry_may_take_an_excluded_device():
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
def test_an_excluded_device_keeps_its_hardware_name(find: FoundDevice):
    before = selection((entry("camera", "sysfs"), [[find]]))
    exclude = [{"attribute": "name", "values": [find.name]}]
    after = selection((entry("camera", "sysfs", exclude=exclude), [[find]]))
    assert tuple(e.hardware for e in after.excluded) == before.units[0].hardware


def test_ownership_none_shows_devices_of_other_entries_under_its_own_ids():
    nics = [pci("0000:00:01.0")]
    watch = entry("watch", "pci", ownership="None")
    selected = selection((watch, [nics]), (entry("nic", "pci"), [nics]), (watch | {"name": "example.com/w2"}, [nics]))
    assert [u.resource for u in selected.units] == ["example.com/watch", "example.com/nic", "example.com/w2"]
    assert selected.units[1].id == "0000:00:01.0"
    assert len({u.id for u in selected.units}) == 3
    assert selected.excluded == ()


def test_a_device_that_two_sources_of_an_entry_find_is_offered_once():
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
def test_if_two_sources_find_one_device_the_first_describes_it(ownership: str):
    kvm = [sysfs("kvm", "devices/virtual/misc/kvm")], [file("/dev/kvm", place="devices/virtual/misc/kvm")]
    (unit,) = selection((entry("kvm", "sysfs", "files", ownership=ownership), kvm)).units
    assert (unit.source, unit.value) == ("sysfs", "kvm")


def test_nested_finds_are_separate_in_one_source_and_one_device_in_two_sources():
    disk, part = sysfs("sda", "devices/x/block/sda"), sysfs("sda1", "devices/x/block/sda/sda1")
    assert len(selection((entry("disk", "sysfs"), [[disk, part]])).units) == 2
    selected = selection((entry("disk", "sysfs", "sysfs"), [[disk], [part]]))
    assert ids(selected) == [("disk", "sda")]
    assert (
        selected.excluded[0].message == "it belongs to devices[0] of this entry, which selects the same hardware as sda"
    )


# IOMMU groups


def vfio_group(*members: FoundDevice, **fields: Any) -> Any:
    return selection((entry("gpu", "pci", **fields), [members]))


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
    selected = selection((entry("gpu", "pci"), [[GPU]]), members=[GPU, member])
    assert ids(selected) == [("gpu", "1")]


def test_a_member_with_a_host_driver_makes_its_group_not_viable():
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


def test_an_entry_owns_a_group_as_a_whole():
    free = pci("0000:01:00.1", group="1")
    selected = selection(
        (entry("gpu", "pci"), [[GPU]]),
        (entry("rest", "pci"), [[free]]),
        members=[GPU, free],
    )
    assert ids(selected) == [("gpu", "1")]
    assert reasons(selected) == {("rest", "0000:01:00.1"): "OwnedByEarlierEntry"}
    assert selected.units[0].hardware == (GPU.sysfs_path, free.sysfs_path)
    both = vfio_group(GPU, free)
    assert ids(both) == [("gpu", "1")]
    assert both.excluded == ()


def test_groups_that_share_the_vfio_container_are_separate_devices():
    other = pci("0000:02:00.0", driver="vfio-pci", group="2")
    selected = selection((entry("a", "pci"), [[GPU]]), (entry("b", "pci"), [[other]]))
    assert ids(selected) == [("a", "1"), ("b", "2")]


def test_a_function_on_vfio_without_a_group_is_left_out():
    selected = selection((entry("gpu", "pci"), [[pci("0000:01:00.0", driver="vfio-pci")]]))
    assert selected.excluded[0].reason == "MissingAttribute"
    assert "no IOMMU group" in selected.excluded[0].message
