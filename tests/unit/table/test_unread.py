"""A device that a scan cannot read stays as it is: Unknown, offered as before, and nobody else gets its hardware."""

from dataclasses import replace

import pytest
from device_agent.contract.document import DeviceEntry, HealthRules, Match, Ownership, PciSource
from device_agent.contract.reasons import DeviceReason, ExclusionReason
from device_agent.select.unit import Excluded
from device_agent.table.snapshot import Health
from unit.table.samples import NAME, OTHER, Steps, held, resource, unit

WHY = "/sys/devices/b/state: reading it does not return"


def unreadable(device: str, *, name: str = NAME, hardware: str | None = None) -> Excluded:
    path = hardware or f"devices/{device}"
    return Excluded(id=device, source="pci", entry=name, reason=ExclusionReason.UNREADABLE, message=WHY, hardware=path)


def silent(steps: Steps, device: str, name: str = NAME) -> bool:
    state = steps.device(device, name=name)
    assert bool(state.unanswered) == (state.reason == DeviceReason.NO_ANSWER)
    return bool(state.unanswered)


def test_a_device_that_cannot_be_read_is_unknown_and_offered_until_it_can_be_read():
    steps = Steps()
    steps.scan(unit("a"), unit("b"))
    steps.scan(unit("a"), excluded=(unreadable("b"),))
    assert steps.seen() == {"a": True, "b": True}
    assert (silent(steps, "a"), silent(steps, "b")) == (False, True)
    assert WHY in steps.device("b").message
    steps.scan(unit("a"), unit("b"))
    assert steps.seen() == {"a": True, "b": True}
    assert not silent(steps, "b")


def test_an_unhealthy_device_that_cannot_be_read_stays_unhealthy():
    steps = Steps(resource(health=HealthRules(unhealthy_when=(Match("name", ("b",)),), failure_threshold=1)))
    steps.scan(unit("b", unfit="state is dead"))
    steps.scan(excluded=(unreadable("b"),))
    state = steps.device("b")
    assert (state.health, state.reason) == (Health.UNHEALTHY, DeviceReason.UNHEALTHY_WHEN)
    assert WHY in state.message


def test_a_device_that_was_unread_and_then_is_gone_is_missing():
    steps = Steps()
    steps.scan(unit("b"))
    steps.list(held("b"))
    steps.scan(excluded=(unreadable("b"),))
    steps.scan()
    state = steps.device("b")
    assert (state.health, state.reason, state.unanswered) == (Health.UNHEALTHY, DeviceReason.MISSING, "")


def test_a_new_device_that_cannot_be_read_is_not_offered():
    steps = Steps()
    steps.scan(unit("a"), excluded=(unreadable("b"),))
    assert steps.seen() == {"a": True}


def test_no_other_entry_gets_the_hardware_of_a_device_that_cannot_be_read():
    steps = Steps(resource(), resource(OTHER))
    other = unit("b-2", name=OTHER, hardware="devices/b")
    steps.scan(unit("b"))
    steps.scan(other, excluded=(unreadable("b"),))
    assert (steps.seen(), steps.seen(OTHER)) == ({"b": True}, {})
    steps.scan(other)
    steps.settle()
    assert (steps.seen(), steps.seen(OTHER)) == ({"b": False}, {"b-2": True})


def test_an_entry_that_observes_goes_on_beside_it():
    steps = Steps(resource(), resource(OTHER, ownership=Ownership.NONE))
    steps.scan(unit("b"))
    steps.scan(unit("b-2", name=OTHER, hardware="devices/b"), excluded=(unreadable("b"),))
    assert (steps.seen(), steps.seen(OTHER)) == ({"b": True}, {"b-2": True})


def test_a_device_of_several_parts_is_unknown_when_one_of_them_cannot_be_read():
    steps = Steps()
    whole = unit("pair")
    both = ("devices/b", "devices/c")
    steps.scan(replace(whole, hardware=both))
    steps.scan(unit("pair", hardware="devices/c"), excluded=(unreadable("b"),))
    assert silent(steps, "pair")
    assert steps.device("pair").unit.hardware == both


@pytest.mark.parametrize(("source", "kept"), [("pci", True), ("usb", False)])
def test_devices_of_a_source_that_could_not_look_stay(source: str, *, kept: bool):
    steps = Steps()
    steps.scan(unit("a"), unit("b"))
    steps.scan(blind={(NAME, source): "/sys/bus/pci/devices: Input/output error"})
    assert steps.seen() == {"a": kept, "b": kept}
    if kept:
        assert silent(steps, "a")
        assert "/sys/bus/pci/devices" in steps.device("a").message


def test_an_entry_that_left_the_configuration_keeps_no_unread_device():
    steps = Steps(resource(), resource(OTHER))
    steps.scan(unit("b"))
    steps.edit(resource(OTHER), units=())
    steps.scan(excluded=(unreadable("b"),))
    assert not steps.seen().get("b")
    assert not silent(steps, "b")


def test_an_edit_that_no_longer_selects_it_takes_the_device_away():
    steps = Steps(resource())
    steps.scan(unit("b"))
    steps.edit(replace(resource(), devices=(DeviceEntry(pci=PciSource(ids=("8086:1521",))),)), units=())
    assert not steps.seen().get("b")
    assert not silent(steps, "b")


def test_after_a_restart_a_held_device_that_cannot_be_read_says_so():
    steps = Steps()
    steps.list(held("b"))
    steps.scan(excluded=(unreadable("b"),))
    state = steps.device("b")
    assert (state.health, state.reason) == (Health.UNHEALTHY, DeviceReason.NO_ANSWER)
    assert WHY in state.message
