"""Two hours of a fleet, scraped each minute: GPUs and cameras, with some faults. The programs' registries write it.

Tests evaluate the dashboards' queries on it, and `scripts/dashboard_images.py` draws them.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from device_agent.nvml.model import GpuSample
from device_agent.runtime.metrics import Metrics, ResourceCount
from unit.chart.scrapes import Fleet, Gpus, passed
from unit.nvml.telemetry_samples import GPU, offering, whole
from unit.operator_core.build import counts, device, entry, inventory, node, pod, spec

MINUTES: Final = 120
BEGIN: Final = 1_780_308_000  # Unix seconds
CAMERA: Final = "example.com/camera"
# minutes
_LOST, _REFUSED, _CORDONED, _UNPLUGGED, _NO_IMAGE, _BACK, _RENUMBERED = 50, range(52, 60), 65, 70, 75, 88, 110
_MEMORY: Final = re.compile(r"(?m)^(process_resident_memory_bytes ).*")
"""It would be that of the test."""
_GPU_NODES: Final = {"gpu-1": range(4), "gpu-2": range(4, 8)}
_EDGE_NODES: Final = ("edge-1", "edge-2", "edge-3")


@dataclass(slots=True)
class Story:
    """The fleet at one minute after the other."""

    fleet: Fleet = field(default_factory=Fleet)
    gpus: dict[str, Gpus] = field(default_factory=dict)

    def minute(self, now: int) -> None:
        lead = self.fleet.lead
        assert lead is not None
        lead.watch_ages = lambda: {"nodes": 7.0 + now % 50, "pods": 2.0 + now % 30}
        for _ in range(4):
            lead.observe_pass("accepted", 0.012 + 0.03 * (now > _LOST))
        lead.queue_depth.set(now % 3)
        self._gpus(now)
        self._cameras(now)

    def _gpus(self, now: int) -> None:
        seen = []
        for name, numbers in _GPU_NODES.items():
            states = {n: _gpu_state(n, now) for n in numbers}
            held = [n for n in numbers if _held(n, now)]
            agent = self.fleet.agent(name, config="gpus", pool="training")
            self._gpu_series(name, agent, held, now)
            bad, away = sum("health" in s for s in states.values()), sum("withheld" in s for s in states.values())
            devices = [device(f"GPU-{n}", resource=GPU, **state) for n, state in states.items()]
            row = counts(GPU, devices=4, healthy=4 - bad, withheld=away, allocated=len(held))
            seen.append(inventory(name, resources=[row], devices=devices, poolName="training"))
            agent.publish([_count(GPU, 4, bad=bad, away=away, held=len(held), reason="Xid79")], missing=())
            _events(agent, GPU, fault=bool(bad) and now == _LOST, back=False, reason="Xid79")
            if bad and now in _REFUSED:
                agent.allocated(GPU, seconds=0.001, refused="WrongNumber")
            if away and now == _CORDONED:
                agent.transition(GPU, to="Withheld", reason="Cordoned")
        self._pass("gpus", "training", GPU, seen=seen, nodes=tuple(_GPU_NODES), failed=())

    def _gpu_series(self, name: str, agent: Metrics, held: list[int], now: int) -> None:
        pods = {GPU: {f"GPU-{n}": (f"train-{n}",) for n in held}}
        samples = [_sample(n, now, busy=n in held) for n in _GPU_NODES[name] if not (n == 2 and now >= _LOST)]
        if name not in self.gpus:
            self.gpus[name] = Gpus((), offering(*map(whole, _GPU_NODES[name])))
            agent.registry.register(self.gpus[name])
        self.gpus[name].samples = samples
        self.gpus[name].snapshot = offering(*map(whole, _GPU_NODES[name]), holders=pods)

    def _cameras(self, now: int) -> None:
        seen, failed = [], ("edge-3",) if now >= _NO_IMAGE else ()
        for name in _EDGE_NODES:
            gone = name == "edge-2" and _UNPLUGGED <= now < _BACK
            held = min(2 - gone, now // 30)
            state = {"health": "Unhealthy", "reason": "Missing"} if gone else {}
            row = counts(CAMERA, devices=2, healthy=2 - gone, allocated=held)
            wrong = {"staleGrant": "pod lab/viewer has /dev/video0"} if name == "edge-1" and now >= _RENUMBERED else {}
            devices = [device("cam-a", resource=CAMERA, **wrong), device("cam-b", resource=CAMERA, **state)]
            seen.append(inventory(name, resources=[row], devices=devices, poolName="edge"))
            if name in failed:
                self.fleet.agents.pop(name, None)
                continue
            agent = self.fleet.agent(name, config="cameras", pool="edge")
            agent.publish([_count(CAMERA, 2, bad=int(gone), away=0, held=held, reason="Missing")], missing=())
            _events(
                agent,
                CAMERA,
                fault=gone and now == _UNPLUGGED,
                back=name == "edge-2" and now == _BACK,
                reason="Missing",
            )
        self._pass("cameras", "edge", CAMERA, seen=seen, nodes=_EDGE_NODES, failed=failed)

    def _pass(
        self, config: str, pool: str, name: str, *, seen: list[Any], nodes: tuple[str, ...], failed: tuple[str, ...]
    ) -> None:
        lead = self.fleet.lead
        assert lead is not None
        pull = {"ready": False, "waiting_reason": "ImagePullBackOff"}
        passed(
            lead,
            spec({"resources": [entry(name)], "nodePools": [{"name": pool}]}),
            config=config,
            nodes=tuple(map(node, nodes)),
            pods=tuple(pod(n, pool=pool, **(pull if n in failed else {})) for n in nodes),
            inventories=tuple(seen),
        )


def _gpu_state(number: int, now: int) -> dict[str, str]:
    if number == 2 and now >= _LOST:
        return {"health": "Unhealthy", "reason": "Xid79"}
    return {"withheld": "Cordoned"} if number == 6 and now >= _CORDONED else {}


def _held(number: int, now: int) -> bool:
    return now >= 10 * (number % 4) and not (number == 6 and now >= _CORDONED)


def _sample(number: int, now: int, *, busy: bool) -> GpuSample:
    load = (70 + 25 * math.sin(now / 9 + number)) if busy else 0.0
    heat = 38 + 0.42 * load + (0.12 * now if number == 5 else 0)
    return GpuSample(
        uuid=f"GPU-{number}", temperature_celsius=round(heat), power_watts=round(60 + 6.1 * load),
        utilisation_percent=round(load), memory_used_mib=round(400 + 700 * load), memory_total_mib=81920.0,
        sm_clock_mhz=1980.0 if busy else 345.0, memory_clock_mhz=2619.0, ecc_corrected=float(now // 40 if number == 1 else 0),
        ecc_uncorrected=0.0, nvlink_errors=0.0,
    )  # fmt: skip


def _count(name: str, devices: int, *, bad: int, away: int, held: int, reason: str) -> ResourceCount:
    return ResourceCount(
        resource=name, healthy=devices - bad, unhealthy=bad, unknown=0, withheld={"Cordoned": away} if away else {},
        not_healthy={("Unhealthy", reason): bad} if bad else {}, capacity=devices, allocated=held,
    )  # fmt: skip


def _events(agent: Metrics, name: str, *, fault: bool, back: bool, reason: str) -> None:
    """What happens in each minute, and what happens once."""
    agent.pod_resources(available=True)
    agent.allocated(name, seconds=0.0008)
    agent.scanned(seconds=0.03)
    agent.reported(error=False)
    agent.list_sent(name)
    if fault:
        agent.transition(name, to="Unhealthy", reason=reason)
    if back:
        agent.transition(name, to="Healthy", reason="OK")


def recorded() -> Iterator[dict[str, Any]]:
    """All scrapes, as promquery takes them."""
    story = Story()
    for now in range(MINUTES + 1):
        story.minute(now)
        for labels, text in story.fleet.scrapes():
            yield {"at": BEGIN + 60 * now, "labels": labels, "text": _MEMORY.sub(r"\g<1>4.1e+07", text)}
