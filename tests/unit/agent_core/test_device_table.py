"""The device table: what the kubelet is told, and that an id goes only when nobody can have it."""

import pytest
from device_agent.contract.document import Allocation, HealthRules, Match, Ownership, Sharing, TopologyHints
from device_agent.errors import UnavailableDevice, UnknownDevice
from device_agent.ledger import UNSEEN_SECONDS
from device_agent.snapshot import Advertised, Health
from device_agent.units import Excluded
from unit.agent_core.samples import NAME, OTHER, Steps, document, held, resource, unit, wall


def test_found_devices_are_listed_by_id_and_replica_with_their_numa_node():
    steps = Steps()
    assert steps.scan(unit("b", numa_node=1), unit("a", replicas=2)) == {NAME}
    assert steps.table.resources() == (NAME,)
    assert steps.table.advertised(NAME) == (
        Advertised("a", healthy=True, numa_node=None),
        Advertised("a::1", healthy=True, numa_node=None),
        Advertised("b", healthy=True, numa_node=1),
    )


def test_omitted_topology_hints_hide_the_numa_node_from_the_kubelet_alone():
    steps = Steps(resource(allocation=Allocation(topology_hints=TopologyHints.OMIT)))
    steps.scan(unit("a", numa_node=1))
    assert steps.table.advertised(NAME)[0].numa_node is None
    assert steps.table.places(NAME)["a"].numa_node == 1


def test_an_equal_scan_changes_nothing():
    steps = Steps()
    steps.scan(unit("a"), unit("b"))
    assert steps.scan(unit("a"), unit("b")) == frozenset()
    assert steps.device("a").since == wall(1)


def test_a_problem_makes_a_device_unhealthy_and_no_other_since_then():
    steps = Steps()
    steps.scan(unit("a"), unit("b"))
    broken = unit("a", problem=("CompanionMissing", "/dev/ctl is missing"))
    assert steps.scan(broken, unit("b")) == {NAME}
    assert steps.send() == {"a": False, "b": True}
    assert steps.scan(broken, unit("b")) == frozenset()
    state = steps.device("a")
    assert (state.health, state.reason, state.message) == (
        Health.UNHEALTHY,
        "CompanionMissing",
        "/dev/ctl is missing",
    )
    assert state.since == wall(2)
    assert steps.scan(unit("a"), unit("b")) == {NAME}
    assert (steps.device("a").health, steps.device("a").since) == (Health.HEALTHY, wall(4))


def test_a_new_message_of_the_same_reason_is_shown_without_a_new_since():
    steps = Steps()
    steps.scan(unit("a", problem=("CompanionMissing", "/dev/x is missing")))
    assert steps.scan(unit("a", problem=("CompanionMissing", "/dev/y is missing"))) == frozenset()
    assert (steps.device("a").message, steps.device("a").since) == ("/dev/y is missing", wall(1))


# Two steps


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


def test_what_the_kubelet_was_not_told_is_never_dropped():
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
    assert steps.list({}) == {NAME}
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


def test_an_allocation_in_flight_keeps_its_ids():
    steps = vanished()
    ticket = steps.table.allocation_begun(NAME, ["b"], now=steps.now)
    steps.list({})
    steps.list({})
    assert steps.seen() == {"a": True, "b": False}
    steps.table.allocation_ended(ticket, now=steps.now, handed_out=False)
    assert steps.list({}) == {NAME}


def test_an_id_handed_out_stays_for_an_hour_when_no_list_ever_shows_it():
    steps = Steps()
    steps.scan(unit("a"), unit("b"))
    steps.list({})
    steps.allocate("b")
    handed_out = steps.now
    steps.scan(unit("a"))
    steps.send()
    steps.list({})
    steps.now = handed_out + UNSEEN_SECONDS - 2
    steps.list({})
    assert steps.seen() == {"a": True, "b": False}
    steps.now += 2
    assert steps.list({}) == {NAME}


def test_an_hour_without_an_answer_does_not_make_an_id_free():
    steps = Steps()
    steps.scan(unit("a"))
    steps.list({})
    steps.allocate("a")
    steps.scan()
    steps.send()
    steps.now += 2 * UNSEEN_SECONDS
    steps.list(None)
    steps.scan()
    assert steps.seen() == {"a": False}


def test_an_id_handed_out_is_free_as_soon_as_a_list_has_shown_it_and_a_later_one_has_not():
    steps = Steps()
    steps.scan(unit("a"), unit("b"))
    steps.list({})
    steps.allocate("b")
    steps.list(held("b"))
    steps.scan(unit("a"))
    steps.send()
    steps.scan(unit("a"))
    assert steps.list({}) == {NAME}


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


def test_a_refused_allocation_keeps_nothing():
    steps = vanished()
    steps.allocate("b", granted=False)
    assert steps.list({}) == {NAME}


def test_a_device_that_returns_is_healthy_again_with_the_same_id():
    steps = vanished()
    assert steps.scan(unit("a"), unit("b")) == {NAME}
    assert steps.send() == {"a": True, "b": True}
    assert steps.list({}) == frozenset()
    steps.scan(unit("a"))  # and its next disappearance begins anew
    assert steps.list({}) == frozenset()
    assert steps.seen() == {"a": True, "b": False}


# Ghosts


def test_ids_that_are_held_at_start_and_not_found_are_listed_unhealthy_until_released():
    steps = Steps()
    steps.list(held("gone"))
    assert steps.table.resources() == ()  # nothing is said before the node was looked at
    assert steps.scan(unit("a")) == {NAME}
    assert steps.send() == {"a": True, "gone": False}
    assert steps.device("gone").reason == "Missing"
    steps.list(held("gone"))
    assert steps.list({}) == {NAME}
    assert steps.seen() == {"a": True}


def test_a_ghost_that_is_found_later_is_that_device():
    steps = Steps()
    steps.scan(unit("a"))
    assert steps.list(held("b::1")) == {NAME}
    assert steps.seen() == {"a": True, "b::1": False}
    assert steps.scan(unit("a"), unit("b", replicas=2)) == {NAME}
    assert steps.seen() == {"a": True, "b": True, "b::1": True}


@pytest.mark.parametrize("device", ["x" * 63, "serial::7"])
def test_a_ghost_whose_id_does_not_show_its_device_is_recognised_all_the_same(device):
    steps = Steps()
    steps.scan(unit("a"))
    found = unit(device, replicas=2)
    ids = ["serial::7"] if device == "serial::7" else [ids_of(found)[1]]
    steps.list(held(*ids))
    steps.scan(unit("a"), found)
    assert steps.seen() == {"a": True} | dict.fromkeys(ids_of(found), True)


def ids_of(found) -> list[str]:
    steps = Steps()
    steps.scan(found)
    return list(steps.seen())


def test_ids_under_foreign_names_are_none_of_ours():
    steps = Steps(resource(), resource("example.com/{name}"))
    steps.scan(unit("a"))
    assert steps.list(held("x", name="example.com/somebody-elses")) == frozenset()
    assert steps.table.resources() == (NAME,)
    assert not steps.table.ours("example.com/somebody-elses")


def test_a_name_that_a_placeholder_gave_is_ours_while_it_is_served():
    steps = Steps(resource("example.com/{name}"))
    name = "example.com/x"
    steps.list(held("x1", name=name))
    steps.scan(unit("x0", name=name, entry="example.com/{name}"))
    assert steps.seen(name) == {"x0": True, "x1": False}
    assert steps.table.entry(name).name == "example.com/{name}"
    assert steps.table.ours(name)


# Replicas


def test_an_id_that_is_held_under_a_name_of_a_placeholder_is_listed_with_the_first_device_of_that_name():
    steps = Steps(resource("example.com/{name}"))
    steps.scan()
    assert steps.table.could_serve("example.com/gpu-x")
    assert not steps.table.could_serve("example.org/gpu-x")
    steps.list(held("gone", name="example.com/gpu-x"))
    assert steps.table.resources() == ()
    steps.scan(unit("a", name="example.com/gpu-x", entry="example.com/{name}"))
    assert steps.send("example.com/gpu-x") == {"a": True, "gone": False}


def test_names_of_a_configuration_that_the_next_scan_brings_could_be_served():
    steps = Steps(resource())
    steps.table.configure(document(resource(OTHER)))
    assert steps.table.could_serve(NAME)
    assert steps.table.could_serve(OTHER)
    assert not steps.table.could_serve("example.com/neither")


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
    assert steps.list(held("a")) == {NAME}
    assert steps.seen() == {"a": True, "a::1": True}


def test_a_surplus_id_is_given_out_no_more_though_nobody_has_it():
    steps = Steps()
    steps.scan(unit("a", replicas=2))
    steps.list({})
    steps.scan(unit("a", replicas=1))
    with pytest.raises(UnavailableDevice, match="a::1"):
        steps.table.units_of(NAME, ["a::1"])


def test_a_device_whose_former_replicas_use_it_up_offers_none():
    steps = Steps()
    steps.scan(unit("a", replicas=3))
    steps.list(held("a::1", "a::2"))
    steps.scan(unit("a", replicas=1))
    assert steps.send() == {"a": False, "a::1": False, "a::2": False}
    state = steps.device("a")
    assert (state.health, state.reason) == (Health.UNHEALTHY, "HeldAs")
    with pytest.raises(UnavailableDevice, match="HeldAs"):
        steps.table.units_of(NAME, ["a"])
    steps.list(held("a::1"))
    assert steps.seen() == {"a": False, "a::1": False}
    steps.list({})
    assert steps.seen() == {"a": True}


def test_before_the_first_list_a_device_with_fewer_replicas_offers_none():
    steps = Steps()
    steps.scan(unit("a", replicas=2))
    steps.allocate("a::1")
    steps.scan(unit("a", replicas=1))
    assert steps.seen() == {"a": False, "a::1": False}
    steps.list(held("a::1"))
    assert steps.seen() == {"a": False, "a::1": False}


def test_ids_in_use_stay_healthy_while_surplus_ids_hold_the_rest_back():
    steps = Steps()
    steps.scan(unit("a", replicas=4))
    steps.list(held("a", "a::2", "a::3"))
    steps.scan(unit("a", replicas=2))
    assert steps.seen() == {"a": True, "a::1": False, "a::2": False, "a::3": False}
    for i in ("a", "a::1", "a::2"):  # a may be free again by now, but not the others
        with pytest.raises(UnavailableDevice, match="HeldAs"):
            steps.table.units_of(NAME, [i])
    steps.list(held("a", "a::2"))
    assert steps.table.units_of(NAME, ["a"])
    with pytest.raises(UnavailableDevice, match="HeldAs"):
        steps.table.units_of(NAME, ["a", "a::1"])


def test_an_id_that_no_list_showed_does_not_stay_healthy_for_its_holders_sake():
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
    assert steps.device("a").reason == "HeldAs"
    assert len(steps.table.snapshot().resources[0].devices) == 1


# Names and identities that change


def test_a_resource_that_leaves_the_configuration_unused_is_gone_at_once():
    steps = Steps(resource(), resource(OTHER))
    steps.scan(unit("a"), unit("b", name=OTHER))
    steps.list({})
    assert steps.edit(resource(), units=(unit("a"),)) == {OTHER}
    assert steps.table.resources() == (NAME,)
    assert steps.table.advertised(OTHER) == ()
    assert steps.table.entry(OTHER).name == OTHER  # whoever still asks gets an answer


def test_it_is_drained_while_an_id_of_it_is_in_use_and_goes_as_a_whole():
    steps = Steps(resource(), resource(OTHER))
    steps.scan(unit("a"), unit("b", name=OTHER), unit("c", name=OTHER))
    steps.list(held("b", name=OTHER))
    assert steps.edit(resource(), units=(unit("a"),)) == {OTHER}
    assert steps.send(OTHER) == {"b": False, "c": False}
    assert steps.device("b", name=OTHER).reason == "Draining"
    assert steps.list(held("b", name=OTHER)) == {OTHER}
    assert steps.seen(OTHER) == {"b": False}
    assert steps.list({}) == {OTHER}
    assert steps.table.resources() == (NAME,)


def test_it_is_drained_while_nobody_knows_who_holds_what():
    steps = Steps(resource(), resource(OTHER))
    steps.scan(unit("a"), unit("b", name=OTHER))
    steps.edit(resource(), units=(unit("a"),))
    assert steps.seen(OTHER) == {"b": False}


def test_a_selection_of_the_former_configuration_cannot_bring_a_resource_back():
    steps = Steps(resource(), resource(OTHER))
    steps.scan(unit("a"), unit("b", name=OTHER))
    steps.list({})
    assert steps.edit(resource(), units=(unit("a"), unit("b", name=OTHER))) == {OTHER}


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
    assert (state.health, state.reason) == (Health.UNHEALTHY, "HeldAs")
    assert "a of example.com/dev by default/pod-a" in state.message
    assert steps.device("a").reason == "Draining"
    assert steps.list({}) == {NAME, OTHER}
    assert steps.table.resources() == (OTHER,)
    assert steps.seen(OTHER) == {new.id: True}


def test_another_unit_of_the_same_entry_is_not_offered_while_the_former_id_is_in_use():
    steps = Steps()
    steps.scan(unit("0000:01:00.0", hardware="devices/a"))
    steps.list(held("0000:01:00.0"))
    steps.scan(unit("7", hardware="devices/a"))
    assert steps.send() == {"0000:01:00.0": False, "7": False}
    assert steps.device("7").reason == "HeldAs"
    with pytest.raises(UnavailableDevice, match="in use as 0000:01"):  # the kubelet's list may be older
        steps.table.units_of(NAME, ["7"])
    steps.list({})
    assert steps.seen() == {"7": True}


def test_a_change_of_name_of_free_hardware_is_offered_at_once():
    steps = Steps()
    steps.scan(unit("0000:01:00.0", hardware="devices/a"))
    steps.list({})
    steps.scan(unit("7", hardware="devices/a"))
    assert steps.seen() == {"0000:01:00.0": False, "7": True}


def test_finds_of_one_source_do_not_stand_in_each_others_way():
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
    assert (state.reason, "MaxDevices" in state.message) == ("Draining", True)


# Allocation and reports


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
    assert (steps.device("serial-7").reason, steps.send()) == ("Draining", {"serial-7": False})
    assert steps.list({}) == {NAME}
    assert steps.seen() == {}


def test_units_of_answers_in_the_order_asked_for_and_gives_out_unhealthy_devices():
    steps = Steps()
    steps.scan(unit("a", replicas=2), unit("b", problem=("CompanionMissing", "x")))
    assert [(i, u.id) for i, u in steps.table.units_of(NAME, ["b", "a::1"])] == [("b", "b"), ("a::1", "a")]


def test_an_id_that_is_not_there_is_refused_in_one_line_that_names_it():
    steps = vanished()
    with pytest.raises(UnknownDevice, match=r"^example.com/dev: unknown device nix$"):
        steps.table.units_of(NAME, ["a", "nix"])
    with pytest.raises(UnknownDevice):
        steps.table.units_of("example.com/none", ["a"])
    with pytest.raises(UnavailableDevice, match=r"^example.com/dev: device b cannot be given out: Missing, .*$"):
        steps.table.units_of(NAME, ["b"])


def test_held_ids_name_devices_in_use_or_on_their_way_there():
    steps = Steps()
    steps.list(held("b::1"))
    assert steps.table.held_ids() == {"b", "b::1"}  # even before the first scan
    steps.scan(unit("a"), unit("b", replicas=2), unit("c"))
    steps.allocate("c")
    ticket = steps.table.allocation_begun(NAME, ["a"], now=steps.now)
    assert steps.table.held_ids() == {"a", "b", "b::1", "c"}
    steps.table.allocation_ended(ticket, now=steps.now, handed_out=False)
    assert steps.table.held_ids() == {"b", "b::1", "c"}


def test_the_snapshot_counts_devices_and_ids():
    steps = Steps(resource(sharing=Sharing(replicas=2)), resource(OTHER), resource("example.com/{name}"))
    steps.scan(
        unit("a", replicas=2),
        unit("b", replicas=2, problem=("DeviceNodeMissing", "x")),
        refused={OTHER: "too many ids"},
    )
    steps.list(held("a", "a::1"))
    snapshot = steps.table.snapshot()
    assert snapshot.holders_known
    ours, other = snapshot.resources
    assert (ours.name, ours.entry, len(ours.devices), ours.capacity, ours.allocated, ours.healthy) == (
        NAME,
        NAME,
        2,
        4,
        2,
        1,
    )
    assert (other.name, other.devices, other.capacity, other.message) == (OTHER, (), 0, "too many ids")
    assert set(ours.devices[0].holders) == {"a", "a::1"}


def test_what_concerns_an_entry_is_told_once_and_not_on_each_of_its_resources():
    steps = Steps(resource("example.com/{name}"), resource(OTHER))
    units = [unit(f"{n}", name=f"example.com/{n}", entry="example.com/{name}") for n in range(3)]
    steps.scan(*units, refused={"example.com/{name}": "40 resource names", "example.com/2": "too many ids"})
    snapshot = steps.table.snapshot()
    assert {r.name: r.message for r in snapshot.resources} == {
        "example.com/0": "",
        "example.com/1": "",
        "example.com/2": "too many ids",
        OTHER: "",
    }
    assert snapshot.refused["example.com/{name}"] == "40 resource names"


def test_a_configuration_counts_from_the_next_selection_on():
    steps = Steps()
    steps.scan(unit("a", numa_node=0))
    steps.table.configure(document(resource(allocation=Allocation(counts=(2,), topology_hints=TopologyHints.OMIT))))
    assert steps.table.entry(NAME).allocation.counts == ()
    assert steps.scan(unit("a", numa_node=0)) == {NAME}
    assert steps.table.entry(NAME).allocation.counts == (2,)
    assert steps.table.advertised(NAME)[0].numa_node is None
