"""The device table's pair scores: made from the devices and links of the moment."""

from device_agent.allocate.topology import LINK, Level
from unit.table.samples import NAME, OTHER, Steps, held, resource, unit

BRIDGE = "devices/pci0000:00/0000:00:02.0/0000:03:00.0"


def card(name: str, port: int, **fields):
    path = f"{BRIDGE}/0000:04:0{port}.0/0000:0{5 + port}:00.0"
    return unit(name, hardware=path, source="made-up", parts=(name,), **fields)


def test_scores_are_made_once_per_change():
    steps = Steps()
    steps.scan(card("a", 0), card("b", 1))
    scores = steps.table.affinity(NAME)
    assert scores.between("a", "b") == Level.SWITCH
    steps.scan(card("a", 0), card("b", 1))
    steps.list(held("a"))
    steps.table.apply_links({}, source="made-up")
    assert steps.table.affinity(NAME) is scores


def test_links_count_only_while_they_are_known():
    steps = Steps()
    steps.scan(card("a", 0), card("b", 1))
    assert steps.table.affinity(NAME).between("a", "b") == Level.SWITCH
    steps.table.apply_links({("a", "b"): 2}, source="made-up")
    assert steps.table.affinity(NAME).between("a", "b") == 2 * LINK + Level.SWITCH
    steps.table.apply_links({("a", "b"): 1}, source="made-up")
    assert steps.table.affinity(NAME).between("a", "b") == LINK + Level.SWITCH
    steps.table.apply_links({}, source="made-up")
    assert steps.table.affinity(NAME).between("a", "b") == Level.SWITCH


def test_a_device_that_comes_goes_or_moves_is_seen():
    steps = Steps()
    steps.scan(card("a", 0), card("b", 1))
    assert steps.table.affinity(NAME).group_of.keys() == {"a", "b"}
    steps.scan(card("a", 0), card("b", 1), card("c", 2))
    assert steps.table.affinity(NAME).between("a", "c") == Level.SWITCH
    elsewhere = unit("c", hardware="devices/pci0000:00/0000:00:07.0", source="made-up", parts=("c",))
    steps.scan(card("a", 0), card("b", 1), elsewhere)
    assert steps.table.affinity(NAME).between("a", "c") == Level.HOST_BRIDGE
    steps.scan(card("a", 0), card("b", 1))
    steps.send()
    steps.list({})
    assert steps.table.affinity(NAME).group_of.keys() == {"a", "b"}


def test_each_resource_has_scores_of_its_own_and_an_unknown_name_none():
    steps = Steps(resource(NAME), resource(OTHER))
    steps.scan(card("a", 0), card("b", 1), unit("c", name=OTHER))
    assert steps.table.affinity(NAME) is not None
    assert steps.table.affinity(OTHER) is None
    assert steps.table.affinity("example.com/nobody") is None


def test_links_of_two_sources_count_beside_each_other():
    steps = Steps()
    steps.scan(card("a", 0), card("b", 1), card("c", 2), card("d", 3))
    steps.table.apply_links({("a", "b"): 2}, source="made-up")
    steps.table.apply_links({("c", "d"): 3}, source="another")
    steps.table.apply_links({("a", "b"): 1}, source="made-up")
    affinity = steps.table.affinity(NAME)
    assert (affinity.between("a", "b"), affinity.between("c", "d"), affinity.between("a", "c")) == (
        LINK + Level.SWITCH,
        3 * LINK + Level.SWITCH,
        Level.SWITCH,
    )
