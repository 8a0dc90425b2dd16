"""The source `nvml`: what a look becomes beside sysfs, /dev and the other entries of a document."""

from dataclasses import replace

import fakenvml
import pytest
from device_agent.contract.document import Document, parse_resource
from device_agent.contract.inventory import Identity
from device_agent.discovery.scanner import Scanner
from device_agent.nvml.model import NvmlView, unanswered
from device_agent.nvml.source import opener
from device_agent.select.selection import select
from device_agent.select.unit import Selection
from unit.nvml.conftest import GpuNode, MakeDriver, MakeNode

GPU = {"nvml": {"kind": "GPU"}}
MIG = {"nvml": {"kind": "MIG"}}


def entry(name: str, *devices: dict, **fields: object) -> dict:
    return {"name": name, "devices": list(devices), **fields}


def chosen(node: GpuNode, view: NvmlView | None, *entries: dict, known: frozenset[str] = frozenset()) -> Selection:
    document = Document(resources=tuple(parse_resource(e, path="resources") for e in entries))
    scanner = Scanner(node.roots)
    return select(
        document, scanner.scan(document, drivers={"nvml": opener(view, document)}, known=known), exists=scanner.exists
    )


def ids(selection: Selection) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for unit in selection.units:
        found.setdefault(unit.resource, []).append(unit.id)
    return found


def reasons(selection: Selection) -> set[tuple[str, str, str]]:
    return {(e.entry, e.id, e.reason) for e in selection.excluded}


def test_a_whole_gpu_is_told_by_its_uuid_and_has_its_attributes(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(8)
    selection = chosen(node, driver_of(node).look(), entry("nvidia.com/gpu", GPU))
    assert len(selection.units) == 8
    assert "nvidia-smi -L" in selection.vanished["nvml"]
    unit = next(u for u in selection.units if u.id == fakenvml.uuid(5))
    assert (unit.identity, unit.numa_node, unit.nodes, unit.problem) == (Identity.STABLE, 1, ("/dev/nvidia5",), None)
    assert unit.hardware == ("devices/pci0000:15/0000:15:00.0",)
    assert unit.attributes == {
        "name": fakenvml.uuid(5), "uuid": fakenvml.uuid(5), "index": "5", "minor": "5", "path": "/dev/nvidia5",
        "model": "NVIDIA A100-SXM4-40GB", "memoryMiB": "40960", "numaNode": "1", "computeCapability": "8.0",
        "architecture": "ampere", "brand": "Nvidia", "driverVersion": "580.95.05", "cudaVersion": "13.0",
        "migMode": "Disabled", "driver": "nvidia", "subsystem": "pci", "pci.address": "0000:15:00.0",
        "pci.vendor": "10de", "pci.device": "20b0", "pci.class": "030200", "pci.driver": "nvidia",
    }  # fmt: skip


def test_mig_devices_by_profile(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(3)
    one, two, three = node.repartition(1, "1g.5gb", "1g.5gb", "1c.3g.20gb")
    selection = chosen(
        node, driver_of(node).look(), entry("nvidia.com/gpu", GPU), entry("nvidia.com/mig-{profile}", MIG)
    )
    assert ids(selection) == {
        "nvidia.com/gpu": sorted((fakenvml.uuid(0), fakenvml.uuid(2))),
        "nvidia.com/mig-1g.5gb": sorted((one.uuid, two.uuid)),
        "nvidia.com/mig-1c.3g.20gb": [three.uuid],
    }
    unit = next(u for u in selection.units if u.id == three.uuid)
    caps = [f"/dev/nvidia-caps/nvidia-cap{n}" for n in three.caps]
    assert unit.nodes == (*sorted(caps), "/dev/nvidia1")
    wanted = {
        "uuid": three.uuid, "parentUuid": fakenvml.uuid(1), "profile": "1c.3g.20gb", "gi": "3", "ci": "0",
        "index": "1:2", "memoryMiB": "19968", "minor": "1", "migMode": "Enabled", "path": "/dev/nvidia1",
        "pci.address": "0000:11:00.0",
    }  # fmt: skip
    assert {name: unit.attributes.get(name) for name in wanted} == wanted
    assert reasons(selection) == {
        ("nvidia.com/gpu", fakenvml.uuid(1), "MigEnabled"),
        ("nvidia.com/mig-{profile}", fakenvml.uuid(0), "MigDisabled"),
        ("nvidia.com/mig-{profile}", fakenvml.uuid(2), "MigDisabled"),
    }


def test_the_single_strategy_is_one_name_for_all_partitions(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(2)
    made = [*node.repartition(0, "1g.5gb", "1g.5gb"), *node.repartition(1, "1g.5gb")]
    selection = chosen(node, driver_of(node).look(), entry("nvidia.com/gpu", MIG))
    assert ids(selection) == {"nvidia.com/gpu": sorted(m.uuid for m in made)}


def test_partitions_of_one_gpu_may_belong_to_several_entries(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(1)
    small, big = node.repartition(0, "1g.5gb", "3g.20gb")
    include = [{"attribute": "profile", "values": ["1g.*"]}]
    selection = chosen(
        node, driver_of(node).look(),
        entry("a.com/small", {**MIG, "include": include}), entry("a.com/rest", MIG),
    )  # fmt: skip
    assert ids(selection) == {"a.com/small": [small.uuid], "a.com/rest": [big.uuid]}
    assert ("a.com/rest", small.uuid, "OwnedByEarlierEntry") in reasons(selection)


@pytest.mark.parametrize("kind", [GPU, MIG])
def test_who_has_the_pci_function_has_the_gpu(node_of: MakeNode, driver_of: MakeDriver, kind: dict) -> None:
    node = node_of(2)
    if kind is MIG:
        node.repartition(0, "1g.5gb")
        node.repartition(1, "1g.5gb")
    pci = {"pci": {"addresses": ["0000:10:00.0"]}}
    selection = chosen(node, driver_of(node).look(), entry("a.com/pci", pci), entry("a.com/nvml", kind))
    assert [u.attributes["pci.address"] for u in selection.units] == ["0000:10:00.0", "0000:11:00.0"]
    assert [e.reason for e in selection.excluded] == ["OwnedByEarlierEntry"]


def test_a_gpu_in_mig_mode_without_partitions_is_a_reason(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(1)
    node.scenario.set_mig_mode(0, enabled=True)
    selection = chosen(node, driver_of(node).look(), entry("a.com/{profile}", MIG))
    assert (selection.units, reasons(selection)) == ((), {("a.com/{profile}", fakenvml.uuid(0), "NoMigDevices")})
    assert (selection.refused, selection.notes) == ({}, {})


def test_a_partition_without_a_profile_is_a_reason(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(1)
    good, bad = node.repartition(0, "1g.5gb", "1g.5gb")
    bad.profile, bad.slices = "", 0
    node.scenario.write()
    selection = chosen(node, driver_of(node).look(), entry("a.com/{profile}", MIG))
    assert ids(selection) == {"a.com/1g.5gb": [good.uuid]}
    assert reasons(selection) == {("a.com/{profile}", bad.uuid, "Unreadable")}


def test_unequal_gpus_are_resources_of_their_own(node_of: MakeNode, driver_of: MakeDriver) -> None:
    gpus = fakenvml.a100s(2)
    gpus[1].name, gpus[1].mig = "Tesla T4", None
    node = node_of(gpus)
    selection = chosen(node, driver_of(node).look(), entry("nvidia.com/{model}", GPU), entry("a.com/mig", MIG))
    assert ids(selection) == {
        "nvidia.com/NVIDIA-A100-SXM4-40GB": [fakenvml.uuid(0)],
        "nvidia.com/Tesla-T4": [fakenvml.uuid(1)],
    }
    assert reasons(selection) == {("a.com/mig", fakenvml.uuid(0), "MigDisabled")}, "a T4 has no MIG: no news"


def test_a_missing_node_matters_to_who_gives_nodes_out(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(2)
    view = driver_of(node).look()
    (node.roots.dev / "nvidia1").unlink()
    with_nodes = chosen(node, view, entry("a.com/gpu", GPU))
    without = chosen(node, view, entry("a.com/gpu", GPU, inject={"ownNodes": "None"}))
    assert {u.id: u.problem for u in with_nodes.units} == {
        fakenvml.uuid(0): None,
        fakenvml.uuid(1): ("DeviceNodeMissing", "/dev/nvidia1 does not exist"),
    }
    assert [u.problem for u in without.units] == [None, None]


def test_a_missing_capability_node_says_who_makes_it(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(1)
    [mig] = node.repartition(0, "1g.5gb")
    (node.roots.dev / f"nvidia-caps/nvidia-cap{mig.caps[0]}").unlink()
    [unit] = chosen(node, driver_of(node).look(), entry("a.com/mig", MIG)).units
    assert unit.problem == (
        "DeviceNodeMissing",
        f"/dev/nvidia-caps/nvidia-cap{mig.caps[0]} does not exist: nvidia-modprobe makes it",
    )


def test_why_nothing_is_found_stands_beside_the_entry(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(2)
    node.scenario.unload_driver()
    view = driver_of(node).look()
    selection = chosen(node, view, entry("a.com/gpu", GPU), entry("a.com/tty", {"files": {"paths": ["/dev/tty*"]}}))
    assert selection.notes == {"a.com/gpu": view.unavailable}
    assert chosen(node, None, entry("a.com/gpu", GPU)).notes == {"a.com/gpu": "the NVIDIA driver has not answered yet"}
    assert chosen(node, NvmlView(), entry("a.com/gpu", GPU)).notes == {
        "a.com/gpu": "the NVIDIA driver is loaded and has no GPU"
    }


def test_a_gpu_that_the_driver_has_and_cannot_show_is_a_reason(node_of: MakeNode, driver_of: MakeDriver) -> None:
    """It fell off the bus before the agent began: nobody knows its UUID, and it must not be missed in silence."""
    node = node_of(4)
    node.scenario.lose(1)
    for address, change in (("0000:12:00.0", "driver"), ("0000:13:00.0", "physfn")):
        place = (node.roots.sys / "bus/pci/devices" / address).resolve()
        if change == "driver":
            (place / "driver").unlink()  # bound to none: not the driver's
        else:
            (place / "physfn").symlink_to("../0000:10:00.0")
    del node.scenario.gpus[2:]
    node.scenario.write()
    view = driver_of(node).look()
    selection = chosen(node, view, entry("a.com/gpu", GPU), entry("a.com/mig", MIG))
    assert ids(selection) == {"a.com/gpu": [fakenvml.uuid(0)]}
    assert ("a.com/gpu", "0000:11:00.0", "Unreadable") in reasons(selection)
    assert {i for _, i, _ in reasons(selection)} == {"0000:11:00.0", fakenvml.uuid(0)}
    hung = replace(view, unavailable="NVML hangs")
    assert "0000:11:00.0" not in {i for _, i, _ in reasons(chosen(node, hung, entry("a.com/gpu", GPU)))}


def test_a_node_without_nvidia_hardware_has_nothing_to_say(node_of: MakeNode) -> None:
    node = node_of(0)
    (node.roots.dev / "nvidiactl").unlink()
    view = NvmlView(unavailable="no driver library")
    tty = entry("a.com/tty", {"files": {"paths": ["/dev/tty*"]}})
    selection = chosen(node, view, entry("a.com/gpu", GPU), tty)
    assert selection.notes == {}
    assert {e.entry for e in selection.excluded} <= {"a.com/tty"}


def test_a_pool_of_nvidia_devices_alone_is_told_why_there_are_none_and_that_is_no_fault(node_of: MakeNode) -> None:
    """A node without any sign of such hardware may be in the pool for no reason, or its board is of another class."""
    node = node_of(0)
    (node.roots.dev / "nvidiactl").unlink()
    selection = chosen(
        node, NvmlView(unavailable="no driver library"), entry("a.com/gpu", GPU), entry("a.com/mig", MIG)
    )
    assert selection.notes == {}
    assert {(e.entry, e.reason, e.message) for e in selection.excluded} == {
        (name, "NothingFound", "devices[0]: no driver library") for name in ("a.com/gpu", "a.com/mig")
    }
    assert chosen(node, None, entry("a.com/gpu", GPU)).excluded == ()


def test_where_there_were_devices_their_absence_is_a_fault(node_of: MakeNode) -> None:
    node = node_of(0)
    (node.roots.dev / "nvidiactl").unlink()
    view = NvmlView(unavailable="driver not loaded")
    tty = entry("a.com/tty", {"files": {"paths": ["/dev/tty*"]}})
    found = chosen(node, view, entry("a.com/gpu", GPU), entry("a.com/mig", MIG), tty, known=frozenset({"a.com/gpu"}))
    assert found.notes == {"a.com/gpu": "driver not loaded"}


def test_a_driver_that_hangs_takes_no_device_away(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(2)
    view = driver_of(node).look()
    hung = replace(view, gpus=unanswered(view.gpus), unavailable="NVML hangs: it does not answer")
    before = chosen(node, view, entry("a.com/gpu", GPU))
    after = chosen(node, hung, entry("a.com/gpu", GPU))
    assert replace(after, notes={}) == before
    assert after.notes == {"a.com/gpu": "NVML hangs: it does not answer"}


def test_of_a_gpu_that_is_no_longer_shown_an_admin_is_told_where_to_look(node_of: MakeNode) -> None:
    gpu, tty = entry("a.com/gpu", GPU), entry("a.com/tty", {"files": {"paths": ["/dev/tty*"]}})
    advice = chosen(node_of(0), NvmlView(), gpu, tty).vanished
    assert list(advice) == ["nvml"]
    assert "nvidia-smi -L" in advice["nvml"]


def test_without_sysfs_the_gpus_are_there_all_the_same(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(2)
    node.repartition(1, "1g.5gb", "1g.5gb")
    view = driver_of(node).look()
    for link in (node.roots.sys / "bus/pci/devices").iterdir():
        link.unlink()
    selection = chosen(node, view, entry("a.com/gpu", GPU), entry("a.com/mig", MIG))
    assert {name: len(found) for name, found in ids(selection).items()} == {"a.com/gpu": 1, "a.com/mig": 2}
