"""An id is dropped only when it is free and the kubelet was told that it is Unhealthy."""

import pytest
from device_agent.contract.document import HealthRules, Match
from device_agent.runtime.errors import UnavailableDevice
from device_agent.select.unit import Excluded
from device_agent.table.snapshot import Health
from unit.table.samples import NAME, OTHER, Steps, document, held, resource, unit, wall


def vanished(*, send: bool = True) -> Steps:
    """Devices a and b, known to be free, and then only a is found."""
    steps = Steps()
    steps.scan(unit("a"), unit("b"))
    steps.list({})
    steps.scan(unit("a"))
    if send:
        steps.send()
    return steps


def test_a_vanished_device_is_listed_unhealthy_with_the_reason():
    steps = vanished()
    assert steps.seen() == {"a": True, "b": False}
    state = steps.device("b")
    assert (state.health, state.reason, state.since) == (Health.UNHEALTHY, "Missing", wall(3))


def test_it_is_dropped_by_the_first_list_that_was_begun_after_the_kubelet_was_told():
    steps = vanished()
    assert steps.list({}, begun=2.5) == frozenset()  # asked before the kubelet was told
    assert steps.list({}) == {NAME}
    assert steps.seen() == {"a": True}


def test_an_id_the_kubelet_was_not_told_about_is_not_dropped():
    steps = vanished(send=False)
    for _ in range(3):
        assert steps.list({}) == frozenset()
    assert steps.seen() == {"a": True, "b": False}


def test_a_held_device_stays_until_a_list_shows_it_free():
    steps = vanished()
    steps.list(held("b"))
    steps.list(held("b"))
    assert steps.seen() == {"a": True, "b": False}
    assert steps.device("b").holders["b"][0].pod == "pod-b"
    assert steps.settle() == {NAME}
    assert steps.seen() == {"a": True}


def test_without_an_answer_of_pod_resources_nothing_is_dropped_and_the_last_holders_are_kept():
    steps = Steps()
    steps.scan(unit("a"), unit("b"))
    steps.list(held("a"))
    steps.scan(unit("a"))
    steps.send()
    for _ in range(3):
        assert steps.list(None) == frozenset()
    snapshot = steps.table.snapshot()
    assert not snapshot.holders_known
    assert snapshot.resources[0].allocated == 1
    assert steps.list({}) == {NAME}
    assert steps.seen() == {"a": True}


def test_an_older_answer_that_arrives_late_frees_nothing():
    steps = vanished()
    steps.list(held("b"), begun=10)
    assert steps.list({}, begun=9) == frozenset()
    assert steps.seen() == {"a": True, "b": False}


def handed_out() -> Steps:
    """Device b was handed out and then vanished; the kubelet knows that it is Unhealthy."""
    steps = Steps()
    steps.scan(unit("a"), unit("b"))
    steps.list({})
    steps.allocate("b")
    steps.scan(unit("a"))
    steps.send()
    return steps


def test_an_id_handed_out_that_is_never_shown_goes_after_list_a_list_sent_and_the_record():
    steps = handed_out()
    assert steps.list({}) == frozenset()
    sent = steps.now = steps.now + 1
    steps.send()
    steps.now += 0.5
    assert steps.record(resent=sent) == frozenset()  # too early: an older record may have been written last
    assert steps.record(resent=sent) == {NAME}
    assert steps.seen() == {"a": True}


def test_time_alone_frees_no_id():
    steps = handed_out()
    for _ in range(3):
        steps.now += 100_000
        assert steps.list({}) == frozenset()
        assert steps.scan(unit("a")) == frozenset()
        assert steps.record(problem="torn") == frozenset()
    assert steps.seen() == {"a": True, "b": False}


def test_without_an_answer_of_pod_resources_an_id_handed_out_stays_whatever_the_record_lacks():
    steps = handed_out()
    for _ in range(3):
        assert steps.list(None) == frozenset()
        steps.send()
        sent, steps.now = steps.now, steps.now + 2
        assert steps.record(resent=sent) == frozenset()
    assert steps.seen() == {"a": True, "b": False}
    assert steps.settle() == {NAME}


def test_an_id_handed_out_is_free_as_soon_as_a_list_has_shown_it_and_a_later_one_has_not():
    steps = Steps()
    steps.scan(unit("a"), unit("b"))
    steps.list({})
    steps.allocate("b")
    steps.list(held("b"))
    steps.scan(unit("a"))
    steps.send()
    steps.scan(unit("a"))
    assert steps.settle() == {NAME}


def test_a_list_begun_before_the_hand_out_may_show_the_holder_before():
    steps = Steps()
    steps.scan(unit("a"))
    steps.list({})
    begun = steps.now + 0.5
    steps.allocate("a")
    steps.list(held("a"), begun=begun)  # of the pod that had it before
    steps.scan()
    steps.send()
    steps.scan()
    steps.list({})
    assert steps.seen() == {"a": False}


def test_a_refused_allocation_keeps_no_id():
    steps = vanished()
    with pytest.raises(UnavailableDevice):
        steps.table.units_of(NAME, ["b"])
    assert steps.list({}) == {NAME}


def test_a_device_that_returns_is_healthy_again_with_the_same_id():
    steps = vanished()
    assert steps.scan(unit("a"), unit("b")) == {NAME}
    assert steps.send() == {"a": True, "b": True}
    assert steps.list({}) == frozenset()
    steps.scan(unit("a"))  # and its next disappearance begins anew
    assert steps.list({}) == frozenset()
    assert steps.seen() == {"a": True, "b": False}


# Edits


def test_an_unused_resource_that_leaves_the_configuration_is_gone_at_once():
    steps = Steps(resource(), resource(OTHER))
    steps.scan(unit("a"), unit("b", name=OTHER))
    steps.list({})
    assert steps.edit(resource(), units=(unit("a"),)) == {OTHER}
    assert steps.table.resources() == (NAME,)
    assert steps.table.listed(OTHER) == ()
    assert steps.table.entry(OTHER).name == OTHER  # whoever still asks gets an answer


def test_a_used_resource_that_leaves_the_configuration_drains_and_goes_as_a_whole():
    steps = Steps(resource(), resource(OTHER))
    steps.scan(unit("a"), unit("b", name=OTHER), unit("c", name=OTHER))
    steps.list(held("b", name=OTHER))
    assert steps.edit(resource(), units=(unit("a"),)) == {OTHER}
    assert steps.send(OTHER) == {"b": False, "c": False}
    assert steps.device("b", name=OTHER).withheld == "Draining"
    assert steps.settle(held("b", name=OTHER)) == {OTHER}
    assert steps.seen(OTHER) == {"b": False}
    assert steps.settle() == {OTHER}
    assert steps.table.resources() == (NAME,)


def test_a_resource_that_leaves_the_configuration_drains_while_holders_are_unknown():
    steps = Steps(resource(), resource(OTHER))
    steps.scan(unit("a"), unit("b", name=OTHER))
    steps.edit(resource(), units=(unit("a"),))
    assert steps.seen(OTHER) == {"b": False}


def test_a_selection_of_the_former_configuration_cannot_bring_a_resource_back():
    steps = Steps(resource(), resource(OTHER))
    steps.scan(unit("a"), unit("b", name=OTHER))
    steps.list({})
    assert steps.edit(resource(), units=(unit("a"), unit("b", name=OTHER))) == {OTHER}


def test_a_device_of_several_finds_that_an_edit_excludes_goes_without_its_grace():
    """What is excluded is called by the find's name, and the device by what its finds have in common."""
    rules = HealthRules(removal_grace_seconds=60)
    steps = Steps(resource(health=rules))
    serial = unit("serial-7", hardware="devices/usb1/video4linux/video0")
    steps.scan(serial)
    steps.list({})
    out = Excluded("video0", "sysfs", NAME, "Excluded", "exclude[0]", hardware="devices/usb1/video4linux/video0")
    steps.table.configure(document(resource(health=rules, exclude=(Match("name", ("video0",)),))))
    steps.scan(excluded=(out,))
    assert (steps.device("serial-7").withheld, steps.send()) == ("Draining", {"serial-7": False})
    assert steps.list({}) == {NAME}
    assert steps.seen() == {}
