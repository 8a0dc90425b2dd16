"""How the driver's library is found and loaded, and the messages when it cannot start."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import fakenvml
import pytest
from device_agent.nvml import library
from device_agent.nvml.library import LibraryPlaces, NvmlCallError, NvmlUnavailableError
from fakenvml import Scenario

SO = "libnvidia-ml.so.1"


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(fakenvml.library().read_bytes())
    return path


@pytest.mark.parametrize(
    "directory",
    [
        "usr/lib/x86_64-linux-gnu",
        "usr/lib64",
        "usr/lib",
        "usr/lib/x86_64-linux-gnu/nvidia/current",
        "run/nvidia/driver/usr/lib/x86_64-linux-gnu",
        "run/nvidia/driver/usr/lib64",
        "home/kubernetes/bin/nvidia/lib64",
    ],
)
def test_the_library_is_found_in_the_usual_directories(tmp_path: Path, directory: str) -> None:
    real = put(tmp_path / directory / "libnvidia-ml.so.580.95.05")
    (tmp_path / directory / SO).symlink_to(real.name)
    assert list(library.candidates(tmp_path)) == [str(real)]


def test_an_absolute_link_is_followed_within_the_driver_root(tmp_path: Path) -> None:
    real = put(tmp_path / "nix/store/x/lib/libnvidia-ml.so.580.95.05")
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib" / SO).symlink_to("/nix/store/x/lib/libnvidia-ml.so.580.95.05")
    assert list(library.candidates(tmp_path)) == [str(real)]


def test_a_file_with_two_names_is_one_candidate(tmp_path: Path) -> None:
    put(tmp_path / "usr/lib64" / SO)
    (tmp_path / "lib64").symlink_to("usr/lib64")
    assert len(list(library.candidates(tmp_path))) == 1


def test_ld_library_path_has_no_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Scenario(tmp_path / "other", driver="1.0", dev=tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "other" / fakenvml.LIBRARY_DIR))
    scenario = Scenario(tmp_path / "root", driver="2.0", dev=tmp_path)
    scenario.make_nodes()
    loaded = library.load(tmp_path / "root")
    loaded.ask("nvmlInitWithFlags", 1)
    assert loaded.ask("nvmlSystemGetDriverVersion") == "2.0"
    loaded.ask("nvmlShutdown")


def test_after_an_update_of_the_driver_the_new_file_is_loaded(tmp_path: Path) -> None:
    root = tmp_path / "root"
    old = Scenario(root, driver="570.1", dev=tmp_path)
    old.make_nodes()
    loaded = library.load(root)
    loaded.ask("nvmlInitWithFlags", 1)
    loaded.ask("nvmlShutdown")
    old.library.unlink()
    Scenario(root, driver="580.2", dev=tmp_path)
    again = library.load(root)
    assert again.path.endswith("libnvidia-ml.so.580.2")
    again.ask("nvmlInitWithFlags", 1)
    assert again.ask("nvmlSystemGetDriverVersion") == "580.2"
    assert "580.2" in Path("/proc/self/maps").read_text()
    again.ask("nvmlShutdown")


def test_no_library_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        NvmlUnavailableError, match=r"^no driver library: .*install the NVIDIA driver.*agent\.driverAccess"
    ):
        library.load(tmp_path)


def test_a_file_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    path = tmp_path / "usr/lib64" / SO
    path.parent.mkdir(parents=True)
    path.write_text("of another machine")
    with pytest.raises(NvmlUnavailableError, match=f"cannot be loaded: {path}"):
        library.load(tmp_path)


def test_the_next_candidate_is_tried_when_one_cannot_be_loaded(tmp_path: Path) -> None:
    bad = tmp_path / "usr/lib/x86_64-linux-gnu" / SO
    bad.parent.mkdir(parents=True)
    bad.write_text("of another machine")
    good = put(tmp_path / "usr/lib64" / SO)
    assert library.load(tmp_path).path == str(good)


@pytest.fixture
def node(tmp_path: Path) -> LibraryPlaces:
    places = LibraryPlaces(own_dev=tmp_path / "own", host_dev=tmp_path / "host")
    places.own_dev.mkdir()
    places.host_dev.mkdir()
    return places


@pytest.mark.parametrize("code", [library.DRIVER_NOT_LOADED, library.NO_PERMISSION, library.UNKNOWN])
def test_a_control_node_missing_in_the_pod_means_no_permission(node: LibraryPlaces, code: int) -> None:
    (node.host_dev / "nvidiactl").touch()
    said = library.why_not(NvmlCallError(code, "x"), code, node)
    assert said.startswith("no permission: /dev/nvidiactl is on the node")
    assert "agent.driverAccess" in said


@pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES])
@pytest.mark.parametrize("code", [library.NO_PERMISSION, library.UNKNOWN])
def test_a_control_node_that_cannot_be_opened_means_no_permission(
    node: LibraryPlaces, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    def refuse(path: object, flags: int) -> int:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(os, "open", refuse)
    said = library.why_not(NvmlCallError(code, "x"), code, node)
    assert said.startswith(f"no permission: the agent's pod may not open /dev/nvidiactl ({errno.errorcode[number]})")


@pytest.mark.parametrize(
    ("code", "begins"),
    [
        (library.DRIVER_NOT_LOADED, "driver not loaded: "),
        (library.VERSION_MISMATCH, "driver/library version mismatch: "),
        (library.UNKNOWN, "NVML does not start: strange"),
    ],
)
def test_other_causes_of_a_failed_start_are_named(node: LibraryPlaces, code: int, begins: str) -> None:
    assert library.why_not(NvmlCallError(code, "strange"), code, node).startswith(begins)


def test_an_agent_without_nvidia_devices_loads_only_the_door_to_the_driver() -> None:
    code = "import sys, device_agent.agent; print(*sorted(m for m in sys.modules if 'nvml' in m))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["device_agent.nvml", "device_agent.nvml.access", "device_agent.nvml.setup"]
