"""Copies the CustomResourceDefinitions of crds/ into the chart, and the bounds of `spec` into the operator.

The chart has them as templates behind crds.enabled and crds.keep. The operator has the schema of a DevicePluginConfig's
spec without texts and rules, so that `device-operator render` refuses what the API server refuses.

Helm installs a chart's own crds/ folder once and never upgrades it; templates are upgraded with the release. The
source is copied as text, so its order and comments stay; `--check` writes nothing and fails where a copy has drifted.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "crds"
TARGET = ROOT / "charts" / "device-operator" / "templates" / "crds"
BOUNDS = ROOT / "operator" / "device_operator" / "spec" / "schema.json"

_HEADER = "{{- /* Copied from crds/%s by scripts/copy_crds.py: change it there. */}}\n{{- if .Values.crds.enabled }}\n"
_FOOTER = "{{- end }}\n"
_KEEP = "    {{- if .Values.crds.keep }}\n    helm.sh/resource-policy: keep\n    {{- end }}\n"
_LABELS = '    {{- include "device-operator.commonLabels" . | nindent 4 }}\n'


class CrdError(Exception):
    """A source file is not as this program expects it. The message is one line: which file, what, how to mend it."""


def template(text: str, *, name: str) -> str:
    """The chart's template for one CustomResourceDefinition; `name` is its file's, for the header and messages.

    Raises:
        CrdError: the file holds something else than exactly one CustomResourceDefinition with a metadata block.
    """
    documents = [document for document in yaml.safe_load_all(text) if document is not None]
    if len(documents) != 1 or documents[0].get("kind") != "CustomResourceDefinition":
        raise CrdError(f"{name}: exactly one CustomResourceDefinition belongs in each file")
    if not isinstance(documents[0].get("metadata"), dict) or "helm.sh/resource-policy" in text:
        raise CrdError(f"{name}: needs metadata, and leaves helm.sh/resource-policy to this program")
    escaped = re.sub(r"\{\{|\}\}", lambda braces: '{{ "' + braces[0] + '" }}', text)
    lines = [line for line in escaped.splitlines(keepends=True) if line.strip() != "---"]
    try:
        start = lines.index("metadata:\n") + 1
    except ValueError:
        raise CrdError(f"{name}: metadata has to be a block, on a line of its own") from None
    end = next((i for i in range(start, len(lines)) if re.match(r"[^\s#]", lines[i])), len(lines))
    block = lines[start:end]
    for field, added in (("labels:", _LABELS), ("annotations:", _KEEP)):
        line = f"  {field}\n"
        if line in block:
            block.insert(block.index(line) + 1, added)
        elif field == "annotations:":  # an empty map would be a change at every upgrade
            block += ["  {{- if .Values.crds.keep }}\n", line, "    helm.sh/resource-policy: keep\n", "  {{- end }}\n"]
        else:
            block += [line, added]
    return _HEADER % name + "".join(lines[:start] + block + lines[end:]).rstrip("\n") + "\n" + _FOOTER


def wanted(source: Path) -> dict[str, str]:
    """File name -> template, for every file of `source`."""
    files = sorted(source.glob("*.yaml"))
    if not files:
        raise CrdError(f"{source} holds no *.yaml file")
    return {file.name: template(file.read_text(encoding="utf-8"), name=file.name) for file in files}


def bounds(text: str) -> str:
    """The schema of `spec` as JSON, without descriptions and rules."""
    version = yaml.safe_load(text)["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return json.dumps(_bare(schema), indent=1, sort_keys=True) + "\n"


def _bare(schema: dict[str, Any]) -> dict[str, Any]:
    bare = {k: v for k, v in schema.items() if k not in ("description", "x-kubernetes-validations")}
    if "properties" in bare:
        bare["properties"] = {name: _bare(inner) for name, inner in bare["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in bare:
            bare[key] = _bare(bare[key])
    return bare


def drift(*, source: Path, target: Path) -> list[str]:
    """What differs between the copies and their sources, one line each; empty when they are in step."""
    copies = {file.name: file.read_text(encoding="utf-8") for file in target.glob("*.yaml")}
    expected = wanted(source)
    found = [f"{name}: no copy in the chart" for name in expected if name not in copies]
    found += [
        f"{name}: the copy differs from its source"
        for name in expected
        if copies.get(name) not in {None, expected[name]}
    ]
    return found + [f"{name}: a copy without a source" for name in sorted(copies) if name not in expected]


def copy(*, source: Path, target: Path) -> None:
    """Writes every copy, and removes those without a source."""
    expected = wanted(source)
    target.mkdir(parents=True, exist_ok=True)
    for file in target.glob("*.yaml"):
        if file.name not in expected:
            file.unlink()
    for name, text in expected.items():
        (target / name).write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="Copy crds/*.yaml into the chart and the operator.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a copy has drifted")
    arguments = parser.parse_args()
    try:
        wanted_bounds = bounds((SOURCE / "devicepluginconfigs.yaml").read_text(encoding="utf-8"))
        if not arguments.check:
            copy(source=SOURCE, target=TARGET)
            BOUNDS.write_text(wanted_bounds, encoding="utf-8")
        found = drift(source=SOURCE, target=TARGET)
        if BOUNDS.read_text(encoding="utf-8") != wanted_bounds:
            found.append(f"{BOUNDS.name}: differs from crds/devicepluginconfigs.yaml")
    except CrdError as error:
        found = [str(error)]
    for line in found:
        print(f"copy_crds: {line}", file=sys.stderr)
    if found and arguments.check:
        print("copy_crds: run scripts/copy_crds.py to bring the copies in step", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
