"""What running pods have stays theirs when the kubelet has forgotten it."""

from collections.abc import Iterable
from functools import partial

import pytest
from device_agent.contract.document import Ownership
from device_agent.runtime.errors import UnavailableDevice
from device_agent.table import forgotten
from device_agent.table.grants import Grant, Grants, SeenGrant
from device_agent.table.holders import Listing
from device_agent.table.snapshot import Health
from unit.table.samples import NAME, OTHER, Steps, held, listing, resource, unit, wall

OLD, NEW = "a life", "the next life"
POD_A, POD_B = ("default", "pod-a"), ("default", "pod-b")


def running(*, replicas: int = 1) -> tuple[Steps, Grant]:
    """A pod has a, as List and record show."""
    steps = Steps()
    steps.scan(unit("a", replicas=replicas), unit("b"))
    grant = steps.grant("a")
    steps.record(grant, life=OLD)
    steps.list(held("a"))
    steps.send()
    return steps, grant


def torn(*, replicas: int = 1) -> tuple[Steps, Grant]:
    """The kubelet started with nothing, and the pod runs on."""
    steps, grant = running(replicas=replicas)
    steps.record(life=NEW)
    steps.list({}, pods=[POD_A])
    return steps, grant


def test_what_a_running_pod_has_is_withheld_and_the_pod_is_named_with_the_cure():
    steps, _ = torn()
    assert steps.seen() == {"a": False, "b": True}
    state = steps.device("a")
    assert (state.health, state.reason) == (Health.UNHEALTHY, "KubeletForgot")
    assert "default/pod-a" in state.message
    assert "delete the pod" in state.message
    assert steps.table.held_ids() == {"a"}
    with pytest.raises(UnavailableDevice, match="KubeletForgot"):
        steps.table.units_of(NAME, ["a"])


def test_it_is_offered_again_when_its_pod_is_gone():
    steps, _ = torn()
    for _ in range(3):
        steps.settle({}, life=NEW)
        steps.list({}, pods=[POD_A])
    steps.record(problem="torn")
    steps.list(None)
    assert steps.seen() == {"a": True, "b": True}


def test_it_stays_withheld_while_its_pod_is_listed():
    steps, _ = torn()
    for _ in range(3):
        steps.list({}, pods=[POD_A])
        steps.now += 100_000
        steps.record(resent=steps.now - 10, life=NEW)
        steps.list(None)
    assert steps.seen() == {"a": False, "b": True}


def test_between_the_record_and_the_first_list_of_that_life_it_is_withheld():
    steps, _ = running()
    begun = steps.now + 0.5
    steps.record(life=NEW)
    assert steps.table.held_ids() == {"a"}
    with pytest.raises(UnavailableDevice):
        steps.table.units_of(NAME, ["a"])
    steps.list({}, begun=begun)  # asked of the kubelet before
    assert steps.seen() == {"a": False, "b": True}
    steps.list({})  # the kubelet may not have heard of all its pods
    assert steps.seen() == {"a": False, "b": True}
    steps.now += forgotten.STARTING_SECONDS
    steps.list({})
    assert steps.seen() == {"a": True, "b": True}


def test_a_list_that_is_not_answered_decides_nothing():
    steps, _ = running()
    steps.record(life=NEW)
    steps.list(None)
    assert steps.seen() == {"a": False, "b": True}


def test_what_the_new_record_or_list_has_is_not_forgotten():
    steps, grant = running()
    steps.record(grant, life=NEW)
    steps.list(held("a"))
    assert steps.seen() == {"a": True, "b": True}
    steps, grant = running()
    steps.record(life=NEW)
    steps.list(held("a"))
    assert steps.seen() == {"a": True, "b": True}


def test_a_pod_that_gives_up_its_devices_in_one_life_of_the_kubelet_leaves_nothing_behind():
    steps, _ = running()
    steps.settle({}, life=OLD)
    steps.list({}, pods=[POD_A])
    assert steps.seen() == {"a": True, "b": True}


def test_a_pod_that_ended_while_the_kubelet_was_down_has_lost_nothing():
    steps, _ = running()
    steps.record(life=NEW)
    steps.now += forgotten.STARTING_SECONDS
    steps.list({}, pods=[POD_B])
    assert steps.seen() == {"a": True, "b": True}


def test_a_pod_that_was_given_it_a_second_time_is_not_the_one_to_delete():
    steps, grant = running()
    steps.record(life=NEW)
    again = Grant("uid-b", "main", NAME, ("a",), note=grant.note)
    steps.record(again, life=NEW)
    steps.list({NAME: {"a": held("b")[NAME]["b"]}}, pods=[POD_A])
    steps.scan(unit("a"), unit("b", numa_node=1))  # all are judged anew
    state = steps.device("a")
    assert state.reason == "KubeletForgot"
    assert "default/pod-a" in state.message
    assert "pod-b" not in state.message


def test_the_rest_of_the_replicas_is_offered():
    steps, _ = torn(replicas=3)
    assert steps.seen() == {"a": False, "a::1": True, "a::2": True, "b": True}
    assert steps.table.units_of(NAME, ["a::1"])
    with pytest.raises(UnavailableDevice, match="KubeletForgot"):
        steps.table.units_of(NAME, ["a::1", "a"])


def test_its_hardware_is_not_offered_under_another_name_either():
    steps, _ = torn()
    steps.edit(resource(OTHER), units=(unit("x", name=OTHER, hardware="devices/a"),))
    assert steps.seen(OTHER) == {"x": False}
    assert steps.device("x", name=OTHER).withheld == "HeldAs"
    assert "default/pod-a" in steps.device("x", name=OTHER).text


def test_a_record_that_is_torn_in_one_life_of_the_kubelet_loses_nothing():
    steps, _ = running()
    steps.record(problem="torn", life=OLD)
    steps.list({}, pods=[POD_A])
    assert (steps.device("a").health, steps.device("a").reason) == (Health.HEALTHY, "")


def test_a_kubelet_that_starts_with_a_torn_record_may_have_forgotten_until_list_tells():
    steps, _ = running()
    steps.record(problem="torn", life=NEW)
    assert steps.device("a").reason == "KubeletForgot"
    steps.list(held("a"))
    assert steps.seen() == {"a": True, "b": True}
    steps, _ = running()
    steps.record(problem="torn", life=NEW)
    steps.list({}, pods=[POD_A])
    assert steps.device("a").reason == "KubeletForgot"
    steps.record(life=NEW)
    steps.list({}, pods=[POD_A])
    assert steps.device("a").reason == "KubeletForgot"


@pytest.mark.parametrize("known", [False, True])
def test_what_another_objects_agent_saw_last_is_forgotten_like_our_own(*, known: bool):
    """`known`: the record has one of them, so it has not been lost."""
    theirs = Steps(resource(OTHER), owner="another")
    theirs.scan(unit("x", name=OTHER, hardware="devices/a"), unit("y", name=OTHER, hardware="devices/y"))
    grants = [theirs.grant(i, name=OTHER) for i in ("x", "y")]
    steps = Steps()
    steps.table.learn_grants([SeenGrant(g, "default", f"pod-{g.ids[0]}") for g in grants], now=0.5, wall=wall(0.5))
    for _ in range(2):
        steps.record(*grants[1:] if known else (), life=NEW)
        steps.list({}, pods=[("default", "pod-x"), ("default", "pod-y")])
        steps.now += 2
    steps.scan(unit("a"))
    steps.record(*grants[1:] if known else (), life=NEW)
    assert steps.seen() == {"a": known}


def test_a_second_start_with_nothing_forgets_nothing_more():
    steps, grant = torn()
    steps.record(life="and one more")
    steps.list({}, pods=[POD_A])
    assert steps.device("a").reason == "KubeletForgot"
    assert steps.table.seen_grants() == (SeenGrant(grant, *POD_A),)


def test_what_the_record_has_again_is_forgotten_no_more():
    steps, grant = torn()
    steps.record(grant, life=NEW)
    assert steps.seen() == {"a": True, "b": True}


def test_what_the_node_store_gives_after_the_record_was_read_says_nothing():
    steps, grant = running()
    steps.restore(SeenGrant(Grant("uid-b", "main", NAME, ("b",)), *POD_B))
    assert steps.table.seen_grants() == (SeenGrant(grant, *POD_A),)


def test_an_agent_that_starts_after_the_kubelet_knows_it_from_the_node_store():
    steps = Steps()
    earlier = Steps()
    earlier.scan(unit("a"))
    steps.restore(SeenGrant(earlier.grant("a"), *POD_A))
    steps.record(life=NEW)
    steps.list({}, pods=[POD_A])
    steps.scan(unit("a"), unit("b"))
    assert steps.seen() == {"a": False, "b": True}
    assert steps.device("a").reason == "KubeletForgot"


def test_it_is_kept_on_the_node_as_long_as_its_pod_runs():
    steps, grant = torn()
    assert steps.table.seen_grants() == (SeenGrant(grant, *POD_A),)
    steps.now += forgotten.STARTING_SECONDS
    steps.settle({}, life=NEW)
    assert steps.table.seen_grants() == ()


def test_what_nobody_else_owns_is_withheld_as_well():
    """The kubelet would hand out one id twice, and would take it from both when one pod ends."""
    steps = Steps(resource(ownership=Ownership.NONE))
    steps.scan(unit("a"))
    steps.record(steps.grant("a"), life=OLD)
    steps.list(held("a"))
    steps.record(life=NEW)
    steps.list({}, pods=[POD_A])
    assert steps.device("a").reason == "KubeletForgot"


# Names of pods


def test_a_list_from_before_the_record_gives_no_names():
    """It may show who had the id before."""
    steps = Steps()
    steps.scan(unit("a"))
    steps.list(held("a"))
    grant_a = steps.grant("a")
    steps.record(grant_a, life=OLD)
    assert steps.table.seen_grants() == (SeenGrant(grant_a),)
    steps.list(held("a"))
    assert steps.table.seen_grants() == (SeenGrant(grant_a, *POD_A),)


def grant(*ids: str, pod: str = "uid", container: str = "main", name: str = NAME) -> Grant:
    return Grant(pod, container, name, ids)


def named(grants: Grants, shown: Listing, before: Iterable[SeenGrant]) -> tuple[SeenGrant, ...]:
    return forgotten.with_names(grants, shown, before, listed=lambda _: True)


still_lost = partial(forgotten.still_lost, complete=True)


def test_a_grants_pod_is_the_one_that_list_shows_with_all_its_ids_in_that_container():
    shown = listing(held("a", "b"))
    one = Grants((grant("a"), grant("b", pod="uid-2"), grant("c", pod="uid-3"), grant("a", pod="uid-4", container="x")))
    names = [(seen.namespace, seen.name) for seen in named(one, shown, ())]
    assert names == [POD_A, POD_B, ("", ""), ("", "")]
    both = Grants((grant("a", "b"),))
    assert named(both, shown, ()) == (SeenGrant(grant("a", "b")),)
    two = listing({NAME: {"a": held("a", "b")[NAME]["a"] + held("b")[NAME]["b"]}})
    assert named(Grants((grant("a"),)), two, ()) == (SeenGrant(grant("a")),)


def test_a_name_that_was_known_stays_and_counts_for_all_of_the_pod():
    before = (SeenGrant(grant("a"), "default", "named"),)
    one = Grants((grant("a"), grant("i", container="init")))
    assert [seen.name for seen in named(one, listing({}), before)] == ["named", "named"]


def test_grants_without_a_name_cannot_be_found_in_list_and_are_not_lost():
    assert forgotten.lost((SeenGrant(grant("a")),), Grants()) == ()


def test_a_grant_is_there_when_its_container_has_any_of_the_resource():
    """The ids of one container and resource are one entry of the record, and are written together."""
    before = (SeenGrant(grant("a"), *POD_A), SeenGrant(grant("a", container="other"), *POD_A))
    assert forgotten.lost(before, Grants((grant("b"),))) == before[1:]
    assert forgotten.lost(before, Grants((grant("a", pod="uid-2"), grant("a", name=OTHER)))) == before
    shown = {NAME: {"b": held("a")[NAME]["a"]}}
    assert still_lost(before, listing(shown), ()) == before[1:]
    assert still_lost(before, listing({OTHER: shown[NAME]}), ()) == before


def test_a_pod_of_the_same_name_with_another_uid_is_another_pod():
    before = (SeenGrant(grant("a"), *POD_A),)
    shown = listing({}, POD_A)
    assert still_lost(before, shown, (SeenGrant(grant("x", container="other"), *POD_A),)) == before
    assert still_lost(before, shown, (SeenGrant(grant("x", pod="uid-2"), *POD_B),)) == before
    assert still_lost(before, shown, (SeenGrant(grant("x", pod="uid-2"), *POD_A),)) == ()
