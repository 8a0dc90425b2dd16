"""`device-operator render`: the same manifests as in the cluster, or one line on what is wrong."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from device_operator.__main__ import main

GOOD = """
apiVersion: device-operator.io/v1alpha1
kind: DevicePluginConfig
metadata: {name: lab}
spec:
  resources:
  - {name: example.com/a, devices: [{simulated: {count: 1}}]}
"""


def listed(*objects: str) -> str:
    return yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [yaml.safe_load(o) for o in objects]})


@pytest.fixture(autouse=True)
def image(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the operator's container."""
    monkeypatch.setenv("DEVICE_OPERATOR_AGENT_IMAGE", "example.com/agent:1")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


def test_every_document_gives_its_manifests_and_the_same_bytes_each_time(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(f"{GOOD}---\n{GOOD.replace('name: lab', 'name: other')}---\n")
    flags = ["render", "-f", str(file), "--namespace=devices", "--agent-image=example.com/agent:1"]
    assert main(flags) == 0
    first = capsys.readouterr().out
    made = [(d["kind"], d["metadata"]["namespace"]) for d in yaml.safe_load_all(first)]
    assert made == [("ConfigMap", "devices"), ("DaemonSet", "devices")] * 2
    assert "example.com/agent:1" in first
    assert main(flags) == 0
    assert capsys.readouterr().out == first


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "no DevicePluginConfig in it"),
        ("kind: Pod", "'Pod' is not DevicePluginConfig"),
        ("- 1", "is not DevicePluginConfig"),
        ("{", "while parsing"),
        (GOOD.replace("v1alpha1", "v9"), "apiVersion"),
        (GOOD.replace("metadata: {name: lab}", "metadata: {}"), "metadata.name is missing"),
        (GOOD.replace("simulated", "simulator"), "spec.resources"),
        (GOOD.replace("count: 1", "count: !!int one"), "invalid literal"),
        (GOOD.replace("count: 1", "count: 2026-99-99"), "month must be in"),
        (GOOD.replace("{count: 1}", "[" * 3000 + "]" * 3000), "nested too deeply"),
        (GOOD.replace("spec:", "spec: {}\nspec:"), "line 6: spec is given twice, first in line 5"),
        (GOOD.replace("count: 1", "count: 1, count: 2"), "line 7: count is given twice"),
        (f"{GOOD}---{GOOD}", "document 2: lab is the name of document 1 already"),
        (listed(GOOD, GOOD), "document 1: items[1]: lab is the name of document 1: items[0] already"),
        (listed("kind: Pod"), "document 1: items[0]: kind 'Pod' is not DevicePluginConfig"),
        ("kind: List", "config.yaml: document 1: items of a List must be a list"),
        ("{kind: List, items: []}", "no DevicePluginConfig in it"),
        ("x: &a {b: 1}\ny: {<<: *a, b: 2}", "is not DevicePluginConfig"),
        (GOOD.split("spec:", maxsplit=1)[0] + "spec: 5", "spec: 5 must be an object"),
        (GOOD.split("spec:", maxsplit=1)[0] + "spec:", "spec: is missing"),
        (f"{GOOD}  1: x\n  resurces: y\n", "spec.resurces: unknown field: did you mean resources?"),
        (GOOD.replace("count: 1}}]", r'count: 1}}], unit: "\ud800"'), "is not valid text"),
    ],
)
def test_a_file_that_cannot_be_rendered_is_explained_on_stderr(
    text: str, part: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(text)
    assert main(["render", "-f", str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert part in err
    assert "Traceback" not in err


def test_a_list_is_rendered_as_its_items(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = GOOD.replace("name: lab", "name: other")
    printed = []
    for text in (f"{GOOD}---{other}", listed(GOOD, other)):
        file.write_text(text)
        assert main(["render", "-f", str(file)]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


def test_a_missing_file_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "-f", "/nonexistent.yaml"]) == 2
    assert "/nonexistent.yaml" in capsys.readouterr().err


def test_presets_are_listed_and_printed_as_fields_of_an_entry(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert "nvidia-gpu-cdi" in listed
    for name in listed:
        assert main(["presets", name]) == 0
        assert yaml.safe_load(capsys.readouterr().out)["devices"]


def test_an_unknown_preset_is_reported_with_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets", "nvidia-gpu-cid"]) == 2
    assert "did you mean nvidia-gpu-cdi?" in capsys.readouterr().err


def test_a_preset_is_rendered_as_its_fields(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(GOOD.replace("devices: [{simulated: {count: 1}}]", "preset: nvidia-gpu-cdi"))
    assert main(["render", "-f", str(file)]) == 0
    config_map, _ = yaml.safe_load_all(capsys.readouterr().out)
    assert "nvidia.com/gpu={uuid}" in config_map["data"]["config.json"]
    assert "preset" not in config_map["data"]["config.json"]


GPUS = """
apiVersion: device-operator.io/v1alpha1
kind: DevicePluginConfig
metadata: {name: gpus}
spec:
  resources:
  - {name: nvidia.com/gpu, preset: nvidia-gpu-cdi}
  agent: {driverAccess: {driverRoot: /}}
"""


def test_warnings_of_the_condition_accepted_are_printed_on_stderr(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(f"{GOOD}---{GPUS}")
    assert main(["render", "-f", str(file)]) == 0
    out, err = capsys.readouterr()
    assert len(list(yaml.safe_load_all(out))) == 4
    (line,) = err.splitlines()
    assert line.startswith(f"device-operator: {file}: document 2: gpus: pool default: the agents run privileged")


def test_a_file_that_is_refused_has_no_remarks(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(f"{GPUS}---\n{GOOD.replace('simulated', 'simulator')}")
    assert main(["render", "-f", str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "privileged" not in err


@pytest.mark.parametrize("arguments", [["render", "-f"], ["presets"]], ids=["render", "presets"])
def test_a_full_disk_is_said_and_a_reader_that_ends_early_is_no_fault(arguments: list[str], file: Path) -> None:
    file.write_text(GOOD)
    command = [sys.executable, "-m", "device_operator", *arguments, *([str(file)] if "-f" in arguments else [])]
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (run.returncode, run.stderr) == (1, "device-operator: standard output: No space left on device\n")
    read, write = os.pipe()
    os.close(read)
    run = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (run.returncode, run.stderr) == (1, "")


def test_an_image_that_is_not_known_is_said(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEVICE_OPERATOR_AGENT_IMAGE")
    file.write_text(GOOD)
    assert main(["render", "-f", str(file)]) == 0
    assert "give --agent-image" in capsys.readouterr().err
    assert main(["render", "-f", str(file), "--agent-image=example.com/agent:1"]) == 0
    assert capsys.readouterr().err == ""
