"""The source `nvml`: devices from a look, together with sysfs, /dev and the other entries of a document."""

import errno
import os
from dataclasses import replace
from typing import NoReturn

import fakenvml
import pytest
from device_agent.contract.document import Document, parse_resource
from device_agent.contract.inventory import Identity
from device_agent.discovery.scanner import Scanner
from device_agent.discovery.sysfs_tree import SysfsTree
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
        document,
        scanner.scan(document, drivers={"nvml": opener(view, document)}, known=known),
        dev=scanner.device_nodes(),
    )


def ids(selection: Selection) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for unit in selection.units:
        found.setdefault(unit.resource, []).append(unit.id)
    return found


def reasons(selection: Selection) -> set[tuple[str, str, str]]:
    return {(e.entry, e.id, e.reason) for e in selection.excluded}


def test_a_whole_gpu_is_identified_by_its_uuid_and_has_attributes(node_of: MakeNode, driver_of: MakeDriver) -> None:
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


def test_mig_devices_become_resources_by_profile(node_of: MakeNode, driver_of: MakeDriver) -> None:
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


def test_the_first_gpu_keeps_its_nodes_without_a_brand(node_of: MakeNode, driver_of: MakeDriver) -> None:
    """The number of its node is 0, which is no lack of a number. Nor is it for its MIG devices."""
    node = node_of(2)
    node.scenario.fail("nvmlDeviceGetBrand", fakenvml.UNKNOWN, gpu=0)
    [whole] = (
        u for u in chosen(node, driver_of(node).look(), entry("a.com/gpu", GPU)).units if "brand" not in u.attributes
    )
    assert (whole.id, whole.nodes, whole.problem) == (fakenvml.uuid(0), ("/dev/nvidia0",), None)
    [mig] = node.repartition(0, "1g.5gb")
    [part] = chosen(node, driver_of(node).look(), entry("a.com/mig", MIG)).units
    assert (part.id, "/dev/nvidia0" in part.nodes, len(part.nodes), part.problem) == (mig.uuid, True, 3, None)


def test_all_mig_devices_may_share_one_resource_name(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(2)
    made = [*node.repartition(0, "1g.5gb", "1g.5gb"), *node.repartition(1, "1g.5gb")]
    selection = chosen(node, driver_of(node).look(), entry("nvidia.com/gpu", MIG))
    assert ids(selection) == {"nvidia.com/gpu": sorted(m.uuid for m in made)}


def test_mig_devices_of_one_gpu_may_belong_to_several_entries(node_of: MakeNode, driver_of: MakeDriver) -> None:
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
def test_an_entry_that_owns_the_pci_function_owns_the_gpu(node_of: MakeNode, driver_of: MakeDriver, kind: dict) -> None:
    node = node_of(2)
    if kind is MIG:
        node.repartition(0, "1g.5gb")
        node.repartition(1, "1g.5gb")
    pci = {"pci": {"addresses": ["0000:10:00.0"]}}
    selection = chosen(node, driver_of(node).look(), entry("a.com/pci", pci), entry("a.com/nvml", kind))
    assert [u.attributes["pci.address"] for u in selection.units] == ["0000:10:00.0", "0000:11:00.0"]
    assert [e.reason for e in selection.excluded] == ["OwnedByEarlierEntry"]


def test_a_gpu_in_mig_mode_without_mig_devices_is_excluded(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(1)
    node.scenario.set_mig_mode(0, enabled=True)
    selection = chosen(node, driver_of(node).look(), entry("a.com/{profile}", MIG))
    assert (selection.units, reasons(selection)) == ((), {("a.com/{profile}", fakenvml.uuid(0), "NoMigDevices")})
    assert (selection.refused, selection.notes) == ({}, {})


def test_a_mig_device_without_a_profile_is_excluded(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(1)
    good, bad = node.repartition(0, "1g.5gb", "1g.5gb")
    bad.profile, bad.slices = "", 0
    node.scenario.write()
    selection = chosen(node, driver_of(node).look(), entry("a.com/{profile}", MIG))
    assert ids(selection) == {"a.com/1g.5gb": [good.uuid]}
    assert reasons(selection) == {("a.com/{profile}", bad.uuid, "Unreadable")}


def test_different_models_become_different_resources(node_of: MakeNode, driver_of: MakeDriver) -> None:
    gpus = fakenvml.a100s(2)
    gpus[1].name, gpus[1].mig = "Tesla T4", None
    node = node_of(gpus)
    selection = chosen(node, driver_of(node).look(), entry("nvidia.com/{model}", GPU), entry("a.com/mig", MIG))
    assert ids(selection) == {
        "nvidia.com/NVIDIA-A100-SXM4-40GB": [fakenvml.uuid(0)],
        "nvidia.com/Tesla-T4": [fakenvml.uuid(1)],
    }
    assert reasons(selection) == {("a.com/mig", fakenvml.uuid(0), "MigDisabled")}, (
        "a T4 has no MIG, so it is not excluded"
    )


def test_a_missing_node_is_a_problem_only_for_entries_that_inject_nodes(
    node_of: MakeNode, driver_of: MakeDriver
) -> None:
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


def test_a_missing_capability_node_has_advice(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(1)
    [mig] = node.repartition(0, "1g.5gb")
    (node.roots.dev / f"nvidia-caps/nvidia-cap{mig.caps[0]}").unlink()
    [unit] = chosen(node, driver_of(node).look(), entry("a.com/mig", MIG)).units
    assert unit.problem is not None
    reason, message = unit.problem
    assert (reason, f"/dev/nvidia-caps/nvidia-cap{mig.caps[0]}" in message) == ("DeviceNodeMissing", True)
    assert "nvidia-modprobe" in message


def test_an_entry_without_devices_has_a_note_with_the_cause(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(2)
    node.scenario.unload_driver()
    view = driver_of(node).look()
    selection = chosen(node, view, entry("a.com/gpu", GPU), entry("a.com/tty", {"files": {"paths": ["/dev/tty*"]}}))
    assert selection.notes == {"a.com/gpu": view.unavailable}
    assert chosen(node, None, entry("a.com/gpu", GPU)).notes == {"a.com/gpu": "the NVIDIA driver has not answered yet"}
    assert "no GPU" in chosen(node, NvmlView(), entry("a.com/gpu", GPU)).notes["a.com/gpu"]


def test_a_gpu_that_the_library_does_not_list_is_excluded_as_unreadable(
    node_of: MakeNode, driver_of: MakeDriver
) -> None:
    """It was lost before the agent started, so its UUID is unknown. An admin must still see it."""
    node = node_of(4)
    node.scenario.lose(1)
    for address, change in (("0000:12:00.0", "driver"), ("0000:13:00.0", "physfn")):
        place = (node.roots.sys / "bus/pci/devices" / address).resolve()
        if change == "driver":
            (place / "driver").unlink()  # not bound to a driver
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


def test_a_node_without_nvidia_hardware_has_no_note(node_of: MakeNode) -> None:
    node = node_of(0)
    (node.roots.dev / "nvidiactl").unlink()
    view = NvmlView(unavailable="no driver library")
    tty = entry("a.com/tty", {"files": {"paths": ["/dev/tty*"]}})
    selection = chosen(node, view, entry("a.com/gpu", GPU), tty)
    assert selection.notes == {}
    assert {e.entry for e in selection.excluded} <= {"a.com/tty"}


def test_with_nvidia_entries_only_the_cause_is_shown_as_an_exclusion(node_of: MakeNode) -> None:
    """A node without NVIDIA hardware may be in the pool by mistake, or its board has another PCI class."""
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


def test_missing_devices_have_a_note_if_there_were_some_before(node_of: MakeNode) -> None:
    node = node_of(0)
    (node.roots.dev / "nvidiactl").unlink()
    view = NvmlView(unavailable="driver not loaded")
    tty = entry("a.com/tty", {"files": {"paths": ["/dev/tty*"]}})
    found = chosen(node, view, entry("a.com/gpu", GPU), entry("a.com/mig", MIG), tty, known=frozenset({"a.com/gpu"}))
    assert found.notes == {"a.com/gpu": "driver not loaded"}


def test_devices_stay_while_the_driver_hangs(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(2)
    view = driver_of(node).look()
    hung = replace(view, gpus=unanswered(view.gpus), unavailable="NVML hangs: it does not answer")
    before = chosen(node, view, entry("a.com/gpu", GPU))
    after = chosen(node, hung, entry("a.com/gpu", GPU))
    assert replace(after, notes={}) == before
    assert after.notes == {"a.com/gpu": "NVML hangs: it does not answer"}


def test_a_vanished_gpu_has_advice(node_of: MakeNode) -> None:
    gpu, tty = entry("a.com/gpu", GPU), entry("a.com/tty", {"files": {"paths": ["/dev/tty*"]}})
    advice = chosen(node_of(0), NvmlView(), gpu, tty).vanished
    assert list(advice) == ["nvml"]
    assert "nvidia-smi -L" in advice["nvml"]


def test_gpus_are_found_without_their_sysfs_directories(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(2)
    node.repartition(1, "1g.5gb", "1g.5gb")
    view = driver_of(node).look()
    for link in (node.roots.sys / "bus/pci/devices").iterdir():
        link.unlink()
    selection = chosen(node, view, entry("a.com/gpu", GPU), entry("a.com/mig", MIG))
    assert {name: len(found) for name, found in ids(selection).items()} == {"a.com/gpu": 1, "a.com/mig": 2}


@pytest.fixture
def unlisted_bus(monkeypatch: pytest.MonkeyPatch) -> str:
    """The directory of the PCI functions cannot be listed. Returns the message's beginning."""

    def fail(_tree: SysfsTree) -> NoReturn:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(SysfsTree, "functions", fail)
    return "/sys/bus/pci/devices: Input/output error"


def test_gpus_that_the_driver_shows_stay_when_the_pci_bus_cannot_be_listed(
    node_of: MakeNode, driver_of: MakeDriver, unlisted_bus: str
) -> None:
    node = node_of(2)
    selection = chosen(node, driver_of(node).look(), entry("a.com/gpu", GPU))
    assert ids(selection) == {"a.com/gpu": sorted(gpu.uuid for gpu in node.scenario.gpus)}
    assert [(e.id, e.reason, e.message) for e in selection.excluded] == [
        ("/sys/bus/pci/devices", "Unreadable", unlisted_bus)
    ]


def test_a_driver_without_gpus_costs_no_scan_when_the_pci_bus_cannot_be_listed(
    node_of: MakeNode, unlisted_bus: str
) -> None:
    view = NvmlView(unavailable="driver not loaded")
    node = node_of([])
    (node.roots.dev / "nvidiactl").unlink(missing_ok=True)
    selection = chosen(node, view, entry("a.com/gpu", GPU), entry("a.com/sim", {"simulated": {"count": 1}}))
    assert [u.entry for u in selection.units] == ["a.com/sim"]
    assert selection.notes == {"a.com/gpu": unlisted_bus}


def test_a_device_of_which_a_file_cannot_be_read_is_left_out_by_its_own_name(
    node_of: MakeNode, driver_of: MakeDriver
) -> None:
    """By that name and hardware the table knows it. The parts of another GPU stay."""
    node = node_of(2)
    lost, kept = (node.repartition(number, "1g.5gb", "1g.5gb") for number in (0, 1))
    loop = node.roots.sys / "bus/pci/devices/0000:10:00.0/state"
    loop.symlink_to("state")
    state = {"exclude": [{"attribute": "pci.attr.state", "values": ["bad"]}]}
    selection = chosen(node, driver_of(node).look(), entry("a.com/mig", MIG, **state))
    assert ids(selection) == {"a.com/mig": sorted(m.uuid for m in kept)}
    assert reasons(selection) == {("a.com/mig", m.uuid, "Unreadable") for m in lost}
    assert len({e.hardware for e in selection.excluded}) == 2
