"""A GPU that gives no answer, or only errors, keeps its place and its known facts."""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import fakenvml
import pytest
from device_agent.nvml import driver as driver_module
from device_agent.nvml.driver import Driver, EventCalls
from device_agent.nvml.model import GpuState, NvmlView
from fakenvml import a100s, linked, nvswitched
from unit.nvml.conftest import MakeDriver, MakeNode

NOBODY = EventCalls(xid=lambda _: None, wake=lambda: None)


def states(view: NvmlView) -> list[str]:
    return [
        "unknown" if not g.state.known else ",".join(reason for reason, _ in g.state.failures) or "good"
        for g in view.gpus
    ]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "CLOSE_SECONDS", 0.2)


def test_looks_go_on_while_the_event_thread_hangs(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(3)
    driver = driver_of(node, events=NOBODY)  # restarts the library at each look while a GPU is in trouble
    assert states(driver.look()) == ["good"] * 3
    node.scenario.hang("nvmlEventSetWait_v2", seconds=20)
    node.scenario.lose(1)
    driver.look()
    for _ in range(2):
        view = driver.look()
        assert (view.unavailable, states(view)) == ("", ["good", "GpuLost", "good"])
    assert any("the wait for events" in error for error in view.errors)
    node.scenario.hang("nvmlEventSetWait_v2", seconds=0)


def test_gpus_stay_as_unknown_when_the_driver_reloads_while_events_hang(
    node_of: MakeNode, driver_of: MakeDriver
) -> None:
    node = node_of(2)
    driver = driver_of(node, events=NOBODY)
    driver.look()
    node.scenario.hang("nvmlEventSetWait_v2", seconds=20)
    hung = time.monotonic()
    eventually(lambda: waits_since(driver) >= hung)
    node.scenario.fail("nvmlDeviceGetCount_v2", fakenvml.UNINITIALIZED)
    view = driver.look()
    assert view.unavailable.startswith("NVML hangs")
    assert states(view) == ["unknown", "unknown"]
    node.scenario.fail("nvmlDeviceGetCount_v2", 0)
    node.scenario.hang("nvmlEventSetWait_v2", seconds=0)
    assert states(driver.look()) == ["good", "good"]


@pytest.mark.parametrize("code", [fakenvml.UNKNOWN, fakenvml.NO_PERMISSION, fakenvml.GPU_IS_LOST])
def test_gpus_stay_as_unknown_when_the_library_cannot_restart(
    node_of: MakeNode, driver_of: MakeDriver, code: int
) -> None:
    """For example, a pod whose cgroup was rewritten can no longer open device nodes, but the module is still loaded."""
    node = node_of(3)
    driver = driver_of(node)
    driver.look()
    node.scenario.lose(1)
    driver.look()
    node.scenario.fail("nvmlInitWithFlags", code)
    for _ in range(2):
        view = driver.look()
        assert (view.unavailable != "", states(view)) == (True, ["unknown"] * 3)
        assert view.gpus[0].model == "NVIDIA A100-SXM4-40GB"
    node.scenario.fail("nvmlInitWithFlags", 0)
    assert states(driver.look()) == ["good", "GpuLost", "good"]


def test_gpus_are_gone_when_the_driver_is_unloaded(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(2)
    driver = driver_of(node)
    driver.look()
    node.scenario.unload_driver()
    node.scenario.fail("nvmlInitWithFlags", fakenvml.UNKNOWN)
    assert driver.look().gpus == ()


def test_gpus_stay_as_unknown_when_counting_them_fails(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(2)
    driver = driver_of(node)
    driver.look()
    node.scenario.fail("nvmlDeviceGetCount_v2", fakenvml.UNKNOWN)
    view = driver.look()
    assert view.unavailable.startswith("NVML does not answer: nvmlDeviceGetCount")
    assert states(view) == ["unknown", "unknown"]


@pytest.mark.parametrize("code", [fakenvml.UNINITIALIZED, fakenvml.DRIVER_NOT_LOADED, fakenvml.VERSION_MISMATCH])
@pytest.mark.parametrize("function", ["nvmlDeviceGetUUID", "nvmlDeviceGetMigMode", "nvmlDeviceGetTotalEccErrors"])
def test_a_driver_gone_error_of_one_gpu_concerns_only_that_gpu(
    node_of: MakeNode, driver_of: MakeDriver, function: str, code: int
) -> None:
    node = node_of(3)
    driver = driver_of(node)
    driver.look()
    node.scenario.fail(function, code, gpu=1)
    for _ in range(2):
        view = driver.look()
        assert (view.unavailable, states(view)) == ("", ["good", "unknown", "good"])
        assert view.epoch == 1, "a restart of the library is no load of the driver"
    node.scenario.fail(function, 0, gpu=1)
    assert states(driver.look()) == ["good"] * 3


STATE = {
    "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetRetiredPagesPendingStatus",
    "nvmlDeviceGetFieldValues", "nvmlDeviceGetTemperature", "nvmlDeviceGetSramEccErrorStatus",
}  # fmt: skip
FACTS = {
    "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetArchitecture", "nvmlDeviceGetBrand", "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetName", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetMinorNumber", "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId", "nvmlDeviceGetAttributes_v2",
}  # fmt: skip


def _same(view: NvmlView, other: NvmlView) -> bool:
    """Whether both views have the same GPUs, apart from their state."""
    return [replace(g, state=GpuState()) for g in view.gpus] == [replace(g, state=GpuState()) for g in other.gpus]


@pytest.mark.parametrize("function", sorted(STATE | FACTS))
def test_a_failing_call_changes_no_known_fact(node_of: MakeNode, driver_of: MakeDriver, function: str) -> None:
    """Also after a restart of the library, which reads everything again."""
    node = node_of(linked(a100s(3), {(0, 1): 4}))
    node.repartition(1, "1g.5gb", "1c.3g.20gb")
    driver = driver_of(node)
    first = driver.look()
    node.scenario.fail(function, fakenvml.UNKNOWN, gpu=1)
    node.scenario.lose(2)  # the library is restarted at each look
    for _ in range(3):
        view = driver.look()
        assert _same(view, first)
        assert states(view)[:2] == ["good", "unknown" if function in STATE else "good"]
    assert any(function.removesuffix("_v3").removesuffix("_v2") in error for error in view.errors)


@pytest.mark.parametrize("function", sorted(STATE | FACTS))
@pytest.mark.parametrize("code", [fakenvml.FUNCTION_NOT_FOUND, fakenvml.NO_PERMISSION, fakenvml.DEPRECATED])
def test_a_call_that_an_older_driver_lacks_leaves_all_else(
    node_of: MakeNode, driver_of: MakeDriver, function: str, code: int
) -> None:
    node = node_of(linked(a100s(2), {(0, 1): 4}))
    node.repartition(1, "1g.5gb")
    node.scenario.fail(function, code)
    view = driver_of(node, events=NOBODY).look()
    assert (view.unavailable, states(view)) == ("", ["good", "good"])
    assert [g.uuid for g in view.gpus] == [fakenvml.uuid(0), fakenvml.uuid(1)]


def test_capability_nodes_are_kept_while_they_cannot_be_read(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(1)
    node.repartition(0, "1g.5gb")
    driver = driver_of(node)
    first = driver.look()
    (node.roots.proc / "driver/nvidia-caps/mig-minors").write_text("")
    assert _same(driver.look(), first)


@pytest.mark.parametrize("fact", ["name", "uuid"])
def test_a_text_that_cannot_be_decoded_concerns_only_that_gpu(
    node_of: MakeNode, driver_of: MakeDriver, fact: str
) -> None:
    """A card with a damaged memory of its name gives bytes that are no valid text."""
    node = node_of(3)
    setattr(node.scenario.gpus[1], fact, "GPU-\udcff\udcfe")
    node.scenario.write()
    view = driver_of(node).look()
    assert view.unavailable == ""
    assert [g.index for g in view.gpus] == ([0, 1, 2] if fact == "name" else [0, 2])
    assert len(view.errors) == 1
    assert states(view) == ["good"] * len(view.gpus)


def test_a_mig_device_is_kept_while_its_calls_fail(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(1)
    node.repartition(0, "1g.5gb", "2g.10gb")
    driver = driver_of(node)
    first = driver.look()
    node.scenario.slow("nvmlDeviceGetName", seconds=0.01)
    for function in ("nvmlDeviceGetUUID", "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetName"):
        node.scenario.fail(function, fakenvml.UNKNOWN)
        assert _same(driver.look(), first), function
        node.scenario.fail(function, 0)


def test_link_ends_are_read_again_after_a_failure(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(nvswitched(a100s(2)))
    node.scenario.fail("nvmlDeviceGetNvLinkRemoteDeviceType", fakenvml.UNKNOWN)
    driver = driver_of(node)
    assert driver.look().gpus[0].via_switch == 0
    node.scenario.fail("nvmlDeviceGetNvLinkRemoteDeviceType", 0)
    assert driver.look().gpus[0].via_switch == 12


def test_a_switch_without_a_pci_address_counts(node_of: MakeNode, driver_of: MakeDriver) -> None:
    """As in a virtual machine, or in a rack whose switches are not PCI devices of the node."""
    node = node_of(nvswitched(a100s(2)))
    node.scenario.fail("nvmlDeviceGetNvLinkRemotePciInfo_v2", fakenvml.NOT_SUPPORTED)
    view = driver_of(node).look()
    assert [(g.via_switch, g.state.known) for g in view.gpus] == [(12, True)] * 2


@pytest.mark.parametrize(("code", "state"), [(fakenvml.GPU_IS_LOST, "GpuLost"), (fakenvml.UNKNOWN, "unknown")])
def test_a_gpu_without_ecc_is_found_to_be_lost(node_of: MakeNode, driver_of: MakeDriver, code: int, state: str) -> None:
    """A consumer card has none of the values about memory errors, but it can be lost like others."""
    node = node_of(
        a100s(2, ecc_uncorrected=-1, ecc_corrected=-1, retired=-1, remap_pending=-1, recovery=None, mig=None)
    )
    driver = driver_of(node)
    assert states(driver.look()) == ["good", "good"]
    node.scenario.fail("nvmlDeviceGetTemperature", code, gpu=1)
    assert states(driver.look()) == ["good", state]


def test_a_driver_without_the_field_for_recovery_gives_no_recovery_action(
    node_of: MakeNode, driver_of: MakeDriver
) -> None:
    """Drivers before R565 lack the field, and then the whole call may fail with INVALID_ARGUMENT."""
    node = node_of(2)
    node.scenario.fail("nvmlDeviceGetFieldValues", fakenvml.INVALID_ARGUMENT)
    view = driver_of(node).look()
    assert (states(view), view.errors, view.gpus[0].state.recovery_action) == (["good", "good"], (), "")


def test_restarts_for_a_gpu_in_trouble_become_rarer(node_of: MakeNode, driver_of: MakeDriver) -> None:
    """During a restart of the library the events of other GPUs are missed."""
    node = node_of(2)
    now = [0.0]
    driver = driver_of(node, restart_seconds=30, clock=lambda: now[0])
    starts = []
    driver.look()
    node.scenario.lose(1)
    driver.look()
    known = driver._started_at
    for _ in range(200):
        now[0] += 10
        driver.look()
        if driver._started_at != known:
            known = driver._started_at
            starts.append(known)
    assert [b - a for a, b in pairwise(starts)][:6] == [60, 120, 240, 300, 300, 300]
    node.scenario.recover(1)
    now[0] += 300
    driver.look()
    assert states(driver.look()) == ["good", "good"]
    node.scenario.lose(1)
    driver.look()
    driver.look()
    now[0] += 30
    driver.look()
    assert driver._started_at == now[0], "new trouble begins with the short pause again"


def test_a_short_error_causes_no_restart_of_the_library(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(2)
    now = [0.0]
    driver = driver_of(node, restart_seconds=30, clock=lambda: now[0])
    driver.look()
    now[0] = 1000
    node.scenario.fail("nvmlDeviceGetTemperature", fakenvml.UNKNOWN, gpu=1)
    driver.look()
    now[0] += 10
    driver.look()
    node.scenario.fail("nvmlDeviceGetTemperature", 0, gpu=1)
    now[0] += 10
    assert states(driver.look()) == ["good", "good"]
    now[0] += 1000
    driver.look()
    assert driver._started_at == 0


def test_a_gpu_lost_before_the_start_is_found_after_its_reset(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(2)
    node.scenario.lose(1)
    driver = driver_of(node)
    assert states(driver.look()) == ["good"]
    node.scenario.recover(1)
    assert states(driver.look()) == ["good", "good"]


def test_events_are_heard_again_after_their_thread_ended(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(2)
    heard: list[int] = []
    driver = driver_of(node, events=EventCalls(xid=lambda e: heard.append(e.xid), wake=lambda: None))
    driver.look()
    node.scenario.fail("nvmlEventSetWait_v2", fakenvml.UNINITIALIZED)
    eventually(lambda: driver._events is not None and driver._events.ended)
    node.scenario.fail("nvmlEventSetWait_v2", 0)
    driver.look()
    node.scenario.xid(1, 79)
    eventually(lambda: heard == [79])


def waits_since(driver: Driver) -> float:
    """When the event thread began its present wait in the library, monotonic seconds; 0 when it does not wait."""
    assert driver._events is not None
    call, begun = driver._events._library.progress
    return begun if call == "nvmlEventSetWait_v2" else 0.0


def eventually(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("code", [fakenvml.UNKNOWN, fakenvml.GPU_IS_LOST])
@pytest.mark.parametrize("order", [(2, 1, 0), (1, 2, 0), (0, 2, 1), (2, 0, 1)])
def test_gpus_keep_their_identity_when_a_restart_numbers_them_in_another_order(
    node_of: MakeNode, driver_of: MakeDriver, order: tuple[int, ...], code: int
) -> None:
    """After a restart of the library a GPU in trouble may have another index and not tell its UUID."""
    node = node_of(3)
    driver = driver_of(node)
    first = driver.look()
    node.scenario.lose(0)
    driver.look()
    node.scenario.gpus = [node.scenario.gpus[n] for n in order]
    for gpu in node.scenario.gpus:
        gpu.lost = False
    node.scenario.fail("nvmlDeviceGetHandleByIndex_v2", code, gpu=order.index(0))
    for _ in range(2):
        view = driver.look()
        told = dict(zip([g.uuid for g in view.gpus], states(view), strict=True))
        trouble = "GpuLost" if code == fakenvml.GPU_IS_LOST else "unknown"
        assert told == {first.gpus[0].uuid: trouble, first.gpus[1].uuid: "good", first.gpus[2].uuid: "good"}
    node.scenario.fail("nvmlDeviceGetHandleByIndex_v2", 0, gpu=order.index(0))
    assert set(states(driver.look())) == {"good"}
