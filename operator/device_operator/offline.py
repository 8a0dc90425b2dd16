"""The commands without a cluster: `device-operator render` and `presets`."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from device_agent.contract import names

from device_operator.render.manifests import RenderSettings, dump_yaml, render
from device_operator.runtime import errors
from device_operator.runtime.settings import Settings
from device_operator.spec import catalogue, vain
from device_operator.spec.caveats import caveats
from device_operator.spec.model import ConfigRef, Spec
from device_operator.spec.parsing import parse_spec

NO_UID = "00000000-0000-0000-0000-000000000000"
"""Stands for the uid, which a file does not have."""


def render_settings(settings: Settings) -> RenderSettings:
    """The settings that manifests depend on, with and without a cluster."""
    return RenderSettings(
        namespace=settings.namespace,
        agent_image=settings.agent_image,
        service_account=settings.agent_service_account,
        image_pull_policy=settings.agent_image_pull_policy,
        image_pull_secrets=settings.agent_image_pull_secrets,
        selinux_type=settings.agent_selinux_type,
    )


@dataclass(frozen=True, slots=True)
class Rendered:
    """`manifests`: YAML documents. `remarks`: the warnings that the message of Accepted would have."""

    manifests: str
    remarks: tuple[str, ...]


def render_file(filename: str, settings: RenderSettings) -> Rendered:
    """The manifests of every DevicePluginConfig in `filename` (- is standard input), in their order.

    Raises:
        errors.UsageError: the file is missing, is not YAML, or has a key or name twice, another kind, or a spec that
            would not be accepted.
    """
    try:
        text = sys.stdin.read() if filename == "-" else Path(filename).read_text(encoding="utf-8")
        documents = [d for d in yaml.load_all(text, _Loader) if d is not None]
    except (OSError, ValueError, yaml.YAMLError) as error:  # ValueError: bytes that are not text, invalid dates
        raise errors.UsageError(f"{filename}: {error}") from error
    except RecursionError as error:
        raise errors.UsageError(f"{filename}: nested too deeply") from error
    found = [c for n, document in enumerate(documents, 1) for c in _objects(document, f"document {n}", filename)]
    if not found:
        raise errors.UsageError(f"{filename}: no DevicePluginConfig in it")
    names_at: dict[str, str] = {}
    manifests: list[str] = []
    remarks: list[str] = []
    for where, document in found:
        name = _named(document, f"{filename}: {where}")
        if (before := names_at.setdefault(name, where)) != where:
            raise errors.UsageError(f"{filename}: {where}: {name} is the name of {before} already; choose another")
        spec = _spec(document, f"{filename}: {where}: {name}")
        ref = ConfigRef(name, str(document["metadata"].get("uid") or NO_UID))
        manifests.append(dump_yaml(render(ref, spec, settings)))
        remarks += (f"{filename}: {where}: {name}: {text}" for text in caveats(spec))
    return Rendered("".join(manifests), tuple(remarks))


class _DuplicateKeyError(yaml.YAMLError):
    """A key is given twice. YAML forbids that, but PyYAML would keep the last one."""


class _Loader(yaml.SafeLoader):
    """Refuses a key that a mapping has twice. It looks before merge keys are resolved, because those may override."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                line = key.start_mark.line + 1
                if before := lines.get((key.tag, key.value)):
                    text = f"line {line}: {key.value} is given twice, first in line {before}; keep one"
                    raise _DuplicateKeyError(text)
                lines[key.tag, key.value] = line
        return node


def _objects(document: Any, where: str, filename: str) -> Iterator[tuple[str, Any]]:
    """The document, or the items of a List such as `kubectl get -o yaml` prints, each with its place."""
    if not isinstance(document, dict) or document.get("kind") != "List":
        yield where, document
        return
    items = document.get("items")
    if not isinstance(items, list):
        raise errors.UsageError(f"{filename}: {where}: items of a List must be a list")
    for i, item in enumerate(items):
        yield f"{where}: items[{i}]", item


def list_presets() -> str:
    """A line for each preset: name, description."""
    known = catalogue.presets()
    width = max(map(len, known))
    return "".join(f"{preset.name:{width}}  {preset.description}\n" for preset in known.values())


def show_preset(name: str) -> str:
    """The fields of an entry that the preset stands for.

    Raises:
        errors.UsageError: there is no such preset.
    """
    try:
        preset = catalogue.find(name, path="presets")
    except catalogue.PresetError as error:
        raise errors.UsageError(str(error)) from error
    fields = yaml.dump(json.loads(json.dumps(preset.resource)), sort_keys=False, width=120)
    return f"# {preset.description}\n{fields}"


def _named(document: Any, where: str) -> str:
    if not isinstance(document, dict) or document.get("kind") != "DevicePluginConfig":
        kind = document.get("kind") if isinstance(document, dict) else None
        raise errors.UsageError(f"{where}: kind {kind!r} is not DevicePluginConfig")
    if document.get("apiVersion") != names.API_VERSION:
        raise errors.UsageError(f"{where}: apiVersion {document.get('apiVersion')!r} must be {names.API_VERSION}")
    meta = document.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    if not isinstance(meta, dict) or not isinstance(name, str) or not name:
        raise errors.UsageError(f"{where}: metadata.name is missing")
    return name


def _spec(document: dict[str, Any], where: str) -> Spec:
    try:
        spec = parse_spec(document)
    except errors.InvalidSpecError as error:
        raise errors.UsageError(f"{where}: " + "\n  ".join(error.problems)) from error
    if in_vain := vain.problems(spec):
        raise errors.UsageError(f"{where}: " + "\n  ".join(in_vain))
    return spec
