"""Older drivers, whose libraries lack some functions. `fakenvml.compare` found out which."""

import fakenvml
import pytest
from device_agent.nvml.driver import EventCalls
from unit.nvml.conftest import MakeDriver, MakeNode

LACKING = {
    "418": (
        "nvmlDeviceGetArchitecture", "nvmlDeviceGetAttributes_v2", "nvmlDeviceGetComputeInstanceId",
        "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetMigMode", "nvmlDeviceGetNvLinkRemoteDeviceType",
        "nvmlDeviceGetRemappedRows", "nvmlEventSetWait_v2",
    ),
    "470": ("nvmlDeviceGetMemoryInfo_v2",),
}  # fmt: skip


@pytest.mark.parametrize("release", LACKING)
def test_gpus_of_an_old_driver_are_read(node_of: MakeNode, driver_of: MakeDriver, release: str) -> None:
    node = node_of(fakenvml.a100s(2, mig=None, recovery=None))
    for function in LACKING[release]:
        node.scenario.fail(function, fakenvml.FUNCTION_NOT_FOUND)
    driver = driver_of(node, events=EventCalls(xid=lambda _: None, wake=lambda: None))
    view = driver.look()
    assert [(gpu.uuid, gpu.model, gpu.memory_mib) for gpu in view.gpus] == [
        (gpu.uuid, gpu.name, gpu.memory >> 20) for gpu in node.scenario.gpus
    ]
    assert [gpu.state.known and not gpu.state.failures for gpu in view.gpus] == [True, True]
    assert len(driver.sample()) == 2
    node.scenario.lose(1)
    assert [bool(gpu.state.failures) for gpu in driver.look().gpus] == [False, True]
