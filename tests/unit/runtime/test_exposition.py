"""The text for Prometheus, read back by Prometheus's own parser."""

import math
import os
from pathlib import Path

import pytest
from device_agent.runtime.exposition import Family, Registry, written
from device_agent.runtime.metrics import Metrics
from device_agent.runtime.process_metrics import ProcessMetrics
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """(name, labels) -> value; two lines of one name and labels fail."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def test_a_counter_counts_by_label_and_without_labels_from_zero() -> None:
    registry = Registry()
    calls, plain = registry.counter("calls_total", "Calls.", "who", "why"), registry.counter("plain_total", "P.")
    for _ in range(3):
        calls.inc("a", "x")
    calls.inc("b", "x")
    assert samples(registry.text()) == {
        key("calls_total", who="a", why="x"): 3,
        key("calls_total", who="b", why="x"): 1,
        key("plain_total"): 0,
    }
    plain.inc()
    assert "# TYPE plain_total counter\nplain_total 1.0\n" in registry.text()


def test_a_gauge_shows_the_last_value_and_none_after_it_is_cleared() -> None:
    registry = Registry()
    gauge = registry.gauge("config", "C.", "hash")
    gauge.set(True, "old")
    gauge.clear()
    gauge.set(2, "new")
    assert samples(registry.text()) == {key("config", hash="new"): 2}


def test_a_histogram_counts_up_to_each_bound() -> None:
    registry = Registry()
    seconds = registry.histogram("seconds", "S.", "who", buckets=(0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        seconds.observe(value, "a")
    buckets = {"0.1": 2, "1.0": 3, "+Inf": 4}
    assert samples(registry.text()) == {
        **{key("seconds_bucket", who="a", le=le): count for le, count in buckets.items()},
        key("seconds_count", who="a"): 4,
        key("seconds_sum", who="a"): pytest.approx(7.65),
    }


def test_a_histogram_without_labels_is_there_before_the_first_observation() -> None:
    registry = Registry()
    registry.histogram("seconds", "S.", buckets=(1.0,))
    assert samples(registry.text())[key("seconds_count")] == 0


@given(st.dictionaries(st.text(max_size=8), st.floats(allow_nan=False), max_size=5))
def test_label_values_and_numbers_come_through_whole(values: dict[str, float]) -> None:
    family = Family("m", 'A "help"\nwith \\ marks.', "gauge", ("of",))
    for label, value in values.items():
        family.add((label,), value)
    text = written(family)
    # the parser splits at all line breaks of Python; the format and Prometheus split only at newlines
    assert len(text.rstrip("\n").split("\n")) == 2 + len(values)
    if all(len(label.splitlines()) <= 1 and label == label.strip() for label in values):
        assert samples(text) == {key("m", of=label): value for label, value in values.items()}
    assert math.inf not in values.values() or "+Inf" in text


def test_process_metrics_come_from_the_kernel() -> None:
    registry = Registry()
    registry.register(ProcessMetrics())
    found = {name: value for (name, _), value in samples(registry.text()).items()}
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert found["process_resident_memory_bytes"] == pytest.approx(resident, rel=0.1)
    assert found["process_virtual_memory_bytes"] > resident
    assert found["process_start_time_seconds"] == pytest.approx(Path("/proc/self").stat().st_mtime, abs=600)
    assert 0 < found["process_open_fds"] < found["process_max_fds"]
    assert found["process_cpu_seconds_total"] > 0


def test_without_proc_there_are_no_samples(tmp_path: Path) -> None:
    assert list(ProcessMetrics(tmp_path).collect()) == []


def test_metrics_have_the_names_that_the_operations_page_gives() -> None:
    page = Path(__file__).parents[3] / "docs" / "operations.md"
    names = {family.name for family in text_string_to_metric_families(Metrics(version="1").registry.text())}
    told = page.read_text().partition("| agent (`device_agent_…`)")[2].partition("| operator (")[0]
    for name in names:
        short = name.removeprefix("device_agent_")
        if not name.startswith("process_") and short != "info":
            assert f"`{short}" in told, name
