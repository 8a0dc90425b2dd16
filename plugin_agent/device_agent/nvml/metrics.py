"""Telemetry of NVIDIA devices as Prometheus series, labelled with the container that holds the device.

Samples are taken in the NVML thread at an interval, never during a scrape. A scrape that waits for the driver would
time out when the driver has a problem. A scrape shows the last sample while it is fresh, and nothing when it is old.

There is one series per holder. A GPU that three pods share has three series with the same value: `max by (device)`
gives the GPU, and a pod's own selector finds its GPUs. The holder labels are empty for a device without a holder. The
label `resource` is empty for a device that no resource offers, such as a GPU that is divided into MIG devices.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final

from device_agent.contract.values import dataclass
from device_agent.nvml.model import GpuSample
from device_agent.runtime.exposition import Family
from device_agent.table.holders import Holder
from device_agent.table.snapshot import DeviceState, TableSnapshot

LABELS: Final = ("resource", "device", "namespace", "pod", "container")
"""`device`: the id under the resource; the UUID for a device that no resource offers."""
FRESH_INTERVALS: Final = 3
"""A sample is shown for this many intervals."""


@dataclass(frozen=True, slots=True)
class _Gauge:
    field: str
    name: str
    help: str


_GAUGES: Final = (
    _Gauge("temperature_celsius", "temperature_celsius", "Temperature of the GPU."),
    _Gauge("power_watts", "power_watts", "Power that the GPU uses."),
    _Gauge("utilisation_percent", "utilisation_percent", "Percent of time in which a kernel ran, 0 to 100."),
    _Gauge("memory_used_mib", "memory_used_mib", "Memory in use, MiB."),
    _Gauge("memory_total_mib", "memory_total_mib", "Total memory, MiB."),
    _Gauge("sm_clock_mhz", "sm_clock_mhz", "Clock of the streaming multiprocessors, MHz."),
    _Gauge("memory_clock_mhz", "memory_clock_mhz", "Clock of the memory, MHz."),
    _Gauge("ecc_corrected", "ecc_corrected_errors", "Corrected memory errors since the driver was loaded."),
    _Gauge("ecc_uncorrected", "ecc_uncorrected_errors", "Uncorrectable memory errors since the driver was loaded."),
    _Gauge("nvlink_errors", "nvlink_errors", "Errors of all NVLinks since the driver was loaded."),
)
PREFIX: Final = "device_agent_gpu_"


def families(samples: Iterable[GpuSample], snapshot: TableSnapshot) -> tuple[Family, ...]:
    """All series of one moment. A value that is None, or a device without a sample, gives no series."""
    labels = _labels(snapshot)
    ordered = sorted(samples, key=lambda s: s.uuid)
    found = []
    for gauge in _GAUGES:
        family = Family(PREFIX + gauge.name, gauge.help, "gauge", LABELS)
        for sample in ordered:
            value = getattr(sample, gauge.field)
            if value is not None:
                for series in labels.get(sample.uuid) or (("", sample.uuid, "", "", ""),):
                    family.add(series, value)
        found.append(family)
    return tuple(found)


def _labels(snapshot: TableSnapshot) -> dict[str, list[tuple[str, ...]]]:
    """UUID -> the label values of each of its series."""
    labels: dict[str, list[tuple[str, ...]]] = {}
    for resource in snapshot.resources:
        for device in resource.devices:
            uuid = device.unit.attributes.get("uuid") if device.unit.source == "nvml" else None
            if uuid is not None:
                series = labels.setdefault(uuid, [])
                series += [(resource.name, device.unit.id, h.namespace, h.pod, h.container) for h in _holders(device)]
    return labels


def _holders(device: DeviceState) -> Sequence[Holder]:
    """Each container once, even when it holds several replicas of the device."""
    return sorted({h for holders in device.holders.values() for h in holders}) or (Holder("", "", ""),)


class GpuTelemetry:
    """The collector of GPU telemetry: it makes series from the last samples and the last state of the table.

    The event loop replaces whole values; `collect` runs in the threads of the HTTP server and only reads them.
    """

    def __init__(self, *, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval
        self._clock = clock
        self._samples: tuple[GpuSample, ...] = ()
        self._taken = float("-inf")
        self._snapshot: TableSnapshot | None = None

    def publish(self, snapshot: TableSnapshot) -> None:
        """Takes the current holders of the devices."""
        self._snapshot = snapshot

    async def run(self, sample: Callable[[], Awaitable[Sequence[GpuSample]]]) -> None:
        """Takes a sample at each interval, for ever. `sample` has its own deadline; an empty result means no answer."""
        while True:
            begun = self._clock()
            if samples := tuple(await sample()):
                self._samples, self._taken = samples, begun
            await asyncio.sleep(max(0.0, begun + self._interval - self._clock()))

    def collect(self) -> Iterator[Family]:
        """The series for the registry; none when the last sample is old."""
        snapshot = self._snapshot
        if snapshot is not None and self._clock() - self._taken <= FRESH_INTERVALS * self._interval:
            yield from families(self._samples, snapshot)
