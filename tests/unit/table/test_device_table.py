"""The device table: what the kubelet and reports are told."""

import pytest
from device_agent.contract.document import Allocation, Sharing, TopologyHints
from device_agent.runtime.errors import UnavailableDevice, UnknownDevice
from device_agent.table.snapshot import Advertised, Health
from unit.table.samples import NAME, OTHER, Steps, document, held, resource, unit, wall


def test_found_devices_are_listed_by_id_and_replica_with_their_numa_node():
    steps = Steps()
    assert steps.scan(unit("b", numa_node=1), unit("a", replicas=2)) == {NAME}
    assert steps.table.resources() == (NAME,)
    assert steps.table.listed(NAME) == (
        Advertised("a", healthy=True, numa_node=None),
        Advertised("a::1", healthy=True, numa_node=None),
        Advertised("b", healthy=True, numa_node=1),
    )


def test_omitted_topology_hints_hide_the_numa_node_from_the_kubelet_alone():
    steps = Steps(resource(allocation=Allocation(topology_hints=TopologyHints.OMIT)))
    steps.scan(unit("a", numa_node=1))
    assert steps.table.listed(NAME)[0].numa_node is None
    assert steps.table.places(NAME)["a"].numa_node == 1


def test_an_equal_scan_changes_nothing():
    steps = Steps()
    steps.scan(unit("a"), unit("b"))
    assert steps.scan(unit("a"), unit("b")) == frozenset()
    assert steps.device("a").since == wall(1)


def test_a_problem_makes_only_its_device_unhealthy():
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


# Ghosts


def test_ids_that_are_held_at_start_and_not_found_are_listed_unhealthy_until_released():
    steps = Steps()
    steps.list(held("gone"))
    assert steps.table.resources() == ()  # nothing is said before the node was looked at
    assert steps.scan(unit("a")) == {NAME}
    assert steps.send() == {"a": True, "gone": False}
    assert steps.device("gone").reason == "Missing"
    steps.list(held("gone"))
    assert steps.settle() == {NAME}
    assert steps.seen() == {"a": True}


def test_a_ghost_becomes_the_device_that_a_scan_finds():
    steps = Steps()
    steps.scan(unit("a"))
    assert steps.list(held("b::1")) == {NAME}
    assert steps.seen() == {"a": True, "b::1": False}
    assert steps.scan(unit("a"), unit("b", replicas=2)) == {NAME}
    assert steps.seen() == {"a": True, "b": True, "b::1": True}


@pytest.mark.parametrize("device", ["x" * 63, "serial::7"])
def test_a_ghost_with_a_cut_id_is_recognised(device):
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


def test_held_ids_under_foreign_names_are_not_listed():
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


def test_an_id_that_is_held_under_a_name_of_a_placeholder_is_listed_with_the_first_device_of_that_name():
    steps = Steps(resource("example.com/{name}"))
    steps.scan()
    steps.list(held("gone", name="example.com/gpu-x"))
    assert steps.table.resources() == ()
    steps.scan(unit("a", name="example.com/gpu-x", entry="example.com/{name}"))
    assert steps.send("example.com/gpu-x") == {"a": True, "gone": False}


def test_ids_held_under_a_name_of_the_next_configuration_are_kept_by_its_first_selection():
    steps = Steps(resource())
    steps.list(held("a") | held("b", name=OTHER) | held("c", name="example.com/neither"))
    assert steps.table.held_ids() == {"a"}
    steps.table.configure(document(resource(OTHER)))
    assert steps.table.held_ids() == {"a", "b"}


# Allocation and reports


def test_units_of_answers_in_the_order_asked_for_and_gives_out_unhealthy_devices():
    steps = Steps()
    steps.scan(unit("a", replicas=2), unit("b", problem=("CompanionMissing", "x")))
    assert [(i, u.id) for i, u in steps.table.units_of(NAME, ["b", "a::1"])] == [("b", "b"), ("a::1", "a")]


def test_an_unknown_id_is_refused_with_its_name():
    steps = Steps()
    steps.scan(unit("a"), unit("b"))
    steps.scan(unit("a"))
    with pytest.raises(UnknownDevice, match=r"^example.com/dev: unknown device nix$"):
        steps.table.units_of(NAME, ["a", "nix"])
    with pytest.raises(UnknownDevice):
        steps.table.units_of("example.com/none", ["a"])
    with pytest.raises(UnavailableDevice, match=r"^example.com/dev: device b cannot be given out: Missing, .*$"):
        steps.table.units_of(NAME, ["b"])


def test_held_ids_have_devices_in_use_or_handed_out():
    steps = Steps()
    steps.list(held("b::1"))
    assert steps.table.held_ids() == {"b", "b::1"}  # even before the first scan
    steps.scan(unit("a"), unit("b", replicas=2), unit("c"))
    steps.allocate("c")
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
    assert (ours.name, ours.entry, len(ours.devices), ours.capacity, ours.allocated, ours.counts.healthy) == (
        NAME,
        NAME,
        2,
        4,
        2,
        1,
    )
    assert (other.name, other.devices, other.capacity, other.message) == (OTHER, (), 0, "too many ids")
    assert set(ours.devices[0].holders) == {"a", "a::1"}


def test_a_note_about_an_entry_is_reported_once():
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


def test_a_configuration_takes_effect_with_the_next_selection():
    steps = Steps()
    steps.scan(unit("a", numa_node=0))
    steps.table.configure(document(resource(allocation=Allocation(counts=(2,), topology_hints=TopologyHints.OMIT))))
    assert steps.table.entry(NAME).allocation.counts == ()
    assert steps.scan(unit("a", numa_node=0)) == {NAME}
    assert steps.table.entry(NAME).allocation.counts == (2,)
    assert steps.table.listed(NAME)[0].numa_node is None
