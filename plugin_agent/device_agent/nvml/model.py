"""What NVML tells, as values. Nothing here calls the library."""

from collections.abc import Mapping
from dataclasses import field, replace

from device_agent.contract.values import dataclass


@dataclass(frozen=True, slots=True)
class Mig:
    """A MIG device: a compute instance `ci` of a GPU instance `gi`.

    `caps`: its capability nodes on the host, those of gi and ci (/dev/nvidia-caps/nvidia-capN; the numbers stand in
    /proc/driver/nvidia/capabilities or /proc/driver/nvidia-caps/mig-minors).
    """

    uuid: str
    index: int
    profile: str
    gi: int
    ci: int
    memory_mib: int
    caps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuState:
    """One look at a GPU's state. `known` False: it did not answer in time, or only with an error that says nothing.

    `asked` False: a slow driver took the time of the look, and this is the state of an earlier one.
    `failures`: (CamelCase reason, message for an admin) of everything that is wrong, such as GpuLost,
    UncorrectableEcc, RetiredPagesPending, RowRemapFailed, ResetRequired. `recovery_action`: the driver's own word on
    what is to be done, None, Reset, Reboot, DrainP2P, DrainAndReset, RecoverImexDomain, BusReset or SystemReboot;
    '' where the driver has no word for it.
    """

    known: bool = True
    asked: bool = True
    failures: tuple[tuple[str, str], ...] = ()
    recovery_action: str = ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. `pci_address` as sysfs writes it (0000:3b:00.0, lower case). `nvlinks`: peer's UUID -> active links.

    `via_switch`: active links that lead to an NVSwitch, so to every GPU that has such links. `mig_mode`: None where
    the GPU has no MIG. Values that a GPU does not answer for are '' or 0, `minor` -1: one GPU's error concerns that
    GPU alone. `numa_node`: of its PCI function, as sysfs has it.
    """

    uuid: str
    index: int
    minor: int
    pci_address: str
    model: str = ""
    memory_mib: int = 0
    numa_node: int | None = None
    compute_capability: str = ""
    architecture: str = ""
    brand: str = ""
    mig_mode: bool | None = None
    migs: tuple[Mig, ...] = ()
    nvlinks: Mapping[str, int] = field(default_factory=dict)
    via_switch: int = 0
    state: GpuState = GpuState()


def unanswered(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """GPUs as they were, their state not known."""
    return tuple(replace(gpu, state=GpuState(known=False)) for gpu in gpus)


@dataclass(frozen=True, slots=True)
class NvmlView:
    """One look at everything. `unavailable`: why there is nothing to see (no library, no driver, a hang), or ''.

    While the driver hangs or refuses to be asked, `gpus` are those of the last look that it answered, their state not
    known; they are gone when the driver is.
    `epoch` grows by one when the driver was loaded anew since the look before, as far as that can be told; the first
    is 1. `driver_load` is the same for one load of the kernel module, also over a restart of the agent; '' where sysfs
    does not show it.
    `errors`: one line for each thing that could not be read; the rest counts.
    """

    gpus: tuple[Gpu, ...] = ()
    driver_version: str = ""
    cuda_version: str = ""
    epoch: int = 0
    driver_load: str = ""
    unavailable: str = ""
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class XidEvent:
    """A critical error that the driver announced, at monotonic seconds. `gi`, `ci`: of the MIG device it concerns.

    `epoch`, `driver_load`: of the load of the driver that announced it, as in NvmlView; 0 and '' where not known.
    """

    uuid: str
    xid: int
    at: float
    gi: int | None = None
    ci: int | None = None
    epoch: int = 0
    driver_load: str = ""


@dataclass(frozen=True, slots=True)
class GpuSample:
    """Telemetry of a GPU or MIG device (`uuid`). None: the device does not tell."""

    uuid: str
    temperature_celsius: float | None = None
    power_watts: float | None = None
    utilisation_percent: float | None = None
    memory_used_mib: float | None = None
    memory_total_mib: float | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    ecc_corrected: float | None = None
    ecc_uncorrected: float | None = None
    nvlink_errors: float | None = None
