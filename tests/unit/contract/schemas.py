"""Compares a CRD's schema with dataclasses."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from device_agent.contract.codec import camel


def differences(cls: Any, schema: dict[str, Any], path: str) -> list[str]:
    """The differences between a type and a schema, one line each, with the names in JSON."""
    if dataclasses.is_dataclass(cls):
        if schema.get("type") != "object":
            return [f"{path}: is no object in the CRD"]
        hints = typing.get_type_hints(cls)
        fields = {camel(f.name): f for f in dataclasses.fields(cls)}
        found = [f"{path}.{n}: one side only" for n in fields.keys() ^ schema["properties"].keys()]
        required = {n for n, f in fields.items() if f.default is f.default_factory is dataclasses.MISSING}
        if required != set(schema.get("required", ())):
            found.append(f"{path}: required {sorted(required)}, in the CRD {schema.get('required')}")
        for name in fields.keys() & schema["properties"].keys():
            found += differences(hints[fields[name].name], schema["properties"][name], f"{path}.{name}")
        return found
    origin, arguments = typing.get_origin(cls), typing.get_args(cls)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (a for a in arguments if a is not type(None))
        return differences(inner, schema, path)
    if origin is tuple:
        if schema.get("type") != "array":
            return [f"{path}: is no list in the CRD"]
        return differences(arguments[0], schema["items"], f"{path}[]")
    if origin is Mapping:
        return [] if "additionalProperties" in schema else [f"{path}: is no map in the CRD"]
    if issubclass(cls, StrEnum):
        # matchFields allows only two of the operators
        same = set(schema.get("enum", ())) == set(cls) or (".matchFields" in path and set(schema["enum"]) <= set(cls))
        return [] if same else [f"{path}: {sorted(cls)}, in the CRD {schema.get('enum')}"]
    kind = {str: "string", int: "integer", bool: "boolean"}[cls]
    return [] if schema.get("type") == kind else [f"{path}: {kind}, in the CRD {schema.get('type')}"]
