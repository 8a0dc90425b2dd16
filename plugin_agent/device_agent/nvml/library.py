"""The driver's library: where it lies, how it is loaded, what its refusals mean to an admin.

It is loaded by its full path before pynvml would look for it. LD_LIBRARY_PATH is no way: a driver root holds a
whole system, whose libc would take the place of ours. pynvml is imported here alone, and only when a configuration
asks for NVIDIA devices: other agents do not pay for it.
"""

import ctypes
import errno
import importlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from device_agent.contract.values import dataclass
from device_agent.discovery.host_tree import HostTree
from device_agent.nvml.access import LIBRARY, NOTHING_SET, Access, does_not_start
from device_agent.runtime.errors import AgentError

CONTROL_NODE: Final = "nvidiactl"

# nvmlReturn_t of nvml.h
UNINITIALIZED: Final = 1
INVALID_ARGUMENT: Final = 2
NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
NOT_FOUND: Final = 6
DRIVER_NOT_LOADED: Final = 9
TIMEOUT: Final = 10
LIBRARY_NOT_FOUND: Final = 12
FUNCTION_NOT_FOUND: Final = 13
GPU_IS_LOST: Final = 15
RESET_REQUIRED: Final = 16
VERSION_MISMATCH: Final = 18
NO_DATA: Final = 21
VGPU_ECC_NOT_SUPPORTED: Final = 22
ARGUMENT_VERSION_MISMATCH: Final = 25
DEPRECATED: Final = 26
UNKNOWN: Final = 999

INIT_NO_GPUS: Final = 1
"""NVML_INIT_FLAG_NO_GPUS: a driver without a GPU starts as well, and says that it has none."""

_NOTHING_THERE: Final = frozenset({
    NOT_SUPPORTED, FUNCTION_NOT_FOUND, LIBRARY_NOT_FOUND, NO_PERMISSION, NO_DATA, VGPU_ECC_NOT_SUPPORTED,
    ARGUMENT_VERSION_MISMATCH, DEPRECATED,
})  # fmt: skip
"""Lasting answers. No permission: of a GPU in MIG mode much is told to who may see all its partitions alone."""
_GONE: Final = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, VERSION_MISMATCH})
NO_DRIVER: Final = frozenset({DRIVER_NOT_LOADED, VERSION_MISMATCH})
"""Of nvmlInit: there is no driver that programs could use. What else it refuses with says nothing of the GPUs."""

# Debian, Ubuntu and the container runtimes; Red Hat; others. GKE and its Container-Optimized OS, NixOS, WSL, Talos.
_DIRECTORIES: Final = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib/aarch64-linux-gnu/nvidia/current",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "lib64",
    "lib",
    "usr/local/lib",
    "usr/local/nvidia/lib64",
    "home/kubernetes/bin/nvidia/lib64",
    "opt/nvidia/lib64",
    "run/opengl-driver/lib",
    "usr/lib/wsl/lib",
)
_DRIVER_CONTAINERS: Final = ("", "run/nvidia/driver/")
"""A driver container shows its file system there."""


class NvmlUnavailableError(AgentError):
    """There is nothing to ask: the text says why, and what an admin can do."""


class NvmlSilentError(NvmlUnavailableError):
    """The driver does not answer. What was there before still counts: no device is gone because of it."""


class DriverGoneError(AgentError):
    """The driver was unloaded or reloaded since the library was initialised: everything must be asked anew."""


class NvmlCallError(AgentError):
    """One call failed. `code`: its nvmlReturn_t."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code

    @property
    def says_nothing_there(self) -> bool:
        """Whether the GPU, the driver or the library has no such thing. That is an answer, not an error."""
        return self.code in _NOTHING_THERE


class Library:
    """pynvml on the driver's library. `ask` is the one way to call it."""

    def __init__(self, module: ModuleType, *, path: str) -> None:
        self.module = module
        self.path = path
        self.progress = ("", 0.0)
        """The call in progress or '', and since when, monotonic seconds; for whoever waits in another thread."""

    def ask(self, function: str, *arguments: object, of: str = "") -> Any:
        """`pynvml.<function>(*arguments)`. `of`: what it concerns, such as `GPU 3`, for messages.

        Raises:
            DriverGoneError: every call would fail like this one.
            NvmlCallError: this call failed.
        """
        what = f"{function} of {of}" if of else function
        self.progress = what, time.monotonic()
        try:
            return getattr(self.module, function)(*arguments)
        except self.module.NVMLError as error:
            text = f"{what}: {error}"
            if error.value in _GONE:
                raise DriverGoneError(text) from error
            raise NvmlCallError(error.value, text) from error
        except UnicodeDecodeError as error:  # pynvml makes text of what a device tells
            raise NvmlCallError(UNKNOWN, f"{what}: {error}") from error
        finally:
            self.progress = "", time.monotonic()

    @property
    def gone(self) -> bool:
        """Whether the library has lost its driver. If not, an error that says so concerns one GPU alone."""
        try:
            self.ask("nvmlDeviceGetCount")
        except (DriverGoneError, NvmlCallError):
            return True
        return False


def load(driver_root: Path, *, access: Access = NOTHING_SET) -> Library:
    """The library below `driver_root`, and pynvml bound to it; after an update of the driver it is the new file.

    `access`: what an admin has set, for the text of the error.

    Raises:
        NvmlUnavailableError: there is none, or none that can be loaded.
    """
    refused = ""
    for path in candidates(driver_root):
        try:
            # not RTLD_GLOBAL: after an update two releases of it are loaded, and must not use each other's symbols
            return _bind(ctypes.CDLL(path), path=path)
        except OSError as error:
            refused = refused or str(error)
    if driver_root == Path("/"):
        try:
            return _bind(ctypes.CDLL(LIBRARY), path=LIBRARY)  # where the linker's own cache has it
        except OSError:
            pass
    if refused:
        raise NvmlUnavailableError(f"the driver's library cannot be loaded: {refused}")
    some = ", ".join((_DIRECTORIES[0], *_DIRECTORIES[2:4], "…"))
    raise NvmlUnavailableError(access.no_library(looked_in=str(driver_root), directories=some))


def candidates(driver_root: Path) -> Iterator[str]:
    """Files that may be the library, links followed within `driver_root`."""
    tree = HostTree(driver_root, mount="")
    told: set[str] = set()
    for prefix in _DRIVER_CONTAINERS:
        inner = tree if not prefix else HostTree(driver_root / prefix.rstrip("/"), mount="")
        for directory in _DIRECTORIES:
            real = inner.real(f"{directory}/{LIBRARY}")
            if real is not None and (path := inner.at(real)) not in told and Path(path).is_file():
                told.add(path)
                yield path


def _bind(library: ctypes.CDLL, *, path: str) -> Library:
    module: Any = importlib.import_module("pynvml")
    with module.libLoadLock:
        if module.nvmlLib is None or module.nvmlLib._handle != library._handle:  # noqa: SLF001 two CDLLs of one file
            module.nvmlLib = library
            module._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 pointers into the library before
    return Library(module, path=path)


@dataclass(frozen=True, slots=True)
class LibraryPlaces:
    """Where to look when the library refuses. `own_dev`: this process's /dev; `host_dev`: the node's.

    `access`: what an admin has set.
    """

    own_dev: Path
    host_dev: Path
    access: Access = NOTHING_SET


def why_not(error: AgentError, code: int, places: LibraryPlaces) -> str:
    """What an admin should know when nvmlInit gave `code`."""
    refused, advice = _refused(places.own_dev / CONTROL_NODE), places.access.no_node()
    if code in (DRIVER_NOT_LOADED, NO_PERMISSION, UNKNOWN):
        if refused in ("EPERM", "EACCES"):
            return f"no permission: the agent's pod may not open /dev/{CONTROL_NODE} ({refused}): {advice}"
        if refused == "ENOENT" and (places.host_dev / CONTROL_NODE).exists():
            return f"no permission: the node has /dev/{CONTROL_NODE}, the agent's pod has not: {advice}"
    if code == DRIVER_NOT_LOADED:
        return "driver not loaded: the library is there, the kernel module does not answer; see nvidia-smi on the node"
    if code == VERSION_MISMATCH:
        return (
            "driver/library version mismatch: the kernel module is of another release than the library; reload the "
            "driver or reboot the node; after an update of the driver delete the agent's pod, which a container "
            "runtime has given the library of before"
        )
    return f"NVML does not start: {error}" if refused else does_not_start(error)


def _refused(node: Path) -> str:
    """Name of the errno with which opening a node fails, '' when it can be opened."""
    try:
        os.close(os.open(node, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "")
    return ""
