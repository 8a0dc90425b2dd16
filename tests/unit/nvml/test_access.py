"""Advice when the driver cannot be reached: it fits the settings and names paths of the node."""

from pathlib import Path

import pytest
from device_agent.nvml import library
from device_agent.nvml.access import Access, parse
from device_agent.nvml.library import LibraryPlaces, NvmlCallError, NvmlUnavailableError

RUNTIME = Access(runtime_class="nvidia")
CDI = Access(cdi_device="management.nvidia.com/gpu=all")
BOTH = Access(runtime_class="nvidia", cdi_device="management.nvidia.com/gpu=all")
ROOT = Access(driver_root="/opt/driver")


@pytest.mark.parametrize(
    ("access", "has", "has_not"),
    [
        (Access(), ["set agent.driverAccess to {runtimeClass: nvidia}"], ["agent.driverAccess.driverRoot"]),
        (RUNTIME, ["RuntimeClass nvidia", "nvidia-smi"], ["set agent.driverAccess", "CDI"]),
        (BOTH, ["RuntimeClass nvidia", "CDI specification of management.nvidia.com/gpu=all"], ["set agent"]),
        (CDI, ["CDI device management.nvidia.com/gpu=all", "NRI plugin"], ["set agent"]),
        (
            ROOT,
            ["below /opt/driver of the node", "usr/lib64", "agent.driverAccess.driverRoot", "/run/nvidia/driver"],
            ["set agent.driverAccess"],
        ),
    ],
)
def test_no_library(tmp_path: Path, access: Access, has: list[str], has_not: list[str]) -> None:
    with pytest.raises(NvmlUnavailableError) as raised:
        library.load(tmp_path / "driver-root", access=access)
    said = str(raised.value)
    assert said.startswith("no driver library: ")
    assert len(said) <= 512, "the inventory cuts longer messages"
    for text in has:
        assert text in said
    for text in has_not:
        assert text not in said
    assert (str(tmp_path) in said) == (access == Access())


@pytest.mark.parametrize(
    ("access", "has"),
    [
        (Access(), "set agent.driverAccess"),
        (RUNTIME, "RuntimeClass nvidia"),
        (CDI, "CDI device management.nvidia.com/gpu=all"),
        (ROOT, "SELinux or AppArmor"),
    ],
)
def test_nodes_that_the_pod_lacks(tmp_path: Path, access: Access, has: str) -> None:
    (tmp_path / "nvidiactl").touch()
    places = LibraryPlaces(own_dev=tmp_path / "own", host_dev=tmp_path, access=access)
    said = library.why_not(NvmlCallError(library.UNKNOWN, "x"), library.UNKNOWN, places)
    assert said.startswith("no permission: /dev/nvidiactl is on the node")
    assert has in said
    assert len(said) <= 512


@pytest.mark.parametrize("code", [library.NO_PERMISSION, library.UNKNOWN])
def test_a_refusal_despite_openable_nodes_has_advice(tmp_path: Path, code: int) -> None:
    (tmp_path / "nvidiactl").touch()
    said = library.why_not(NvmlCallError(code, "strange"), code, LibraryPlaces(own_dev=tmp_path, host_dev=tmp_path))
    assert said.startswith("NVML does not start: strange. The agent's pod can open the driver's nodes")
    assert "nvidia-smi" in said
    assert "NVRM" in said


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"other": 1}'])
def test_an_unusable_variable_counts_as_not_set(text: str) -> None:
    assert parse(text) == Access()


def test_the_operators_variable_is_read() -> None:
    assert parse('{"runtimeClass": "nvidia"}') == RUNTIME
    assert parse('{"cdiDevice": "management.nvidia.com/gpu=all"}') == CDI
    assert parse('{"driverRoot": "/opt/driver"}') == ROOT
