"""What can be seen from outside: logs on stderr, /metrics, /healthz, /readyz.

/healthz fails when a watch gave no sign of life for too long: a restart is what mends that. An API server that is
down is no such case, its refusals and time-outs are signs of life. /readyz: API server and CRDs have been found;
a standby is ready.

Metrics (all begin with device_operator_): leader, reconcile_seconds{result}, queue_depth,
watch_age_seconds{resource}, api_requests_total{verb,resource,code}, api_request_seconds{verb}, events_dropped,
config_condition{config,type,status}, nodes{config,pool,state}, devices{config,pool,resource,health},
capacity{config,pool,resource}, allocated{config,pool,resource}.
"""

import json
import logging
import sys
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from device_operator.model import InventoryView

logger = logging.getLogger(__name__)

PREFIX: Final = "device_operator"
_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class _Formatter(logging.Formatter):
    """Constant message plus fields: whatever `extra` brought."""

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        return {
            key: value
            for key, value in vars(record).items()
            if key not in _PLAIN and isinstance(value, str | int | float | bool)
        }

    def time(self, record: logging.LogRecord) -> str:
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {key}={_quoted(value)}" for key, value in self.fields(record).items())
        line = f"{self.time(record)} {record.levelname} {record.name} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self.fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def configure_logging(*, form: str, level: str) -> None:
    """`form`: text or json; `level`: debug, info, warning or error. kopf's own lines go the same way."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(level.upper())
    for quiet in ("aiohttp", "asyncio", "kopf", "kubernetes"):
        logging.getLogger(quiet).setLevel(max(logging.WARNING, logging.root.level))


@dataclass(slots=True)
class _Figures:
    """Of one object, for the metrics."""

    conditions: tuple[tuple[str, str], ...] = ()
    nodes: Tally[tuple[str, str]] = field(default_factory=Tally)
    devices: Tally[tuple[str, str, str]] = field(default_factory=Tally)
    capacity: Tally[tuple[str, str]] = field(default_factory=Tally)
    allocated: Tally[tuple[str, str]] = field(default_factory=Tally)


@dataclass(slots=True)
class Health:
    """`phase`: what the process is at, in words. `silences`: resource -> seconds without a sign of life."""

    phase: str = "starting"
    ready: bool = False
    stale: float = 300.0
    silences: Callable[[], Mapping[str, float]] = dict

    def problems(self) -> list[str]:
        return [
            f"the watch of {resource} gave no sign of life for {silence:.0f} s"
            for resource, silence in self.silences().items()
            if silence > self.stale
        ]


class Telemetry:
    """Metrics of one process, in a registry of their own."""

    def __init__(self, health: Health) -> None:
        self.health = health
        self.registry = CollectorRegistry()
        self._figures: dict[str, _Figures] = {}
        self.leader = Gauge(f"{PREFIX}_leader", "1 in the process that leads.", registry=self.registry)
        self._reconciles = Histogram(
            f"{PREFIX}_reconcile_seconds",
            "Passes by result: accepted, rejected, gone, failed.",
            ["result"],
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
            registry=self.registry,
        )
        self._requests = Counter(
            f"{PREFIX}_api_requests",
            "Answers of the API server; code 0: none came.",
            ["verb", "resource", "code"],
            registry=self.registry,
        )
        self._request_seconds = Histogram(
            f"{PREFIX}_api_request_seconds",
            "Time to the answer; of a watch to its beginning.",
            ["verb"],
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
            registry=self.registry,
        )
        self.queue_depth = Gauge(f"{PREFIX}_queue_depth", "Objects that wait for a worker.", registry=self.registry)
        self.events_dropped = Gauge(
            f"{PREFIX}_events_dropped", "Events not written because of their rate.", registry=self.registry
        )
        self.watch_ages: Callable[[], Mapping[str, float]] = dict
        self.registry.register(self)

    def observe_pass(self, result: str, seconds: float) -> None:
        self._reconciles.labels(result).observe(seconds)

    def observe_request(self, verb: str, resource: str, code: int, seconds: float) -> None:
        self._requests.labels(verb, resource, str(code)).inc()
        self._request_seconds.labels(verb).observe(seconds)

    def report(self, name: str, status: Mapping[str, Any] | None, inventories: Iterable[InventoryView]) -> None:
        """What a pass saw of an object; None: it is gone, and so are its series."""
        if status is None:
            self._figures.pop(name, None)
            return
        figures = _Figures(conditions=tuple((c["type"], c["status"]) for c in status.get("conditions", ())))
        for pool in status.get("pools", ()):
            for state, count in pool.get("nodes", {}).items():
                figures.nodes[pool["name"], state] += count
        for inventory in inventories:
            pool_name = str(inventory.status.get("poolName", ""))
            unknown = Tally(d["resource"] for d in inventory.status.get("devices", ()) if d["health"] == "Unknown")
            for entry in inventory.status.get("resources", ()):
                key = (pool_name, str(entry["name"]))
                devices, healthy = int(entry.get("devices", 0)), int(entry.get("healthy", 0))
                # unknown is not unhealthy: the agent goes on offering such a device, and counts it as healthy
                figures.devices[*key, "Healthy"] += max(0, healthy - unknown[entry["name"]])
                figures.devices[*key, "Unhealthy"] += max(0, devices - healthy)
                figures.devices[*key, "Unknown"] += unknown[entry["name"]]
                figures.capacity[key] += int(entry.get("capacity", 0))
                figures.allocated[key] += int(entry.get("allocated", 0))
        self._figures[name] = figures

    def collect(self) -> Iterable[Metric]:
        """Called by the registry at each scrape."""
        ages = GaugeMetricFamily(
            f"{PREFIX}_watch_age_seconds", "Since the API server last told something.", labels=["resource"]
        )
        for resource, age in self.watch_ages().items():
            ages.add_metric([resource], age)
        yield ages
        conditions = GaugeMetricFamily(
            f"{PREFIX}_config_condition", "1 for the status a condition has.", labels=["config", "type", "status"]
        )
        nodes = GaugeMetricFamily(
            f"{PREFIX}_nodes", "Nodes of a pool: matched, settled, ready, …", labels=["config", "pool", "state"]
        )
        devices = GaugeMetricFamily(
            f"{PREFIX}_devices", "Physical devices.", labels=["config", "pool", "resource", "health"]
        )
        capacity = GaugeMetricFamily(
            f"{PREFIX}_capacity", "Ids that kubelets see.", labels=["config", "pool", "resource"]
        )
        allocated = GaugeMetricFamily(f"{PREFIX}_allocated", "Ids held.", labels=["config", "pool", "resource"])
        for name, figures in self._figures.items():
            for kind, value in figures.conditions:
                for candidate in ("True", "False", "Unknown"):
                    conditions.add_metric([name, kind, candidate], float(value == candidate))
            for family, tally in (
                (nodes, figures.nodes),
                (devices, figures.devices),
                (capacity, figures.capacity),
                (allocated, figures.allocated),
            ):
                for key, count in tally.items():
                    family.add_metric([name, *key], count)
        yield from (conditions, nodes, devices, capacity, allocated)


async def serve(telemetry: Telemetry, listen: str) -> web.AppRunner:
    """Listens on `host:port`; the runner is the caller's to clean up.

    Raises:
        OSError: the address cannot be had.
        ValueError: it is none.
    """
    host, _, port = listen.rpartition(":")

    async def healthz(_: web.Request) -> web.Response:
        problems = telemetry.health.problems()
        return web.Response(status=503 if problems else 200, text="\n".join(problems) or telemetry.health.phase)

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(status=200 if telemetry.health.ready else 503, text=telemetry.health.phase)

    async def metrics(_: web.Request) -> web.Response:
        started = time.monotonic()
        body = generate_latest(telemetry.registry)
        logger.debug("scraped", extra={"seconds": round(time.monotonic() - started, 3)})
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    application = web.Application()
    application.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host.strip("[]") or None, int(port)).start()
    except BaseException:
        await runner.cleanup()
        raise
    return runner


def _quoted(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(c in text for c in ' "=\n') else text
