"""Scrapes of the real programs' registries, filled with made values, and programs of Prometheus that read them."""

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from device_agent.nvml.metrics import families
from device_agent.nvml.model import GpuSample
from device_agent.runtime.exposition import Family
from device_agent.runtime.metrics import Metrics
from device_agent.table.snapshot import TableSnapshot
from device_operator.runtime.figures import FailedNode, Seen
from device_operator.runtime.metrics import Telemetry
from localcluster import binaries
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from unit.operator_core.statuses import judged

OPERATOR = {"job": "do-device-operator", "pod": "do-device-operator-0"}
COUNTS = ("_total", "_count", "_sum", "_bucket")
"""How names of series end that only grow."""


def agent_labels(node: str, *, config: str = "lab", pool: str = "default") -> dict[str, str]:
    """What the chart's PodMonitor adds (`test_dashboards` compares)."""
    target = {"job": "devices/do-device-operator-agent", "namespace": "devices", "pod": f"agent-{node}"}
    return {**target, "container": "agent", "node": node, "config": config, "pool": pool}


@dataclass(slots=True)
class Gpus:
    """The collector of GPU telemetry, with samples given by a test."""

    samples: Iterable[GpuSample]
    snapshot: TableSnapshot

    def collect(self) -> Iterator[Family]:
        yield from families(self.samples, self.snapshot)


@dataclass(slots=True)
class Fleet:
    """The programs at one moment: `lead`: the operator, None if nothing is scraped; `agents`: node -> labels, metrics."""

    lead: Telemetry | None = field(default_factory=Telemetry)
    agents: dict[str, tuple[dict[str, str], Metrics]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.lead is not None:
            self.lead.leader.set(1)

    def agent(self, node: str, **of: str) -> Metrics:
        """`of`: its config and pool."""
        return self.agents.setdefault(node, (agent_labels(node, **of), Metrics(version="1")))[1]

    def scrapes(self) -> Iterator[tuple[dict[str, str], str]]:
        """The labels of each target, and its text."""
        if self.lead is not None:
            yield OPERATOR, generate_latest(self.lead.registry).decode()
        for labels, metrics in self.agents.values():
            yield labels, metrics.registry.text()


def passed(telemetry: Telemetry, *found: Any, config: str = "lab", **seen: Any) -> None:
    """A pass of the operator over what tests see (`statuses.judged`)."""
    computed = judged(*found, **seen)
    ours = {report.name for report in computed.status.nodes}
    telemetry.report(
        config,
        Seen(
            status=computed.status,
            inventories={i.node: i.status for i in seen.get("inventories", ()) if i.status and i.node in ours},
            faults=computed.faults,
            failed=tuple(FailedNode(r.pool, r.name, r.reason) for r in computed.failing),
        ),
    )


def samples(target: Mapping[str, str], text: str) -> dict[str, float]:
    """The series of a scrape as Prometheus stores them. The program's own labels win, as with honorLabels."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {**target, **sample.labels}
            body = ",".join(f"{name}={json.dumps(value)}" for name, value in sorted(labels.items()) if value)
            found[f"{sample.name}{{{body}}}"] = sample.value
    return found


def hour(before: Fleet, after: Fleet) -> list[dict[str, str]]:
    """Input series of promtool for an hour: gauges as they are after it, counters grow evenly."""
    old = {name: value for scrape in before.scrapes() for name, value in samples(*scrape).items()}
    series = []
    for scrape in after.scrapes():
        for name, value in samples(*scrape).items():
            if name.partition("{")[0].endswith(COUNTS):
                begun = old.get(name, 0.0)
                series.append({"series": name, "values": f"{begun!r}+{(value - begun) / 60!r}x60"})
            else:
                series.append({"series": name, "values": f"{value!r}x60"})
    return series


def promtool(*arguments: str | Path, at: Path) -> subprocess.CompletedProcess[str]:
    binaries.build(["prometheus"])
    command = [binaries.path("promtool"), *arguments]
    return subprocess.run(command, cwd=at, capture_output=True, text=True, check=False)


def answers(scrapes: Iterable[Mapping[str, Any]], queries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What Prometheus's engine answers (tests/cluster/modules/prometheus/main.go)."""
    binaries.build(["prometheus"])
    asked = json.dumps({"scrapes": list(scrapes), "queries": list(queries)})
    done = subprocess.run([binaries.path("promquery")], input=asked, capture_output=True, text=True, check=True)
    answered: list[dict[str, Any]] = json.loads(done.stdout)
    return answered
