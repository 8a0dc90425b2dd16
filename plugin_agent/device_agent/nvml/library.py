"""Finds and loads the driver's library, calls it, and explains its errors to an admin.

The library is loaded by its full path, before pynvml looks for it. LD_LIBRARY_PATH would not do: a driver root holds a
whole system, and its libc would replace ours. Only this module imports pynvml, and only when a configuration asks for
NVIDIA devices, so other agents need no memory for it.
"""

import ctypes
import errno
import importlib
import os
import time
from collections.abc import Callable, Iterator
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
"""NVML_INIT_FLAG_NO_GPUS: NVML also starts when there is no GPU, and reports 0 GPUs."""

_NOTHING_THERE: Final = frozenset({
    NOT_SUPPORTED, FUNCTION_NOT_FOUND, LIBRARY_NOT_FOUND, NO_PERMISSION, NO_DATA, VGPU_ECC_NOT_SUPPORTED,
    ARGUMENT_VERSION_MISMATCH, DEPRECATED,
})  # fmt: skip
"""Codes that mean "there is no such value", and stay so.

NO_PERMISSION is one: a process that cannot see all partitions of a GPU in MIG mode is refused many values.
"""
_GONE: Final = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, VERSION_MISMATCH})
NO_DRIVER: Final = frozenset({DRIVER_NOT_LOADED, VERSION_MISMATCH})
"""Codes of nvmlInit that mean: no usable driver. Its other codes tell nothing about the GPUs."""

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
"""Prefixes of the directories. A driver container mounts its file system at the second."""


class NvmlUnavailableError(AgentError):
    """NVML cannot be used. The text says why, and what an admin can do."""


class NvmlSilentError(NvmlUnavailableError):
    """The driver does not answer. The GPUs of the last look still count as present."""


class DriverGoneError(AgentError):
    """The driver was unloaded or reloaded after the library's start: start the library again."""


class NvmlCallError(AgentError):
    """One call failed. `code`: its nvmlReturn_t."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code

    @property
    def says_nothing_there(self) -> bool:
        """Whether the GPU, the driver or the library lacks this value. That is an answer, not a failure."""
        return self.code in _NOTHING_THERE


class Library:
    """pynvml, bound to the driver's library. All calls go through `ask`."""

    def __init__(self, module: ModuleType, *, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.module = module
        self.path = path
        self._clock = clock
        self.progress = ("", 0.0)
        """The call in progress or '', and when it began (monotonic seconds). Other threads read it."""

    def ask(self, function: str, *arguments: object, of: str = "") -> Any:
        """Calls `pynvml.<function>(*arguments)`. `of`: the call's subject for messages, such as `GPU 3`.

        Raises:
            DriverGoneError: the driver is gone, so every call would fail.
            NvmlCallError: this call failed.
        """
        what = f"{function} of {of}" if of else function
        self.progress = what, self._clock()
        try:
            return getattr(self.module, function)(*arguments)
        except self.module.NVMLError as error:
            text = f"{what}: {error}"
            if error.value in _GONE:
                raise DriverGoneError(text) from error
            raise NvmlCallError(error.value, text) from error
        except UnicodeDecodeError as error:  # pynvml decodes the device's bytes
            raise NvmlCallError(UNKNOWN, f"{what}: {error}") from error
        finally:
            self.progress = "", self._clock()

    @property
    def gone(self) -> bool:
        """Whether the library has lost its driver. If not, a DriverGoneError of one call concerns one GPU only."""
        try:
            self.ask("nvmlDeviceGetCount")
        except (DriverGoneError, NvmlCallError):
            return True
        return False


def load(driver_root: Path, *, access: Access = NOTHING_SET, clock: Callable[[], float] = time.monotonic) -> Library:
    """Loads the library below `driver_root` and binds pynvml to it. After an update of the driver that is the new file.

    `access`: the admin's settings, for the text of the error. `clock`: for `Library.progress`.

    Raises:
        NvmlUnavailableError: no library was found, or none could be loaded.
    """
    refused = ""
    for path in candidates(driver_root):
        try:
            # not RTLD_GLOBAL: after an update two releases are loaded, and must not use each other's symbols
            return _bind(ctypes.CDLL(path), path=path, clock=clock)
        except OSError as error:
            refused = refused or str(error)
    if driver_root == Path("/"):
        try:
            return _bind(ctypes.CDLL(LIBRARY), path=LIBRARY, clock=clock)  # where the linker's own cache has it
        except OSError:
            pass
    if refused:
        raise NvmlUnavailableError(f"the driver's library cannot be loaded: {refused}")
    some = ", ".join((_DIRECTORIES[0], *_DIRECTORIES[2:4], "…"))
    raise NvmlUnavailableError(access.no_library(looked_in=str(driver_root), directories=some))


def candidates(driver_root: Path) -> Iterator[str]:
    """Existing files that may be the library. Links are followed within `driver_root`."""
    tree = HostTree(driver_root, mount="")
    told: set[str] = set()
    for prefix in _DRIVER_CONTAINERS:
        inner = tree if not prefix else HostTree(driver_root / prefix.rstrip("/"), mount="")
        for directory in _DIRECTORIES:
            real = inner.real(f"{directory}/{LIBRARY}")
            if real is not None and (path := inner.at(real)) not in told and Path(path).is_file():
                told.add(path)
                yield path


def _bind(library: ctypes.CDLL, *, path: str, clock: Callable[[], float]) -> Library:
    module: Any = importlib.import_module("pynvml")
    with module.libLoadLock:
        if module.nvmlLib is None or module.nvmlLib._handle != library._handle:  # noqa: SLF001 two CDLLs may be of one file
            module.nvmlLib = library
            module._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 they point into the old library
    return Library(module, path=path, clock=clock)


@dataclass(frozen=True, slots=True)
class LibraryPlaces:
    """What `why_not` needs to explain a failed start. `own_dev`: this process's /dev; `host_dev`: the node's.

    `access`: the admin's settings.
    """

    own_dev: Path
    host_dev: Path
    access: Access = NOTHING_SET


def why_not(error: AgentError, code: int, places: LibraryPlaces) -> str:
    """The message for an admin when nvmlInit fails with `code`."""
    refused, advice = _refused(places.own_dev / CONTROL_NODE), places.access.no_node()
    if code in (DRIVER_NOT_LOADED, NO_PERMISSION, UNKNOWN):
        if refused in ("EPERM", "EACCES"):
            return f"no permission: the agent's pod may not open /dev/{CONTROL_NODE} ({refused}): {advice}"
        if refused == "ENOENT" and (places.host_dev / CONTROL_NODE).exists():
            return f"no permission: /dev/{CONTROL_NODE} is on the node, but not in the agent's pod: {advice}"
    if code == DRIVER_NOT_LOADED:
        return "driver not loaded: the kernel module does not answer the library; run nvidia-smi on the node"
    if code == VERSION_MISMATCH:
        return (
            "driver/library version mismatch: the kernel module and the library are of different releases; reload the "
            "driver or reboot the node. After an update of the driver also delete the agent's pod: it may still have "
            "the old library"
        )
    return f"NVML does not start: {error}" if refused else does_not_start(error)


def _refused(node: Path) -> str:
    """The name of the errno when opening the node fails, '' when the node can be opened."""
    try:
        os.close(os.open(node, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "")
    return ""
