"""An edit that takes a device away drains it at once and names the field; hardware that is gone is Missing."""

import pytest
from device_agent.contract.document import (
    DeviceEntry,
    FilesSource,
    HealthRules,
    Match,
    NvmlKind,
    NvmlSource,
    PciSource,
    Resource,
    SimulatedSource,
    SysfsSource,
)
from device_agent.select.unit import Unit
from device_agent.table.edits import no_longer_selected
from device_agent.table.snapshot import Health
from unit.table.samples import NAME, Steps, document, held, unit

GRACE = HealthRules(removal_grace_seconds=60)


def entry(**source) -> DeviceEntry:
    return DeviceEntry(**source)


def served(*entries: DeviceEntry) -> Resource:
    return Resource(name=NAME, devices=entries, health=GRACE)


NARROWED = [
    ("pci", {"addresses": ("0000:*",)}, {"addresses": ("0000:01:*",)}, PciSource, "devices[0].pci.addresses"),
    ("pci", {}, {"drivers": ("vfio-pci",)}, PciSource, "devices[0].pci.drivers"),
    ("sysfs", {"subsystem": "tty"}, {"subsystem": "tty", "names": ("ttyS*",)}, SysfsSource, "devices[0].sysfs.names"),
    ("files", {"paths": ("/dev/a*",)}, {"paths": ("/dev/b",)}, FilesSource, "devices[0].files.paths"),
    ("nvml", {"kind": NvmlKind.GPU}, {"kind": NvmlKind.MIG}, NvmlSource, "devices[0].nvml.kind"),
    ("simulated", {"count": 4}, {"count": 1}, SimulatedSource, "devices[0].simulated.count"),
    ("simulated", {"count": 4, "numa_nodes": 2}, {"count": 4}, SimulatedSource, "devices[0].simulated.numaNodes"),
]


@pytest.mark.parametrize(("kind", "before", "after", "source", "field"), NARROWED, ids=lambda v: str(v)[:40])
def test_a_held_device_drains_at_once_and_the_field_is_named(kind: str, before, after, source: type, field: str):
    one = unit("a", source=kind)
    steps = Steps(served(entry(**{kind: source(**before)})))
    steps.scan(one)
    steps.list(held("a"))
    steps.table.configure(document(served(entry(**{kind: source(**after)}))))
    steps.scan(still_there=frozenset(one.hardware))
    device = steps.device("a")
    assert (device.health, device.withheld) == (Health.HEALTHY, "Draining")
    assert f"{field} no longer selects it" in device.text
    assert steps.send() == {"a": False}
    steps.scan()  # it is unplugged later: the configuration does not want it anyhow
    assert steps.device("a").withheld == "Draining"
    steps.settle()
    steps.settle()
    assert steps.seen() == {}, "without the grace of a device that vanished"


def test_hardware_that_is_gone_is_missing_whatever_was_edited():
    steps = Steps(served(entry(pci=PciSource())))
    steps.scan(unit("a"))
    steps.list(held("a"))
    steps.table.configure(document(served(entry(pci=PciSource(addresses=("0000:01:*",))))))
    steps.scan(still_there=frozenset())
    device = steps.device("a")
    assert (device.health, device.reason, device.withheld) == (Health.UNHEALTHY, "Missing", "")


def test_without_an_edit_a_device_that_its_source_no_longer_finds_is_missing():
    """Its driver was unbound, for example."""
    steps = Steps(served(entry(pci=PciSource(drivers=("vfio-pci",)))))
    steps.scan(unit("a"))
    steps.list(held("a"))
    steps.scan(still_there=frozenset({"devices/a"}))
    assert steps.device("a").reason == "Missing"


def test_a_device_that_comes_back_has_no_edit_on_its_record():
    wide, narrow = served(entry(pci=PciSource())), served(entry(pci=PciSource(addresses=("0000:01:*",))))
    steps = Steps(wide)
    steps.scan(unit("a"))
    steps.list(held("a"))
    steps.table.configure(document(narrow))
    steps.scan(still_there=frozenset({"devices/a"}))
    steps.table.configure(document(wide))
    steps.scan(unit("a"))
    assert steps.device("a").offered
    steps.scan(still_there=frozenset({"devices/a"}))
    assert steps.device("a").reason == "Missing"


def test_after_a_restart_a_held_device_that_is_there_and_not_selected_drains():
    before = Steps(served(entry(pci=PciSource())))
    before.scan(unit("a"))
    grant = before.grant("a")
    steps = Steps(served(entry(pci=PciSource(addresses=("0000:01:*",)))))
    steps.record(grant)
    steps.scan(still_there=frozenset({"devices/a"}))
    assert steps.device("a").withheld == "Draining"
    steps.scan(still_there=frozenset())
    assert steps.device("a").reason == "Missing"


def test_a_resource_that_left_is_named():
    steps = Steps(served(entry(pci=PciSource())))
    steps.scan(unit("a"))
    steps.list(held("a"))
    steps.table.configure(document(Resource(name="example.com/new", devices=(entry(pci=PciSource()),))))
    steps.scan()
    assert steps.device("a").withheld == "Draining"
    assert NAME in steps.device("a").text


def test_eight_devices_that_are_renamed_while_three_are_held_are_all_healthy():
    new = "example.com/new"
    steps = Steps(served(entry(sysfs=SysfsSource("block"))))
    steps.scan(*(unit(f"loop{n}", source="sysfs") for n in range(8)))
    steps.list(held("loop0", "loop1", "loop2"))
    steps.table.configure(document(Resource(name=new, devices=(entry(sysfs=SysfsSource("block")),))))
    steps.scan(*(unit(f"loop{n}", name=new, source="sysfs") for n in range(8)))
    steps.list(held("loop0", "loop1", "loop2"))
    for _ in range(2):  # the former ids of the others go when the kubelet has heard that they are not offered
        steps.settle(held("loop0", "loop1", "loop2"))
    told = [device for state in steps.table.snapshot().resources for device in state.devices]
    assert {device.health for device in told} == {Health.HEALTHY}
    assert sum(device.withheld == "HeldAs" for device in told if device.unit.resource == new) == 3
    assert [device.withheld for device in told if device.unit.resource == NAME] == ["Draining"] * 3
    assert sum(steps.seen(new).values()) == 5


ANY: Unit = unit("a")


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ((PciSource(),), (), "devices[0]"),
        ((PciSource(), PciSource(ids=("1:*",))), (PciSource(), PciSource(ids=("2:*",))), "devices[1].pci.ids"),
        (
            (PciSource(),),
            (PciSource(ids=("1:*",), classes=("02*",)),),
            "devices[0].pci.ids or devices[0].pci.classes",
        ),
    ],
)
def test_every_edited_field_of_its_source_is_named(before, after, words: str):
    text = no_longer_selected(ANY, [entry(pci=s) for s in before], [entry(pci=s) for s in after])
    assert text == f"{words} no longer selects it"


def test_other_sources_of_the_entry_are_not_named():
    before = [entry(sysfs=SysfsSource("tty")), entry(pci=PciSource())]
    after = [entry(sysfs=SysfsSource("tty", ("ttyS*",))), entry(files=FilesSource(("/dev/a",)))]
    assert no_longer_selected(ANY, before, after) == "devices[1] no longer selects it"
    include = [entry(pci=PciSource(), include=(Match("driver", ("x",)),))]
    assert no_longer_selected(ANY, [entry(pci=PciSource())], include) == "devices no longer selects it"
