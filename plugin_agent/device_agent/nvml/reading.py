"""Reads one GPU, call by call. If one call fails, only that value is missing.

Numbers are those of nvml.h.
"""

import ctypes
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from device_agent.contract.reasons import DeviceReason
from device_agent.nvml.library import (
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    INVALID_ARGUMENT,
    NOT_FOUND,
    RESET_REQUIRED,
    Library,
    NvmlCallError,
)
from device_agent.nvml.links import LINK_TO_GPU, LINK_TO_SWITCH, LinkEnd
from device_agent.nvml.model import Gpu, GpuSample, GpuState, Mig

MAX_LINKS: Final = 36

_CORRECTED, _UNCORRECTED, _VOLATILE = 0, 1, 0
_CLOCK_SM, _CLOCK_MEMORY = 1, 2
_FIELD_RECOVERY_ACTION: Final = 230
_FIELDS_LINK_ERRORS: Final = (38, 45, 52, 59)
"""NVLink counters, each over all links: CRC errors of flits, CRC errors of data, replays, recoveries."""
_MIB: Final = 1 << 20
_MEMORY_V2: Final = 0x2000028
"""nvmlMemory_v2: the second version of a structure of 40 bytes."""

_ACTIONS: Final = (
    "None", "Reset", "Reboot", "DrainP2P", "DrainAndReset", "RecoverImexDomain", "BusReset", "SystemReboot",
)  # fmt: skip
_DRAIN_LINKS: Final = "the driver asks to end all traffic between this GPU and other GPUs"
_STOP: Final = "end the pods that hold it"
_ASKED_FOR: Final = {
    "Reset": (
        DeviceReason.RESET_REQUIRED,
        f"the driver asks for a reset of the GPU: {_STOP}, then reset it (nvidia-smi -r)",
    ),
    "BusReset": (
        DeviceReason.RESET_REQUIRED,
        f"the driver asks for a reset of the GPU's bus: {_STOP}, then reset it, or reboot the node",
    ),
    "Reboot": (DeviceReason.REBOOT_REQUIRED, "the driver asks for a reboot of the node: drain and reboot it"),
    "SystemReboot": (
        DeviceReason.REBOOT_REQUIRED,
        "the driver asks for a reboot of the whole system: drain and reboot the node",
    ),
    "DrainAndReset": (
        DeviceReason.DRAIN_REQUIRED,
        f"the driver asks to drain the GPU, then to reset it: {_STOP}, then reset it",
    ),
    "DrainP2P": (DeviceReason.DRAIN_REQUIRED, f"{_DRAIN_LINKS}: {_STOP} together with other GPUs"),
}
_OUT_OF_REACH: Final = (
    "the GPU has fallen off the bus or cannot be reached: reset it, or reboot the node; if this happens again, "
    "check its seat, power and cooling"
)
_WORN: Final = (
    "the GPU's SRAM had more uncorrectable errors than its threshold allows, and a reset does not end that: "
    f"{_STOP}, then have the hardware checked (NVIDIA's field diagnostic) or replace the GPU"
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


class Reading:
    """The calls about one GPU or MIG device. Each failed call appends one line to `errors`."""

    def __init__(self, library: Library, handle: Any, *, of: str, errors: list[str]) -> None:
        self._library = library
        self._handle = handle
        self._of = of
        self._errors = errors
        self.failed = False
        """Set to True by a call whose error does not tell the device's state. Callers reset it to False."""

    def ask(self, function: str, *arguments: object) -> Any:
        """Calls `function` for this device. Raises what `Library.ask` raises."""
        return self._library.ask(function, self._handle, *arguments, of=self._of)

    def value(self, function: str, *arguments: object, no_such: int | None = None) -> Any:
        """The answer, or None if the device has none. `no_such`: one more code that means "none" for this call.

        Raises:
            DriverGoneError: the driver is gone.
            NvmlCallError: the device is lost, or must be reset.
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
        """The values that do not change while the driver is loaded."""
        info = self.value("nvmlDeviceGetPciInfo_v3")
        address = pci_address(info) if info else ""
        memory = self.value("nvmlDeviceGetMemoryInfo")
        compute = self.value("nvmlDeviceGetCudaComputeCapability")
        return Gpu(
            uuid=uuid,
            index=index,
            minor=self.value("nvmlDeviceGetMinorNumber"),
            pci_address=address,
            model=self.value("nvmlDeviceGetName") or "",
            memory_mib=memory.total // _MIB if memory else None,
            numa_node=numa_node(address) if address else None,
            compute_capability=f"{compute[0]}.{compute[1]}" if compute else "",
            architecture=_ARCHITECTURES.get(self.value("nvmlDeviceGetArchitecture") or 0, ""),
            brand=_BRANDS.get(self.value("nvmlDeviceGetBrand") or 0, ""),
        )

    def mig_mode(self) -> bool | None:
        modes = self.value("nvmlDeviceGetMigMode")
        return None if modes is None else modes[0] == 1

    def migs(
        self, *, minor: int | None, memory_mib: int | None, caps: Mapping[str, int], before: Iterable[Mig] = ()
    ) -> tuple[Mig, ...]:
        """The MIG devices that this process may see. `caps`: the result of `cap_numbers`.

        `before`: the MIG devices of the last look. A device is only gone when its error says so; after any other error
        the device of the last look is kept.
        """
        self.failed = False
        count = self.value("nvmlDeviceGetMaxMigDeviceCount")
        if self.failed:
            return tuple(before)
        known = {mig.index: mig for mig in before}
        found = (self._mig_at(index, known.get(index), minor, memory_mib, caps) for index in range(count or 0))
        return tuple(mig for mig in found if mig is not None)

    def _mig_at(
        self, index: int, before: Mig | None, minor: int | None, memory_mib: int | None, caps: Mapping[str, int]
    ) -> Mig | None:
        try:
            handle = self.ask("nvmlDeviceGetMigDeviceHandleByIndex", index)
            part = Reading(self._library, handle, of=f"MIG device {index} of {self._of}", errors=self._errors)
            mig = part._mig(index, minor=minor, memory_mib=memory_mib, caps=caps)
        except NvmlCallError as error:
            if error.code in (GPU_IS_LOST, RESET_REQUIRED):
                raise
            if error.code in (NOT_FOUND, INVALID_ARGUMENT) or error.says_nothing_there:
                return None  # no device at this index, or it was just destroyed
            self._errors.append(str(error))
            return before
        return before if part.failed and before and before.uuid == mig.uuid else mig

    def _mig(self, index: int, *, minor: int | None, memory_mib: int | None, caps: Mapping[str, int]) -> Mig:
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
            memory_mib=attributes.memorySizeMB if attributes else None,
            caps=tuple(f"/dev/nvidia-caps/nvidia-cap{caps[key]}" for key in wanted if key in caps),
        )

    # NVLink

    def link_states(self) -> tuple[bool, ...] | None:
        """Whether each link is active; empty if the GPU has no links, None if it gives no answer."""
        states: list[bool] = []
        for link in range(MAX_LINKS):
            try:
                states.append(self.ask("nvmlDeviceGetNvLinkState", link) == 1)
            except NvmlCallError as error:
                if error.code in (GPU_IS_LOST, RESET_REQUIRED):
                    raise
                if error.code in (INVALID_ARGUMENT, FUNCTION_NOT_FOUND):
                    break  # the GPU has no more links
                if not error.says_nothing_there:
                    self._errors.append(str(error))
                    return None
                if not states:
                    break
                states.append(False)
        return tuple(states)

    def link_ends(self, states: Iterable[bool]) -> tuple[LinkEnd, ...] | None:
        """The other ends of the active links; None if they cannot be read now."""
        self.failed = False
        ends = []
        for link, active in enumerate(states):
            if not active:
                continue
            kind = self.value("nvmlDeviceGetNvLinkRemoteDeviceType", link)
            if kind == LINK_TO_SWITCH:  # it may have no PCI address here: in a rack, or in a virtual machine
                ends.append(LinkEnd(address="", kind=kind))
            elif info := self.value("nvmlDeviceGetNvLinkRemotePciInfo", link):
                ends.append(LinkEnd(address=pci_address(info), kind=LINK_TO_GPU if kind is None else kind))
        return None if self.failed else tuple(ends)

    # State and telemetry

    def state(self) -> GpuState:
        """The GPU's state. Raises NvmlCallError if it is lost or must be reset: `of_error` makes a state of that."""
        self.failed = False
        self.value("nvmlDeviceGetTemperature", 0)  # every GPU has a temperature, so this call fails if the GPU is lost
        failures: list[tuple[str, str]] = []
        action = self._recovery_action()
        if action in _ASKED_FOR:
            failures.append(_ASKED_FOR[action])
        if errors := self.value("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _VOLATILE):
            failures.append(
                (
                    DeviceReason.UNCORRECTABLE_ECC,
                    f"{errors} uncorrectable memory errors since the driver was loaded: {_STOP}, then reset the GPU",
                )
            )
        if self.value("nvmlDeviceGetRetiredPagesPendingStatus") == 1:
            failures.append(
                (
                    DeviceReason.RETIRED_PAGES_PENDING,
                    "faulty memory pages are retired at the next reset: reset the GPU, or reboot the node",
                )
            )
        # rows[2] counts remappings that wait for a reset. It is no failure: by nvml.h new work is not affected
        if (rows := self.value("nvmlDeviceGetRemappedRows")) and rows[3]:
            failures.append(
                (DeviceReason.ROW_REMAP_FAILED, "a faulty memory row has no spare one to replace it: replace the GPU")
            )
        if self._sram_worn():
            failures.append((DeviceReason.SRAM_THRESHOLD_EXCEEDED, _WORN))
        return GpuState(known=bool(failures) or not self.failed, failures=tuple(failures), recovery_action=action)

    def _fields(self, *fields: int) -> list[int | None]:
        """The integer value of each field; None if the GPU, or an older driver, lacks the field."""
        # if all fields are unknown, the whole call may fail
        values = self.value("nvmlDeviceGetFieldValues", list(fields), no_such=INVALID_ARGUMENT)
        if values is None:
            return [None] * len(fields)
        for value in values:
            if value.nvmlReturn in (GPU_IS_LOST, RESET_REQUIRED):
                raise NvmlCallError(value.nvmlReturn, f"field {value.fieldId} of {self._of}: error {value.nvmlReturn}")
        return [_integer(v) if v.nvmlReturn == 0 else None for v in values]

    def _sram_worn(self) -> bool:
        """Whether the GPU's SRAM had more uncorrectable errors, in all its life, than a GPU in service may have."""
        status = self._library.module.c_nvmlEccSramErrorStatus_v1_t()
        # pynvml hands its argument on as it is, and the library wants a pointer
        answered = self.value("nvmlDeviceGetSramEccErrorStatus", ctypes.byref(status)) is not None
        return answered and bool(status.bThresholdExceeded)

    def _recovery_action(self) -> str:
        [number] = self._fields(_FIELD_RECOVERY_ACTION)
        if number is None:
            return ""
        return _ACTIONS[number] if number < len(_ACTIONS) else f"Action{number}"

    def _memory_in_use(self) -> Any:
        """`total` and `used`. From R510 on, `used` does not include the memory that the driver keeps for itself."""
        return self.value("nvmlDeviceGetMemoryInfo", _MEMORY_V2) or self.value("nvmlDeviceGetMemoryInfo")

    def sample(self, uuid: str) -> GpuSample:
        """Telemetry of a GPU. Values that it does not tell are None."""
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
        """Telemetry of the GPU's MIG devices. The driver tells only their memory."""
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
    """The state of a GPU, from the error of a call."""
    if error.code == GPU_IS_LOST:
        return GpuState(failures=((DeviceReason.GPU_LOST, _OUT_OF_REACH),))
    if error.code == RESET_REQUIRED:
        return GpuState(failures=((DeviceReason.RESET_REQUIRED, _REFUSES),))
    return GpuState(known=False)


def filled(fresh: Gpu, before: Gpu) -> Gpu:
    """`fresh`, with its missing facts taken from `before`, an earlier look at the same GPU."""
    missing = (name for name in _FACTS if getattr(fresh, name) in ("", None))
    return replace(fresh, **{name: getattr(before, name) for name in missing})


def pci_address(info: Any) -> str:
    """A PCI address as sysfs writes it; GPUs and switches have one function each."""
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"


def profile(name: str, attributes: Any, *, memory_mib: int | None) -> str:
    """A MIG device's profile, such as 1g.5gb, 1c.3g.20gb, 1g.10gb+me; '' if it cannot be found out.

    From driver 470 on, the device's name ends with the profile. For older drivers it is computed from the slices and
    the memory. The memory is rounded as the driver does: up to whole eighths of the GPU's memory, then to gigabytes.
    Example: a slice of a 40 GB GPU has 4,864 MiB and is called 5gb.
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
    """Capability -> number of its device node, from lines of mig-minors such as `gpu0/gi1/ci0/access 4`."""
    numbers = {}
    for line in text.splitlines():
        key, _, number = line.rpartition(" ")
        if key and number.isdecimal():
            numbers[key] = int(number)
    return numbers


def _integer(field: Any) -> int | None:
    """The value of a field, read from the member for its type; None for an unknown type."""
    names = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
    name = names.get(field.valueType)
    return None if name is None else int(getattr(field.value, name))
