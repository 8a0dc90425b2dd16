"""The specs in the guides and examples are accepted, and hand devices to pods."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from device_operator.spec.caveats import caveats
from unit.operator_core.build import spec

CHECKOUT = Path(__file__).parents[3]
GUIDES = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").glob("*.md"))]
EXAMPLES = sorted((CHECKOUT / "examples").glob("*.yaml"))
ACCESS = {"driverAccess": {"cdiDevice": "management.nvidia.com/gpu=all"}}
GPU = {"name": "nvidia.com/gpu", "preset": "nvidia-gpu-cdi"}
BESIDE = re.compile(r"(?:preset|beside|with) `-(env|mounts|cdi|nodes)`")
FIELD = re.compile(r"`((?:inject|sharing|health|allocation)(?:\.[A-Za-z]+)*): ([^`]+)`")


def blocks(path: Path) -> Iterator[Any]:
    for text in re.findall(r"^ *```yaml\n(.*?)^ *```", path.read_text(), re.MULTILINE | re.DOTALL):
        yield from yaml.safe_load_all(text)


def specs(path: Path) -> Iterator[dict[str, Any]]:
    """Each block as a spec: a whole object, entries of spec.resources, or fields of one."""
    for block in blocks(path):
        match block:
            case {"kind": "DevicePluginConfig", "spec": dict(given)}:
                yield given
            case [{"name": _}, *_]:
                yield {"resources": block, "agent": ACCESS}
            case {"health": dict()}:
                yield {"resources": [{**GPU, **block}], "agent": ACCESS}
            case {"spec": {"cordon": _} as given}:
                yield {"resources": [GPU], "agent": ACCESS, **given}
            case {"resources": {"limits": _}} | {"devices": [{"id": _}]}:
                pass  # of a pod; of an inventory
            case {"kind": "Role" | "ClusterRole" | "ResourceQuota" | "Pod"}:
                pass  # tests/operator/test_cli.py and test_quota.py apply them
            case (
                {"kind": "Kustomization" | "NodeOverlay" | "KubeVirt"}
                | {"exclude": {"any": _}}
                | {"spec": {"match": _}}
            ):
                pass  # of Flux, Karpenter, KubeVirt, Kyverno, Gatekeeper
            case {"metrics": dict()}:
                pass  # of the chart: tests/unit/chart/test_alerts.py renders it
            case _:
                raise AssertionError(f"{path.name}: a block that no case here knows: {block}")


SPECS = [pytest.param(given, id=f"{path.stem}-{n}") for path in GUIDES for n, given in enumerate(specs(path))]
SPECS += [
    pytest.param(document["spec"], id=path.stem)
    for path in EXAMPLES
    for document in yaml.safe_load_all(path.read_text())
    if document["kind"] == "DevicePluginConfig"
]


def test_the_guides_have_specs():
    assert len(SPECS) > len(EXAMPLES) + 5


@pytest.mark.parametrize("given", SPECS)
def test_specs_in_the_guides_are_accepted_and_hand_over_devices(given: dict[str, Any]):
    said = caveats(spec(given))
    assert [text for text in said if "containers get" in text or "no effect" in text] == []


def rows() -> Iterator[Any]:
    """(the preset's way, field, value) of each cell of the migration table that says what to write."""
    _, _, table = (CHECKOUT / "docs/gpu.md").read_text().partition("## From NVIDIA's plugin")
    for line in table.splitlines():
        ways = list(BESIDE.finditer(line)) if line.startswith("|") else []
        for found in FIELD.finditer(line):
            before = [way[1] for way in ways if way.start() < found.start()]
            yield pytest.param(
                before[-1] if before else "cdi", found[1], yaml.safe_load(found[2]), id=f"{found[1]}-{found[2]}"
            )


ROWS = list(rows())


def cells() -> Iterator[Any]:
    """(fields of an entry, fields of its device) of each cell of docs/migrate.md that says what to write here."""
    for line in (CHECKOUT / "docs/migrate.md").read_text().splitlines():
        for text in re.findall(r"`(\w[\w.]*: [^`]+)`", line.split("|")[2]) if line.startswith("| `") else ():
            ((key, value),) = yaml.safe_load(text).items()
            head, *folders = key.split(".")
            for folder in reversed(folders):
                value = {folder: value}
            device = head in ("pci", "include", "sysfs")
            yield pytest.param({} if device else {head: value}, {head: value} if device else {}, id=text)


CELLS = list(cells())


def test_the_tables_of_other_plugins_say_what_to_write():
    assert len(CELLS) >= 8


@pytest.mark.parametrize(("fields", "device"), CELLS)
def test_the_replacement_for_each_setting_of_other_plugins_is_accepted(fields: dict[str, Any], device: dict[str, Any]):
    source = {"sysfs": {"subsystem": "tty"}} if "usb." in str(fields) else {"pci": {"ids": ["8086:154c"]}}
    found = device if "sysfs" in device else {**source, **device}
    entry = {"name": "example.com/nic", "devices": [found], **fields}
    assert caveats(spec({"resources": [entry]})) == ()


def test_the_migration_table_says_what_to_write():
    assert len(ROWS) >= 6


@pytest.mark.parametrize(("way", "field", "value"), ROWS)
def test_the_replacement_for_each_setting_of_the_vendors_plugin_works(way: str, field: str, value: Any):
    for key in reversed(field.split(".")):
        value = {key: value}
    entry = {"name": "nvidia.com/gpu", "preset": f"nvidia-gpu-{way}", **value}
    assert caveats(spec({"resources": [entry], "agent": ACCESS})) == ()
