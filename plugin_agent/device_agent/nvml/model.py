"""The values that NVML gives, as frozen dataclasses. Nothing here calls the library."""

from collections.abc import Mapping
from dataclasses import field, replace

from device_agent.contract.values import dataclass


@dataclass(frozen=True, slots=True)
class Mig:
    """A MIG device: a compute instance `ci` of a GPU instance `gi`.

    `caps`: the capability nodes of its gi and ci on the host, /dev/nvidia-caps/nvidia-capN. The numbers are in
    /proc/driver/nvidia/capabilities or /proc/driver/nvidia-caps/mig-minors.
    """

    uuid: str
    index: int
    profile: str
    gi: int
    ci: int
    memory_mib: int | None
    caps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuState:
    """The state of a GPU at one look. `known` False: it did not answer in time, or its error does not tell its state.

    `asked` False: the look had no time left for this GPU, so this is the state of an earlier look.
    `failures`: (CamelCase reason, message for an admin) of everything that is wrong, such as GpuLost,
    UncorrectableEcc, RetiredPagesPending, RowRemapFailed, SramThresholdExceeded, ResetRequired.
    `recovery_action`: the action that the driver asks for: None, Reset, Reboot, DrainP2P, DrainAndReset,
    RecoverImexDomain, BusReset or SystemReboot; '' if the driver does not tell.
    """

    known: bool = True
    asked: bool = True
    failures: tuple[tuple[str, str], ...] = ()
    recovery_action: str = ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. A value that it does not tell is None, of texts ''. It is never 0: the first GPU's `minor` is 0.

    `pci_address`: as sysfs writes it (0000:3b:00.0, lower case). `numa_node`: that of its PCI function in sysfs.
    `mig_mode`: None if the GPU has no MIG. `nvlinks`: UUID of the peer -> number of active links.
    `via_switch`: number of active links to NVSwitches; they reach every GPU that has such links.
    """

    uuid: str
    index: int
    minor: int | None
    pci_address: str
    model: str = ""
    memory_mib: int | None = None
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
    """The same GPUs with an unknown state."""
    return tuple(replace(gpu, state=GpuState(known=False)) for gpu in gpus)


@dataclass(frozen=True, slots=True)
class NvmlView:
    """The result of one look at the driver and all GPUs.

    `unavailable`: why the driver gives no answer (no library, no driver, a hang), or ''. While it hangs or refuses
    calls, `gpus` are those of the last answered look, with an unknown state. Without a driver, `gpus` is empty.
    `epoch`: a counter of the driver's loads that this process has noticed; the first is 1.
    `driver_load`: identifies one load of the kernel module, also after a restart of the agent; '' if sysfs lacks it.
    `errors`: one line for each value that could not be read; all other values count.
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
    """An XID error that the driver announced. `at`: monotonic seconds. `gi`, `ci`: the MIG device that it concerns.

    `epoch`, `driver_load`: the load of the driver that announced it, as in NvmlView; 0 and '' if not known.
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
    """Telemetry of a GPU or MIG device. None: the device does not tell this value."""

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
