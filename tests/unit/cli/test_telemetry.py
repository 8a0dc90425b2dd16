"""`kubectl devices top` reads what agents write."""

from device_agent.nvml.metrics import families
from device_agent.runtime.exposition import written
from kubectl_devices.model.telemetry import ordered, samples, telemetry_table
from unit.nvml.telemetry_samples import GPU, offering, sample, whole


def metrics() -> str:
    """Two GPUs as an agent tells of them; two pods share the first."""
    snapshot = offering(whole(0), whole(1), holders={GPU: {"GPU-0": ("train", "infer")}})
    told = (
        sample("GPU-0", utilisation_percent=97.0, memory_used_mib=30000.0, memory_total_mib=40960.0),
        sample("GPU-1", utilisation_percent=3.0, temperature_celsius=41.0),
    )
    others = '# HELP x y\n# TYPE device_agent_devices gauge\ndevice_agent_devices{resource="r",health="Healthy"} 2\nbad line\n'
    return others + "".join(map(written, families(told, snapshot)))


def test_each_device_is_one_row_with_all_its_holders():
    first, second = samples("n1", metrics())
    assert (first.device, first.holders) == ("GPU-0", ("team/infer", "team/train"))
    assert first.values["utilisation_percent"] == 97
    assert (second.device, second.holders) == ("GPU-1", ())
    rows = telemetry_table([first, second]).rows
    assert rows[0] == ("n1", GPU, "GPU-0", "97%", "30000/40960Mi", "", "", "", "team/infer,team/train")
    assert rows[1] == ("n1", GPU, "GPU-1", "3%", "", "41C", "", "", "")


def test_the_busiest_comes_first_and_one_without_the_value_last():
    found = samples("n1", metrics())
    assert [s.device for s in ordered(reversed(found), by="")] == ["GPU-0", "GPU-1"]
    assert [s.device for s in ordered(found, by="temperature_celsius")] == ["GPU-1", "GPU-0"]


def test_labels_are_unescaped_and_unreadable_lines_skipped():
    text = 'device_agent_gpu_power_watts{resource="r",device="a\\"b\\\\n",pod=""} 7\ndevice_agent_gpu_power_watts{resource="r"} x\n'
    (found,) = samples("n1", text)
    assert found.device == 'a"b\\n'
