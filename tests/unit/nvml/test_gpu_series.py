"""The metrics of NVIDIA devices: their values and their labels."""

import asyncio

from device_agent.nvml import metrics as gpumetrics
from device_agent.nvml.metrics import GpuTelemetry, families
from device_agent.nvml.model import GpuSample
from device_agent.runtime.exposition import Registry
from device_agent.table.holders import Holder
from unit.nvml.telemetry_samples import GPU, MIG, offering, partition, sample, whole
from unit.table.samples import NAME, Steps, resource, unit


def series(samples, snapshot) -> dict[str, dict[tuple[str, ...], float]]:
    """Metric name without prefix -> label values -> value."""
    found = {}
    for family in families(samples, snapshot):
        assert family.type == "gauge"
        short = family.name.removeprefix("device_agent_gpu_")
        found[short] = {tuple(s.labels[name] for name in gpumetrics.LABELS): s.value for s in family.samples}
        assert len(found[short]) == len(family.samples), "two series with the same name and labels"
    return found


FULL = GpuSample(
    uuid="GPU-0",
    temperature_celsius=41.0,
    power_watts=212.5,
    utilisation_percent=97.0,
    memory_used_mib=1024.0,
    memory_total_mib=40960.0,
    sm_clock_mhz=1410.0,
    memory_clock_mhz=1215.0,
    ecc_corrected=3.0,
    ecc_uncorrected=0.0,
    nvlink_errors=7.0,
)


def test_every_value_of_a_sample_has_its_own_series():
    nobody = (GPU, "GPU-0", "", "", "")
    assert series([FULL], offering(whole(0))) == {
        "temperature_celsius": {nobody: 41.0},
        "power_watts": {nobody: 212.5},
        "utilisation_percent": {nobody: 97.0},
        "memory_used_mib": {nobody: 1024.0},
        "memory_total_mib": {nobody: 40960.0},
        "sm_clock_mhz": {nobody: 1410.0},
        "memory_clock_mhz": {nobody: 1215.0},
        "ecc_corrected_errors": {nobody: 3.0},
        "ecc_uncorrected_errors": {nobody: 0.0},
        "nvlink_errors": {nobody: 7.0},
    }
    assert {field for field in GpuSample.__slots__ if field != "uuid"} == {g.field for g in gpumetrics._GAUGES}


def temperatures(snapshot, **of: float) -> dict[tuple[str, ...], float]:
    samples = [sample(uuid.replace("_", "-"), temperature_celsius=value) for uuid, value in of.items()]
    return series(samples, snapshot)["temperature_celsius"]


def test_each_holder_has_a_series_for_each_gpu_that_it_holds():
    snapshot = offering(
        whole(0, replicas=4),
        whole(1, replicas=4),
        whole(2, replicas=4),
        holders={GPU: {"GPU-0": ("a",), "GPU-0::1": ("b",), "GPU-0::3": ("c",), "GPU-1::2": ("b",)}},
    )
    assert temperatures(snapshot, GPU_0=50.0, GPU_1=60.0, GPU_2=70.0) == {
        (GPU, "GPU-0", "team", "a", "main"): 50.0,
        (GPU, "GPU-0", "team", "b", "main"): 50.0,
        (GPU, "GPU-0", "team", "c", "main"): 50.0,
        (GPU, "GPU-1", "team", "b", "main"): 60.0,
        (GPU, "GPU-2", "", "", ""): 70.0,
    }


def test_there_is_one_series_per_container_not_per_replica():
    steps = Steps(resource(GPU))
    steps.scan(whole(0, replicas=4))
    main, side = Holder("team", "a", "main"), Holder("team", "a", "side")
    steps.list({GPU: {"GPU-0": (main,), "GPU-0::1": (main, side)}})
    assert temperatures(steps.table.snapshot(), GPU_0=50.0) == {
        (GPU, "GPU-0", "team", "a", "main"): 50.0,
        (GPU, "GPU-0", "team", "a", "side"): 50.0,
    }


def test_mig_devices_have_series_and_their_gpu_has_an_empty_resource():
    snapshot = offering(partition(0, 0, name=MIG), partition(0, 1, name=MIG), holders={MIG: {"MIG-0-1": ("a",)}})
    samples = [
        sample("GPU-0", temperature_celsius=50.0, memory_used_mib=300.0),
        sample("MIG-0-0", memory_used_mib=100.0),
        sample("MIG-0-1", memory_used_mib=200.0),
    ]
    found = series(samples, snapshot)
    assert found["temperature_celsius"] == {("", "GPU-0", "", "", ""): 50.0}
    assert found["memory_used_mib"] == {
        ("", "GPU-0", "", "", ""): 300.0,
        (MIG, "MIG-0-0", "", "", ""): 100.0,
        (MIG, "MIG-0-1", "team", "a", "main"): 200.0,
    }


def test_a_gpu_under_two_resources_has_series_for_both():
    observed = "example.com/watch"
    watch = unit("1f-GPU-0", name=observed, source="nvml", attributes={"uuid": "GPU-0"}, hardware="watch/0")
    snapshot = offering(whole(0), watch, holders={GPU: {"GPU-0": ("a",)}, observed: {"1f-GPU-0": ("monitor",)}})
    assert temperatures(snapshot, GPU_0=50.0) == {
        (GPU, "GPU-0", "team", "a", "main"): 50.0,
        (observed, "1f-GPU-0", "team", "monitor", "main"): 50.0,
    }


def test_without_a_sample_or_a_value_there_is_no_series():
    assert temperatures(offering(whole(0), whole(1)), GPU_1=60.0) == {(GPU, "GPU-1", "", "", ""): 60.0}
    assert series([sample("GPU-0")], offering(whole(0)))["power_watts"] == {}
    other = offering(unit("x", attributes={"uuid": "GPU-0"}))
    assert temperatures(other, GPU_0=1.0) == {("", "GPU-0", "", "", ""): 1.0}, f"{NAME} is not of NVML"


def exposed(telemetry: GpuTelemetry) -> list[str]:
    registry = Registry()
    registry.register(telemetry)
    return [line for line in registry.text().splitlines() if not line.startswith("#")]


async def test_a_scrape_shows_the_last_sample_and_nothing_when_it_is_old():
    clock = 1000.0
    telemetry = GpuTelemetry(interval=15.0, clock=lambda: clock)
    assert exposed(telemetry) == []
    taken = asyncio.Event()

    async def take():
        taken.set()
        return [sample("GPU-0", temperature_celsius=50.0)]

    task = asyncio.create_task(telemetry.run(take))
    await taken.wait()
    task.cancel()
    assert exposed(telemetry) == []  # the holders are not known yet
    telemetry.publish(offering(whole(0)))
    labels = f'container="",device="GPU-0",namespace="",pod="",resource="{GPU}"'
    line = f"device_agent_gpu_temperature_celsius{{{labels}}} 50.0"
    assert exposed(telemetry) == [line]
    clock += 45.0
    assert exposed(telemetry) == [line]
    clock += 0.1
    assert exposed(telemetry) == []


async def test_the_last_sample_is_shown_while_the_driver_is_silent_until_it_is_old():
    clock = 0.0
    telemetry = GpuTelemetry(interval=0.001, clock=lambda: clock)
    telemetry.publish(offering(whole(0)))
    answers = [[sample("GPU-0", temperature_celsius=50.0)], [], []]
    asked = asyncio.Event()

    async def take():
        if len(answers) == 1:
            asked.set()
        return answers.pop(0) if answers else []

    task = asyncio.create_task(telemetry.run(take))
    await asked.wait()
    assert len(exposed(telemetry)) == 1
    clock = 1.0
    assert exposed(telemetry) == []
    task.cancel()
