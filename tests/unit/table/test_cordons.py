"""What admins cordon is of the hardware: withheld under every name, until the cordon is gone."""

import pytest
from device_agent.contract.document import CordonRule, Document, Match, Ownership
from device_agent.contract.inventory import Identity, InventoryCordon
from device_agent.health.news import Look
from device_agent.table.cordons import Cordon, Cordons
from device_agent.table.snapshot import Health
from unit.health.gpus import Gpus, gpu
from unit.table.samples import NAME, OTHER, Steps, held, resource, unit, wall


def cordon(steps: Steps, *items: tuple[str, str]) -> frozenset[str]:
    steps.now += 1
    cordoned = [InventoryCordon(i, why) for i, why in items]
    return steps.table.apply_cordons(cordoned, now=steps.now, wall=wall(steps.now))


def learn(steps: Steps, *others: Cordon) -> frozenset[str]:
    steps.now += 1
    return steps.table.learn_cordons(others, now=steps.now, wall=wall(steps.now))


def restore(steps: Steps, *own: Cordon) -> frozenset[str]:
    steps.now += 1
    return steps.table.restore_cordons(own, now=steps.now, wall=wall(steps.now))


def test_a_cordoned_device_is_withheld_with_all_replicas_and_stays_healthy():
    steps = Steps()
    steps.scan(unit("a", replicas=2), unit("b"))
    steps.list(held("a"))
    assert cordon(steps, ("a", "recall")) == {NAME}
    assert steps.seen() == {"a": False, "a::1": False, "b": True}
    device = steps.device("a")
    assert (device.health, device.withheld, device.offered) == (Health.HEALTHY, "Cordoned", False)
    assert "recall" in device.text
    assert device.since == wall(steps.now)
    assert steps.table.snapshot().resources[0].counts.withheld == 1
    assert steps.table.units_of(NAME, ["a"]), "the kubelet chose it before it knew; a refusal would reject the pod"
    assert cordon(steps, ("a", "recall")) == frozenset()
    assert cordon(steps) == {NAME}
    assert steps.seen() == {"a": True, "a::1": True, "b": True}
    assert steps.device("a").since == wall(steps.now)


@pytest.mark.parametrize("name", ["a", "a::1", "value of a"])
def test_a_device_may_be_named_by_id_replica_or_value(name: str):
    steps = Steps()
    steps.scan(unit("a", value="value of a", replicas=2), unit("b"))
    cordon(steps, (name, ""))
    assert steps.seen() == {"a": False, "a::1": False, "b": True}


@pytest.mark.parametrize("cordoned", ["disk", "part"])
def test_what_shares_the_hardware_is_withheld_too(cordoned: str):
    disk = unit("disk", hardware="devices/sda")
    part = unit("part", hardware="devices/sda/sda1")
    observed = unit("seen", name=OTHER, source="sysfs", hardware="devices/sda")
    steps = Steps(resource(), resource(OTHER, ownership=Ownership.NONE))
    steps.scan(disk, part, unit("else", hardware="devices/sdb"), observed)
    cordon(steps, (cordoned, ""))
    assert steps.seen() == {"disk": False, "part": False, "else": True}
    assert steps.seen(OTHER) == {"seen": False}


def test_the_cordon_of_a_partition_leaves_its_neighbour():
    steps = Steps()
    steps.scan(unit("one", hardware="devices/sda/sda1"), unit("two", hardware="devices/sda/sda2"))
    cordon(steps, ("one", ""))
    assert steps.seen() == {"one": False, "two": True}


def test_a_cordon_follows_the_hardware_to_another_name_and_id():
    steps = Steps()
    steps.scan(unit("a", hardware="devices/x"))
    steps.list({})
    cordon(steps, ("a", "recall"))
    steps.edit(resource(OTHER), units=(unit("by-port", name=OTHER, hardware="devices/x"),))
    assert steps.seen(OTHER) == {"by-port": False}
    assert steps.device("by-port", name=OTHER).withheld == "Cordoned"
    assert steps.table.unknown_cordons().startswith("a: no device has this id now")
    assert cordon(steps) == {OTHER}


def test_the_id_of_a_stable_device_follows_it_to_another_place():
    steps = Steps()
    steps.scan(unit("serial", hardware="devices/slot1"))
    cordon(steps, ("serial", ""))
    steps.scan(unit("serial", hardware="devices/slot2"), unit("new", hardware="devices/slot1"))
    assert steps.seen() == {"serial": False, "new": True}


def test_a_volatile_id_that_came_to_another_device_keeps_the_cordon_at_its_hardware():
    steps = Steps()
    steps.scan(unit("tty0", identity=Identity.VOLATILE, hardware="devices/bad"))
    cordon(steps, ("tty0", ""))
    steps.scan(
        unit("tty1", identity=Identity.VOLATILE, hardware="devices/bad"),
        unit("tty0", identity=Identity.VOLATILE, hardware="devices/good"),
    )
    assert steps.seen() == {"tty0": True, "tty1": False}


def test_an_unknown_id_is_told_and_kept_and_counts_when_it_appears():
    steps = Steps()
    steps.scan(unit("a"))
    cordon(steps, ("b", "recall"))
    assert steps.table.unknown_cordons().startswith("b: no device of this node has this id")
    assert steps.table.cordons.spec == (InventoryCordon("b", "recall"),)
    steps.scan(unit("a"), unit("b"))
    assert steps.seen() == {"a": True, "b": False}
    assert steps.table.unknown_cordons() == ""


def test_everything_is_cordoned_by_a_star_also_what_comes_later():
    steps = Steps()
    steps.scan(unit("a"))
    cordon(steps, ("*", "maintenance"))
    steps.scan(unit("a"), unit("b"))
    assert steps.seen() == {"a": False, "b": False}
    assert set(steps.table.cordons.own[0].hardware) == {"devices/a", "devices/b"}, "other objects' agents need it"
    assert steps.table.unknown_cordons() == ""


def test_a_held_device_that_is_in_use_elsewhere_and_cordoned_is_refused():
    """The cordon must not hide that the hardware is in other hands."""
    steps = Steps()
    steps.scan(unit("a", hardware="devices/x"))
    steps.list(held("a"))
    steps.edit(resource(OTHER), units=(unit("b", name=OTHER, hardware="devices/x"),))
    cordon(steps, ("b", "recall"))
    device = steps.device("b", name=OTHER)
    assert device.withheld == "HeldAs"
    assert "recall" in device.text


def test_a_device_may_be_broken_and_withheld():
    gpus = Gpus(gpu(0), gpu(1))
    gpus.look()
    gpus.xid(79)
    gpus.table.apply_cordons([InventoryCordon("GPU-0", "swap")], now=gpus.now, wall=gpus.wall)
    state = gpus.device("GPU-0")
    assert (state.health, state.reason, state.withheld) == (Health.UNHEALTHY, "Xid79", "Cordoned")
    assert "swap" in state.text
    counts = gpus.table.snapshot().resources[0].counts
    assert (counts.devices, counts.healthy, counts.unhealthy, counts.withheld) == (2, 1, 1, 1)


def test_a_device_without_an_answer_is_counted_as_unknown_and_not_as_healthy():
    gpus = Gpus(gpu(0), gpu(1))
    gpus.look()
    gpus.table.apply_health(Look({}, source="nvml", unanswered="it hangs"), now=gpus.now, wall=gpus.wall)
    counts = gpus.table.snapshot().resources[0].counts
    assert (counts.devices, counts.healthy, counts.unhealthy, counts.unknown) == (2, 0, 0, 2)


# By attribute


def ruled(steps: Steps, attribute: str, *values: str, units=()) -> None:
    rule = CordonRule(Match(attribute, values), "firmware")
    steps.table.configure(Document((resource(),), (rule,)))
    steps.scan(*units)


def test_a_rule_withholds_what_matches_it_until_it_leaves_the_configuration():
    steps = Steps()
    units = (unit("a", attributes={"model": "X1"}), unit("b", attributes={"model": "X2"}), unit("c"))
    steps.scan(*units)
    ruled(steps, "model", "*1", units=units)
    assert steps.seen() == {"a": False, "b": True, "c": True}
    assert "spec.cordon[0]: firmware" in steps.device("a").text
    cordon(steps)  # the inventory's own are another matter
    assert steps.seen()["a"] is False
    assert [c.hardware for c in steps.table.cordons.kept if c.by_rule] == [("devices/a",)]
    steps.edit(resource(), units=units)
    assert steps.seen() == {"a": True, "b": True, "c": True}


# What outlives the process


def test_what_an_earlier_process_kept_counts_until_the_inventory_is_read():
    steps = Steps()
    steps.scan(unit("a"), unit("b"))
    restore(steps, Cordon("lab", ""), Cordon("lab", "gone", "recall", ("devices/a",)))
    assert steps.seen() == {"a": False, "b": True}
    cordon(steps)
    restore(steps, Cordon("lab", "gone", "recall", ("devices/a",)))
    assert steps.seen() == {"a": True, "b": True}


def test_a_rule_of_an_earlier_configuration_is_not_restored():
    steps = Steps()
    steps.scan(unit("a"))
    restore(steps, Cordon("lab", "cordon[0]", hardware=("devices/a",), by_rule=True))
    assert steps.seen() == {"a": True}


def test_cordons_of_other_objects_count_by_hardware():
    steps = Steps()
    steps.scan(unit("a"), unit("b"))
    assert learn(steps, Cordon("edge", ""), Cordon("edge", "x", "recall", ("devices/a/child",))) == {NAME}
    assert steps.seen() == {"a": False, "b": True}
    assert "edge" in steps.device("a").text
    cordon(steps)
    assert steps.seen()["a"] is False
    assert learn(steps, Cordon("edge", "")) == {NAME}


def test_cordons_of_a_deleted_object_no_longer_count():
    steps = Steps()
    steps.scan(unit("a"))
    learn(steps, Cordon("edge", ""), Cordon("edge", "x", "recall", ("devices/a",)))
    assert steps.table.cordons.objects == ("edge",)
    assert steps.table.drop_cordons(frozenset({"edge"}), now=steps.now, wall=wall(steps.now)) == {NAME}
    assert steps.seen() == {"a": True}
    assert steps.table.drop_cordons(frozenset(), now=steps.now, wall=wall(steps.now)) == {NAME}, "it exists again"


def test_a_later_file_ends_what_an_earlier_object_of_that_name_said():
    old = (Cordon("edge", ""), Cordon("edge", "x", hardware=("devices/a",)))
    assert Cordons("lab").learnt((*old, Cordon("edge", ""))).others == ()
    assert len(Cordons("lab").learnt((Cordon("edge", ""), *old)).others) == 1


def test_an_object_that_was_made_anew_takes_the_cordons_of_its_predecessor():
    predecessor = (Cordon("lab", ""), Cordon("lab", "a", "recall", ("devices/a",)))
    anew = Cordons("lab").learnt(predecessor)
    assert anew.spec == (InventoryCordon("a", "recall"),)
    assert anew.others == ()
    told = Cordons("lab").as_read(()).learnt(predecessor)
    assert (told.spec, told.others) == ((), ()), "an admin took it away"
    assert Cordons("lab").as_read(()) is not Cordons("lab")


@pytest.mark.parametrize("own_file_first", [True, False])
def test_a_file_of_its_own_without_cordons_ends_those_of_the_objects_predecessor(own_file_first: bool):  # noqa: FBT001
    steps = Steps()
    steps.scan(unit("a"))
    name = steps.table.cordons.config
    files = [lambda: restore(steps, Cordon(name, "")), lambda: learn(steps, Cordon(name, ""), Cordon(name, "a"))]
    for read in files if own_file_first else reversed(files):
        read()
    assert steps.seen() == {"a": True}


def test_nothing_changes_without_cordons():
    cordons = Cordons("lab").as_read(())
    assert cordons.as_read(()) is cordons
    assert cordons.learnt(()) is cordons
    assert cordons.ruled_by(()) is cordons
    assert cordons.resolved({}) is cordons
    assert not cordons
