"""Looks through the real pynvml at the fake library: the values of each GPU, and failures of single GPUs."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import fakenvml
import pytest
from device_agent.nvml import reading
from device_agent.nvml.driver import Driver
from device_agent.nvml.model import Gpu, NvmlView
from fakenvml import a100s, linked, nvswitched
from unit.nvml.conftest import GpuNode, MakeDriver, MakeNode


def state_of(view: NvmlView, gpu: int) -> list[str]:
    """The reasons of the GPU's failures, or `unknown`."""
    state = view.gpus[gpu].state
    return [reason for reason, _ in state.failures] if state.known else ["unknown"]


def test_a_look_reads_eight_gpus(node_of: MakeNode, driver_of: MakeDriver) -> None:
    view = driver_of(node_of(8)).look()
    assert (view.unavailable, view.errors, view.epoch) == ("", (), 1)
    assert (view.driver_version, view.cuda_version) == ("580.95.05", "13.0")
    assert [gpu.uuid for gpu in view.gpus] == [fakenvml.uuid(i) for i in range(8)]
    assert view.gpus[5] == Gpu(
        uuid=fakenvml.uuid(5), index=5, minor=5, pci_address="0000:15:00.0", model="NVIDIA A100-SXM4-40GB",
        memory_mib=40960, numa_node=1, compute_capability="8.0", architecture="ampere", brand="Nvidia",
        mig_mode=False, state=view.gpus[5].state,
    )  # fmt: skip
    assert view.gpus[5].state.known
    assert view.gpus[5].state.failures == ()
    assert view.gpus[5].state.recovery_action == "None"


@pytest.mark.parametrize("code", [fakenvml.NOT_SUPPORTED, fakenvml.FUNCTION_NOT_FOUND, fakenvml.UNKNOWN])
@pytest.mark.parametrize(
    ("function", "told"),
    [("nvmlSystemGetDriverVersion", ("", "13.0")), ("nvmlSystemGetCudaDriverVersion", ("580.95.05", ""))],
)
def test_a_version_that_cannot_be_read_leaves_all_else(
    node_of: MakeNode, driver_of: MakeDriver, function: str, code: int, told: tuple[str, str]
) -> None:
    node = node_of(2)
    node.scenario.fail(function, code)
    driver = driver_of(node)
    view = driver.look()
    assert (view.driver_version, view.cuda_version) == told
    assert (len(view.gpus), len(view.errors)) == (2, int(code == fakenvml.UNKNOWN))
    node.scenario.fail(function, 0)
    assert (driver.look().driver_version, driver.look().cuda_version) == ("580.95.05", "13.0")
    node.scenario.fail(function, fakenvml.UNKNOWN)
    assert (driver.look().driver_version, driver.look().cuda_version) == ("580.95.05", "13.0")


def test_no_libcuda_is_needed(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(1)
    node.scenario.fail("nvmlSystemGetCudaDriverVersion_v2", fakenvml.LIBRARY_NOT_FOUND)
    view = driver_of(node).look()
    assert (len(view.gpus), view.cuda_version, view.errors) == (1, "13.0", ())


def test_mig_devices_are_read_with_their_capability_nodes(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(3)
    made = node.repartition(1, "1g.5gb", "2g.10gb", "1c.3g.20gb")
    view = driver_of(node).look()
    assert [gpu.mig_mode for gpu in view.gpus] == [False, True, False]
    migs = view.gpus[1].migs
    assert [(m.uuid, m.profile, m.gi, m.ci, m.memory_mib) for m in migs] == [
        (made[0].uuid, "1g.5gb", 1, 0, 4864),
        (made[1].uuid, "2g.10gb", 2, 0, 9856),
        (made[2].uuid, "1c.3g.20gb", 3, 0, 19968),
    ]
    assert [m.caps for m in migs] == [tuple(f"/dev/nvidia-caps/nvidia-cap{n}" for n in mig.caps) for mig in made]
    assert len({cap for m in migs for cap in m.caps}) == 6


def test_mig_devices_without_access_to_their_capabilities_are_not_seen(
    node_of: MakeNode, driver_of: MakeDriver
) -> None:
    node = node_of(1)
    made = node.repartition(0, "1g.5gb", "2g.10gb")
    caps = node.roots.dev / "nvidia-caps"
    (caps / f"nvidia-cap{fakenvml.CAP_MONITOR}").unlink()
    (caps / f"nvidia-cap{made[0].caps[1]}").unlink()
    assert [m.profile for m in driver_of(node).look().gpus[0].migs] == ["2g.10gb"]


def test_a_repartition_is_seen_by_the_next_look(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(2)
    driver = driver_of(node)
    node.repartition(0, "1g.5gb")
    first = driver.look()
    node.repartition(0, "3g.20gb", "3g.20gb")
    second = driver.look()
    assert [m.profile for m in first.gpus[0].migs] == ["1g.5gb"]
    assert [m.profile for m in second.gpus[0].migs] == ["3g.20gb", "3g.20gb"]
    assert second.epoch == first.epoch
    node.scenario.set_mig_mode(0, enabled=True)
    assert driver.look().gpus[0].migs == ()


@pytest.mark.parametrize(
    ("total", "slices", "compute", "memory", "name"),
    [
        (40536, 1, 1, 4864, "1g.5gb"),
        (40536, 1, 1, 9856, "1g.10gb"),
        (40536, 2, 2, 9856, "2g.10gb"),
        (40536, 3, 3, 19968, "3g.20gb"),
        (40536, 3, 1, 19968, "1c.3g.20gb"),
        (40536, 7, 7, 40192, "7g.40gb"),
        (81920, 1, 1, 9856, "1g.10gb"),
        (81920, 3, 3, 40448, "3g.40gb"),
        (24576, 1, 1, 5952, "1g.6gb"),
        (24576, 2, 2, 11968, "2g.12gb"),
    ],
)
def test_the_profile_is_computed_for_older_drivers(
    total: int, slices: int, compute: int, memory: int, name: str
) -> None:
    attributes = SimpleNamespace(gpuInstanceSliceCount=slices, computeInstanceSliceCount=compute, memorySizeMB=memory)
    assert reading.profile("NVIDIA A100", attributes, memory_mib=total) == name


def test_the_profile_is_taken_from_the_name() -> None:
    assert reading.profile("NVIDIA H100 MIG 1g.10gb+me", None, memory_mib=0) == "1g.10gb+me"
    assert reading.profile("NVIDIA H100", None, memory_mib=81920) == ""


def test_every_link_to_a_switch_counts(node_of: MakeNode, driver_of: MakeDriver) -> None:
    view = driver_of(node_of(nvswitched(a100s(8)))).look()
    assert {(gpu.via_switch, len(gpu.nvlinks)) for gpu in view.gpus} == {(12, 0)}


def test_links_between_gpus_are_counted_by_peer(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(linked(a100s(4), {(0, 1): 4, (2, 3): 2}))
    driver = driver_of(node)
    view = driver.look()
    assert [dict(gpu.nvlinks) for gpu in view.gpus] == [
        {fakenvml.uuid(1): 4}, {fakenvml.uuid(0): 4}, {fakenvml.uuid(3): 2}, {fakenvml.uuid(2): 2},
    ]  # fmt: skip
    for link in node.scenario.gpus[0].links[:3]:
        link.active = False
    node.scenario.write()
    assert dict(driver.look().gpus[0].nvlinks) == {fakenvml.uuid(1): 1}


def test_link_ends_are_read_once(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(nvswitched(a100s(2)))
    driver = driver_of(node)
    driver.look()
    node.scenario.fail("nvmlDeviceGetNvLinkRemotePciInfo_v2", fakenvml.UNKNOWN)
    view = driver.look()
    assert (view.errors, view.gpus[0].via_switch) == ((), 12)


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({"ecc_uncorrected": 2}, ["UncorrectableEcc"]),
        ({"ecc_corrected": 9}, []),
        ({"retired": 1}, ["RetiredPagesPending"]),
        ({"remap_failed": 1}, ["RowRemapFailed"]),
        ({"remap_pending": 1}, []),
        ({"sram_exceeded": 1}, ["SramThresholdExceeded"]),
        ({"recovery": 1}, ["ResetRequired"]),
        ({"recovery": 2}, ["RebootRequired"]),
        ({"recovery": 4}, ["DrainRequired"]),
        ({"recovery": 2, "ecc_uncorrected": 1}, ["RebootRequired", "UncorrectableEcc"]),
        ({"ecc_uncorrected": -1, "retired": -1, "remap_pending": -1, "sram_exceeded": -1, "recovery": None}, []),
        ({"lost": True}, ["GpuLost"]),
    ],
)
def test_failures_of_one_gpu_have_reasons(
    node_of: MakeNode, driver_of: MakeDriver, changes: dict[str, int], reasons: list[str]
) -> None:
    node = node_of(3)
    driver = driver_of(node)
    driver.look()
    for name, value in changes.items():
        setattr(node.scenario.gpus[1], name, value)
    node.scenario.write()
    view = driver.look()
    assert state_of(view, 1) == reasons
    assert [state_of(view, i) for i in (0, 2)] == [[], []]


def test_a_driver_without_recovery_actions_gives_none(node_of: MakeNode, driver_of: MakeDriver) -> None:
    [gpu] = driver_of(node_of(a100s(1, recovery=None))).look().gpus
    assert (gpu.state.known, gpu.state.recovery_action) == (True, "")


OPTIONAL = [
    "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetArchitecture", "nvmlDeviceGetBrand", "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetName", "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetFieldValues", "nvmlDeviceGetNvLinkState", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetSramEccErrorStatus",
]  # fmt: skip


STATE = {
    "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetSramEccErrorStatus",
}  # fmt: skip
"""Calls whose failure makes the state unknown. Other failed calls only leave out one value."""


@pytest.mark.parametrize("function", OPTIONAL)
@pytest.mark.parametrize("code", [fakenvml.NOT_SUPPORTED, fakenvml.FUNCTION_NOT_FOUND])
def test_a_value_that_a_gpu_lacks_is_no_error(
    node_of: MakeNode, driver_of: MakeDriver, function: str, code: int
) -> None:
    node = node_of(2)
    node.scenario.fail(function, code, gpu=0)
    view = driver_of(node).look()
    assert view.errors == ()
    assert [gpu.state.known for gpu in view.gpus] == [True, True]
    assert view.gpus[1].minor == 1


@pytest.mark.parametrize("function", [f for f in OPTIONAL if f != "nvmlDeviceGetNvLinkState"])
def test_an_error_of_one_gpu_concerns_only_that_gpu(node_of: MakeNode, driver_of: MakeDriver, function: str) -> None:
    node = node_of(nvswitched(a100s(3)))
    node.scenario.fail(function, fakenvml.UNKNOWN, gpu=1)
    driver = driver_of(node, restart_seconds=60)
    view = driver.look()
    assert [gpu.state.known for gpu in view.gpus] == [True, function not in STATE, True]
    assert [f"{function.removesuffix('_v3')}" in error and "GPU 1" in error for error in view.errors] == [True]
    node.scenario.fail(function, 0, gpu=1)
    assert [gpu.state.known for gpu in driver.look().gpus] == [True, True, True]
    assert driver.look().gpus[1].pci_address == "0000:11:00.0"


@pytest.mark.parametrize(
    ("function", "absent"),
    [("nvmlDeviceGetBrand", {"brand": ""}), ("nvmlDeviceGetMemoryInfo", {"memory_mib": None})],
)
def test_a_fact_that_the_first_gpu_does_not_tell_at_the_start_costs_no_other(
    node_of: MakeNode, driver_of: MakeDriver, function: str, absent: dict[str, str | None]
) -> None:
    """Its minor number and its NUMA node are 0: that is a fact, not the lack of one."""
    node = node_of(2)
    [first, _] = driver_of(node).look().gpus
    assert (first.minor, first.numa_node) == (0, 0)
    node.scenario.fail(function, fakenvml.UNKNOWN, gpu=0)
    driver = driver_of(node)
    for _ in range(2):
        assert driver.look().gpus[0] == replace(first, **absent)
    node.scenario.fail(function, 0, gpu=0)
    assert driver.look().gpus[0] == first


def test_a_gpu_without_a_uuid_leaves_the_others(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(3)
    node.scenario.fail("nvmlDeviceGetUUID", fakenvml.UNKNOWN, gpu=1)
    driver = driver_of(node)
    view = driver.look()
    assert [gpu.index for gpu in view.gpus] == [0, 2]
    assert view.errors == ("nvmlDeviceGetUUID of GPU 1: Unknown Error",)
    node.scenario.fail("nvmlDeviceGetUUID", 0, gpu=1)
    assert [gpu.index for gpu in driver.look().gpus] == [0, 1, 2]
    node.scenario.fail("nvmlDeviceGetUUID", fakenvml.UNKNOWN, gpu=1)
    view = driver.look()
    assert [(gpu.uuid, gpu.state.known) for gpu in view.gpus][1] == (fakenvml.uuid(1), False), (
        "recognised from the look before"
    )


def test_a_lost_gpu_stays_in_the_view_and_recovers_after_a_reset(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(4)
    driver = driver_of(node)  # restarts the library at each look while a GPU is lost
    driver.look()
    node.scenario.lose(3)
    for _ in range(3):
        view = driver.look()
        assert (view.gpus[3].uuid, state_of(view, 3)) == (fakenvml.uuid(3), ["GpuLost"])
    node.scenario.recover(3)
    view = driver.look()
    assert (state_of(view, 3), view.epoch) == ([], 1), "a restart of the library is no load of the driver"


def test_a_reset_gpu_stays_lost_until_the_library_restarts(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(2)
    driver = driver_of(node, restart_seconds=60)
    driver.look()
    node.scenario.lose(1)
    driver.look()
    node.scenario.recover(1)
    assert state_of(driver.look(), 1) == ["GpuLost"]


@pytest.mark.parametrize("with_sysfs", [True, False])
def test_a_reload_of_the_driver_starts_another_epoch(
    node_of: MakeNode, driver_of: MakeDriver, *, with_sysfs: bool
) -> None:
    node = node_of(2)
    if not with_sysfs:
        shutil.rmtree(node.roots.sys)
        node.scenario._sys = None
    driver = driver_of(node)
    first = driver.look()
    node.scenario.reload_driver()
    second = driver.look()
    assert (second.unavailable, len(second.gpus), second.epoch) == ("", 2, 2)
    assert (first.driver_load != second.driver_load) == with_sysfs
    node.scenario.unload_driver()
    third = driver.look()
    assert third.unavailable.startswith("driver not loaded")
    assert third.gpus == ()
    node.scenario.load_driver()
    assert (len(driver.look().gpus), driver.look().epoch) == (2, 3)


def test_another_process_sees_the_same_load_of_the_driver(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(1)
    first = driver_of(node)
    load = first.look().driver_load
    first.close()
    assert load != ""
    assert driver_of(node).look().driver_load == load


def test_a_driver_that_is_loaded_later_is_noticed(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(2)
    node.scenario.unload_driver()
    driver = driver_of(node)
    assert driver.look() == NvmlView(unavailable=driver.look().unavailable)
    assert driver.look().unavailable.startswith("driver not loaded")
    node.scenario.load_driver()
    assert len(driver.look().gpus) == 2


def test_a_driver_without_gpus_is_available(node_of: MakeNode, driver_of: MakeDriver) -> None:
    view = driver_of(node_of(0)).look()
    assert (view.gpus, view.unavailable) == ((), "")


def test_a_gpu_that_is_plugged_in_is_seen(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(2)
    driver = driver_of(node)
    driver.look()
    node.scenario.gpus.append(a100s(3)[2])
    node.scenario.write()
    node.show()
    assert len(driver.look().gpus) == 3


def test_a_removed_gpu_is_gone_and_not_lost(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(3)
    driver = driver_of(node)
    driver.look()
    (node.roots.sys / "bus/pci/drivers/nvidia/0000:11:00.0").unlink()
    del node.scenario.gpus[1]
    node.scenario.write()
    view = driver.look()
    assert [gpu.uuid for gpu in view.gpus] == [fakenvml.uuid(0), fakenvml.uuid(2)]
    assert [state_of(view, i) for i in range(2)] == [[], []]


def test_a_gpu_without_its_node_is_not_seen(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(3)
    (node.roots.dev / "nvidia1").unlink()
    view = driver_of(node).look()
    assert [(gpu.minor, gpu.uuid) for gpu in view.gpus] == [(0, fakenvml.uuid(0)), (2, fakenvml.uuid(2))]


def test_a_pod_without_the_nodes_has_no_permission(node_of: MakeNode, driver_of: MakeDriver, tmp_path: Path) -> None:
    node = node_of(2)
    pod = tmp_path / "pod-dev"
    pod.mkdir()
    node.scenario.dev = pod
    node.scenario.write()
    driver = Driver(driver_root=node.driver_root, roots=node.roots, own_dev=pod)
    said = driver.look().unavailable
    assert said.startswith("no permission: /dev/nvidiactl is on the node")
    assert "agent.driverAccess" in said
    node.scenario.make_nodes(pod)
    assert len(driver.look().gpus) == 2
    driver.close()


@pytest.fixture
def readable() -> Iterator[Path]:
    """A folder that every user may read. pytest's own folders are private."""
    root = Path(tempfile.mkdtemp(prefix="da-nvml-", dir="/tmp"))
    root.chmod(0o755)
    yield root
    shutil.rmtree(root)


def test_a_message_names_the_node_that_cannot_be_opened(readable: Path) -> None:
    node = GpuNode(readable, a100s(2))
    for name in ("nvidiactl", "nvidia1"):
        (node.roots.dev / name).chmod(0o600)
    driver = Driver(driver_root=node.driver_root, roots=node.roots, own_dev=node.roots.dev)
    os.seteuid(65534)
    try:
        refused = driver.look()
        os.seteuid(0)
        (node.roots.dev / "nvidiactl").chmod(0o666)
        (node.roots.dev / "nvidia0").chmod(0o666)
        os.seteuid(65534)
        partly = driver.look()
    finally:
        os.seteuid(0)
    driver.close()
    assert refused.unavailable.startswith("no permission: the agent's pod may not open /dev/nvidiactl (EACCES)")
    assert [gpu.minor for gpu in partly.gpus] == [0]
    assert partly.errors == ("nvmlDeviceGetHandleByIndex of GPU 1: Insufficient Permissions",)


def test_closing_the_library_closes_the_device_nodes(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(2)

    def held() -> set[str]:
        targets = set()
        for fd in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing itself
                targets.add(fd.readlink())
        return {path.name for path in targets if path.is_relative_to(node.roots.dev)}

    driver = driver_of(node)
    driver.look()
    assert held() == {"nvidiactl", "nvidia0", "nvidia1"}
    driver.close()
    assert held() == set()


def test_a_lost_gpu_with_a_new_index_is_not_confused_with_a_good_one(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(4)
    driver = driver_of(node)
    driver.look()
    (node.roots.sys / "bus/pci/drivers/nvidia/0000:10:00.0").unlink()
    del node.scenario.gpus[0]
    node.scenario.gpus[1].lost = True  # was number 2, is number 1
    node.scenario.write()
    for _ in range(2):
        view = driver.look()
        told = [gpu.uuid for gpu in view.gpus]
        assert len(set(told)) == len(told)
        assert {fakenvml.uuid(3)} <= set(told)
        assert [state_of(view, i) for i, u in enumerate(told) if u == fakenvml.uuid(3)] == [[]]
