"""`device-operator render` and `presets`: what the operator would write or knows, without a cluster."""

import json
import sys
from pathlib import Path
from typing import Any

import yaml
from device_agent.contract import names

from device_operator import catalogue, errors
from device_operator.model import Identity
from device_operator.render import RenderSettings, dump_yaml, render
from device_operator.settings import Settings
from device_operator.spec import parse_spec

NO_UID = "00000000-0000-0000-0000-000000000000"
"""Stands where the API server's uid will: a file has none."""


def render_settings(settings: Settings) -> RenderSettings:
    """What of the settings reaches the manifests: the same with and without a cluster."""
    return RenderSettings(
        namespace=settings.namespace,
        agent_image=settings.agent_image,
        service_account=settings.agent_service_account,
        image_pull_policy=settings.agent_image_pull_policy,
        image_pull_secrets=settings.agent_image_pull_secrets,
        selinux_type=settings.agent_selinux_type,
    )


def render_file(filename: str, settings: RenderSettings) -> str:
    """The manifests of every DevicePluginConfig in `filename` (- is standard input), in their order.

    Raises:
        errors.UsageError: no such file, no YAML, another kind, or a spec that would not be accepted.
    """
    try:
        text = sys.stdin.read() if filename == "-" else Path(filename).read_text(encoding="utf-8")
        documents = [d for d in yaml.safe_load_all(text) if d is not None]
    except (OSError, ValueError, yaml.YAMLError) as error:  # ValueError: bytes that are no text, dates that are none
        raise errors.UsageError(f"{filename}: {error}") from error
    except RecursionError as error:
        raise errors.UsageError(f"{filename}: nested too deeply") from error
    if not documents:
        raise errors.UsageError(f"{filename}: no DevicePluginConfig in it")
    return "".join(_one(document, f"{filename}: document {n}", settings) for n, document in enumerate(documents, 1))


def list_presets() -> str:
    """A line for each preset: name, description."""
    known = catalogue.presets()
    width = max(map(len, known))
    return "".join(f"{preset.name:{width}}  {preset.description}\n" for preset in known.values())


def show_preset(name: str) -> str:
    """The preset as the fields of an entry that it stands for.

    Raises:
        errors.UsageError: there is no such preset.
    """
    try:
        preset = catalogue.find(name, path="presets")
    except catalogue.PresetError as error:
        raise errors.UsageError(str(error)) from error
    fields = yaml.dump(json.loads(json.dumps(preset.resource)), sort_keys=False, width=120)
    return f"# {preset.description}\n{fields}"


def _one(document: Any, where: str, settings: RenderSettings) -> str:
    if not isinstance(document, dict) or document.get("kind") != "DevicePluginConfig":
        kind = document.get("kind") if isinstance(document, dict) else None
        raise errors.UsageError(f"{where}: kind {kind!r} is not DevicePluginConfig")
    if document.get("apiVersion") != names.API_VERSION:
        raise errors.UsageError(f"{where}: apiVersion {document.get('apiVersion')!r} must be {names.API_VERSION}")
    meta = document.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    if not isinstance(meta, dict) or not isinstance(name, str) or not name:
        raise errors.UsageError(f"{where}: metadata.name is missing")
    try:
        spec = parse_spec(document)
    except errors.InvalidSpecError as error:
        raise errors.UsageError(f"{where}: {name}: " + "\n  ".join(error.problems)) from error
    identity = Identity(name, str(meta.get("uid") or NO_UID))
    return dump_yaml(render(identity, spec, settings))
