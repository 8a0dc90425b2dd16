"""Writes docs/api-reference.md from the CRDs: scripts/api_reference.py [--check].

The descriptions stand in crds/ alone; attributes stand in the contract alone. With --check nothing is written, and the
exit status is 1 when the file is not what would be written.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from device_agent.contract import attributes

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "api-reference.md"
CRDS = ("devicepluginconfigs", "nodedeviceinventories")
_FILES = {
    "attr.": "content of a file in the device's sysfs directory",
    "pci.attr.": "content of a file of the PCI function itself or the nearest one above the device",
    "pf.attr.": "content of a file of the physical function of a virtual function",
    "usb.attr.": "content of a file of the nearest USB device above",
}


def main(arguments: list[str]) -> int:
    text = "\n".join(reference()) + "\n"
    if arguments == ["--check"]:
        if TARGET.exists() and TARGET.read_text() == text:
            return 0
        print(f"{TARGET.relative_to(ROOT)} is not up to date: run scripts/api_reference.py", file=sys.stderr)
        return 1
    TARGET.write_text(text)
    return 0


def reference() -> Iterator[str]:
    yield "# API reference"
    yield ""
    yield "Made from `crds/` by `scripts/api_reference.py`. The same texts: `kubectl explain dpc.spec --recursive`."
    for name in CRDS:
        crd = yaml.safe_load((ROOT / "crds" / f"{name}.yaml").read_text())["spec"]
        version = crd["versions"][0]
        schema = version["schema"]["openAPIV3Schema"]
        names = crd["names"]
        yield ""
        yield f"## {names['kind']}"
        yield ""
        yield f"`{crd['group']}/{version['name']}`, {crd['scope']}, short name `{names['shortNames'][0]}`."
        yield schema["description"]
        for part in ("spec", "status"):
            yield ""
            yield f"### {names['kind']} {part}"
            yield ""
            yield "| field | type | meaning |"
            yield "|---|---|---|"
            yield from fields(schema["properties"][part], part)
        rules: dict[str, list[str]] = {}
        for path, message in messages(schema, ""):
            rules.setdefault(message, []).append(f"`{path or 'metadata'}`")
        if rules:
            yield ""
            yield f"### What the API server refuses in a {names['kind']}"
            yield ""
            yield "Also refused: values out of bounds and, with strict validation (kubectl's default), unknown fields."
            yield ""
            yield from (f"- {', '.join(dict.fromkeys(at))}: {cell(message)}" for message, at in rules.items())
    yield ""
    yield "## Attributes"
    yield ""
    yield "For `include`, `exclude`, `unit`, `perDevice` and placeholders. A device that lacks one never matches."
    yield ""
    yield "| attribute | sources | value |"
    yield "|---|---|---|"
    for attribute in attributes.ATTRIBUTES:
        yield f"| `{attribute.name}` | {', '.join(attribute.sources)} | {attribute.description} |"
    for prefix, sources in attributes.FILE_PREFIXES.items():
        yield f"| `{prefix}<path>` | {', '.join(sources)} | {_FILES[prefix]}, stripped, at most 128 bytes. {_STAR} |"


_STAR = "One directory or file name of the path may hold `*`; exactly one file must match"


def fields(schema: dict[str, Any], path: str) -> Iterator[str]:
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        inner = field.get("items", field)
        mark = "[]" if field.get("type") == "array" else ""
        note = " **Required.**" if name in required else ""
        yield f"| `{here}{mark}` | {kind(field)} | {cell(field.get('description', ''))}{note} |"
        yield from fields(inner, here + mark)


def kind(field: dict[str, Any]) -> str:
    inner = field.get("items")
    if inner is not None:
        bound = f", at most {field['maxItems']}" if "maxItems" in field else ""
        return f"list of {kind(inner)}{bound}"
    if "enum" in field:
        return " \\| ".join(str(value) for value in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return "number or string"
    name = str(field.get("type", "object"))
    if "minimum" in field and "maximum" in field:
        return f"{name} {field['minimum']}..{field['maximum']}"
    return name


def messages(schema: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """(field, message) of every rule."""
    for rule in schema.get("x-kubernetes-validations", ()):
        if "message" in rule:
            yield path, rule["message"]
    for name, field in schema.get("properties", {}).items():
        yield from messages(field, f"{path}.{name}" if path else name)
    for below in ("items", "additionalProperties"):
        if isinstance(schema.get(below), dict):
            yield from messages(schema[below], f"{path}[]" if below == "items" else path)


def cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
