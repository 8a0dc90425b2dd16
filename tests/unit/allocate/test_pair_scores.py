"""How close two devices are: from the PCI functions in their paths, NUMA nodes and NVLinks."""

import itertools

import pytest
from device_agent.allocate.topology import LINK, MAX_GROUPS, Level, Spot, affinity, level, pci_chain, spot_of
from device_agent.contract.inventory import Identity
from device_agent.select.unit import Grants, Unit
from hypothesis import given
from hypothesis import strategies as st
from unit.allocate.nodes import all_to_all, below_switches, cube_mesh, named


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("devices/pci0000:00/0000:00:02.0/0000:03:00.0", ("pci0000:00", "0000:00:02.0", "0000:03:00.0")),
        ("devices/pci0000:00/0000:00:03.0", ("pci0000:00", "0000:00:03.0")),
        ("devices/pci0000:00/0000:00:02.0/0000:03:00.0/drm/card0", ("pci0000:00", "0000:00:02.0", "0000:03:00.0")),
        ("devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0", ("pci0000:00", "0000:00:14.0")),
        ("devices/pci10000:e0/10000:e0:06.0/10000:e1:00.0", ("pci10000:e0", "10000:e0:06.0", "10000:e1:00.0")),
        ("devices/platform/soc/pci0001:00/0001:00:01.0", ("pci0001:00", "0001:00:01.0")),
        ("devices/pci0000:00", ()),
        ("devices/virtual/block/loop0", ()),
        ("simulated:sim-1a2b3c-0", ()),
        ("", ()),
    ],
)
def test_the_pci_functions_of_a_path(path, expected):
    assert pci_chain(path) == expected


def chain(*parts: str, numa: int | None = 0, device: str = "") -> Spot:
    return Spot(chain=parts, numa_node=numa, device=device)


UPSTREAM = ("pci0000:00", "0000:00:02.0", "0000:03:00.0")
CASCADE = (*UPSTREAM, "0000:04:00.0", "0000:05:00.0")


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (chain(device="a", numa=None), chain(device="a", numa=None), Level.FUNCTION),  # two partitions of a GPU
        (chain(*UPSTREAM), chain(*UPSTREAM), Level.FUNCTION),  # two objects of a function
        (chain("pci0000:00", "0000:00:02.0", "0000:03:00.0"), chain("pci0000:00", "0000:00:02.0", "0000:03:00.1"),
         Level.FUNCTION),  # two functions of a card
        (chain(*UPSTREAM, "0000:04:08.0", "0000:05:00.0"), chain(*UPSTREAM, "0000:04:10.0", "0000:06:00.0"),
         Level.SWITCH),
        (chain(*CASCADE, "0000:06:00.0", "0000:07:00.0"), chain(*CASCADE, "0000:06:01.0", "0000:08:00.0"),
         Level.SWITCH),  # the second of two switches in a row
        (chain(*CASCADE, "0000:06:00.0", "0000:07:00.0"), chain(*UPSTREAM, "0000:04:10.0", "0000:09:00.0"),
         Level.SWITCHES),  # one behind the second switch, one behind the first
        (chain("pci0000:00", "0000:00:02.0", "0000:03:00.0"), chain("pci0000:00", "0000:00:03.0", "0000:04:00.0"),
         Level.HOST_BRIDGE),
        (chain("pci0000:00", "0000:00:02.0"), chain("pci0000:00", "0000:00:03.0"), Level.HOST_BRIDGE),
        (chain("pci0000:00", "0000:00:02.0", numa=None), chain("pci0000:00", "0000:00:03.0", numa=None),
         Level.HOST_BRIDGE),
        (chain("pci0000:00", "0000:00:02.0"), chain("pci0000:00", "0000:00:03.0", numa=1), Level.SYSTEM),
        (chain("pci0000:00", "0000:00:02.0"), chain("pci0000:40", "0000:40:02.0"), Level.NODE),
        (chain("pci0000:00", "0000:00:02.0"), chain("pci0000:80", "0000:80:02.0", numa=1), Level.SYSTEM),
        (chain("pci0000:00", "0000:00:02.0", numa=None), chain("pci0000:80", "0000:80:02.0"), Level.UNKNOWN),
        (chain(), chain(), Level.NODE),
        (chain(numa=None), chain(numa=None), Level.UNKNOWN),
    ],
)  # fmt: skip
def test_the_level_of_two_devices(one, other, expected):
    assert level(one, other) is level(other, one) is expected


def unit(i: str = "u", *paths: str, parts: tuple[str, ...] = ()) -> Unit:
    return Unit(
        entry="example.com/d",
        resource="example.com/d",
        id=i,
        value=i,
        identity=Identity.STABLE,
        source="pci",
        attributes={},
        nodes=(),
        grants=Grants(),
        hardware=paths,
        numa_node=1,
        parts=parts,
    )


CARD = "devices/pci0000:00/0000:00:02.0/0000:03:00"


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (unit("u", f"{CARD}.0"), chain(*UPSTREAM, numa=1)),
        (unit("u", f"{CARD}.0", f"{CARD}.1"), chain(*UPSTREAM[:2], numa=1)),  # a group: what is above all of it
        (unit("u", "simulated:0"), chain(numa=1)),
        (unit("u", f"{CARD}.0", parts=("GPU-1",)), chain(*UPSTREAM, numa=1, device="GPU-1")),
        (unit("u", parts=("GPU-1", "GPU-1/3", "GPU-1/3/0")), chain(numa=1, device="GPU-1")),  # a partition
        (unit("u", parts=("GPU-1", "GPU-2")), chain(numa=1)),  # a group is none of them
    ],
)
def test_where_a_unit_is(of, expected):
    assert spot_of(of) == expected


def test_a_pair_scores_its_links_and_its_place():
    mesh = cube_mesh()
    assert mesh.between("gpu0", "gpu1") == LINK + Level.SWITCH
    assert mesh.between("gpu0", "gpu3") == 2 * LINK + Level.HOST_BRIDGE
    assert mesh.between("gpu0", "gpu4") == 2 * LINK + Level.SYSTEM
    assert mesh.between("gpu0", "gpu7") == Level.SYSTEM


def test_a_link_outweighs_all_pcie_levels_of_a_large_set():
    pairs = 20 * 19 // 2
    assert pairs * (max(Level) - min(Level)) < LINK


@pytest.mark.parametrize("count", [MAX_GROUPS + 1, 200])
def test_any_number_of_single_devices_on_one_host_bridge_is_one_group(count):
    def ports(bridge: str, numa: int) -> dict[str, Spot]:
        return {
            f"{bridge}-{n}": chain(f"pci0000:{bridge}", f"0000:{bridge}:{n:02x}.0", f"0000:{n:02x}:00.0", numa=numa)
            for n in range(count)
        }

    found = affinity(ports("00", 0) | ports("80", 1), {})
    assert found.scores == ((Level.HOST_BRIDGE, Level.SYSTEM), (Level.SYSTEM, Level.HOST_BRIDGE))


BUSES = st.lists(st.integers(0, 1), max_size=5)


@given(st.lists(st.tuples(BUSES, st.sampled_from([None, 0, 1]), st.booleans()), min_size=2, max_size=8))
def test_every_pair_of_unlinked_devices_scores_its_level(places):
    spots = {
        f"d{n}": Spot(tuple(map(str, bus)), numa, device=f"gpu{bus}" if named_by_driver else "")
        for n, (bus, numa, named_by_driver) in enumerate(places)
    }
    found = affinity(spots, {})
    for one, other in itertools.combinations(spots, 2):
        expected = level(spots[one], spots[other])
        if found is None:
            assert expected <= Level.NODE
        else:
            assert found.between(one, other) == expected


def test_devices_with_equal_scores_are_one_group():
    assert len(cube_mesh().scores) == 8
    assert all_to_all().group_of == {f"gpu{n}": n // 2 for n in range(8)}
    functions = {
        f"0000:03:0{n // 8}.{n % 8}": Spot((*UPSTREAM[:2], f"0000:03:0{n // 8}.{n % 8}"), 0) for n in range(64)
    }
    assert affinity(functions, {}).scores == ((Level.FUNCTION,),)
    ports = {f"d{n}": Spot(("pci0000:00", f"0000:00:{n:02x}.0", f"0000:{n:02x}:00.0"), 0) for n in range(30)}
    assert affinity(ports, {}).scores == ((Level.HOST_BRIDGE,),)


def test_partitions_of_two_gpus_are_as_far_apart_as_the_gpus():
    whole = below_switches(4, per_switch=2, per_node=2)
    parts = {f"{g}-{n}": spot for g, spot in whole.items() for n in range(7)}
    links = named({(0, 2): 4})
    of_parts, of_whole = affinity(parts, links), affinity(whole, links)
    assert of_parts.between("gpu0-0", "gpu0-6") == Level.FUNCTION
    for a in whole:
        for b in whole:
            if a != b:
                assert of_parts.between(f"{a}-1", f"{b}-2") == of_whole.between(a, b)


@pytest.mark.parametrize(
    "spots",
    [
        {},
        {"a": chain("pci0000:00", "0000:00:02.0")},
        {"a": chain(), "b": chain()},
        {"a": chain("pci0000:00", "0000:00:02.0"), "b": chain("pci0000:80", "0000:80:02.0", numa=1)},
        {f"d{n}": chain(f"pci00{n:02x}:00", f"00{n:02x}:00:02.0", numa=n % 2) for n in range(MAX_GROUPS)},
    ],
)
def test_there_are_no_scores_if_they_say_no_more_than_numa_nodes(spots):
    assert affinity(spots, {}) is None


def test_there_are_no_scores_for_too_many_groups():
    def nodes(count: int) -> dict[str, Spot]:
        return {f"d{n}": chain(f"pci{n // 2:04x}:00", f"{n // 2:04x}:00:0{n % 2}.0", numa=None) for n in range(count)}

    assert len(affinity(nodes(2 * MAX_GROUPS), {}).scores) == MAX_GROUPS
    assert affinity(nodes(2 * MAX_GROUPS + 2), {}) is None
