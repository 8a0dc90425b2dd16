"""Claims of earlier processes and other objects count only while a pod holds the hardware."""

import dataclasses

import pytest
from device_agent.contract.document import Ownership
from device_agent.contract.inventory import Identity
from device_agent.contract.names import replica_id
from device_agent.runtime.errors import UnavailableDevice
from device_agent.select.unit import Unit
from device_agent.table import claims
from device_agent.table.claims import CLAIMS, FORGET_SECONDS, Claim
from device_agent.table.snapshot import Health
from hypothesis import given
from hypothesis import strategies as st
from unit.table.samples import NAME, OTHER, Steps, held, resource, unit

TEMPLATE = "example.org/{profile}"
PROFILE = "example.org/1g"
LONG = "x" * 60


def kept(*units: Unit, exclusive: bool = True) -> tuple[Claim, ...]:
    return tuple(Claim.of(u, exclusive=exclusive) for u in units)


def restarted(*resources, own: tuple[Claim, ...] = (), others: tuple[Claim, ...] = ()) -> Steps:
    """A new process of the agent that has read what is kept on the node."""
    steps = Steps(*resources)
    steps.claims(own, others)
    return steps


def health(steps: Steps, device_id: str, name: str) -> tuple[Health, str]:
    state = steps.device(device_id, name=name)
    return state.health, state.reason


def test_hardware_in_use_under_a_name_from_before_the_restart_is_offered_under_no_other():
    steps = restarted(resource(OTHER), own=kept(unit("a"), unit("b")))
    steps.list(held("a"))
    steps.scan(unit("a", name=OTHER, replicas=4), unit("b", name=OTHER))
    assert steps.seen(NAME) == {"a": False}
    assert steps.seen(OTHER) == {"a::1": False, "a::2": False, "a::3": False, "b": True}  # an id is under one name only
    assert health(steps, "a", NAME) == (Health.UNHEALTHY, "Draining")
    assert steps.device("a").holders["a"][0].pod == "pod-a"
    state = steps.device("a", name=OTHER)
    assert (state.health, state.reason) == (Health.UNHEALTHY, "HeldAs")
    assert "a of example.com/dev by default/pod-a" in state.message
    assert steps.list({}) == {NAME, OTHER}
    assert steps.table.resources() == (OTHER,)
    assert True in steps.seen(OTHER).values()
    assert False not in steps.seen(OTHER).values()


def test_hardware_in_use_under_the_id_of_a_former_unit_is_not_offered():
    steps = restarted(own=kept(unit("0000:01:00.0", hardware="devices/a")))
    steps.list(held("0000:01:00.0"))
    steps.scan(unit("7", hardware="devices/a"))
    assert steps.seen() == {"0000:01:00.0": False, "7": False}
    with pytest.raises(UnavailableDevice, match="in use as 0000:01"):
        steps.table.units_of(NAME, ["7"])
    steps.list({})
    assert steps.seen() == {"0000:01:00.0": False, "7": True}


def test_a_replica_whose_id_was_cut_is_known_to_be_of_its_device():
    surplus = replica_id(LONG, 2)
    steps = restarted(own=kept(unit(LONG, replicas=3)))
    steps.list(held(surplus))
    steps.scan(unit(LONG))
    assert steps.seen() == {LONG: False, surplus: False}
    assert health(steps, LONG, NAME) == (Health.UNHEALTHY, "HeldAs")
    assert len(steps.table.snapshot().resources[0].devices) == 1


def test_a_name_with_a_placeholder_whose_devices_vanished_is_listed_while_it_is_held():
    steps = restarted(resource(TEMPLATE), own=kept(unit("m", name=PROFILE, entry=TEMPLATE)))
    steps.list(held("m", name=PROFILE))
    steps.scan()
    assert steps.seen(PROFILE) == {"m": False}
    assert steps.device("m", name=PROFILE).reason == "Missing"
    assert steps.table.entry(PROFILE).name == TEMPLATE
    steps.send(PROFILE)
    steps.list({})
    assert steps.table.resources() == ()


def test_a_name_of_another_object_is_not_listed_and_its_hardware_not_offered():
    steps = restarted(resource(OTHER), others=kept(unit("a"), unit("b")))
    steps.list(held("a"))
    steps.scan(unit("x", name=OTHER, hardware="devices/a"), unit("y", name=OTHER, hardware="devices/b"))
    assert steps.table.resources() == (OTHER,)
    assert steps.seen(OTHER) == {"x": False, "y": True}
    assert steps.device("x", name=OTHER).reason == "HeldAs"
    assert "in use as a of example.com/dev by default/pod-a" in steps.device("x", name=OTHER).message
    with pytest.raises(UnavailableDevice, match="HeldAs"):
        steps.table.units_of(OTHER, ["x"])
    assert steps.list({}) == {OTHER}
    assert steps.seen(OTHER) == {"x": True, "y": True}
    assert steps.list(held("b")) == {OTHER}  # that object may still be there
    assert steps.seen(OTHER) == {"x": True, "y": False}


def test_an_object_created_again_keeps_its_devices():
    steps = restarted(others=kept(unit("a"), unit("b", replicas=3)))
    steps.list(held("a", "b::2"))
    steps.scan(unit("a"), unit("b", replicas=1))
    assert steps.seen() == {"a": True, "b": False, "b::2": False}


def test_later_claims_of_another_object_count_too():
    steps = restarted(resource(OTHER))
    steps.scan(unit("x", name=OTHER, hardware="devices/a"))
    steps.list({})
    assert not steps.table.could_serve(NAME)
    steps.claims((), kept(unit("a")))
    assert steps.table.could_serve(NAME)
    assert steps.seen(OTHER) == {"x": True}
    steps.list(held("a"))
    assert steps.seen(OTHER) == {"x": False}
    assert steps.claims((), ()) == {OTHER}
    assert steps.seen(OTHER) == {"x": True}


@pytest.mark.parametrize("answer", [None, {}, held("b")])
def test_a_claim_without_a_known_holder_blocks_nothing(answer):
    old = kept(unit("a"))
    steps = restarted(resource(OTHER), own=old, others=kept(unit("a", name="example.com/third")))
    steps.list(answer)
    steps.scan(unit("x", name=OTHER, hardware="devices/a"))
    assert steps.seen(OTHER) == {"x": True}
    assert steps.table.resources() == (OTHER,)


@pytest.mark.parametrize("whose", ["own", "others"])
def test_devices_are_offered_before_the_first_answer_of_pod_resources(whose):
    steps = restarted(resource(OTHER), **{whose: kept(unit("a"))})
    steps.list(None)
    steps.scan(unit("x", name=OTHER, hardware="devices/a"))
    assert steps.seen(OTHER) == {"x": True}
    steps.list(held("a"))
    assert steps.seen(OTHER) == {"x": False}
    steps.list(None)  # the last answer counts
    assert steps.seen(OTHER) == {"x": False}


@pytest.mark.parametrize("whose", ["own", "others"])
def test_observing_resources_neither_block_nor_are_blocked(whose):
    watch = resource(OTHER, ownership=Ownership.NONE)
    observed = unit("h-a", name=OTHER, hardware="devices/a")
    steps = restarted(watch, **{whose: kept(unit("a"))})
    steps.list(held("a"))
    steps.scan(observed)
    assert steps.seen(OTHER) == {"h-a": True}
    steps = restarted(resource(), **{whose: kept(observed, exclusive=False)})
    steps.list(held("h-a", name=OTHER))
    steps.scan(unit("a"))
    assert steps.seen() == {"a": True}


def test_pod_resources_is_asked_for_names_that_only_a_claim_has():
    steps = restarted(own=kept(unit("a", name="example.net/own")), others=kept(unit("a", name="example.net/others")))
    assert steps.table.could_serve("example.net/own")
    assert steps.table.could_serve("example.net/others")
    assert not steps.table.could_serve("example.net/strange")


def test_max_devices_does_not_prefer_devices_held_through_another_object():
    steps = restarted(own=kept(unit("a", name="example.net/own")), others=kept(unit("b", name="example.net/others")))
    steps.list(held("a", name="example.net/own") | held("b", name="example.net/others"))
    assert steps.table.held_ids() == {"a"}


def test_a_claim_taken_over_from_another_object_is_kept():
    before = kept(unit("a", replicas=2), unit("b"))
    steps = restarted(others=before)
    steps.list(held("a::1", "b"))
    steps.scan(unit("a", replicas=1))
    assert steps.seen() == {"a": False, "a::1": False, "b": False}
    own = steps.table.claim_records()
    assert [(c.id, c.replicas) for c in own] == [("a", 2), ("b", 1)]
    steps = restarted(resource(OTHER), own=own, others=before)
    steps.list(held("a::1", "b"))
    steps.scan(unit("x", name=OTHER, hardware="devices/a"), unit("y", name=OTHER, hardware="devices/b"))
    assert steps.seen() == {"a::1": False, "b": False}
    assert steps.seen(OTHER) == {"x": False, "y": False}


def test_two_claims_of_one_device_keep_the_larger_number_of_replicas():
    steps = restarted(resource(OTHER), others=(*kept(unit("a", replicas=2)), *kept(unit("a"))))
    steps.list(held("a::1"))
    steps.scan(unit("x", name=OTHER, hardware="devices/a"))
    assert steps.seen(OTHER) == {"x": False}


# Memory


def offered(steps: Steps) -> list[tuple[str, str, int]]:
    return [(c.resource, c.id, c.replicas) for c in steps.table.claim_records()]


def test_a_claim_keeps_the_largest_number_of_replicas():
    steps = Steps()
    steps.scan(unit("a", replicas=4), unit("b"))
    steps.scan(unit("a", replicas=1), unit("b"))
    assert offered(steps) == [(NAME, "a", 4), (NAME, "b", 1)]


def test_an_equal_scan_changes_no_claim():
    steps = Steps()
    steps.scan(unit("a"))
    before = steps.table.claims_revision
    steps.scan(unit("a"))
    steps.list(held("a"))
    assert steps.table.claims_revision == before


@pytest.mark.parametrize(
    "change",
    [
        {"hardware": ("devices/b",)},
        {"replicas": 3},
        {"entry": OTHER},
        {"value": "A"},
        {"identity": Identity.VOLATILE},
        {"source": "usb"},
        {"parts": ("GPU-1",)},
        {"numa_node": 1},
    ],
)
def test_every_change_of_a_device_changes_its_claim(change):
    steps = Steps()
    before = unit("a", replicas=2)
    steps.scan(before)
    after = dataclasses.replace(before, **change)
    steps.table.claim([after], exclusive={NAME, OTHER})
    assert steps.table.claim_records() == kept(after)
    steps.table.claim([after], exclusive=())
    assert steps.table.claim_records() == kept(after, exclusive=False)


@pytest.mark.parametrize("answer", [{}, None])
def test_a_claim_is_forgotten_when_it_was_free_an_hour_after_it_was_last_offered(answer):
    steps = restarted(resource(OTHER), own=kept(unit("a"), unit("b")))
    steps.list({})
    steps.scan(unit("x", name=OTHER, hardware="devices/a"))
    ours = [(OTHER, "x", 1)]
    before = [(NAME, "a", 1), (NAME, "b", 1), *ours]
    steps.now += FORGET_SECONDS / 2
    steps.list(answer)
    assert offered(steps) == before
    steps.now += FORGET_SECONDS / 2
    steps.list(None)
    assert offered(steps) == before
    steps.list(held("b"))
    assert offered(steps) == [(NAME, "b", 1), *ours]
    steps.list({})
    assert offered(steps) == ours


def test_a_crowd_of_past_claims_is_not_kept_for_an_hour(monkeypatch):
    monkeypatch.setattr(claims, "CROWD", 2)
    steps = restarted(resource(OTHER), own=kept(unit("a"), unit("b"), unit("c")))
    steps.list(held("c"))
    assert offered(steps) == [(NAME, "c", 1)]


def test_a_device_that_returns_keeps_its_claim():
    steps = restarted(own=kept(unit("a")))
    steps.list({})
    steps.scan()
    steps.scan(unit("a"))
    steps.now += 2 * FORGET_SECONDS
    steps.list({})
    assert offered(steps) == [(NAME, "a", 1)]


@given(
    st.lists(
        st.builds(
            Claim,
            resource=st.text(min_size=1),
            id=st.text(min_size=1),
            entry=st.text(),
            value=st.text(),
            identity=st.sampled_from(Identity),
            source=st.sampled_from(["pci", "nvml"]),
            hardware=st.lists(st.text()).map(tuple),
            exclusive=st.booleans(),
            replicas=st.integers(1, 2**20),
            parts=st.lists(st.text()).map(tuple),
            numa_node=st.none() | st.integers(0, 1024),
        )
    ).map(tuple)
)
def test_kept_claims_are_read_back_unchanged(written):
    assert CLAIMS.parse(CLAIMS.dump(written, boot_id=""), boot_id="") == written


def test_a_path_that_is_not_text_does_not_affect_other_claims():
    strange = dataclasses.replace(kept(unit("a"))[0], hardware=("devices/\udcff",))
    assert CLAIMS.parse(CLAIMS.dump((strange, *kept(unit("b"))), boot_id=""), boot_id="")[1:] == kept(unit("b"))
