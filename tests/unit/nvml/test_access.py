"""Advice where the driver cannot be reached: about what is set, in the node's own paths."""

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
        (Access(), ["set agent.driverAccess to {runtimeClass: nvidia}"], ["driverRoot right"]),
        (RUNTIME, ["did not hand the driver over", "RuntimeClass nvidia"], ["set agent.driverAccess", "CDI"]),
        (BOTH, ["RuntimeClass nvidia", "CDI specification of management.nvidia.com/gpu=all"], ["set agent"]),
        (CDI, ["nothing has injected the CDI device management.nvidia.com/gpu=all", "NRI plugin"], ["set agent"]),
        (
            ROOT,
            ["below /opt/driver of the node", "usr/lib64", "driverRoot right?", "/run/nvidia/driver"],
            ["set agent.driverAccess"],
        ),
    ],
)
def test_no_library(tmp_path: Path, access: Access, has: list[str], has_not: list[str]) -> None:
    with pytest.raises(NvmlUnavailableError) as raised:
        library.load(tmp_path / "driver-root", access=access)
    said = str(raised.value)
    assert said.startswith("no driver library: ")
    assert len(said) <= 512, "as much as the inventory has room for"
    for text in has:
        assert text in said
    for text in has_not:
        assert text not in said
    assert (str(tmp_path) in said) == (access == Access())


@pytest.mark.parametrize(
    ("access", "has"),
    [
        (Access(), "set agent.driverAccess"),
        (RUNTIME, "did not hand the driver over"),
        (CDI, "nothing has injected the CDI device"),
        (ROOT, "SELinux or AppArmor"),
    ],
)
def test_nodes_that_the_pod_lacks(tmp_path: Path, access: Access, has: str) -> None:
    (tmp_path / "nvidiactl").touch()
    places = LibraryPlaces(own_dev=tmp_path / "own", host_dev=tmp_path, access=access)
    said = library.why_not(NvmlCallError(library.UNKNOWN, "x"), library.UNKNOWN, places)
    assert said.startswith("no permission: the node has /dev/nvidiactl, the agent's pod has not: ")
    assert has in said
    assert len(said) <= 512


@pytest.mark.parametrize("code", [library.NO_PERMISSION, library.UNKNOWN])
def test_a_refusal_for_another_reason_than_the_nodes_has_advice(tmp_path: Path, code: int) -> None:
    (tmp_path / "nvidiactl").touch()
    said = library.why_not(NvmlCallError(code, "strange"), code, LibraryPlaces(own_dev=tmp_path, host_dev=tmp_path))
    assert said.startswith("NVML does not start: strange. The agent's pod can open the driver's nodes")
    assert "nvidia-smi" in said
    assert "NVRM" in said


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"other": 1}'])
def test_a_variable_that_says_nothing_is_nothing_set(text: str) -> None:
    assert parse(text) == Access()


def test_what_the_operator_says_is_what_is_set() -> None:
    assert parse('{"runtimeClass": "nvidia"}') == RUNTIME
    assert parse('{"cdiDevice": "management.nvidia.com/gpu=all"}') == CDI
    assert parse('{"driverRoot": "/opt/driver"}') == ROOT
