"""Which finds become one device, and its name."""

import dataclasses

import pytest
from device_agent.contract.inventory import Identity
from device_agent.select.found import FoundDevice
from unit.select.finds import entry, file, ids, pci, selection, sim, sims, sysfs


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


def test_finds_with_the_same_unit_are_one_device_with_all_nodes_and_any_problem():
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


def test_a_unit_has_the_own_nodes_of_all_its_finds_with_their_numbers():
    numbers = {"/dev/video0": "char/81:0", "/dev/video1": "char/81:1", "/dev/shared": "char/10:1"}
    parts = [
        dataclasses.replace(
            sysfs(f"video{n}", nodes=[f"/dev/video{n}", "/dev/shared"], usb__port="1-4"),
            shared_nodes=frozenset({"/dev/shared"}),
        )
        for n in range(3)
    ]
    (camera,) = selection(
        (entry("camera", "sysfs", unit="usb.port"), [parts]), number=lambda path: numbers.get(path, "")
    ).units
    assert camera.own_nodes == {"/dev/video0": "char/81:0", "/dev/video1": "char/81:1", "/dev/video2": ""}


def test_unit_node_makes_one_device_of_all_finds():
    selected = selection(
        (entry("all", "pci", unit="node"), [[pci("0000:00:01.0"), pci("0000:00:02.0")]]),
        (entry("files", "files", unit="node"), [[file("/dev/a"), file("/dev/b")]]),
    )
    assert ids(selected) == [("all", "example.com/all"), ("files", "example.com/files")]
    assert len(selected.units[0].hardware) == 2


def test_a_device_without_the_units_attribute_is_left_out_with_a_hint():
    selected = selection((entry("x", "sysfs", unit="usb.serial"), [[sysfs("a", usb__port="1-1"), sysfs("b")]]))
    assert [(e.reason, e.message) for e in selected.excluded] == [
        ("MissingAttribute", "unit: it has no usb.serial; use a unit that it has, such as usb.port"),
        ("MissingAttribute", "unit: it has no usb.serial; use a unit that it has, such as name"),
    ]


def test_two_adapters_with_one_serial_are_duplicates_but_two_nodes_of_one_adapter_are_not():
    ttys = [
        sysfs("ttyUSB10", usb__serial="A", usb__port="1-3"),
        sysfs("ttyUSB0", usb__serial="A", usb__port="1-2"),
        sysfs("ttyUSB1", usb__serial="A", usb__port="1-2"),
    ]
    selected = selection((entry("x", "sysfs", unit="usb.serial"), [ttys]))
    assert ids(selected) == [("x", "A")]
    assert len(selected.units[0].hardware) == 2
    (excluded,) = selected.excluded
    assert (excluded.id, excluded.reason) == ("ttyUSB10", "DuplicateIdentity")
    assert all(fact in excluded.message for fact in ("usb.serial is 'A'", "ttyUSB0", "use unit: usb.port"))


def test_a_default_unit_that_two_devices_share_is_a_duplicate_with_a_hint():
    cards = (
        [sysfs("card0", "devices/a/drm/card0")],
        [sysfs("card0", "devices/b/sound/card0", pci__address="0000:00:1f.3")],
    )
    selected = selection((entry("x", "sysfs", "sysfs"), cards))
    assert len(selected.units) == 1
    assert selected.excluded[0].reason == "DuplicateIdentity"
    assert selected.excluded[0].message.endswith("use unit: pci.address")


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
