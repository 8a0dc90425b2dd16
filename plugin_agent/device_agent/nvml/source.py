"""Finds NVIDIA GPUs and MIG devices, from one look at the driver's library and from sysfs and /dev."""

import contextlib
from collections.abc import Iterator
from typing import Final

from device_agent.contract.attributes import NVML
from device_agent.contract.document import DeviceEntry, Document, NvmlKind
from device_agent.contract.reasons import DeviceReason, ExclusionReason
from device_agent.discovery.driver import Opener
from device_agent.discovery.sysfs_tree import PCI_DEVICES, PciFunction, SysfsTree, numa
from device_agent.nvml.model import Gpu, Mig, NvmlView
from device_agent.runtime.errors import AgentError
from device_agent.select.found import FoundDevice, LeftOut, Problem

_NVIDIA: Final = "10de"
_DISPLAY: Final = "03"
_CONTROL: Final = "nvidiactl"
_DRIVER: Final = "nvidia"


_NO_LONGER_SHOWN: Final = (
    "the driver no longer lists it: compare nvidia-smi -L on the node, and read the kernel's log there (dmesg, lines "
    "with NVRM)"
)


def opener(view: NvmlView | None, document: Document) -> Opener:
    """Opens the source for one scan. `view` None: the driver has not answered yet."""
    alone = all(entry.nvml for resource in document.resources for entry in resource.devices)
    return lambda tree: NvmlDevices(tree, view, alone=alone)


class NvmlDevices:
    """The source `nvml`. `view` None: the driver has not answered yet. `alone`: the document has no other source."""

    def __init__(self, tree: SysfsTree, view: NvmlView | None, *, alone: bool = False) -> None:
        self._alone = alone
        self._tree = tree
        self._view = view or NvmlView()
        self._asked = view is not None

    def scan(self, entry: DeviceEntry, *, owner: str, wanted: frozenset[str]) -> tuple[FoundDevice, ...]:  # noqa: ARG002
        """Finds whole GPUs or MIG devices. A GPU in MIG mode is not offered whole: CUDA uses only its MIG devices."""
        assert entry.nvml is not None
        found: list[FoundDevice] = []
        whole = entry.nvml.kind is NvmlKind.GPU
        for gpu in self._view.gpus:
            if not whole and gpu.migs:
                for mig in gpu.migs:
                    with self._around(gpu, mig, into=found):
                        found.append(self._mig(gpu, mig, wanted))
            elif whole or gpu.mig_mode is not None:  # a GPU without MIG needs no message
                with self._around(gpu, into=found):
                    found.append(self._gpu(gpu, wanted) if whole else self._without_migs(gpu, wanted))
        if whole:
            self._add_silent(found, wanted)
        return tuple(found)

    def _around(
        self, gpu: Gpu, mig: Mig | None = None, *, into: list[FoundDevice]
    ) -> contextlib.AbstractContextManager[None]:
        """Each device is left out by itself, under the name and the hardware by which the device table knows it."""
        hardware = None
        with contextlib.suppress(AgentError):
            hardware = self._hardware(gpu, mig)
        place = self._tree.sys.host(f"{PCI_DEVICES}/{gpu.pci_address}")
        return self._tree.boundary.around(NVML, mig.uuid if mig else gpu.uuid, place, into=into, sysfs_path=hardware)

    def nothing(self, entry: DeviceEntry) -> str:  # noqa: ARG002 the same for all entries
        """Why there are no devices, if all sources are NVIDIA's and the node has no sign of a GPU; else ''."""
        return self._none() if self._alone and self._asked and not self._view.gpus and not self._signs() else ""

    def vanished(self) -> str:
        return _NO_LONGER_SHOWN

    def reason(self, *, expected: bool = False) -> str:
        """Why there are no devices, or why the driver does not answer; '' if all is well.

        Also '' on a node without any sign of NVIDIA hardware, unless it had devices before (`expected`).
        """
        if self._view.gpus:
            return self._view.unavailable
        try:
            return self._none() if expected or self._signs() else ""
        except Exception as error:  # noqa: BLE001 it only explains; the scan is made
            return self._tree.boundary.explain(error, self._tree.sys.host(PCI_DEVICES))

    def _none(self) -> str:
        if not self._asked:
            return "the NVIDIA driver has not answered yet"
        return self._view.unavailable or "the NVIDIA driver is loaded, but it has no GPU"

    def _signs(self) -> bool:
        return self._tree.dev.is_node(_CONTROL) or any(True for _ in self._functions())

    def _functions(self) -> Iterator[PciFunction]:
        """The GPUs on the PCI bus. The sound and USB functions of a card have other classes."""
        functions = self._tree.functions().readable
        return (f for f in functions if f.vendor == _NVIDIA and f.pci_class.startswith(_DISPLAY))

    def _add_silent(self, found: list[FoundDevice], wanted: frozenset[str]) -> None:
        """Adds GPUs that are bound to the driver but missing in its library, such as GPUs lost before the start."""
        shown = {gpu.pci_address for gpu in self._view.gpus}
        if not self._asked or self._view.unavailable or "" in shown:
            return
        functions: list[PciFunction] = []
        bus = self._tree.sys.host(PCI_DEVICES)
        with self._tree.boundary.around(NVML, bus, bus, into=found):  # the GPUs that the library shows stay
            functions += self._functions()
        for function in functions:
            # the virtual functions of a vGPU host belong to virtual machines
            virtual = self._tree.sys.link(f"{function.path}/physfn") is not None
            if function.driver == _DRIVER and function.address not in shown and not virtual:
                with self._tree.boundary.around(NVML, function.address, self._tree.sys.host(function.path), into=found):
                    found.append(self._silent(function, wanted))

    def _silent(self, function: PciFunction, wanted: frozenset[str]) -> FoundDevice:
        return FoundDevice(
            source=NVML,
            name=function.address,
            sysfs_path=function.path,
            attributes=self._tree.attributes(function.path, name=function.address, wanted=wanted),
            left_out=(
                ExclusionReason.UNREADABLE,
                "the GPU is bound to the driver, but the driver's library lacks it: reset it, or reboot the node",
            ),
        )

    def _gpu(self, gpu: Gpu, wanted: frozenset[str]) -> FoundDevice:
        left_out = None
        if gpu.mig_mode:
            left_out = (
                ExclusionReason.MIG_ENABLED,
                "MIG mode is enabled: use nvml: {kind: MIG} for its MIG devices",
            )
        return self._found(gpu, self._values(gpu, wanted), uuid=gpu.uuid, left_out=left_out)

    def _without_migs(self, gpu: Gpu, wanted: frozenset[str]) -> FoundDevice:
        """A GPU that could have MIG devices, for an entry that looks for them."""
        reason = (
            (
                ExclusionReason.NO_MIG_DEVICES,
                "MIG mode is enabled, but there is no MIG device: create one with nvidia-smi mig -cgi <profile> -C",
            )
            if gpu.mig_mode
            else (
                ExclusionReason.MIG_DISABLED,
                "MIG mode is disabled: use nvml: {kind: GPU} for the whole GPU",
            )
        )
        return self._found(gpu, self._values(gpu, wanted), uuid=gpu.uuid, left_out=reason)

    def _mig(self, gpu: Gpu, mig: Mig, wanted: frozenset[str]) -> FoundDevice:
        values = self._values(gpu, wanted) | {
            "name": mig.uuid,
            "uuid": mig.uuid,
            "index": f"{gpu.index}:{mig.index}",
            "parentUuid": gpu.uuid,
            "gi": str(mig.gi),
            "ci": str(mig.ci),
        }
        values.pop("memoryMiB", None)
        if mig.memory_mib:
            values["memoryMiB"] = str(mig.memory_mib)
        left_out = None
        if mig.profile:
            values["profile"] = mig.profile
        else:
            left_out = ExclusionReason.UNREADABLE, "the driver tells no profile of this MIG device"
        return self._found(gpu, values, uuid=mig.uuid, mig=mig, left_out=left_out)

    def _found(
        self,
        gpu: Gpu,
        values: dict[str, str],
        *,
        uuid: str,
        mig: Mig | None = None,
        left_out: LeftOut | None,
    ) -> FoundDevice:
        wanted = [f"/dev/nvidia{gpu.minor}"] if gpu.minor is not None else []
        wanted += mig.caps if mig else ()
        present = [path for path in wanted if self._tree.dev.is_node(path.removeprefix("/dev/"))]
        if present:
            values["path"] = present[0]
        return FoundDevice(
            source=NVML,
            name=uuid,
            sysfs_path=self._hardware(gpu, mig),
            attributes=values,
            nodes=tuple(sorted(present)),
            # MIG devices of one GPU share the GPU's node; those of one GPU instance also share the instance's node
            shared_nodes=tuple(present) if mig else (),
            numa_node=gpu.numa_node if gpu.numa_node is not None else numa(values),
            node_problem=_missing(gpu, mig, [path for path in wanted if path not in present]),
            left_out=left_out,
            unit="uuid",
            stable_name=True,
            parts=_parts(gpu, mig),
        )

    def _hardware(self, gpu: Gpu, mig: Mig | None) -> str | None:
        place = self._place(gpu)
        # not a real sysfs path: below the GPU's path, so that the GPU and its MIG device count as the same hardware
        return f"{place}/mig/gi{mig.gi}/ci{mig.ci}" if mig and place else place

    def _place(self, gpu: Gpu) -> str | None:
        return self._tree.sys.real(f"bus/pci/devices/{gpu.pci_address}") if gpu.pci_address else None

    def _values(self, gpu: Gpu, wanted: frozenset[str]) -> dict[str, str]:
        place = self._place(gpu)
        values = self._tree.attributes(place, name=gpu.uuid, wanted=wanted) if place else {"name": gpu.uuid}
        told = {
            "uuid": gpu.uuid,
            "index": str(gpu.index),
            "minor": "" if gpu.minor is None else str(gpu.minor),
            "model": gpu.model,
            "memoryMiB": str(gpu.memory_mib or ""),
            "pci.address": gpu.pci_address,
            "numaNode": "" if gpu.numa_node is None else str(gpu.numa_node),
            "computeCapability": gpu.compute_capability,
            "architecture": gpu.architecture,
            "brand": gpu.brand,
            "driverVersion": self._view.driver_version,
            "cudaVersion": self._view.cuda_version,
            "migMode": "" if gpu.mig_mode is None else "Enabled" if gpu.mig_mode else "Disabled",
        }
        return values | {name: value for name, value in told.items() if value}


def _missing(gpu: Gpu, mig: Mig | None, missing: list[str]) -> Problem | None:
    """Why the device nodes cannot be given to a container; None if all are there."""
    if gpu.minor is None:
        return DeviceReason.DEVICE_NODE_MISSING, "the driver does not tell the number N of the GPU's /dev/nvidiaN"
    if mig and len(mig.caps) < 2:
        return (
            DeviceReason.DEVICE_NODE_MISSING,
            "/proc/driver/nvidia-caps/mig-minors does not list the capability nodes of the MIG device",
        )
    if missing:
        advice = ": create it with nvidia-modprobe" if mig else ""
        return DeviceReason.DEVICE_NODE_MISSING, f"{', '.join(missing)} does not exist{advice}"
    return None


def _parts(gpu: Gpu, mig: Mig | None) -> tuple[str, ...]:
    """The names of the parts whose failures concern the device: the GPU, and for a MIG device also its instances."""
    if mig is None:
        return (gpu.uuid,)
    return (gpu.uuid, f"{gpu.uuid}/{mig.gi}", f"{gpu.uuid}/{mig.gi}/{mig.ci}")
