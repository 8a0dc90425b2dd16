"""What a container gets: once per physical device, in id order, whatever the order of the request."""

import pytest
from device_agent.allocate.answer import ContainerResponse, DeviceSpec, respond
from device_agent.contract.document import Allocation, Env, Inject, Sharing
from device_agent.runtime.errors import AllocationRefused
from device_agent.select.unit import Grants, MountGrant, NodeGrant, Unit
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.table.samples import resource, unit


def device(name: str, **grants) -> Unit:
    return unit(name, grants=Grants(**grants))


def answer(*units: Unit, entry=None, ids=None) -> ContainerResponse:
    return respond(entry or resource(), list(zip(ids or [u.id for u in units], units, strict=True)))


def env(name: str, value: str, *, index: int = 0) -> tuple[tuple[int, str, str], ...]:
    return ((index, name, value),)


def test_values_of_several_devices_are_joined_in_id_order_and_equal_ones_dropped():
    got = answer(
        device("b", env=(*env("ADDRESSES", "02:00.0"), *env("MODEL", "m1", index=1))),
        device("a", env=(*env("ADDRESSES", "01:00.0"), *env("MODEL", "m1", index=1))),
    )
    assert got.envs == {"ADDRESSES": "01:00.0,02:00.0", "MODEL": "m1"}


def test_replicas_of_one_device_count_once():
    one = device("a", env=env("IDS", "a"), nodes=(NodeGrant("/dev/a", "/dev/a", "rw", env="PATHS"),))
    got = answer(one, one, ids=["a", "a::1"])
    assert got.envs == {"IDS": "a", "PATHS": "/dev/a"}
    assert got.devices == (DeviceSpec("/dev/a", "/dev/a", "rw"),)


def test_position_counts_the_devices_of_the_container():
    grants = {
        "env": env("QAT{position}", "{position}-of"),
        "nodes": (NodeGrant("/dev/x", "/dev/qat{position}", "rw", env="NODE{position}"),),
        "mounts": (MountGrant("/opt/fw", "/fw/{position}", read_only=True),),
        "annotations": (("example.com/{position}", "p{position}"),),
        "cdi_devices": ("v.com/c={position}",),
    }
    got = answer(device("b", **grants), device("a", **grants))
    assert got == ContainerResponse(
        envs={"NODE0": "/dev/qat0", "NODE1": "/dev/qat1", "QAT0": "0-of", "QAT1": "1-of"},
        mounts=(MountGrant("/opt/fw", "/fw/0", read_only=True), MountGrant("/opt/fw", "/fw/1", read_only=True)),
        devices=(DeviceSpec("/dev/x", "/dev/qat0", "rw"), DeviceSpec("/dev/x", "/dev/qat1", "rw")),
        annotations={"example.com/0": "p0", "example.com/1": "p1"},
        cdi_devices=("v.com/c=0", "v.com/c=1"),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [("{{a}}", "{a}"), ("{{position}}{position}", "{position}0"), ("}}{{", "}{"), ("plain", "plain"), ("", "")],
)
def test_doubled_braces_are_literal(text, expected):
    assert answer(device("a", env=env("V", text))).envs == {"V": expected}


def test_companions_and_mounts_that_devices_share_come_once():
    shared = {
        "nodes": (NodeGrant("/dev/ctl", "/dev/ctl", "rw"),),
        "mounts": (MountGrant("/opt/fw", "/opt/fw", read_only=True),),
        "cdi_devices": ("v.com/c=all",),
    }
    got = answer(device("a", **shared), device("b", **shared))
    assert (len(got.devices), len(got.mounts), got.cdi_devices) == (1, 1, ("v.com/c=all",))


def test_if_two_nodes_have_one_container_path_the_first_device_wins_as_in_the_kubelet():
    got = answer(
        device("b", nodes=(NodeGrant("/dev/b", "/dev/modem", "r", env="PORT"),)),
        device("a", nodes=(NodeGrant("/dev/a", "/dev/modem", "rw", env="PORT"),)),
    )
    assert got.devices == (DeviceSpec("/dev/a", "/dev/modem", "rw"),)
    assert got.envs == {"PORT": "/dev/modem"}


def test_a_nodes_variable_gets_every_container_path():
    nodes = tuple(NodeGrant(f"/dev/tty{n}", f"/dev/modem{n}", "rw", env="PORTS") for n in range(2))
    assert answer(device("a", nodes=nodes)).envs == {"PORTS": "/dev/modem0,/dev/modem1"}


def test_permissions_are_never_empty():
    assert answer(device("a", nodes=(NodeGrant("/dev/a", "/dev/a", ""),))).devices[0].permissions == "rw"


def test_counts_restrict_an_entry_to_requests_of_that_size():
    entry = resource(
        sharing=Sharing(replicas=2),
        inject=Inject(env=(Env("BOUNDS", "1,1", counts=(1,)), Env("BOUNDS", "2,1", counts=(2,)), Env("ALL", "x"))),
    )
    both = (*env("BOUNDS", "1,1"), *env("BOUNDS", "2,1", index=1), *env("ALL", "x", index=2))
    a, b = device("a", env=both), device("b", env=both)
    assert answer(a, entry=entry).envs == {"BOUNDS": "1,1", "ALL": "x"}
    assert answer(a, b, entry=entry).envs == {"BOUNDS": "2,1", "ALL": "x"}
    assert answer(a, a, entry=entry, ids=["a", "a::1"]).envs == {"BOUNDS": "2,1", "ALL": "x"}  # ids, not devices


@pytest.mark.parametrize(
    ("entry", "size", "message"),
    [
        (
            resource(allocation=Allocation(counts=(4, 1, 2))),
            3,
            "example.com/dev: 3 requested, a container may have 1, 2 or 4 (allocation.counts)",
        ),
        (
            resource(allocation=Allocation(counts=(1,))),
            2,
            "example.com/dev: 2 requested, a container may have 1 (allocation.counts)",
        ),
        (
            resource(sharing=Sharing(max_per_container=2)),
            3,
            "example.com/dev: 3 requested, a container may have at most 2 (sharing.maxPerContainer)",
        ),
    ],
)
def test_a_request_of_a_wrong_size_is_refused_with_the_allowed_numbers(entry, size, message):
    with pytest.raises(AllocationRefused) as refused:
        answer(*(device(f"d{n}") for n in range(size)), entry=entry)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("entry", "size"),
    [
        (resource(allocation=Allocation(counts=(1, 2, 4))), 4),
        (resource(sharing=Sharing(max_per_container=2)), 2),
        (resource(), 9),
    ],
)
def test_a_request_of_an_allowed_size_is_granted(entry, size):
    assert answer(*(device(f"d{n}", env=env("N", f"{n}")) for n in range(size)), entry=entry).envs


NODES = st.builds(
    NodeGrant,
    st.sampled_from(["/dev/a", "/dev/b"]),
    st.sampled_from(["/dev/a", "/dev/x", "/dev/x{position}"]),
    st.sampled_from(["r", "rw", "rwm"]),
    st.sampled_from(["", "NODE", "NODE{position}"]),
)
GRANTS = st.builds(
    Grants,
    nodes=st.lists(NODES, max_size=2).map(tuple),
    mounts=st.lists(
        st.builds(MountGrant, st.sampled_from("ab"), st.sampled_from(["/m", "/m{position}"]), st.booleans()), max_size=2
    ).map(tuple),
    env=st.lists(st.tuples(st.integers(0, 2), st.sampled_from("AB"), st.sampled_from(["x", "y"])), max_size=3).map(
        tuple
    ),
)


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from("abcd"), GRANTS, min_size=1), st.integers(1, 2), st.randoms(use_true_random=False)
)
def test_the_order_of_the_ids_changes_nothing_and_no_path_comes_twice(grants, replicas, random):
    request = [(f"{n}::{r}", unit(n, grants=g)) for n, g in grants.items() for r in range(replicas)]
    got = respond(resource(), request)
    assert respond(resource(), random.sample(request, len(request))) == got
    for paths in ([d.container_path for d in got.devices], [m.container_path for m in got.mounts]):
        assert len(paths) == len(set(paths))
        assert not any("{" in path for path in paths)
