"""The metrics of the process.

All begin with device_operator_: leader, reconcile_seconds{result}, queue_depth,
watch_age_seconds{resource}, api_requests_total{verb,resource,code}, api_request_seconds{verb},
events_dropped_total{reason},
config_condition{config,type,status}, nodes{config,pool,state}, devices{config,pool,resource,health},
devices_withheld{config,pool,resource}, capacity{config,pool,resource}, allocated{config,pool,resource}.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from device_agent.contract.inventory import InventoryStatus
from device_agent.contract.reasons import DeviceHealth
from device_agent.contract.status import ConditionStatus, ConfigStatus, PoolNodes
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

PREFIX: Final = "device_operator"


@dataclass(slots=True)
class _Figures:
    """The figures of one object."""

    conditions: tuple[tuple[str, str], ...] = ()
    nodes: Tally[tuple[str, str]] = field(default_factory=Tally)
    devices: Tally[tuple[str, str, str]] = field(default_factory=Tally)
    withheld: Tally[tuple[str, str]] = field(default_factory=Tally)
    capacity: Tally[tuple[str, str]] = field(default_factory=Tally)
    allocated: Tally[tuple[str, str]] = field(default_factory=Tally)


class Telemetry:
    """In a registry of its own, so that tests can have several."""

    def __init__(self) -> None:
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

    def report(self, name: str, status: ConfigStatus | None, inventories: Iterable[InventoryStatus]) -> None:
        """Takes the results of a pass: the status of the object, and of each inventory. None: the object is gone."""
        if status is None:
            self._figures.pop(name, None)
            return
        figures = _Figures(conditions=tuple((c.type, c.status) for c in status.conditions))
        for pool in status.pools:
            for state, count in asdict(pool.nodes or PoolNodes()).items():
                figures.nodes[pool.name, state] += count
        for inventory in inventories:
            for resource in inventory.resources:
                key = (inventory.pool_name, resource.name)
                figures.devices[*key, DeviceHealth.HEALTHY] += resource.healthy
                figures.devices[*key, DeviceHealth.UNHEALTHY] += resource.unhealthy
                figures.devices[*key, DeviceHealth.UNKNOWN] += resource.unknown
                figures.withheld[key] += resource.withheld
                figures.capacity[key] += resource.capacity
                figures.allocated[key] += resource.allocated
        self._figures[name] = figures

    def collect(self) -> Iterable[Metric]:
        """Called by the registry at each scrape."""
        ages = GaugeMetricFamily(
            f"{PREFIX}_watch_age_seconds", "Seconds since the API server last sent something.", labels=["resource"]
        )
        for resource, age in self.watch_ages().items():
            ages.add_metric([resource], age)
        yield ages
        conditions = GaugeMetricFamily(
            f"{PREFIX}_config_condition", "1 for the status of each condition.", labels=["config", "type", "status"]
        )
        nodes = GaugeMetricFamily(
            f"{PREFIX}_nodes", "Nodes of a pool: matched, settled, ready, …", labels=["config", "pool", "state"]
        )
        devices = GaugeMetricFamily(
            f"{PREFIX}_devices", "Physical devices.", labels=["config", "pool", "resource", "health"]
        )
        withheld = GaugeMetricFamily(
            f"{PREFIX}_devices_withheld", "Devices not offered, by plan.", labels=["config", "pool", "resource"]
        )
        capacity = GaugeMetricFamily(
            f"{PREFIX}_capacity", "Ids that kubelets see.", labels=["config", "pool", "resource"]
        )
        allocated = GaugeMetricFamily(f"{PREFIX}_allocated", "Ids held.", labels=["config", "pool", "resource"])
        for name, figures in self._figures.items():
            for kind, value in figures.conditions:
                for candidate in ConditionStatus:
                    conditions.add_metric([name, kind, candidate], float(value == candidate))
            for family, tally in (
                (nodes, figures.nodes),
                (devices, figures.devices),
                (withheld, figures.withheld),
                (capacity, figures.capacity),
                (allocated, figures.allocated),
            ):
                for key, count in tally.items():
                    family.add_metric([name, *key], count)
        yield from (conditions, nodes, devices, withheld, capacity, allocated)
