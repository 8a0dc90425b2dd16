"""Metrics of one process and their text for Prometheus (exposition format, version 0.0.4).

Prometheus's own client library would cost 5 MiB and a tenth of the agent's start time. Most of that is for web servers
that the agent does not use.

One thread changes a metric; any thread may scrape it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, Protocol, TypeVar

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of text. `suffix`: what a histogram appends to its name."""

    labels: Mapping[str, str]
    value: float
    suffix: str = ""


@dataclass(slots=True)
class Family:
    """All samples of one metric at one moment. `type`: counter, gauge or histogram; `labels`: their names."""

    name: str
    help: str
    type: str
    labels: tuple[str, ...] = ()
    samples: list[Sample] = field(default_factory=list)

    def add(self, values: Sequence[str], value: float) -> None:
        """One sample, with a value for each label."""
        self.samples.append(Sample(dict(zip(self.labels, values, strict=True)), value))


class Collector(Protocol):
    """What a registry asks at each scrape."""

    def collect(self) -> Iterable[Family]: ...


C = TypeVar("C", bound=Collector)


class Registry:
    """All metrics of the process."""

    def __init__(self) -> None:
        self._collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        self._collectors.append(collector)

    def counter(self, name: str, text: str, *labels: str) -> "Counter":
        return self._with(Counter(name, text, *labels))

    def gauge(self, name: str, text: str, *labels: str) -> "Gauge":
        return self._with(Gauge(name, text, *labels))

    def histogram(self, name: str, text: str, *labels: str, buckets: tuple[float, ...]) -> "Histogram":
        return self._with(Histogram(name, text, *labels, buckets=buckets))

    def _with(self, collector: C) -> C:
        self.register(collector)
        return collector

    def text(self) -> str:
        """The answer to a scrape."""
        return "".join(written(family) for collector in self._collectors for family in collector.collect())


class _Values:
    """One number for each combination of label values. A metric without labels starts at 0."""

    type = ""

    def __init__(self, name: str, text: str, *labels: str) -> None:
        self._family = (name, text, self.type, labels)
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}

    def collect(self) -> Iterable[Family]:
        family = Family(*self._family)
        for labels, value in self._values.copy().items():
            family.add(labels, value)
        return (family,)


class Counter(_Values):
    """Its name ends in `_total`."""

    type = "counter"

    def inc(self, *labels: str) -> None:
        self._values[labels] = self._values.get(labels, 0.0) + 1.0


class Gauge(_Values):
    type = "gauge"

    def set(self, value: float, *labels: str) -> None:
        self._values[labels] = float(value)

    def clear(self) -> None:
        self._values.clear()


class Histogram:
    """Counts observations by size. `buckets`: their upper bounds, ascending, without infinity."""

    def __init__(self, name: str, text: str, *labels: str, buckets: tuple[float, ...]) -> None:
        self._family = (name, text, "histogram", labels)
        self._bounds = buckets
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}
        if not labels:
            self._begin(())

    def _begin(self, labels: tuple[str, ...]) -> list[int]:
        self._sums[labels] = 0.0
        self._counts[labels] = counts = [0] * (len(self._bounds) + 1)
        return counts

    def observe(self, value: float, *labels: str) -> None:
        counts = self._counts.get(labels) or self._begin(labels)
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[labels] += value

    def collect(self) -> Iterable[Family]:
        family = Family(*self._family)
        for values, counts in self._counts.copy().items():
            labels = dict(zip(family.labels, values, strict=True))
            total = 0
            for bound, count in zip((*self._bounds, inf), counts, strict=True):
                total += count
                family.samples.append(Sample(labels | {"le": _number(bound)}, total, "_bucket"))
            family.samples.append(Sample(labels, total, "_count"))
            family.samples.append(Sample(labels, self._sums[values], "_sum"))
        return (family,)


def written(family: Family) -> str:
    """The family as text, with labels sorted by name."""
    lines = [f"# HELP {family.name} {_escaped(family.help)}\n# TYPE {family.name} {family.type}\n"]
    for sample in family.samples:
        labels = ",".join(f'{k}="{_quoted(v)}"' for k, v in sorted(sample.labels.items()))
        name = f"{family.name}{sample.suffix}"
        lines.append(f"{name}{{{labels}}} {_number(sample.value)}\n" if labels else f"{name} {_number(sample.value)}\n")
    return "".join(lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')


def _number(value: float) -> str:
    return "+Inf" if value == inf else repr(float(value))
