"""What other agents of the node serve is not offered here; which locks this agent asks for."""

from device_agent.contract.document import Ownership
from device_agent.store.locks import Taken, Wanted
from device_agent.table.snapshot import Health
from unit.table.samples import NAME, OTHER, Steps, held, resource, selection, unit, wall


def taken(steps: Steps, *names: str, devices: tuple[tuple[str, str], ...] = (), by: tuple[str, ...] = ()):
    steps.now += 1
    told = Taken(frozenset(names), frozenset(devices), by)
    return steps.table.apply_taken(told, now=steps.now, wall=wall(steps.now))


def test_a_device_of_another_agent_is_not_offered_until_its_lock_is_free():
    steps = Steps()
    taken(steps, devices=((NAME, "a"),), by=("lab",))
    steps.scan(unit("a"), unit("b"))
    assert steps.seen() == {"b": True}, "the other agent lists it, maybe under the same id"
    device = steps.device("a")
    assert device.ids == ()
    assert (device.health, device.withheld) == (Health.HEALTHY, "HeldAs")
    assert "DevicePluginConfig lab" in device.text
    assert taken(steps) == {NAME}
    assert steps.seen() == {"a": True, "b": True}


def test_an_id_that_the_kubelet_has_from_here_stays_listed_unhealthy():
    steps = Steps()
    steps.scan(unit("a"), unit("b"))
    taken(steps, devices=((NAME, "a"),))
    assert steps.send() == {"a": False, "b": True}
    steps.scan(unit("b"))
    assert steps.send() == {"a": False, "b": True}
    steps.settle({})
    assert steps.seen() == {"b": True}


def test_an_id_that_a_pod_has_is_listed_whoever_has_the_lock():
    steps = Steps()
    taken(steps, devices=((NAME, "a"), (NAME, "b")))
    steps.list(held("a"))
    steps.scan(unit("a"), unit("b"))
    assert steps.seen() == {"a": False}
    steps.settle({})
    steps.scan(unit("a"), unit("b"))
    assert steps.seen() == {"a": False}, "the kubelet has it from here"


def test_a_resource_all_of_whose_devices_another_agent_serves_is_not_registered():
    steps = Steps()
    taken(steps, devices=((NAME, "a"),))
    steps.scan(unit("a"))
    assert steps.table.resources() == ()
    taken(steps)
    assert steps.table.resources() == (NAME,)


def test_without_a_known_object_the_message_says_another_agent():
    steps = Steps()
    taken(steps, devices=((NAME, "a"),))
    steps.scan(unit("a"))
    assert "another agent" in steps.device("a").text


def test_a_name_of_another_agent_makes_its_devices_wait_also_observed_ones():
    steps = Steps(resource(), resource(OTHER, ownership=Ownership.NONE))
    taken(steps, NAME, OTHER, by=("lab", "edge"))
    steps.scan(unit("a"), unit("b", name=OTHER))
    for name, device in ((NAME, "a"), (OTHER, "b")):
        assert steps.seen(name) == {device: False}
        assert "edge" in steps.table.taken_name(name)
        assert name in steps.device(device, name=name).text
    assert steps.table.snapshot().taken.keys() == {NAME, OTHER}
    assert taken(steps, OTHER) == {NAME}
    assert steps.table.taken_name(NAME) == ""


def test_what_a_pod_holds_is_named_before_what_an_agent_holds():
    steps = Steps(resource(), resource(OTHER))
    steps.scan(unit("a"))
    steps.allocate("a")
    steps.edit(resource(OTHER), units=(unit("b", name=OTHER, hardware="devices/a"),))
    steps.list(held("a"))
    taken(steps, devices=((OTHER, "b"),))
    assert NAME in steps.device("b", name=OTHER).text


def test_the_locks_of_a_scan_are_known_before_it_is_applied():
    steps = Steps(resource(), resource(OTHER, ownership=Ownership.NONE))
    soon = steps.table.wanted_with(selection(unit("a", hardware="devices/x"), unit("b", name=OTHER)))
    assert soon == Wanted(frozenset([NAME, OTHER]), {(NAME, "a"): ("devices/x",)})
    assert steps.table.wanted() == Wanted()
    steps.scan(unit("a", hardware="devices/x"), unit("b", name=OTHER))
    assert steps.table.wanted() == soon


def test_while_nothing_changes_the_wanted_locks_are_the_same_object():
    steps = Steps()
    steps.scan(unit("a"), unit("b"))
    before = steps.table.wanted()
    steps.list({})
    steps.scan(unit("a"), unit("b"))
    assert steps.table.wanted() is before
    assert steps.table.wanted_with(selection(unit("a"), unit("b"))) is before


def test_a_device_on_its_way_out_keeps_its_lock_until_it_has_left_the_list():
    steps = Steps()
    steps.scan(unit("a"))
    steps.list({})
    steps.allocate("a")
    grant = steps.grant("a")
    steps.list(held("a"))
    steps.record(grant)
    steps.edit(units=())
    assert (NAME, "a") in steps.table.wanted().devices
    steps.settle({})
    steps.settle({})
    assert steps.table.wanted() == Wanted()


def test_a_device_that_moved_needs_both_paths_until_the_scan_is_applied():
    steps = Steps()
    steps.scan(unit("a", hardware="devices/x"))
    moved = selection(unit("a", hardware="devices/y"))
    assert steps.table.wanted_with(moved).devices == {(NAME, "a"): ("devices/x", "devices/y")}
    steps.scan(unit("a", hardware="devices/y"))
    assert steps.table.wanted().devices == {(NAME, "a"): ("devices/y",)}
