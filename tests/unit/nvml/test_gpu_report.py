"""Telemetry and node labels: only those that are wanted, and their failures stop nothing else."""

import asyncio

import pytest
from device_agent.contract.document import DeviceEntry, Document, NvmlSource, Resource
from device_agent.nvml.model import NvmlView
from device_agent.nvml.report import GpuReport
from device_agent.nvml.setup import Wanted
from device_agent.runtime.exposition import Registry
from unit.nvml.telemetry_samples import gpu, offering, sample, view, whole

NVIDIA = Document((Resource(name="nvidia.com/gpu", devices=(DeviceEntry(nvml=NvmlSource()),)),))


def report(tmp_path, **wanted) -> tuple[GpuReport, Registry]:
    registry = Registry()
    of = GpuReport(Wanted(**wanted), registry=registry, config="lab", sys=tmp_path, sample_interval=15.0)
    return of, registry


async def take():
    return [sample("GPU-0", power_watts=200.0)]


async def test_without_settings_there_are_no_metrics_and_no_file(tmp_path):
    gpus, registry = report(tmp_path)
    await asyncio.wait_for(gpus.sample(take), 5)
    gpus.publish(offering(whole(0)))
    await gpus.scanned(NVIDIA, view(gpu(0)), offering(whole(0)))
    assert registry.text() == ""
    assert list(tmp_path.iterdir()) == []


async def test_samples_are_exposed_with_the_holders_of_the_table(tmp_path):
    gpus, registry = report(tmp_path, metrics=True)
    gpus.publish(offering(whole(0), holders={"nvidia.com/gpu": {"GPU-0": ("a",)}}))
    taken = asyncio.Event()

    async def once():
        taken.set()
        return await take()

    task = asyncio.create_task(gpus.sample(once))
    await taken.wait()
    await asyncio.sleep(0)
    assert 'pod="a",resource="nvidia.com/gpu"} 200.0' in registry.text()
    task.cancel()


@pytest.fixture
def features(tmp_path):
    folder = tmp_path / "features.d"
    folder.mkdir()
    return folder


async def test_the_label_file_follows_the_gpus_and_stays_while_the_driver_is_silent(tmp_path, features):
    gpus, _ = report(tmp_path, features_dir=features)
    file = features / "device-operator-lab"
    await gpus.scanned(NVIDIA, view(gpu(0)), offering(whole(0)))
    assert "nvidia.com/gpu.count=1\n" in file.read_text()
    await gpus.scanned(NVIDIA, view(gpu(0), gpu(1)), offering(whole(0)))
    assert "nvidia.com/gpu.count=2\n" in file.read_text()
    await gpus.scanned(NVIDIA, NvmlView(unavailable="NVML hangs"), offering())
    await gpus.scanned(NVIDIA, None, offering())
    assert "nvidia.com/gpu.count=2\n" in file.read_text()
    await gpus.scanned(NVIDIA, view(), offering())
    assert not file.exists()


async def test_the_label_file_is_removed_when_no_entry_asks_for_nvidia_devices(tmp_path, features):
    (features / "device-operator-lab").write_text("nvidia.com/gpu.count=8\n")  # from an earlier process
    gpus, _ = report(tmp_path, features_dir=features)
    await gpus.scanned(Document(()), None, offering())
    assert list(features.iterdir()) == []


async def test_a_failed_write_is_logged_once_and_tried_again(tmp_path, features, caplog):
    gpus, _ = report(tmp_path, features_dir=features)
    features.rmdir()
    for _ in range(3):
        await gpus.scanned(NVIDIA, view(gpu(0)), offering(whole(0)))
    assert len([r for r in caplog.records if r.levelname == "WARNING"]) == 1
    features.mkdir()
    await gpus.scanned(NVIDIA, view(gpu(0)), offering(whole(0)))
    assert (features / "device-operator-lab").exists()


async def test_a_defect_in_making_labels_is_logged_once_and_tried_again(tmp_path, features, caplog, monkeypatch):
    gpus, _ = report(tmp_path, features_dir=features)

    def broken(*_: object, **__: object) -> dict[str, str]:
        raise ValueError("no such label")

    monkeypatch.setattr("device_agent.nvml.report.labels", broken)
    for _ in range(2):
        await gpus.scanned(NVIDIA, view(gpu(0)), offering(whole(0)))
    assert [r.levelname for r in caplog.records] == ["ERROR", "WARNING"]
    assert "no such label" in caplog.records[1].error
    monkeypatch.undo()
    await gpus.scanned(NVIDIA, view(gpu(0)), offering(whole(0)))
    assert (features / "device-operator-lab").exists()
