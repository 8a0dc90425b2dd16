"""The commands without a cluster: `device-operator render` and `presets`."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml
from device_agent.contract import names

from device_operator.render.manifests import RenderSettings, dump_yaml, render
from device_operator.runtime import errors
from device_operator.runtime.settings import Settings
from device_operator.spec import catalogue
from device_operator.spec.caveats import caveats
from device_operator.spec.model import ConfigRef, Spec
from device_operator.spec.placement import NodeView, OtherConfig, assignment, describe
from device_operator.spec.written import parse_written

STDIN: Final = "-"
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


@dataclass(frozen=True, slots=True)
class _Written:
    """A DevicePluginConfig of a file. `where`: file, place and name, for messages."""

    where: str
    ref: ConfigRef
    spec: Spec


def render_file(filename: str, settings: RenderSettings, *, nodes: str = "") -> Rendered:
    """The manifests of every DevicePluginConfig in `filename` (- is standard input), in their order.

    `nodes`: a file with Nodes, by which overlaps of pools and conflicts between the objects are judged; '' for none.

    Raises:
        errors.UsageError: a file is missing, is not YAML, or has a key or name twice, another kind, or a spec that
            would not be accepted.
    """
    if nodes == filename == STDIN:
        raise errors.UsageError("-f and --nodes: only one of them can be standard input; name a file for the other")
    configs = _configs(filename)
    remarks = [f"{c.where}: {text}" for c in configs for text in caveats(c.spec)]
    if nodes:
        remarks += _judged(configs, _nodes(nodes), nodes)
    return Rendered("".join(dump_yaml(render(c.ref, c.spec, settings)) for c in configs), tuple(remarks))


def _configs(filename: str) -> list[_Written]:
    found = _documents(filename)
    if not found:
        raise errors.UsageError(f"{filename}: no DevicePluginConfig in it")
    names_at: dict[str, str] = {}
    configs = []
    for where, document in found:
        name = _named(document, f"{filename}: {where}")
        if (before := names_at.setdefault(name, where)) != where:
            raise errors.UsageError(f"{filename}: {where}: {name} is the name of {before} already; choose another")
        at = f"{filename}: {where}: {name}"
        ref = ConfigRef(name, str(document["metadata"].get("uid") or NO_UID))
        configs.append(_Written(at, ref, _spec(document, at)))
    return configs


def _documents(filename: str) -> list[tuple[str, Any]]:
    """The objects of a file with their places; items of a List one by one."""
    try:
        text = sys.stdin.read() if filename == STDIN else Path(filename).read_text(encoding="utf-8")
        documents = [d for d in yaml.load_all(text, _Loader) if d is not None]
    except (OSError, ValueError, yaml.YAMLError) as error:  # ValueError: bytes that are not text, invalid dates
        raise errors.UsageError(f"{filename}: {error}") from error
    except RecursionError as error:
        raise errors.UsageError(f"{filename}: nested too deeply") from error
    return [c for n, document in enumerate(documents, 1) for c in _objects(document, f"document {n}", filename)]


def _nodes(filename: str) -> list[NodeView]:
    """The Nodes of a file, as `kubectl get nodes -o yaml` (or json) prints them."""
    found: dict[str, NodeView] = {}
    for where, raw in _documents(filename):
        kind = raw.get("kind") if isinstance(raw, dict) else None
        if kind != "Node":
            raise errors.UsageError(
                f"{filename}: {where}: kind {kind!r} is not Node; write the file by: kubectl get nodes -o yaml"
            )
        meta = raw.get("metadata")
        name = meta.get("name") if isinstance(meta, dict) else None
        labels = (meta.get("labels") or {}) if isinstance(meta, dict) else {}
        if not isinstance(name, str) or not isinstance(labels, dict):
            raise errors.UsageError(f"{filename}: {where}: a Node needs metadata.name, and labels as an object")
        if name in found:
            raise errors.UsageError(f"{filename}: {where}: node {name} is in the file already; keep one")
        texts = {str(key): str(value) for key, value in labels.items()}
        found[name] = NodeView(name=name, labels=texts, created=datetime.fromtimestamp(0, UTC))
    if not found:
        raise errors.UsageError(f"{filename}: no Node in it; write the file by: kubectl get nodes -o yaml")
    return list(found.values())


def _judged(configs: list[_Written], nodes: list[NodeView], filename: str) -> list[str]:
    """Remarks about pools without nodes. An earlier object of the file wins against a later one.

    Raises:
        errors.UsageError: pools of one object overlap, or two objects serve a resource on one node.
    """
    refused: list[str] = []
    remarks: list[str] = []
    before: list[OtherConfig] = []
    for config in configs:
        assigned = assignment(config.spec, nodes=nodes, others=before)
        if assigned.overlaps:
            reasons = ", ".join(dict.fromkeys(o.reason for o in assigned.overlaps))
            refused.append(f"{config.where}: {reasons}: {describe(assigned.overlaps)}")
        remarks += (
            f"{config.where}: pool {pool.name} matches none of the {len(nodes)} nodes in {filename}; "
            "compare its nodeSelector and nodeSelectorTerms with their labels"
            for pool in config.spec.pools
            if not assigned.nodes[pool.name] and not pool.may_be_empty
        )
        before.append(
            OtherConfig(name=config.ref.name, uid=config.ref.uid, created=nodes[0].created, held=config.spec.pools)
        )
    if refused:
        raise errors.UsageError("\n  ".join(refused))
    return remarks


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
    if not isinstance(document, dict) or not str(document.get("kind")).endswith("List"):
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
        return parse_written(document)
    except errors.InvalidSpecError as error:
        raise errors.UsageError(f"{where}: " + "\n  ".join(error.problems)) from error
