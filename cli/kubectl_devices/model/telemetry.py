"""Telemetry of devices, from the agents' metrics in Prometheus' text form. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kubectl_devices.model.table import Table, table

PREFIX: Final = "device_agent_gpu_"
_SERIES: Final = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)\{(.*)\}\s+(\S+)")
_LABEL: Final = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPES: Final = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}


@dataclass(frozen=True, slots=True)
class Sample:
    """The values of one device, by the metric's name without prefix. `holders`: namespace/pod of each."""

    node: str
    resource: str
    device: str
    holders: tuple[str, ...]
    values: Mapping[str, float] = field(default_factory=dict)


def samples(node: str, text: str) -> tuple[Sample, ...]:
    """What the agent of a node tells of its devices. Series of one device differ in their holders alone."""
    values: dict[tuple[str, str], dict[str, float]] = {}
    holders: dict[tuple[str, str], dict[str, None]] = {}
    for line in text.splitlines():
        found = _SERIES.fullmatch(line.strip())
        if found is None or not found[1].startswith(PREFIX):
            continue
        labels = {key: _unescaped(value) for key, value in _LABEL.findall(found[2])}
        try:
            number = float(found[3])
        except ValueError:
            continue
        key = labels.get("resource", ""), labels.get("device", "")
        values.setdefault(key, {})[found[1].removeprefix(PREFIX)] = number
        if labels.get("pod"):
            holders.setdefault(key, {})[f"{labels.get('namespace', '')}/{labels['pod']}"] = None
    return tuple(
        Sample(node, resource, device, tuple(holders.get((resource, device), ())), there)
        for (resource, device), there in sorted(values.items())
    )


def ordered(found: Iterable[Sample], *, by: str) -> tuple[Sample, ...]:
    """The highest value of `by` first; by node and device if it is ''."""
    every = sorted(found, key=lambda s: (s.node, s.resource, s.device))
    return tuple(sorted(every, key=lambda s: -s.values.get(by, float("-inf"))) if by else every)


def telemetry_table(found: Iterable[Sample]) -> Table:
    rows = (
        (
            s.node,
            s.resource,
            s.device,
            _shown(s, "utilisation_percent", "%"),
            _memory(s),
            _shown(s, "temperature_celsius", "C"),
            _shown(s, "power_watts", "W"),
            _shown(s, "ecc_uncorrected_errors", ""),
            ",".join(s.holders),
        )
        for s in found
    )
    return table("NODE RESOURCE DEVICE BUSY MEMORY TEMP POWER ECC HOLDER", rows)


def _shown(sample: Sample, name: str, unit: str) -> str:
    value = sample.values.get(name)
    return "" if value is None else f"{value:.0f}{unit}"


def _memory(sample: Sample) -> str:
    used, total = sample.values.get("memory_used_mib"), sample.values.get("memory_total_mib")
    return "" if used is None or total is None else f"{used:.0f}/{total:.0f}Mi"


def _unescaped(value: str) -> str:
    return re.sub(r"\\.", lambda found: _ESCAPES.get(found[0], found[0]), value)
