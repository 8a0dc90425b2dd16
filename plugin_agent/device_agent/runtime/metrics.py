"""What the agent tells about itself: metrics, probes and the log.

The HTTP server has a thread of its own, so that it answers while the loop hangs: that is what /healthz is for.
It reads values that the loop has published and calls nothing of the loop's.
"""

import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric

logger = logging.getLogger(__name__)

LOG_LEVELS: Final = {
    "Debug": logging.DEBUG,
    "Info": logging.INFO,
    "Warning": logging.WARNING,
    "Error": logging.ERROR,
}
"""As `spec.agent.logLevel` writes them."""

_LATENCY = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0)
_SCAN = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)


@dataclass(frozen=True, slots=True)
class ResourceCount:
    """One resource's numbers for the gauges: devices by health, ids offered, ids held."""

    resource: str
    healthy: int
    unhealthy: int
    capacity: int
    allocated: int


@dataclass(slots=True)
class Status:
    """What the probes and gauges answer with. The loop replaces whole values, the HTTP threads only read."""

    turned: float = field(default_factory=time.monotonic)
    missing: tuple[str, ...] = ("the agent is starting",)
    counts: tuple[ResourceCount, ...] = ()


class Metrics:
    """The agent's metrics; none has a label that a pod or a device can choose (telemetry of GPUs: `gpumetrics`)."""

    def __init__(self, *, version: str) -> None:
        self.registry = CollectorRegistry()
        self.status = Status()
        self.registry.register(_DeviceGauges(self.status))
        ProcessCollector(registry=self.registry)
        registry = self.registry
        self._allocations = Counter(
            "device_agent_allocations", "Allocate calls answered.", ["resource"], registry=registry
        )
        self._refused = Counter(
            "device_agent_allocation_errors", "Allocate calls refused.", ["resource"], registry=registry
        )
        self._latency = Histogram(
            "device_agent_allocation_seconds",
            "Time of an Allocate in the agent.",
            ["resource"],
            buckets=_LATENCY,
            registry=registry,
        )
        self._registrations = Counter(
            "device_agent_registrations",
            "Registrations with the kubelet, by cause.",
            ["resource", "cause"],
            registry=registry,
        )
        self._registration_errors = Counter(
            "device_agent_registration_errors", "Registrations that failed.", ["resource"], registry=registry
        )
        self._lists = Counter(
            "device_agent_device_lists", "Device lists sent to the kubelet.", ["resource"], registry=registry
        )
        self._scan = Histogram("device_agent_scan_seconds", "Time of a scan.", buckets=_SCAN, registry=registry)
        self._scan_errors = Counter(
            "device_agent_scan_errors", "Scans that failed, hung or could not read all.", registry=registry
        )
        self._reports = Counter("device_agent_reports", "Inventory writes.", registry=registry)
        self._report_errors = Counter("device_agent_report_errors", "Inventory writes that failed.", registry=registry)
        self._pod_resources = Gauge(
            "device_agent_pod_resources_available", "1 while the kubelet tells who holds what.", registry=registry
        )
        self._config = Gauge(
            "device_agent_config_info", "Hash of the configuration in force.", ["hash"], registry=registry
        )
        self._config_error = Gauge(
            "device_agent_config_error", "1 while the configuration found cannot be used.", registry=registry
        )
        Gauge("device_agent_info", "The agent's version.", ["version"], registry=registry).labels(version).set(1)

    def allocated(self, resource: str, *, seconds: float, error: bool) -> None:
        (self._refused if error else self._allocations).labels(resource).inc()
        self._latency.labels(resource).observe(seconds)

    def registered(self, resource: str, *, cause: str) -> None:
        self._registrations.labels(resource, cause).inc()

    def registration_failed(self, resource: str) -> None:
        self._registration_errors.labels(resource).inc()

    def list_sent(self, resource: str) -> None:
        self._lists.labels(resource).inc()

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
            self._config.labels(sha256).set(1)
        self._config_error.set(error)

    def publish(self, counts: Iterable[ResourceCount], *, missing: Iterable[str]) -> None:
        """What is offered now, and what keeps the agent from being ready: nothing, or one line each."""
        self.status.counts = tuple(counts)
        self.status.missing = tuple(missing)

    def turned(self) -> None:
        """The loop turns."""
        self.status.turned = time.monotonic()


class _DeviceGauges:
    """Gauges made at each scrape from the last published counts: a resource that is gone leaves no series."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        devices = GaugeMetricFamily("device_agent_devices", "Physical devices.", labels=["resource", "health"])
        capacity = GaugeMetricFamily("device_agent_capacity", "Ids offered to the kubelet.", labels=["resource"])
        allocated = GaugeMetricFamily("device_agent_allocated", "Ids that containers hold.", labels=["resource"])
        for count in self._status.counts:
            devices.add_metric([count.resource, "Healthy"], count.healthy)
            devices.add_metric([count.resource, "Unhealthy"], count.unhealthy)
            capacity.add_metric([count.resource], count.capacity)
            allocated.add_metric([count.resource], count.allocated)
        yield from (devices, capacity, allocated)


class _Server(ThreadingHTTPServer):
    """On every address of both families where no host is given; asks no name server who it is."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class prints a traceback
        logger.debug("http failed", extra={"client": client_address[0], "error": str(sys.exception())})

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        host = address[0]
        if ":" in host or (not host and socket.has_dualstack_ipv6()):
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "device-agent", self.server_address[1]


class ProbeServer:
    """/healthz, /readyz and /metrics on one port."""

    def __init__(self, address: tuple[str, int], *, metrics: Metrics, healthy_within: float) -> None:
        """Binds at once.

        Raises:
            OSError: the address is taken or cannot be bound.
        """
        self._http = _Server(address, _handler(metrics, healthy_within))
        self.port = self._http.server_port

    def start(self) -> None:
        threading.Thread(target=self._http.serve_forever, name="http", daemon=True).start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()


def _handler(metrics: Metrics, healthy_within: float) -> type[BaseHTTPRequestHandler]:
    def healthz() -> tuple[int, str, bytes]:
        silent = time.monotonic() - metrics.status.turned
        if silent > healthy_within:
            return 503, "text/plain", f"the loop has not turned for {silent:.0f} s\n".encode()
        return 200, "text/plain", b"ok\n"

    def readyz() -> tuple[int, str, bytes]:
        missing = metrics.status.missing
        text = "".join(f"{line}\n" for line in missing) or "ok\n"
        return 503 if missing else 200, "text/plain; charset=utf-8", text.encode()

    def exposition() -> tuple[int, str, bytes]:
        return 200, CONTENT_TYPE_LATEST, generate_latest(metrics.registry)

    pages: dict[str, Callable[[], tuple[int, str, bytes]]] = {
        "/healthz": healthz,
        "/readyz": readyz,
        "/metrics": exposition,
    }

    class Handler(BaseHTTPRequestHandler):
        timeout = 10
        server_version = "device-agent"
        sys_version = ""

        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            code, kind, body = page() if page else (404, "text/plain", "{}\n".format(" ".join(pages)).encode())
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            logger.debug("http", extra={"client": self.client_address[0], "text": format % args})

    return Handler


_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class _Fields(logging.Formatter):
    """A constant message and the record's `extra` as fields."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._json = as_json

    def format(self, record: logging.LogRecord) -> str:
        fields = {k: v for k, v in record.__dict__.items() if k not in _STANDARD}
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        moment = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"
        if self._json:
            head = {"time": moment, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
            return json.dumps(head | fields | ({"traceback": trace} if trace else {}), ensure_ascii=False, default=str)
        tail = "".join(f" {k}={_word(v)}" for k, v in fields.items())
        return f"{moment} {record.levelname:<7} {record.getMessage()}{tail}" + (f"\n{trace}" if trace else "")


def _word(value: object) -> str:
    """A field's value, in quotes where it would not read as one word on one line."""
    text = str(value)
    return text if text.isprintable() and " " not in text else repr(value)


def configure_logging(*, level: str, style: str) -> None:
    """Logs to standard error. `level` as in LOG_LEVELS; `style`: json or text."""
    # what no line shows is not gathered (logging HOWTO, "Optimization")
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001 - the documented switch
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Fields(as_json=style == "json"))
    logging.basicConfig(level=LOG_LEVELS[level], handlers=[handler], force=True)
    for noisy in ("asyncio", "grpc"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
