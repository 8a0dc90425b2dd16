"""The metrics of the process.

All begin with device_operator_: leader, reconcile_seconds{result}, queue_depth,
watch_age_seconds{resource}, api_requests_total{verb,resource,code}, api_request_seconds{verb},
events_dropped_total{reason}. Those about DevicePluginConfigs are in `figures`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

from device_operator.runtime.figures import Figures, Seen, families, figures

PREFIX: Final = "device_operator"


class Telemetry:
    """In a registry of its own, so that tests can have several."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._figures: dict[str, Figures] = {}
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
            "Answers of the API server; code 0: no answer.",
            ["verb", "resource", "code"],
            registry=self.registry,
        )
        self._request_seconds = Histogram(
            f"{PREFIX}_api_request_seconds",
            "Seconds until the answer; for a watch, until its start.",
            ["verb"],
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
            registry=self.registry,
        )
        self.queue_depth = Gauge(f"{PREFIX}_queue_depth", "Objects that wait for a worker.", registry=self.registry)
        self._events_dropped = Counter(
            f"{PREFIX}_events_dropped",
            "Events not written: too many of their kind, or refused. The log has their text.",
            ["reason"],
            registry=self.registry,
        )
        self.watch_ages: Callable[[], Mapping[str, float]] = dict
        self.registry.register(self)

    def observe_pass(self, result: str, seconds: float) -> None:
        self._reconciles.labels(result).observe(seconds)

    def observe_request(self, verb: str, resource: str, code: int, seconds: float) -> None:
        self._requests.labels(verb, resource, str(code)).inc()
        self._request_seconds.labels(verb).observe(seconds)

    def event_dropped(self, reason: str) -> None:
        self._events_dropped.labels(reason).inc()

    def report(self, name: str, seen: Seen | None) -> None:
        """Takes what a pass for the object saw. None: the object is gone, and its series with it."""
        if seen is None:
            self._figures.pop(name, None)
        else:
            self._figures[name] = figures(seen)

    def collect(self) -> Iterable[Metric]:
        """Called by the registry at each scrape."""
        ages = GaugeMetricFamily(
            f"{PREFIX}_watch_age_seconds", "Seconds since the API server last sent something.", labels=["resource"]
        )
        for resource, age in self.watch_ages().items():
            ages.add_metric([resource], age)
        yield ages
        yield from families(self._figures.copy())
