"""What one GPU tells, call by call. A call that fails costs that value alone; the rest of the GPU counts.

Numbers are those of nvml.h.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from device_agent.contract.values import dataclass
from device_agent.nvml.library import (
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    INVALID_ARGUMENT,
    NOT_FOUND,
    RESET_REQUIRED,
    Library,
    NvmlCallError,
)
from device_agent.nvml.model import Gpu, GpuSample, GpuState, Mig

LOST: Final = "GpuLost"
RESET: Final = "ResetRequired"
ECC: Final = "UncorrectableEcc"
RETIRED: Final = "RetiredPagesPending"
REMAP: Final = "RowRemapFailed"

MAX_LINKS: Final = 36
LINK_TO_GPU: Final = 0
LINK_TO_SWITCH: Final = 2

_CORRECTED, _UNCORRECTED, _VOLATILE = 0, 1, 0
_CLOCK_SM, _CLOCK_MEMORY = 1, 2
_FIELD_RECOVERY_ACTION: Final = 230
_FIELDS_LINK_ERRORS: Final = (38, 45, 52, 59)
"""CRC errors of flits and of data, replays, recoveries, each over all links."""
_MIB: Final = 1 << 20
_MEMORY_V2: Final = 0x2000028
"""nvmlMemory_v2: the second version of a structure of 40 bytes."""

_ACTIONS: Final = (
    "None", "Reset", "Reboot", "DrainP2P", "DrainAndReset", "RecoverImexDomain", "BusReset", "SystemReboot",
)  # fmt: skip
_DRAIN_LINKS: Final = "the driver asks to end all traffic between this GPU and others"
_STOP: Final = "end the pods that hold it"
_ASKED_FOR: Final = {
    "Reset": (RESET, f"the driver asks for a reset of the GPU: {_STOP}, then reset it (nvidia-smi -r)"),
    "BusReset": (RESET, f"the driver asks for a reset of the GPU's bus: {_STOP}, then reset it, or reboot the node"),
    "Reboot": ("RebootRequired", "the driver asks for a reboot of the node: drain and reboot it"),
    "SystemReboot": ("RebootRequired", "the driver asks for a reboot of the whole system: drain and reboot the node"),
    "DrainAndReset": ("DrainRequired", f"the driver asks to drain the GPU, then to reset it: {_STOP}, then reset it"),
    "DrainP2P": ("DrainRequired", f"{_DRAIN_LINKS}: {_STOP} together with other GPUs"),
}
_OUT_OF_REACH: Final = (
    "the GPU has fallen off the bus or is otherwise out of reach: reset it, or reboot the node; if it comes again, "
    "check its seat, power and cooling"
)
_REFUSES: Final = f"the driver refuses all work on it until it is reset: {_STOP}, then reset it, or reboot the node"
_ARCHITECTURES: Final = {
    2: "kepler", 3: "maxwell", 4: "pascal", 5: "volta", 6: "turing", 7: "ampere", 8: "ada-lovelace", 9: "hopper",
    10: "blackwell", 13: "rubin",
}  # fmt: skip
_BRANDS: Final = {
    1: "Quadro", 2: "Tesla", 3: "NVS", 4: "Grid", 5: "GeForce", 6: "Titan", 7: "NvidiaVApps", 8: "NvidiaVPC",
    9: "NvidiaVCS", 10: "NvidiaVWS", 11: "NvidiaCloudGaming", 12: "QuadroRTX", 13: "NvidiaRTX", 14: "Nvidia",
    15: "GeForceRTX", 16: "TitanRTX",
}  # fmt: skip
_FACTS: Final = (
    "minor", "pci_address", "model", "memory_mib", "numa_node", "compute_capability", "architecture", "brand",
)  # fmt: skip
_PROFILE = re.compile(r" MIG (\d+[cg]\S*)$")


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """Where one active NVLink leads: a GPU's PCI address, '' for a switch, and NVML's number of its kind."""

    address: str
    kind: int


class Reading:
    """The calls about one device. What fails is appended to `errors`, one line each."""

    def __init__(self, library: Library, handle: Any, *, of: str, errors: list[str]) -> None:
        self._library = library
        self._handle = handle
        self._of = of
        self._errors = errors
        self.failed = False
        """A call gave an error that says nothing of the device, since this was set to False."""

    def ask(self, function: str, *arguments: object) -> Any:
        """Raises NvmlCallError or DriverGoneError, as `Library.ask`."""
        return self._library.ask(function, self._handle, *arguments, of=self._of)

    def value(self, function: str, *arguments: object, no_such: int | None = None) -> Any:
        """The answer, None where the device has none. `no_such`: another code that says so of this call.

        Raises:
            DriverGoneError, NvmlCallError: the device is lost, or must be reset.
        """
        try:
            return self.ask(function, *arguments)
        except NvmlCallError as error:
            if error.code in (GPU_IS_LOST, RESET_REQUIRED):
                raise
            if not error.says_nothing_there and error.code != no_such:
                self.failed = True
                self._errors.append(str(error))
            return None

    def facts(self, *, uuid: str, index: int, numa_node: Callable[[str], int | None]) -> Gpu:
        """What stays the same as long as the driver is loaded."""
        info = self.value("nvmlDeviceGetPciInfo_v3")
        address = pci_address(info) if info else ""
        minor = self.value("nvmlDeviceGetMinorNumber")
        memory = self.value("nvmlDeviceGetMemoryInfo")
        compute = self.value("nvmlDeviceGetCudaComputeCapability")
        return Gpu(
            uuid=uuid,
            index=index,
            minor=-1 if minor is None else minor,
            pci_address=address,
            model=self.value("nvmlDeviceGetName") or "",
            memory_mib=memory.total // _MIB if memory else 0,
            numa_node=numa_node(address) if address else None,
            compute_capability=f"{compute[0]}.{compute[1]}" if compute else "",
            architecture=_ARCHITECTURES.get(self.value("nvmlDeviceGetArchitecture") or 0, ""),
            brand=_BRANDS.get(self.value("nvmlDeviceGetBrand") or 0, ""),
        )

    def mig_mode(self) -> bool | None:
        modes = self.value("nvmlDeviceGetMigMode")
        return None if modes is None else modes[0] == 1

    def migs(
        self, *, minor: int, memory_mib: int, caps: Mapping[str, int], before: Iterable[Mig] = ()
    ) -> tuple[Mig, ...]:
        """The MIG devices that this process may see. `caps`: as `cap_numbers` reads them.

        `before`: those of the last look; one whose calls fail for another reason than that it is gone is still there.
        """
        self.failed = False
        count = self.value("nvmlDeviceGetMaxMigDeviceCount")
        if self.failed:
            return tuple(before)
        known = {mig.index: mig for mig in before}
        found = (self._mig_at(index, known.get(index), minor, memory_mib, caps) for index in range(count or 0))
        return tuple(mig for mig in found if mig is not None)

    def _mig_at(
        self, index: int, before: Mig | None, minor: int, memory_mib: int, caps: Mapping[str, int]
    ) -> Mig | None:
        try:
            handle = self.ask("nvmlDeviceGetMigDeviceHandleByIndex", index)
            part = Reading(self._library, handle, of=f"MIG device {index} of {self._of}", errors=self._errors)
            mig = part._mig(index, minor=minor, memory_mib=memory_mib, caps=caps)
        except NvmlCallError as error:
            if error.code in (GPU_IS_LOST, RESET_REQUIRED):
                raise
            if error.code in (NOT_FOUND, INVALID_ARGUMENT) or error.says_nothing_there:
                return None  # none at this index, or destroyed while we looked
            self._errors.append(str(error))
            return before
        return before if part.failed and before and before.uuid == mig.uuid else mig

    def _mig(self, index: int, *, minor: int, memory_mib: int, caps: Mapping[str, int]) -> Mig:
        uuid = self.ask("nvmlDeviceGetUUID")
        gi = self.ask("nvmlDeviceGetGpuInstanceId")
        ci = self.ask("nvmlDeviceGetComputeInstanceId")
        attributes = self.value("nvmlDeviceGetAttributes_v2")
        name = self.value("nvmlDeviceGetName") or ""
        wanted = (f"gpu{minor}/gi{gi}/access", f"gpu{minor}/gi{gi}/ci{ci}/access")
        return Mig(
            uuid=uuid,
            index=index,
            profile=profile(name, attributes, memory_mib=memory_mib),
            gi=gi,
            ci=ci,
            memory_mib=attributes.memorySizeMB if attributes else 0,
            caps=tuple(f"/dev/nvidia-caps/nvidia-cap{caps[key]}" for key in wanted if key in caps),
        )

    # NVLink

    def link_states(self) -> tuple[bool, ...] | None:
        """Whether each link is active; empty where the GPU has none, None where it does not say."""
        states: list[bool] = []
        for link in range(MAX_LINKS):
            try:
                states.append(self.ask("nvmlDeviceGetNvLinkState", link) == 1)
            except NvmlCallError as error:
                if error.code in (GPU_IS_LOST, RESET_REQUIRED):
                    raise
                if error.code in (INVALID_ARGUMENT, FUNCTION_NOT_FOUND):
                    break  # there are no more
                if not error.says_nothing_there:
                    self._errors.append(str(error))
                    return None
                if not states:
                    break
                states.append(False)
        return tuple(states)

    def link_ends(self, states: Iterable[bool]) -> tuple[LinkEnd, ...] | None:
        """Where the active links lead; None where that cannot be told now."""
        self.failed = False
        ends = []
        for link, active in enumerate(states):
            if not active:
                continue
            kind = self.value("nvmlDeviceGetNvLinkRemoteDeviceType", link)
            if kind == LINK_TO_SWITCH:  # it may be no PCI device of this machine: one of a rack, or of the host
                ends.append(LinkEnd(address="", kind=kind))
            elif info := self.value("nvmlDeviceGetNvLinkRemotePciInfo", link):
                ends.append(LinkEnd(address=pci_address(info), kind=LINK_TO_GPU if kind is None else kind))
        return None if self.failed else tuple(ends)

    # State and telemetry

    def state(self) -> GpuState:
        """Raises NvmlCallError when the GPU is lost or must be reset: `of_error` turns that into a state."""
        self.failed = False
        self.value("nvmlDeviceGetTemperature", 0)  # a GPU that knows of no errors tells this: it is not lost
        failures: list[tuple[str, str]] = []
        action = self._recovery_action()
        if action in _ASKED_FOR:
            failures.append(_ASKED_FOR[action])
        if errors := self.value("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _VOLATILE):
            failures.append((ECC, f"{errors} uncorrectable memory errors since the driver was loaded; reset the GPU"))
        if self.value("nvmlDeviceGetRetiredPagesPendingStatus") == 1:
            failures.append((RETIRED, "memory pages wait to be retired; reset the GPU, or reboot the node"))
        # rows[2], remappings that wait for a reset, is no failure: by nvml.h future work on the GPU is not affected
        if (rows := self.value("nvmlDeviceGetRemappedRows")) and rows[3]:
            failures.append((REMAP, "a row of its memory could not be remapped; the GPU is to be replaced"))
        return GpuState(known=bool(failures) or not self.failed, failures=tuple(failures), recovery_action=action)

    def _fields(self, *fields: int) -> list[int | None]:
        """Integers by field number; None where the GPU, or an older driver, has no such field."""
        # of a question for nothing else than an unknown field the whole call may fail
        values = self.value("nvmlDeviceGetFieldValues", list(fields), no_such=INVALID_ARGUMENT)
        if values is None:
            return [None] * len(fields)
        for value in values:
            if value.nvmlReturn in (GPU_IS_LOST, RESET_REQUIRED):
                raise NvmlCallError(value.nvmlReturn, f"field {value.fieldId} of {self._of}: error {value.nvmlReturn}")
        return [_integer(v) if v.nvmlReturn == 0 else None for v in values]

    def _recovery_action(self) -> str:
        [number] = self._fields(_FIELD_RECOVERY_ACTION)
        if number is None:
            return ""
        return _ACTIONS[number] if number < len(_ACTIONS) else f"Action{number}"

    def _memory_in_use(self) -> Any:
        """`total` and `used`, without what the driver keeps for itself where it tells the two apart (R510)."""
        return self.value("nvmlDeviceGetMemoryInfo", _MEMORY_V2) or self.value("nvmlDeviceGetMemoryInfo")

    def sample(self, uuid: str) -> GpuSample:
        """Telemetry of a GPU. What it does not tell is no error."""
        memory = self._memory_in_use()
        rates = self.value("nvmlDeviceGetUtilizationRates")
        power = self.value("nvmlDeviceGetPowerUsage")
        links = [v for v in self._fields(*_FIELDS_LINK_ERRORS) if v is not None]
        return GpuSample(
            uuid=uuid,
            temperature_celsius=self.value("nvmlDeviceGetTemperature", 0),
            power_watts=None if power is None else power / 1000,
            utilisation_percent=rates.gpu if rates else None,
            memory_used_mib=memory.used / _MIB if memory else None,
            memory_total_mib=memory.total / _MIB if memory else None,
            sm_clock_mhz=self.value("nvmlDeviceGetClockInfo", _CLOCK_SM),
            memory_clock_mhz=self.value("nvmlDeviceGetClockInfo", _CLOCK_MEMORY),
            ecc_corrected=self.value("nvmlDeviceGetTotalEccErrors", _CORRECTED, _VOLATILE),
            ecc_uncorrected=self.value("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _VOLATILE),
            nvlink_errors=sum(links) if links else None,
        )

    def mig_samples(self) -> Iterable[GpuSample]:
        """Of the GPU's MIG devices the driver tells the memory alone."""
        for index in range(self.value("nvmlDeviceGetMaxMigDeviceCount") or 0):
            try:
                handle = self.ask("nvmlDeviceGetMigDeviceHandleByIndex", index)
                part = Reading(self._library, handle, of=f"MIG device {index} of {self._of}", errors=self._errors)
                uuid, memory = part.ask("nvmlDeviceGetUUID"), part._memory_in_use()
            except NvmlCallError:
                continue
            if memory:
                yield GpuSample(uuid=uuid, memory_used_mib=memory.used / _MIB, memory_total_mib=memory.total / _MIB)


def of_error(error: NvmlCallError) -> GpuState:
    """The state of a GPU whose call failed."""
    if error.code == GPU_IS_LOST:
        return GpuState(failures=((LOST, _OUT_OF_REACH),))
    if error.code == RESET_REQUIRED:
        return GpuState(failures=((RESET, _REFUSES),))
    return GpuState(known=False)


def filled(fresh: Gpu, before: Gpu) -> Gpu:
    """Facts of which some could not be read now, with those of an earlier look of the same GPU."""
    missing = (name for name in _FACTS if getattr(fresh, name) in ("", 0, -1, None))
    return replace(fresh, **{name: getattr(before, name) for name in missing})


def pci_address(info: Any) -> str:
    """A PCI address as sysfs writes it; GPUs and switches have one function each."""
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"


def profile(name: str, attributes: Any, *, memory_mib: int) -> str:
    """A MIG device's profile, such as 1g.5gb, 1c.3g.20gb, 1g.10gb+me; '' where nothing tells.

    Drivers from 470 on end the device's name with it. Before, it follows from the slices, and from the memory as
    a share of the GPU's in eighths (the driver's own rounding: a slice of a 40 GB GPU has 4,864 MiB and is 5gb).
    """
    if found := _PROFILE.search(name):
        return found[1]
    if not attributes or not attributes.gpuInstanceSliceCount or not memory_mib:
        return ""
    eighths = -(-attributes.memorySizeMB * 8 // memory_mib)
    gigabytes = (eighths * -(-memory_mib // 1024) + 4) // 8
    slices, compute = attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount
    part = "" if compute == slices else f"{compute}c."
    return f"{part}{slices}g.{gigabytes}gb"


def cap_numbers(text: str) -> dict[str, int]:
    """/proc/driver/nvidia-caps/mig-minors: `gpu0/gi1/ci0/access 4` per line, the number that of the node."""
    numbers = {}
    for line in text.splitlines():
        key, _, number = line.rpartition(" ")
        if key and number.isdecimal():
            numbers[key] = int(number)
    return numbers


def _integer(field: Any) -> int | None:
    """The value of a field in the type that it has."""
    names = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
    name = names.get(field.valueType)
    return None if name is None else int(getattr(field.value, name))
