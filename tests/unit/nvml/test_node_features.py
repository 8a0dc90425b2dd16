"""Node labels of GPUs through node-feature-discovery: their values, and when the file exists."""

import re
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from device_agent.nvml.node_features import EXPIRY, RENEWAL, FeatureFile, content, family, label_value, labels, machine
from hypothesis import given
from hypothesis import strategies as st
from unit.nvml.telemetry_samples import GPU, gpu, mig, offering, partition, view, whole

VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def about(found: dict[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}


def test_a_node_with_equal_gpus():
    found = labels(view(gpu(0), gpu(1)), offering(whole(0), whole(1)), machine="NVIDIA DGX Station")
    assert found == {
        "nvidia.com/cuda.driver.major": "580",
        "nvidia.com/cuda.driver.minor": "95",
        "nvidia.com/cuda.driver.rev": "05",
        "nvidia.com/cuda.driver-version.major": "580",
        "nvidia.com/cuda.driver-version.minor": "95",
        "nvidia.com/cuda.driver-version.revision": "05",
        "nvidia.com/cuda.driver-version.full": "580.95.05",
        "nvidia.com/cuda.runtime.major": "13",
        "nvidia.com/cuda.runtime.minor": "0",
        "nvidia.com/cuda.runtime-version.major": "13",
        "nvidia.com/cuda.runtime-version.minor": "0",
        "nvidia.com/cuda.runtime-version.full": "13.0",
        "nvidia.com/gpu.compute.major": "8",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/gpu.count": "2",
        "nvidia.com/gpu.family": "ampere",
        "nvidia.com/gpu.machine": "NVIDIA-DGX-Station",
        "nvidia.com/gpu.memory": "40960",
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/mig.capable": "true",
    }


def test_without_gpus_there_are_no_labels():
    assert labels(view(), offering(), machine="a server") == {}


@pytest.mark.parametrize(
    ("models", "product", "count"),
    [
        (("NVIDIA A30", "NVIDIA A30", "NVIDIA T4"), "NVIDIA-A30", "2"),
        (("NVIDIA T4", "NVIDIA A30", "NVIDIA A30"), "NVIDIA-A30", "2"),
        (("NVIDIA T4", "NVIDIA A30"), "NVIDIA-T4", "1"),  # equally frequent: the lower index
    ],
)
def test_labels_describe_the_most_frequent_model(models, product, count):
    gpus = [gpu(n, model=model, memory_mib=1000 + n) for n, model in enumerate(models)]
    for of in (gpus, gpus[::-1]):
        found = labels(view(*of), offering())
        assert (found["nvidia.com/gpu.product"], found["nvidia.com/gpu.count"]) == (product, count)


@pytest.mark.parametrize(
    ("units", "product", "replicas"),
    [
        ((whole(0, replicas=4), whole(1, replicas=4)), "NVIDIA-A100-SXM4-40GB-SHARED", "4"),
        (
            (whole(0, replicas=4), whole(1, replicas=2)),
            "NVIDIA-A100-SXM4-40GB-SHARED",
            "2",
        ),  # the least number of replicas
        ((whole(0, replicas=4, name="nvidia.com/gpu.shared"),), "NVIDIA-A100-SXM4-40GB", "4"),
        ((), "NVIDIA-A100-SXM4-40GB", "0"),
    ],
)
def test_shared_gpus(units, product, replicas):
    found = labels(view(gpu(0), gpu(1)), offering(*units))
    assert (found["nvidia.com/gpu.product"], found["nvidia.com/gpu.replicas"]) == (product, replicas)


def test_unknown_values_give_no_labels():
    silent = replace(gpu(0), model="", memory_mib=None, compute_capability="", mig_mode=None)
    assert labels(view(silent, driver="", cuda=""), offering()) == {
        "nvidia.com/gpu.count": "1",
        "nvidia.com/gpu.replicas": "0",
        "nvidia.com/mig.capable": "false",
    }
    two_parts = labels(view(gpu(0), driver="535.54", cuda="12"), offering())
    assert about(two_parts, "nvidia.com/cuda.driver.") == {"major": "535", "minor": "54", "rev": ""}
    assert about(two_parts, "nvidia.com/cuda.runtime.") == {"major": "12", "minor": ""}


PARTED = gpu(0, mig_mode=True, migs=(mig(0, 0), mig(0, 1), mig(0, 2, "3g.20gb", memory_mib=19968)))


def test_mig_devices_are_labelled_by_profile():
    name = "nvidia.com/mig-{}"
    units = [partition(0, n, p, name=name.format(p), entry="nvidia.com/mig-{profile}")
             for n, p in enumerate(("1g.5gb", "1g.5gb", "3g.20gb"))]  # fmt: skip
    found = labels(view(PARTED, gpu(1)), offering(*units, whole(1)))
    assert about(found, "nvidia.com/mig") == {
        ".capable": "true",
        ".strategy": "mixed",
        "-1g.5gb.count": "2",
        "-1g.5gb.memory": "4864",
        "-1g.5gb.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
        "-1g.5gb.replicas": "1",
        "-1g.5gb.slices.ci": "1",
        "-1g.5gb.slices.gi": "1",
        "-3g.20gb.count": "1",
        "-3g.20gb.memory": "19968",
        "-3g.20gb.product": "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb",
        "-3g.20gb.replicas": "1",
        "-3g.20gb.slices.ci": "3",
        "-3g.20gb.slices.gi": "3",
    }
    assert about(found, "nvidia.com/gpu.")["count"] == "2"


def test_mig_devices_offered_as_gpus_replace_the_gpus_labels():
    parted = gpu(0, mig_mode=True, migs=(mig(0, 0), mig(0, 1)))
    found = labels(view(parted), offering(partition(0, 0, name=GPU, replicas=2), partition(0, 1, name=GPU, replicas=2)))
    assert found["nvidia.com/mig.strategy"] == "single"
    gpus = about(found, "nvidia.com/gpu.")
    assert (gpus["count"], gpus["memory"], gpus["replicas"], gpus["slices.gi"]) == ("2", "4864", "2", "1")
    assert gpus["product"] == "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED"
    assert "nvidia.com/mig-1g.5gb.count" not in found


def test_different_profiles_under_one_resource_have_no_labels():
    units = [partition(0, n, name=GPU) for n in range(2)] + [partition(0, 2, "3g.20gb", name=GPU)]
    found = labels(view(PARTED), offering(*units))
    assert found["nvidia.com/mig.strategy"] == "single"
    assert (found["nvidia.com/gpu.product"], found["nvidia.com/gpu.count"]) == ("NVIDIA-A100-SXM4-40GB", "1")


def test_mig_devices_that_are_not_offered_have_no_labels():
    assert about(labels(view(PARTED), offering()), "nvidia.com/mig") == {".capable": "true"}


@pytest.mark.parametrize(("profile", "name"), [("1g.10gb+me", "mig-1g.10gb.me"), ("1c.3g.20gb", "mig-1c.3g.20gb")])
def test_profiles_become_valid_label_names(profile, name):
    parted = gpu(0, mig_mode=True, migs=(mig(0, 0, profile),))
    found = labels(view(parted), offering(partition(0, 0, profile, name=f"nvidia.com/{name}")))
    mine = about(found, f"nvidia.com/{name}.")
    assert mine["count"] == "1"
    assert (mine["slices.gi"], mine["slices.ci"]) == (("1", "1") if "+" in profile else ("3", "1"))


@pytest.mark.parametrize(
    ("capability", "architecture", "expected"),
    [("7.0", "", "volta"), ("7.5", "", "turing"), ("8.6", "", "ampere"), ("8.9", "ada", "ada-lovelace"),
     ("9.0", "", "hopper"), ("10.0", "", "blackwell"), ("12.0", "", "blackwell"), ("21.0", "Rubin", "rubin"),
     ("21.0", "", "undefined")],
)  # fmt: skip
def test_the_family_follows_from_the_compute_capability(capability, architecture, expected):
    assert family(gpu(0, compute_capability=capability, architecture=architecture)) == expected


@given(st.text(max_size=90))
def test_every_value_is_a_valid_label_value(text):
    assert VALUE.fullmatch(label_value(text))
    strange = view(gpu(0, model=text), driver=text, cuda=text)
    found = labels(strange, offering(whole(0, replicas=2)), machine=text)
    assert all(VALUE.fullmatch(value) for value in found.values())


def test_the_file_begins_with_its_expiry():
    assert content({"b": "2", "a": ""}, expiry=NOW) == "# +expiry-time=2026-01-01T12:00:00Z\na=\nb=2\n"


def test_the_file_is_renewed_long_before_it_expires(tmp_path):
    file = FeatureFile(tmp_path, config="lab")
    assert file.keep({"a": "1"}, now=NOW)
    assert (tmp_path / "device-operator-lab").read_text() == content({"a": "1"}, expiry=NOW + EXPIRY)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o644
    assert not file.keep({"a": "1"}, now=NOW + RENEWAL / 2)
    assert file.keep({"a": "1"}, now=NOW + RENEWAL)
    assert file.path.read_text() == content({"a": "1"}, expiry=NOW + RENEWAL + EXPIRY)
    assert file.keep({"a": "2"}, now=NOW + RENEWAL + timedelta(seconds=1))
    assert [p.name for p in tmp_path.iterdir()] == ["device-operator-lab"]
    assert RENEWAL * 3 < EXPIRY <= timedelta(hours=1)  # labels of a node that left the pool end within the hour


def test_the_file_of_an_earlier_process_is_removed_without_gpus(tmp_path):
    FeatureFile(tmp_path, config="lab").keep({"a": "1"}, now=NOW)
    foreign = tmp_path / "gfd"
    foreign.write_text("a=1\n")
    file = FeatureFile(tmp_path, config="lab")
    assert file.path.exists()
    assert file.keep({}, now=NOW)
    assert not file.path.exists()
    assert not file.keep({}, now=NOW)
    assert file.keep({"a": "1"}, now=NOW)
    assert foreign.exists()


def test_a_missing_directory_is_an_error_and_tried_again(tmp_path):
    file = FeatureFile(tmp_path / "features.d", config="lab")
    with pytest.raises(FileNotFoundError):
        file.keep({"a": "1"}, now=NOW)
    (tmp_path / "features.d").mkdir()
    assert file.keep({"a": "1"}, now=NOW)


def test_the_product_name_of_the_firmware_is_read(tmp_path):
    assert machine(tmp_path) == ""
    place = tmp_path / "class/dmi/id/product_name"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"DGXA100 \xff920-23687\n")
    assert label_value(machine(tmp_path)) == "DGXA100-920-23687"
