"""Device nodes that containers have: withheld under another device, and their holders are told when they changed."""

import dataclasses

import pytest
from device_agent.contract.document import Ownership
from device_agent.runtime.errors import UnavailableDevice
from device_agent.select.unit import Grants, NodeGrant, Unit
from device_agent.table.device_table import DeviceTable
from device_agent.table.grants import Grant, words_of
from device_agent.table.snapshot import Health
from unit.table.samples import NAME, OTHER, Steps, document, held, resource, unit

USB0, USB1 = {"/dev/ttyUSB0": "char/188:0"}, {"/dev/ttyUSB1": "char/188:1"}
SHARED = {"/dev/vfio/vfio": "char/10:196"}
GPU_UUID = "GPU-0f6f4a52-1111-2222-3333-444444444444"


def adapter(serial: str, nodes: dict[str, str], *, shared: dict[str, str] | None = None, **fields) -> Unit:
    """A serial adapter: its id is its serial number, its node the next free one. `shared`: nodes of others, too."""
    given = tuple(NodeGrant(path, path, "rw") for path in (*nodes, *(shared or {})))
    values = {"own_nodes": nodes, "nodes": (*nodes, *(shared or {})), "grants": Grants(nodes=given)}
    return unit(serial, **values | fields)


CARD = adapter("card", {"/dev/dri/card0": "char/226:0"}, hardware="devices/pci0000:00/0000:3b:00.0")


def plugged(*units: Unit, resources=(), **fields) -> Steps:
    steps = Steps(*resources, **fields)
    steps.scan(*units)
    steps.list({})
    steps.record()
    return steps


def take(steps: Steps, *ids: str, name: str = NAME) -> list[Grant]:
    """Pods get these ids, one each."""
    grants = [steps.grant(i, name=name) for i in ids]
    steps.allocate(*ids, name=name)
    steps.record(*grants)
    steps.list(held(*ids, name=name))
    return grants


def health(steps: Steps, device_id: str, name: str = NAME) -> tuple[Health, str]:
    state = steps.device(device_id, name=name)
    return state.health, state.withheld or state.reason


def rebooted(*grants: Grant, boot: str, resources=()) -> Steps:
    """An agent of that boot, with what the record has."""
    steps = Steps(*resources)
    steps.table = DeviceTable(document(*resources), owner="lab", boot=boot)
    steps.record(*grants)
    ids: dict = {}
    for grant in grants:
        ids.setdefault(grant.resource, {}).update(held(*grant.ids)["example.com/dev"])
    steps.list(ids)
    return steps


# Numbers that come again


def test_a_device_whose_node_a_pod_has_as_another_devices_is_withheld():
    steps = plugged(adapter("AAA", USB0), adapter("BBB", USB1))
    take(steps, "AAA")
    steps.scan(adapter("BBB", USB1))
    steps.scan(adapter("CCC", USB0), adapter("BBB", USB1))
    assert steps.seen() == {"AAA": False, "BBB": True, "CCC": False}
    assert health(steps, "CCC") == (Health.HEALTHY, "HeldAs")
    for fact in ("/dev/ttyUSB0", "AAA of example.com/dev", "default/pod-AAA"):
        assert fact in steps.device("CCC").text
    with pytest.raises(UnavailableDevice, match="HeldAs"):
        steps.table.units_of(NAME, ["CCC"])
    steps.settle()
    assert steps.seen()["CCC"] is True


def test_the_holder_is_told_that_its_node_is_another_device_now():
    steps = plugged(adapter("AAA", USB0))
    take(steps, "AAA")
    assert steps.table.stale(NAME, ["AAA"]) == ""
    steps.scan()
    assert steps.table.stale(NAME, ["AAA"]) == "", "nothing is there instead"
    steps.scan(adapter("CCC", USB0))
    for fact in ("/dev/ttyUSB0", "CCC of example.com/dev"):
        assert fact in steps.table.stale(NAME, ["AAA"])
    assert steps.device("AAA").stale == {"AAA": steps.table.stale(NAME, ["AAA"])}
    assert steps.device("CCC").stale == {}
    steps.settle()
    assert steps.table.stale(NAME, ["AAA"]) == ""


def test_two_adapters_that_swapped_their_names_are_both_withheld_and_both_holders_are_told():
    steps = plugged(adapter("AAA", USB0), adapter("BBB", USB1))
    grants = take(steps, "AAA", "BBB")
    assert steps.seen() == {"AAA": True, "BBB": True}
    assert steps.scan(adapter("AAA", USB1), adapter("BBB", USB0)) == {NAME}
    for one, other, node in (("AAA", "BBB", "/dev/ttyUSB1"), ("BBB", "AAA", "/dev/ttyUSB0")):
        assert health(steps, one) == (Health.HEALTHY, "HeldAs")
        assert node in steps.device(one).text
        assert f"default/pod-{other}" in steps.device(one).text
        assert steps.device(one).stale[one] == steps.table.stale(NAME, [one]) != ""
    steps.settle(held("BBB"), grants[1])
    assert health(steps, "AAA") == (Health.HEALTHY, "HeldAs"), "BBB's pod has /dev/ttyUSB1"
    assert health(steps, "BBB")[0] is Health.HEALTHY, "only its own pod has a node of it, and nobody AAA's"
    steps.settle()
    assert steps.seen() == {"AAA": True, "BBB": True}


def test_a_node_that_two_pods_have_is_withheld_although_one_of_them_has_it_rightly():
    steps = plugged(adapter("AAA", USB0, replicas=2), adapter("BBB", USB1))
    (grant,) = take(steps, "AAA")
    steps.scan(adapter("AAA", USB1, replicas=2), adapter("BBB", USB0))
    foreign = Grant("uid-x", "main", "vendor.com/thing", ("x",), None, ("/dev/ttyUSB0",))
    steps.record(grant, foreign)
    steps.scan(adapter("AAA", USB0, replicas=2), adapter("BBB", USB1))
    assert health(steps, "AAA") == (Health.HEALTHY, "HeldAs")
    for fact in ("/dev/ttyUSB0", "x of vendor.com/thing"):
        assert fact in steps.device("AAA").text
    with pytest.raises(UnavailableDevice, match="HeldAs"):
        steps.table.units_of(NAME, ["AAA::1"])


def test_a_device_that_moved_to_a_free_node_is_offered_and_its_holder_told():
    steps = plugged(adapter("AAA", USB0))
    take(steps, "AAA")
    steps.scan(adapter("AAA", USB1))
    assert steps.seen() == {"AAA": True}
    for fact in ("/dev/ttyUSB0", "/dev/ttyUSB1"):
        assert fact in steps.table.stale(NAME, ["AAA"])


def test_a_node_of_another_number_is_told_within_one_boot():
    moved = adapter("AAA", {"/dev/ttyUSB0": "char/188:7"})
    steps = plugged(adapter("AAA", USB0))
    (grant,) = take(steps, "AAA")
    steps.scan(moved)
    for fact in ("char/188:0", "char/188:7"):
        assert fact in steps.table.stale(NAME, ["AAA"])
    after = rebooted(grant, boot="the next boot")
    after.scan(moved)
    assert after.table.stale(NAME, ["AAA"]) == ""


def test_the_number_alone_is_the_device_too():
    steps = plugged(adapter("AAA", USB0))
    take(steps, "AAA")
    steps.scan()
    steps.scan(adapter("CCC", {"/dev/other": "char/188:0"}))
    assert health(steps, "CCC") == (Health.HEALTHY, "HeldAs")


@pytest.mark.parametrize(("boot", "withheld"), [("boot", True), ("the next boot", False)])
def test_numbers_count_in_their_own_boot_alone(boot: str, *, withheld: bool):
    (grant,) = take(plugged(adapter("AAA", USB0)), "AAA")
    steps = rebooted(grant, boot=boot)
    steps.scan(adapter("CCC", {"/dev/other": "char/188:0"}))
    assert steps.seen() == {"AAA": False, "CCC": not withheld}


def test_paths_count_after_a_reboot():
    (grant,) = take(plugged(adapter("AAA", USB0)), "AAA")
    steps = rebooted(grant, boot="the next boot")
    steps.scan(adapter("CCC", {"/dev/ttyUSB0": "char/188:9"}))
    assert health(steps, "CCC") == (Health.HEALTHY, "HeldAs")
    assert "CCC" in steps.table.stale(NAME, ["AAA"])


def test_an_unknown_number_is_no_number():
    steps = plugged(adapter("AAA", {"/dev/a": ""}))
    take(steps, "AAA")
    steps.scan(adapter("CCC", {"/dev/c": ""}))
    assert steps.seen() == {"AAA": False, "CCC": True}
    steps.scan(adapter("AAA", {"/dev/a": "char/1:1"}), adapter("CCC", {"/dev/c": ""}))
    assert steps.table.stale(NAME, ["AAA"]) == ""


# Nodes that block nobody


def test_nodes_that_several_devices_have_by_design_block_nobody():
    steps = plugged(adapter("AAA", USB0, shared=SHARED), adapter("BBB", USB1, shared=SHARED))
    take(steps, "AAA")
    steps.scan(adapter("AAA", USB0, shared=SHARED), adapter("BBB", USB1, shared=SHARED))
    assert steps.seen() == {"AAA": True, "BBB": True}


def test_nodes_that_the_container_did_not_get_block_nobody():
    """Such as with `ownNodes: None`: the runtime gives them, and the record does not know which."""
    without = dataclasses.replace(adapter("AAA", USB0), grants=Grants())
    steps = plugged(without)
    take(steps, "AAA")
    steps.scan(adapter("CCC", USB0))
    assert steps.seen() == {"AAA": False, "CCC": True}
    assert steps.table.stale(NAME, ["AAA"]) == ""


def test_companions_in_an_answer_with_a_note_block_nobody():
    steps = plugged(adapter("AAA", USB0), CARD)
    (grant,) = take(steps, "AAA")
    steps.record(dataclasses.replace(grant, nodes=("/dev/dri/card0", "/dev/ttyUSB0")))
    assert steps.seen() == {"AAA": True, "card": True}


def test_ids_of_one_device_do_not_block_each_other():
    steps = plugged(adapter("AAA", USB0, replicas=2))
    take(steps, "AAA")
    steps.scan(adapter("AAA", USB0, replicas=2))
    assert steps.seen() == {"AAA": True, "AAA::1": True}


def test_observing_resources_neither_block_nor_are_blocked_nor_told():
    watch = resource(OTHER, ownership=Ownership.NONE)
    steps = plugged(adapter("h", USB0, name=OTHER), resources=(resource(), watch))
    take(steps, "h", name=OTHER)
    steps.scan(adapter("CCC", USB0), adapter("h", USB1, name=OTHER))
    assert steps.seen() == {"CCC": True}
    assert steps.table.stale(OTHER, ["h"]) == ""
    take(steps, "CCC")
    steps.scan(adapter("h", USB0, name=OTHER))
    assert steps.seen(OTHER) == {"h": True}


def test_the_node_of_another_objects_device_is_withheld_as_well():
    theirs = plugged(adapter("AAA", USB0, name=OTHER), resources=(resource(OTHER),), owner="another")
    grants = take(theirs, "AAA", name=OTHER)
    steps = plugged(adapter("CCC", USB0))
    steps.record(*grants)
    assert health(steps, "CCC") == (Health.HEALTHY, "HeldAs")
    assert "AAA of example.com/other" in steps.device("CCC").text


# Answers of other plugins


def foreign(*, ids=("x1",), nodes=(), words=(), pod="uid-x", name="example.net/x") -> Grant:
    return Grant(pod, "main", name, ids, nodes=nodes, words=words)


@pytest.mark.parametrize(
    ("device", "grant"),
    [
        (CARD, foreign(nodes=("/dev/dri/card0", "/dev/null"))),
        (CARD, foreign(words=("0000:3b:00.0",))),
        (unit("c", hardware="devices/c", attributes={"pci.address": "0000:3b:00.0"}), foreign(words=("0000:3b:00.0",))),
        (unit("c", hardware="devices/c", attributes={"uuid": GPU_UUID}), foreign(words=(GPU_UUID,))),
        (unit("c", hardware="devices/c", value=GPU_UUID), foreign(words=(GPU_UUID,))),
    ],
    ids=["node", "PCI address in sysfs", "PCI address", "UUID", "UUID as value"],
)
def test_a_device_in_another_plugins_answer_is_withheld_and_the_holder_named(device: Unit, grant: Grant):
    beside = adapter("beside", USB0, hardware="devices/pci0000:00/0000:3c:00.0")
    steps = plugged(device, beside)
    assert steps.record(grant) == {NAME}
    assert steps.seen() == {"beside": True, device.id: False}
    assert health(steps, device.id) == (Health.HEALTHY, "HeldAs")
    for fact in ("x1 of example.net/x", "uid-x"):
        assert fact in steps.device(device.id).text
    steps.settle()
    assert steps.seen() == {"beside": True, device.id: True}


def test_a_device_of_another_plugin_is_withheld_until_two_seconds_after_it_is_free():
    steps = plugged(CARD)
    steps.record(foreign(nodes=("/dev/dri/card0",)))
    steps.list({}, begun=steps.now + 1.5)
    steps.record()
    assert steps.seen() == {"card": False}
    steps.now += 1
    steps.record()
    assert steps.seen() == {"card": True}


def test_a_node_is_withheld_until_two_seconds_after_it_is_free():
    steps = plugged(adapter("AAA", USB0))
    take(steps, "AAA")
    steps.scan(adapter("CCC", USB0))
    steps.list({})
    steps.record()
    assert steps.seen()["CCC"] is False
    steps.now += 1
    steps.record()
    assert steps.seen()["CCC"] is True


def test_the_holder_of_another_plugins_answer_is_named_as_list_names_it():
    steps = plugged(CARD)
    steps.list(held("x1", name="example.net/x"))
    steps.record(foreign(nodes=("/dev/dri/card0",)))
    assert "default/pod-x1" in steps.device("card").text


def test_a_node_that_two_of_our_devices_have_tells_of_neither():
    one, two = adapter("one", USB0), adapter("two", USB0 | USB1)
    steps = plugged(one, two)
    steps.record(foreign(nodes=("/dev/ttyUSB0",)))
    assert steps.seen() == {"one": True, "two": True}
    steps.record(foreign(nodes=("/dev/ttyUSB1",), pod="another"))
    assert steps.seen() == {"one": True, "two": False}


def test_a_device_found_in_another_plugins_answer_stays_found_when_nodes_are_numbered_anew():
    steps = plugged(CARD)
    steps.record(foreign(nodes=("/dev/dri/card0",)))
    moved = dataclasses.replace(CARD, own_nodes={"/dev/dri/card1": "char/226:1"})
    steps.scan(moved, adapter("new", {"/dev/dri/card0": "char/226:0"}))
    assert steps.seen() == {"card": False, "new": False}
    steps.record()
    steps.settle()
    assert steps.seen() == {"card": True, "new": True}


def test_an_answer_without_a_note_under_our_own_id_blocks_its_own_device_not():
    """Such as of an agent that wrote none."""
    steps = plugged(CARD, adapter("AAA", USB0))
    steps.record(foreign(ids=("card",), nodes=("/dev/dri/card0",), words=("0000:3b:00.0",), name=NAME))
    assert steps.seen() == {"card": True, "AAA": True}
    steps.record(foreign(ids=("card",), nodes=("/dev/dri/card0", "/dev/ttyUSB0"), name=NAME, pod="another"))
    assert steps.seen() == {"card": True, "AAA": False}


def test_another_plugins_answer_does_not_touch_what_is_observed_alone():
    watch = resource(OTHER, ownership=Ownership.NONE)
    steps = plugged(dataclasses.replace(CARD, entry=OTHER, resource=OTHER), resources=(watch,))
    steps.record(foreign(nodes=("/dev/dri/card0",), words=("0000:3b:00.0",)))
    assert steps.seen(OTHER) == {"card": True}


def test_words_of_a_device_are_whole_addresses_and_uuids():
    device = unit(
        GPU_UUID,
        hardware="devices/pci0000:00/0000:00:01.0/00000000:3B:00.0",
        attributes={"uuid": "MIG-0f6f4a52-1111-2222-3333-555555555555", "pci.address": "0000:3b:00.0", "serial": "7"},
    )
    assert set(words_of(device)) == {
        GPU_UUID, "MIG-0f6f4a52-1111-2222-3333-555555555555", "0000:3b:00.0", "00000000:3b:00.0",
    }  # fmt: skip
