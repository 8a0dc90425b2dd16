"""Telemetry and node labels together: only what is wanted, and nothing of it in the way."""

import asyncio

import pytest
from device_agent.contract.document import DeviceEntry, Document, NvmlSource, Resource
from device_agent.nvml.model import NvmlView
from device_agent.nvml.report import GpuReport, Wanted
from device_agent.runtime.exposition import Registry
from unit.nvml.telemetry_samples import gpu, offering, sample, view, whole

NVIDIA = Document((Resource(name="nvidia.com/gpu", devices=(DeviceEntry(nvml=NvmlSource()),)),))


def report(tmp_path, **wanted) -> tuple[GpuReport, Registry]:
    registry = Registry()
    of = GpuReport(Wanted(**wanted), registry=registry, config="lab", sys=tmp_path, sample_interval=15.0)
    return of, registry


async def take():
    return [sample("GPU-0", power_watts=200.0)]


async def test_what_is_not_wanted_is_not_done(tmp_path):
    gpus, registry = report(tmp_path)
    await asyncio.wait_for(gpus.sample(take), 5)
    gpus.publish(offering(whole(0)))
    await gpus.scanned(NVIDIA, view(gpu(0)), offering(whole(0)))
    assert registry.text() == ""
    assert list(tmp_path.iterdir()) == []


async def test_samples_are_exposed_with_the_tables_holders(tmp_path):
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


async def test_the_file_follows_what_is_seen_and_stays_while_nothing_is(tmp_path, features):
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


async def test_the_file_goes_with_the_last_entry_that_asks_for_nvidia_devices(tmp_path, features):
    (features / "device-operator-lab").write_text("nvidia.com/gpu.count=8\n")  # an earlier process's
    gpus, _ = report(tmp_path, features_dir=features)
    await gpus.scanned(Document(()), None, offering())
    assert list(features.iterdir()) == []


async def test_a_directory_that_cannot_be_written_is_said_once_and_tried_again(tmp_path, features, caplog):
    gpus, _ = report(tmp_path, features_dir=features)
    features.rmdir()
    for _ in range(3):
        await gpus.scanned(NVIDIA, view(gpu(0)), offering(whole(0)))
    assert len([r for r in caplog.records if r.message == "node features are not written"]) == 1
    features.mkdir()
    await gpus.scanned(NVIDIA, view(gpu(0)), offering(whole(0)))
    assert (features / "device-operator-lab").exists()


async def test_a_defect_in_making_labels_is_said_once_and_ends_nothing(tmp_path, features, caplog, monkeypatch):
    gpus, _ = report(tmp_path, features_dir=features)

    def broken(*_: object, **__: object) -> dict[str, str]:
        raise ValueError("no such label")

    monkeypatch.setattr("device_agent.nvml.report.labels", broken)
    for _ in range(2):
        await gpus.scanned(NVIDIA, view(gpu(0)), offering(whole(0)))
    assert [r.message for r in caplog.records] == ["node features", "node features are not written"]
    monkeypatch.undo()
    await gpus.scanned(NVIDIA, view(gpu(0)), offering(whole(0)))
    assert (features / "device-operator-lab").exists()
