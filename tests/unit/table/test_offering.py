"""Hardware in use under one name or id is offered under no other one, and never more often than it has replicas."""

import pytest
from device_agent.contract.document import Ownership
from device_agent.runtime.errors import UnavailableDevice
from device_agent.select.unit import Excluded
from device_agent.table.snapshot import DeviceState, Health
from unit.table.samples import NAME, OTHER, Steps, held, resource, unit

# Replicas


def test_raising_replicas_keeps_the_ids_there_are():
    steps = Steps()
    steps.scan(unit("a", replicas=2))
    assert steps.scan(unit("a", replicas=3)) == {NAME}
    assert steps.seen() == {"a": True, "a::1": True, "a::2": True}


def test_lowering_replicas_keeps_surplus_ids_unhealthy_until_they_are_free():
    steps = Steps()
    steps.scan(unit("a", replicas=3))
    steps.list(held("a", "a::2"))
    steps.scan(unit("a", replicas=2))
    assert steps.send() == {"a": True, "a::1": False, "a::2": False}
    assert steps.device("a").health is Health.HEALTHY
    steps.list(held("a", "a::2"))
    assert steps.settle(held("a")) == {NAME}
    assert steps.seen() == {"a": True, "a::1": True}


def test_a_free_surplus_id_is_not_given_out():
    steps = Steps()
    steps.scan(unit("a", replicas=2))
    steps.list({})
    steps.scan(unit("a", replicas=1))
    with pytest.raises(UnavailableDevice, match="a::1"):
        steps.table.units_of(NAME, ["a::1"])


def test_a_device_fully_used_by_former_replicas_offers_none():
    steps = Steps()
    steps.scan(unit("a", replicas=3))
    steps.list(held("a::1", "a::2"))
    steps.scan(unit("a", replicas=1))
    assert steps.send() == {"a": False, "a::1": False, "a::2": False}
    state = steps.device("a")
    assert (state.health, state.withheld) == (Health.HEALTHY, "HeldAs")
    with pytest.raises(UnavailableDevice, match="HeldAs"):
        steps.table.units_of(NAME, ["a"])
    steps.settle(held("a::1"))
    assert steps.seen() == {"a": False, "a::1": False}
    steps.settle()
    assert steps.seen() == {"a": True}


def test_before_the_first_list_a_device_with_fewer_replicas_offers_none():
    steps = Steps()
    steps.scan(unit("a", replicas=2))
    steps.allocate("a::1")
    steps.scan(unit("a", replicas=1))
    assert steps.seen() == {"a": False, "a::1": False}
    steps.list(held("a::1"))
    assert steps.seen() == {"a": False, "a::1": False}


def test_ids_in_use_stay_healthy_while_surplus_ids_withhold_the_free_ones():
    steps = Steps()
    steps.scan(unit("a", replicas=4))
    steps.list(held("a", "a::2", "a::3"))
    steps.scan(unit("a", replicas=2))
    assert steps.seen() == {"a": True, "a::1": False, "a::2": False, "a::3": False}
    for i in ("a", "a::1", "a::2"):  # a may be free again by now, but not the others
        with pytest.raises(UnavailableDevice, match="HeldAs"):
            steps.table.units_of(NAME, [i])
    steps.settle(held("a", "a::2"))
    assert steps.table.units_of(NAME, ["a"])
    with pytest.raises(UnavailableDevice, match="HeldAs"):
        steps.table.units_of(NAME, ["a", "a::1"])


def test_an_id_that_no_list_shows_does_not_stay_healthy():
    steps = Steps()
    steps.scan(unit("a", replicas=2))
    steps.list(held("a::1"))
    steps.allocate("a")
    steps.scan(unit("a", replicas=1))
    assert steps.seen() == {"a": True, "a::1": False}
    steps.list(held("a::1"))
    assert steps.seen() == {"a": False, "a::1": False}


def test_surplus_ids_from_before_a_restart_are_recognised():
    steps = Steps()
    steps.list(held("a::1"))
    steps.scan(unit("a", replicas=1))
    assert steps.seen() == {"a": False, "a::1": False}
    assert steps.device("a").withheld == "HeldAs"
    assert len(steps.table.snapshot().resources[0].devices) == 1


# Names and identities that change


@pytest.mark.parametrize(
    "new",
    [
        unit("a", name=OTHER),
        unit("by-group", name=OTHER, hardware="devices/a"),
        unit("child", name=OTHER, source="sysfs", hardware="devices/a/net/eth0"),
        unit("parent", name=OTHER, source="sysfs", hardware="devices"),
    ],
    ids=["same id", "another id", "part of it", "it is part of that"],
)
def test_hardware_in_use_under_a_former_name_is_not_offered_under_the_new_one(new):
    steps = Steps()
    steps.scan(unit("a"))
    steps.list(held("a"))
    steps.edit(resource(OTHER), units=(new,))
    assert steps.send(NAME) == {"a": False}
    assert True not in steps.send(OTHER).values()
    state = steps.device(new.id, name=OTHER)
    assert (state.health, state.withheld) == (Health.HEALTHY, "HeldAs")
    assert "a of example.com/dev by default/pod-a" in state.text
    assert steps.device("a").withheld == "Draining"
    assert steps.settle() == {NAME, OTHER}
    assert steps.table.resources() == (OTHER,)
    assert steps.seen(OTHER) == {new.id: True}


def test_another_unit_of_the_same_entry_is_not_offered_while_the_former_id_is_in_use():
    steps = Steps()
    steps.scan(unit("0000:01:00.0", hardware="devices/a"))
    steps.list(held("0000:01:00.0"))
    steps.scan(unit("7", hardware="devices/a"))
    assert steps.send() == {"0000:01:00.0": False, "7": False}
    assert steps.device("7").withheld == "HeldAs"
    with pytest.raises(UnavailableDevice, match="in use as 0000:01"):  # the kubelet's list may be older
        steps.table.units_of(NAME, ["7"])
    steps.settle()
    assert steps.seen() == {"7": True}


def test_a_change_of_name_of_free_hardware_is_offered_at_once():
    steps = Steps()
    steps.scan(unit("0000:01:00.0", hardware="devices/a"))
    steps.list({})
    steps.scan(unit("7", hardware="devices/a"))
    assert steps.seen() == {"0000:01:00.0": False, "7": True}


def test_units_of_one_source_do_not_block_each_other():
    steps = Steps()
    disk, partition = unit("sda", hardware="devices/sda"), unit("sda1", hardware="devices/sda/sda1")
    steps.scan(disk, partition)
    steps.list(held("sda1"))
    steps.scan(disk)
    assert steps.seen() == {"sda": True, "sda1": False}


def test_an_observing_resource_neither_blocks_nor_is_blocked():
    watch = resource(OTHER, ownership=Ownership.NONE)
    steps = Steps(resource(), watch)
    exclusive, observed = unit("a"), unit("h-a", name=OTHER, hardware="devices/a")
    steps.scan(exclusive, observed)
    steps.list(held("a") | held("h-a", name=OTHER))
    steps.edit(watch, units=(observed,))
    assert steps.seen(OTHER) == {"h-a": True}
    steps.edit(resource(), units=(exclusive,))
    assert steps.seen() == {"a": True}


def test_one_id_is_listed_under_one_name_only():
    steps = Steps(resource(), resource(OTHER))
    steps.scan(unit("0", hardware="devices/a"), unit("0", name=OTHER, hardware="devices/b"))
    assert steps.send() == {"0": True}
    assert steps.table.resources() == (NAME,)
    assert steps.device("0", name=OTHER).reason == "DuplicateIdentity"
    assert steps.device("0", name=OTHER).ids == ()


def test_a_device_that_an_edit_excludes_says_so_while_it_is_held():
    steps = Steps()
    steps.scan(unit("a"), unit("b"))
    steps.list(held("b"))
    steps.scan(unit("a"), excluded=(Excluded(id="b", source="pci", entry=NAME, reason="MaxDevices"),))
    state = steps.device("b")
    assert (state.withheld, "MaxDevices" in state.text) == ("Draining", True)


# What is said of those that are gone


def test_a_held_device_that_no_scan_found_has_the_note_of_its_driver():
    steps = Steps()
    steps.list(held("GPU-a"))
    steps.scan(notes={NAME: "NVML hangs: nvmlInitWithFlags does not answer"})
    device = steps.device("GPU-a")
    assert (device.health, device.reason) == (Health.UNHEALTHY, "DriverUnavailable")
    assert device.text.endswith(": NVML hangs: nvmlInitWithFlags does not answer")
    assert steps.seen() == {"GPU-a": False}
    steps.scan()
    assert (steps.device("GPU-a").reason, "no scan has found it" in steps.device("GPU-a").text) == ("Missing", True)
    steps.scan(unit("GPU-a"))
    assert steps.seen() == {"GPU-a": True}


def _excluded_while(holders) -> DeviceState:
    """A device that its entry excludes while it has these holders."""
    steps = Steps()
    steps.scan(unit("a"))
    steps.list(holders)
    steps.scan(excluded=(Excluded("a", "pci", NAME, "MigEnabled", "", hardware="devices/a"),))
    return steps.device("a")


@pytest.mark.parametrize("holders", [held("a"), {}, None])
def test_a_device_that_is_excluded_now_drains_whoever_holds_it(holders):
    device = _excluded_while(holders)
    assert device.withheld == "Draining"
    assert "MigEnabled" in device.text


def test_the_message_of_a_draining_device_depends_on_its_holders():
    assert len({_excluded_while(holders).text for holders in (held("a"), {}, None)}) == 3


def test_a_device_that_is_excluded_while_its_driver_hangs_is_not_missing():
    steps = Steps()
    steps.scan(unit("GPU-a", source="nvml"))
    steps.list(held("GPU-a"))
    gone = Excluded("GPU-a", "nvml", NAME, "NotIncluded", "", hardware="devices/GPU-a")
    steps.scan(excluded=(gone,), notes={NAME: "NVML hangs"})
    assert steps.device("GPU-a").withheld == "Draining"


def test_a_missing_device_has_the_advice_of_its_source():
    steps = Steps()
    steps.scan(unit("GPU-a", source="nvml"), unit("b"))
    steps.list(held("GPU-a", "b"))
    steps.scan(vanished={"nvml": "ask the driver"})
    assert (steps.device("GPU-a").reason, steps.device("GPU-a").text) == ("Missing", "ask the driver")
    assert (steps.device("b").reason, steps.device("b").text) == ("Missing", "the last scan did not find it")
    steps.scan(vanished={"nvml": "ask the driver"}, notes={NAME: "the driver hangs"})
    assert steps.device("GPU-a").text == "the driver hangs"


def test_an_id_whose_device_is_used_up_by_former_replicas_is_not_preferred() -> None:
    """The kubelet learns before us that an id is free, and must not be led to a refusal while another device is free."""
    steps = Steps(resource())
    steps.scan(unit("a", replicas=2), unit("b", replicas=2))
    steps.list(held("a", "a::1"))
    steps.scan(unit("a"), unit("b"))
    free = ("a", "b")  # the pod with `a` has just ended
    assert steps.table.offered(NAME, free, at_least=1) == ["b"]
    assert steps.table.offered(NAME, free, at_least=2) == free
    with pytest.raises(UnavailableDevice):
        steps.table.units_of(NAME, ["a"])
