"""Hardware that a container has under another name or id, or of another object, is offered under no other."""

import pytest
from device_agent.contract.document import Ownership
from device_agent.contract.names import replica_id
from device_agent.runtime.errors import UnavailableDevice
from device_agent.select.unit import Unit
from device_agent.table.grants import Grant, SeenGrant
from device_agent.table.snapshot import Health
from unit.table.samples import NAME, OTHER, Steps, held, resource, unit

TEMPLATE = "example.org/{profile}"
PROFILE = "example.org/1g"
THIRD = "example.net/third"
LONG = "x" * 63
LAB, ANOTHER = "lab", "another"


def given(*units: Unit, ids: tuple[str, ...] = (), owner: str = LAB, ownership: Ownership | None = None) -> list[Grant]:
    """What the record has of an agent that gave these ids out, each to a pod of its own. Without ids: every device."""
    fields = {} if ownership is None else {"ownership": ownership}
    before = Steps(*(resource(name, **fields) for name in dict.fromkeys(u.entry for u in units)), owner=owner)
    before.scan(*units)
    return [before.grant(i, name=units[0].resource) for i in ids or tuple(u.id for u in units)]


def restarted(*resources, grants: list[Grant], answer: object = "the same") -> Steps:
    """A new process that has read the record, and List. `answer`: of List."""
    steps = Steps(*resources)
    steps.record(*grants)
    if answer == "the same":
        answer = shown(grants)
    steps.list(answer)
    return steps


def shown(grants: list[Grant]):
    """List with what the record has."""
    holders: dict = {}
    for grant in grants:
        holders.setdefault(grant.resource, {}).update(held(*grant.ids)[NAME])
    return holders


def health(steps: Steps, device_id: str, name: str) -> tuple[Health, str]:
    state = steps.device(device_id, name=name)
    return state.health, state.withheld or state.reason


def test_hardware_in_use_under_a_name_from_before_the_restart_is_offered_under_no_other():
    steps = restarted(resource(OTHER), grants=given(unit("a"), unit("b"), ids=("a",)))
    steps.scan(unit("a", name=OTHER, replicas=4), unit("b", name=OTHER))
    assert steps.seen(NAME) == {"a": False}
    assert steps.seen(OTHER) == {"a::1": False, "a::2": False, "a::3": False, "b": True}  # an id is under one name only
    assert health(steps, "a", NAME) == (Health.HEALTHY, "Draining")
    assert steps.device("a").holders["a"][0].pod == "pod-a"
    assert health(steps, "a", OTHER) == (Health.HEALTHY, "HeldAs")
    assert "a of example.com/dev by default/pod-a" in steps.device("a", name=OTHER).text
    assert steps.settle() == {NAME, OTHER}
    assert steps.table.resources() == (OTHER,)
    assert steps.seen(OTHER) == dict.fromkeys(("a", "a::1", "a::2", "a::3", "b"), True)


def test_hardware_in_use_under_the_id_of_a_former_unit_is_not_offered():
    steps = restarted(grants=given(unit("0000:01:00.0", hardware="devices/a")))
    steps.scan(unit("7", hardware="devices/a"))
    assert steps.seen() == {"0000:01:00.0": False, "7": False}
    with pytest.raises(UnavailableDevice, match="in use as 0000:01"):
        steps.table.units_of(NAME, ["7"])
    steps.settle()
    assert steps.seen() == {"0000:01:00.0": False, "7": True}
    steps.settle()
    assert steps.seen() == {"7": True}


@pytest.mark.parametrize(
    "new",
    [
        unit("child", name=OTHER, source="sysfs", hardware="devices/a/net/eth0"),
        unit("parent", name=OTHER, source="sysfs", hardware="devices"),
    ],
    ids=["part of it", "it is part of that"],
)
@pytest.mark.parametrize("owner", [LAB, ANOTHER])
def test_hardware_above_and_below_the_one_in_use_is_not_offered(new: Unit, owner: str):
    steps = restarted(resource(OTHER), grants=given(unit("a"), owner=owner))
    steps.scan(new, unit("beside", name=OTHER, hardware="devicesx/a"))
    assert steps.seen(OTHER) == {new.id: False, "beside": True}
    assert health(steps, new.id, OTHER) == (Health.HEALTHY, "HeldAs")
    steps.settle()
    assert steps.seen(OTHER) == {new.id: True, "beside": True}


def test_a_replica_whose_id_was_cut_is_known_to_be_of_its_device():
    surplus = replica_id(LONG, 2)
    steps = restarted(grants=given(unit(LONG, replicas=3), ids=(surplus,)))
    steps.scan(unit(LONG))
    assert steps.seen() == {LONG: False, surplus: False}
    assert health(steps, LONG, NAME) == (Health.HEALTHY, "HeldAs")
    assert len(steps.table.snapshot().resources[0].devices) == 1


def test_every_replica_in_use_counts_for_a_device_that_has_fewer_now():
    steps = restarted(grants=given(unit("a", replicas=3), ids=("a", "a::2")))
    steps.scan(unit("a", replicas=2))
    assert steps.seen() == {"a": True, "a::1": False, "a::2": False}
    with pytest.raises(UnavailableDevice, match="HeldAs"):
        steps.table.units_of(NAME, ["a::1"])


def test_a_name_with_a_placeholder_whose_devices_vanished_is_listed_while_it_is_held():
    grants = given(unit("m", name=PROFILE, entry=TEMPLATE))
    steps = restarted(resource(TEMPLATE), grants=grants)
    steps.scan()
    assert steps.seen(PROFILE) == {"m": False}
    assert steps.device("m", name=PROFILE).reason == "Missing"
    assert steps.table.entry(PROFILE).name == TEMPLATE
    steps.send(PROFILE)
    steps.settle()
    assert steps.table.resources() == ()


def test_a_name_that_left_the_configuration_is_listed_by_the_object_that_gave_it_alone():
    for owner, names in ((LAB, (NAME, OTHER)), (ANOTHER, (OTHER,))):
        steps = restarted(resource(OTHER), grants=given(unit("a"), owner=owner))
        steps.scan(unit("b", name=OTHER))
        assert steps.table.resources() == names


def test_hardware_of_another_object_is_not_offered_until_it_is_free():
    theirs = given(unit("a"), unit("b"), owner=ANOTHER)
    steps = restarted(resource(OTHER), grants=theirs[:1])
    steps.scan(unit("x", name=OTHER, hardware="devices/a"), unit("y", name=OTHER, hardware="devices/b"))
    assert steps.table.resources() == (OTHER,)
    assert steps.seen(OTHER) == {"x": False, "y": True}
    assert health(steps, "x", OTHER) == (Health.HEALTHY, "HeldAs")
    assert "in use as a of example.com/dev by default/pod-a" in steps.device("x", name=OTHER).text
    with pytest.raises(UnavailableDevice, match="HeldAs"):
        steps.table.units_of(OTHER, ["x"])
    assert steps.settle() == {OTHER}
    assert steps.seen(OTHER) == {"x": True, "y": True}
    assert steps.record(theirs[1]) == {OTHER}  # that object is still there
    assert steps.seen(OTHER) == {"x": True, "y": False}


def test_the_holder_is_named_by_its_uid_until_list_tells_its_name():
    grants = given(unit("a"), owner=ANOTHER)
    steps = restarted(resource(OTHER), grants=grants, answer={})
    steps.scan(unit("x", name=OTHER, hardware="devices/a"))
    assert "uid-a" in steps.device("x", name=OTHER).text
    steps.list(held("a"))
    assert "default/pod-a" in steps.device("x", name=OTHER).text


def test_an_object_created_again_keeps_its_devices():
    grants = given(unit("a"), unit("b", replicas=3), ids=("a", "b::2"), owner=ANOTHER)
    steps = restarted(grants=grants)
    steps.scan(unit("a"), unit("b", replicas=1))
    assert steps.seen() == {"a": True, "b": False, "b::2": False}


def test_what_another_object_gives_out_later_counts_too():
    steps = Steps(resource(OTHER))
    steps.scan(unit("x", name=OTHER, hardware="devices/a"))
    steps.list({})
    steps.record()
    assert steps.seen(OTHER) == {"x": True}
    assert steps.record(*given(unit("a"), owner=ANOTHER)) == {OTHER}
    assert steps.seen(OTHER) == {"x": False}


def test_a_list_alone_does_not_free_what_the_record_has():
    steps = restarted(resource(OTHER), grants=given(unit("a"), owner=ANOTHER))
    steps.scan(unit("x", name=OTHER, hardware="devices/a"))
    for _ in range(3):
        assert steps.settle({}, *given(unit("a"), owner=ANOTHER)) == frozenset()
    assert steps.seen(OTHER) == {"x": False}


@pytest.mark.parametrize("owner", [LAB, ANOTHER])
def test_a_record_alone_does_not_free_hardware(owner: str):
    grants = given(unit("a"), owner=owner)
    steps = restarted(resource(OTHER), grants=grants)
    steps.scan(unit("x", name=OTHER, hardware="devices/a"))
    for _ in range(3):
        steps.record()
        steps.list(held("a"))
    assert steps.seen(OTHER) == {"x": False}
    steps.settle()
    assert steps.seen(OTHER) == {"x": True}


@pytest.mark.parametrize("owner", [LAB, ANOTHER])
def test_hardware_is_offered_two_seconds_after_neither_has_it(owner: str):
    """After a forced deletion both lack it while the process still runs."""
    steps = restarted(resource(OTHER), grants=given(unit("a"), owner=owner))
    steps.scan(unit("x", name=OTHER, hardware="devices/a"))
    steps.list({})
    steps.record()
    assert steps.seen(OTHER) == {"x": False}
    assert "in use as a of example.com/dev" in steps.device("x", name=OTHER).text
    steps.now += 1
    steps.record()
    assert steps.seen(OTHER) == {"x": True}


@pytest.mark.parametrize("answer", [None, {}, held("b")])
def test_what_nobody_has_blocks_nothing(answer):
    steps = restarted(resource(OTHER), grants=given(unit("b"), owner=ANOTHER), answer=answer)
    steps.scan(unit("x", name=OTHER, hardware="devices/a"))
    assert steps.seen(OTHER) == {"x": True}
    assert steps.table.resources() == (OTHER,)


@pytest.mark.parametrize("owner", [LAB, ANOTHER])
def test_devices_are_offered_before_the_first_answer_of_the_kubelet(owner: str):
    steps = Steps(resource(OTHER))
    steps.list(None)
    steps.scan(unit("x", name=OTHER, hardware="devices/a"))
    assert steps.seen(OTHER) == {"x": True}
    steps.record(*given(unit("a"), owner=owner))
    assert steps.seen(OTHER) == {"x": False}
    steps.list(None)
    steps.record(problem="torn")  # what it told last counts
    assert steps.seen(OTHER) == {"x": False}


@pytest.mark.parametrize("owner", [LAB, ANOTHER])
def test_observing_resources_neither_block_nor_are_blocked(owner: str):
    watch = resource(OTHER, ownership=Ownership.NONE)
    observed = unit("h-a", name=OTHER, hardware="devices/a")
    steps = restarted(watch, grants=given(unit("a"), owner=owner))
    steps.scan(observed)
    assert steps.seen(OTHER) == {"h-a": True}
    steps = restarted(resource(), grants=given(observed, owner=owner, ownership=Ownership.NONE))
    steps.scan(unit("a"))
    assert steps.seen() == {"a": True}


def test_max_devices_does_not_prefer_devices_held_through_another_object():
    grants = given(unit("a", name="example.net/own")) + given(unit("b", name="example.net/others"), owner=ANOTHER)
    steps = restarted(grants=grants)
    assert steps.table.held_ids() == {"a"}


def test_what_an_earlier_process_saw_counts_like_the_record_until_that_is_read():
    old, theirs = given(unit("a", replicas=2), ids=("a::1",)), given(unit("b", name=THIRD), owner=ANOTHER)
    steps = Steps(resource(OTHER))
    steps.restore(*(SeenGrant(grant, "default", "pod") for grant in (*old, *theirs)))
    steps.list({})
    steps.scan(unit("x", name=OTHER, hardware="devices/a"), unit("y", name=OTHER, hardware="devices/b"))
    assert steps.seen() == {"a::1": False}
    assert steps.seen(OTHER) == {"x": False, "y": False}
    steps.record(*theirs)
    steps.settle({}, *theirs)
    assert steps.seen(OTHER) == {"x": True, "y": False}


def test_a_pod_with_the_same_hardware_under_two_ids_blocks_until_both_are_free():
    first, second = given(unit("a")), given(unit("a", name=THIRD))
    steps = restarted(resource(OTHER), grants=first + second)
    steps.scan(unit("x", name=OTHER, hardware="devices/a"))
    steps.settle(shown(second), *second)
    assert steps.seen(OTHER) == {"x": False}
    steps.settle()
    assert steps.seen(OTHER) == {"x": True}


def test_a_ghost_of_list_gets_its_hardware_from_the_record():
    steps = Steps(resource(), resource(OTHER))
    steps.list(held("a"))
    steps.scan(unit("x", name=OTHER, hardware="devices/a"))
    assert (steps.device("a").unit.source, steps.seen(OTHER)) == ("", {"x": True})
    steps.record(*given(unit("a")))
    assert (steps.device("a").unit.source, steps.seen(OTHER)) == ("pci", {"x": False})
    assert steps.seen() == {"a": False}


def test_a_ghost_whose_id_was_cut_holds_its_device_once_the_record_is_read():
    surplus = replica_id(LONG, 2)
    steps = Steps()
    steps.list(held(surplus))
    steps.scan(unit(LONG))
    assert steps.seen() == {LONG: True, surplus: False}
    steps.record(*given(unit(LONG, replicas=3), ids=(surplus,)))
    assert steps.seen() == {LONG: False, surplus: False}
    assert health(steps, LONG, NAME) == (Health.HEALTHY, "HeldAs")


@pytest.mark.parametrize("restored", [False, True])
def test_what_the_record_alone_shows_is_listed_though_list_has_never_answered(*, restored: bool):
    steps, (grant,) = Steps(), given(unit("gone"))
    if restored:
        steps.restore(SeenGrant(grant, "default", "pod"))
        steps.record(problem="torn")
    else:
        steps.record(grant)
    steps.list(None)
    steps.scan(unit("a"))
    assert steps.seen() == {"a": True, "gone": False}
    steps.record()
    steps.list(None)
    assert steps.seen() == {"a": True, "gone": False}, "nothing goes without List"


def test_a_name_that_is_listed_for_its_own_ids_has_those_of_another_object_from_the_start():
    """The kubelet takes ids that a list lacks for dropped."""
    grants = given(unit("a", replicas=2), ids=("a",)) + given(unit("a", replicas=2), ids=("a::1",), owner=ANOTHER)
    steps = Steps(resource(OTHER))
    steps.record(*grants)
    steps.list(shown(grants))
    steps.scan()
    assert steps.seen() == {"a": False, "a::1": False}
