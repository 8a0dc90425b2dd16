"""What the API server would refuse by the schema of the CRD: bounds, types, names given twice. For files. Pure.

The operator never needs this: what it reads has passed the API server. `schema.json` beside this module is the schema
of `spec` in crds/devicepluginconfigs.yaml without texts and rules; scripts/copy_crds.py writes it. The schema's rules
(CEL) are those that `parsing` and `device_agent.contract.check` have as code.
"""

import functools
import json
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any, Final

Schema = Mapping[str, Any]

_TYPES: Final = {
    "array": (list, "a list"),
    "boolean": (bool, "true or false"),
    "integer": (int, "a whole number"),
    "object": (dict, "an object"),
    "string": (str, "text; put it in quotes"),
}


@functools.cache
def schema() -> Schema:
    """The schema of `spec`."""
    text = resources.files(__package__).joinpath("schema.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def without_nulls(value: Any) -> Any:
    """Fields that are null are left out, as the API server does. A null in a list stays, and is refused."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def problems(spec: Any) -> tuple[tuple[str, str], ...]:
    """(path, what is wrong and how to correct it) of each value of `spec` that is out of the schema's bounds."""
    return tuple(_value(spec, schema(), "spec"))


def _value(value: Any, rule: Schema, at: str) -> Iterator[tuple[str, str]]:
    if rule.get("x-kubernetes-int-or-string"):
        return  # quantities and maxUnavailable: the parser reads them
    kind, words = _TYPES[rule["type"]]
    if type(value) is not kind:  # a bool does not count as an int
        yield at, f"must be {words}, not {value!r:.60}"
    elif isinstance(value, str):
        yield from ((at, text) for text in _text(value, rule))
    elif isinstance(value, bool):
        return
    elif isinstance(value, int):
        yield from ((at, text) for text in _number(value, rule))
    elif isinstance(value, list):
        yield from _list(value, rule, at)
    elif isinstance(value, dict):
        yield from _object(value, rule, at)


def _text(value: str, rule: Schema) -> Iterator[str]:
    least, most = rule.get("minLength", 0), rule.get("maxLength")
    if "enum" in rule and value not in rule["enum"]:
        yield f"must be one of {', '.join(rule['enum'])}, not {value!r:.60}"
    elif not value and least:
        yield "is empty; give a value, or remove the field"
    elif len(value) < least:
        yield f"{value!r} has {_count(value, 'character')}, the least is {least}; write it in full"
    elif most is not None and len(value) > most:
        yield f"{value[:32]!r}… has {_count(value, 'character')}, at most {most:,} are possible; shorten it"


def _number(value: int, rule: Schema) -> Iterator[str]:
    least, most = rule.get("minimum"), rule.get("maximum", 2**31 - 1)
    if (least is not None and value < least) or value > most:
        span = f"from {least} to {most}" if least is not None else f"at most {most}"
        yield f"{value} must be {span}; omit the field for its default"


def _list(value: list[Any], rule: Schema, at: str) -> Iterator[tuple[str, str]]:
    if len(value) < rule.get("minItems", 0):
        yield at, "is an empty list; name at least one, or omit the field"
    if len(value) > (most := rule.get("maxItems", len(value))):
        yield at, f"has {_count(value, 'item')}, at most {most:,} are possible; remove some"
    keys = rule.get("x-kubernetes-list-map-keys", ())
    unique = keys or rule.get("x-kubernetes-list-type") == "set"
    seen: dict[str, int] = {}
    for i, item in enumerate(value):
        yield from _value(item, rule["items"], f"{at}[{i}]")
        if unique:
            name = json.dumps([item.get(k) for k in keys] if keys and isinstance(item, dict) else item, default=str)
            if (first := seen.setdefault(name, i)) != i:
                yield f"{at}[{i}]", f"{name.strip('[]')} is given in {at}[{first}] already; keep one"


def _object(value: dict[Any, Any], rule: Schema, at: str) -> Iterator[tuple[str, str]]:
    fields = rule.get("properties")
    if fields is None:
        if len(value) > (most := rule.get("maxProperties", len(value))):
            yield at, f"has {_count(value, 'name')}, at most {most:,} are possible; remove some"
        for name, inner in value.items():
            yield from _value(inner, rule["additionalProperties"], f"{at}.{name}")
        return
    for name in rule.get("required", ()):
        if name not in value:
            yield f"{at}.{name}", "is missing; add it"
    for name, inner in value.items():
        if name in fields:  # the parser reports unknown fields, with the nearest known one
            yield from _value(inner, fields[name], f"{at}.{name}")


def _count(value: Any, word: str) -> str:
    return f"{len(value):,} {word}" if len(value) == 1 else f"{len(value):,} {word}s"


def is_below(path: str, reported: str) -> bool:
    """Whether a problem at `reported` speaks of the value at `path` too: it is the same, or a list that has it."""
    return re.sub(r"\[\d+\]$", "", path) == reported or path == reported
