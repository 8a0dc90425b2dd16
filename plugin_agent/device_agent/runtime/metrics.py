"""The agent's own metrics, and the values that its probes answer with."""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from device_agent.runtime.exposition import Family, Registry
from device_agent.runtime.process_metrics import ProcessMetrics

_LATENCY = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0)
_SCAN = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)


@dataclass(frozen=True, slots=True)
class ResourceCount:
    """One resource's numbers for the gauges: devices by health, devices withheld by reason, ids offered, ids held.

    `not_healthy`: (health, reason) -> devices that are not Healthy. Those that are withheld by plan do not count.
    """

    resource: str
    healthy: int
    unhealthy: int
    unknown: int
    withheld: Mapping[str, int]
    not_healthy: Mapping[tuple[str, str], int]
    capacity: int
    allocated: int


@dataclass(slots=True)
class Status:
    """Values for the probes and gauges. The loop replaces whole values; HTTP threads only read them."""

    turned: float = field(default_factory=time.monotonic)
    missing: tuple[str, ...] = ("the agent is starting",)
    counts: tuple[ResourceCount, ...] = ()


class Metrics:
    """The agent's metrics. No pod and no device can choose a label's value. (Telemetry of GPUs: `nvml.metrics`.)"""

    def __init__(self, *, version: str) -> None:
        self.registry = registry = Registry()
        self.status = Status()
        registry.register(_DeviceGauges(self.status))
        registry.register(ProcessMetrics())
        self._allocations = registry.counter("device_agent_allocations_total", "Allocate calls answered.", "resource")
        self._refused = registry.counter(
            "device_agent_allocation_errors_total", "Allocate calls refused.", "resource", "reason"
        )
        self._transitions = registry.counter(
            "device_agent_device_transitions_total",
            "Changes of a device: its new state, and why.",
            "resource",
            "to",
            "reason",
        )
        self._latency = registry.histogram(
            "device_agent_allocation_seconds", "Time of an Allocate in the agent.", "resource", buckets=_LATENCY
        )
        self._registrations = registry.counter(
            "device_agent_registrations_total", "Registrations with the kubelet, by cause.", "resource", "cause"
        )
        self._registration_errors = registry.counter(
            "device_agent_registration_errors_total", "Registrations that failed.", "resource"
        )
        self._lists = registry.counter(
            "device_agent_device_lists_total", "Device lists sent to the kubelet.", "resource"
        )
        self._scan = registry.histogram("device_agent_scan_seconds", "Time of a scan.", buckets=_SCAN)
        self._scan_errors = registry.counter(
            "device_agent_scan_errors_total", "Scans that failed, hung or could not read everything."
        )
        self._reports = registry.counter("device_agent_reports_total", "Inventory writes.")
        self._report_errors = registry.counter("device_agent_report_errors_total", "Inventory writes that failed.")
        self._pod_resources = registry.gauge(
            "device_agent_pod_resources_available", "1 while the kubelet tells which pods hold which devices."
        )
        self._config = registry.gauge("device_agent_config_info", "Hash of the configuration in force.", "hash")
        self._config_error = registry.gauge(
            "device_agent_config_error", "1 while the mounted configuration cannot be used."
        )
        registry.gauge("device_agent_info", "The agent's version.", "version").set(1, version)

    def allocated(self, resource: str, *, seconds: float, refused: str = "") -> None:
        """`refused`: why the call was refused, one word; '' if it was not."""
        if refused:
            self._refused.inc(resource, refused)
        else:
            self._allocations.inc(resource)
        self._latency.observe(seconds, resource)

    def transition(self, resource: str, *, to: str, reason: str) -> None:
        self._transitions.inc(resource, to, reason)

    def registered(self, resource: str, *, cause: str) -> None:
        self._registrations.inc(resource, cause)

    def registration_failed(self, resource: str) -> None:
        self._registration_errors.inc(resource)

    def list_sent(self, resource: str) -> None:
        self._lists.inc(resource)

    def scanned(self, *, seconds: float) -> None:
        self._scan.observe(seconds)

    def scan_failed(self) -> None:
        self._scan_errors.inc()

    def reported(self, *, error: bool) -> None:
        (self._report_errors if error else self._reports).inc()

    def pod_resources(self, *, available: bool) -> None:
        self._pod_resources.set(available)

    def configured(self, *, sha256: str, error: bool) -> None:
        self._config.clear()
        if sha256:
            self._config.set(1, sha256)
        self._config_error.set(error)

    def publish(self, counts: Iterable[ResourceCount], *, missing: Iterable[str]) -> None:
        """What is offered now, and one line for each thing that keeps the agent from being ready."""
        self.status.counts = tuple(counts)
        self.status.missing = tuple(missing)

    def turned(self) -> None:
        """The event loop runs."""
        self.status.turned = time.monotonic()


class _DeviceGauges:
    """Gauges made at each scrape from the last published counts, so a removed resource leaves no series."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterator[Family]:
        devices = Family("device_agent_devices", "Physical devices.", "gauge", ("resource", "health"))
        bad = Family(
            "device_agent_devices_not_healthy",
            "Devices that are not Healthy, without those withheld by plan.",
            "gauge",
            ("resource", "health", "reason"),
        )
        withheld = Family(
            "device_agent_devices_withheld", "Devices not offered, by plan.", "gauge", ("resource", "reason")
        )
        capacity = Family("device_agent_capacity", "Ids offered to the kubelet.", "gauge", ("resource",))
        allocated = Family("device_agent_allocated", "Ids that containers hold.", "gauge", ("resource",))
        for count in self._status.counts:
            devices.add((count.resource, "Healthy"), count.healthy)
            devices.add((count.resource, "Unhealthy"), count.unhealthy)
            devices.add((count.resource, "Unknown"), count.unknown)
            for (health, reason), number in sorted(count.not_healthy.items()):
                bad.add((count.resource, health, reason), number)
            for reason, number in sorted(count.withheld.items()):
                withheld.add((count.resource, reason), number)
            capacity.add((count.resource,), count.capacity)
            allocated.add((count.resource,), count.allocated)
        yield from (devices, bad, withheld, capacity, allocated)
