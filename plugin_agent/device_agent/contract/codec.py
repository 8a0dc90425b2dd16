"""Converts JSON to frozen dataclasses and back. The types of the dataclass' fields decide the shape.

Strict mode is for what an admin writes: an unknown field is a mistake. Lenient mode is for what another version of
operator or agent wrote: unknown fields are skipped, and an unknown word counts as unknown or absent. A value of the
wrong type is an error in both modes.
"""

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")

ABSENT_IF_EMPTY: Final = types.MappingProxyType({"absent_if_empty": True})
"""`metadata` of a field that is left out of the JSON when it is empty: "", 0, an empty list or map."""

_HALVES = re.compile("[\ud800-\udfff]")
"""Surrogates (half characters): JSON can contain them, but messages to the kubelet cannot."""

_MOST_NEGATIVE = -(2**63)


class ShapeError(ValueError):
    """A value does not fit the dataclass. The message begins with the value's path."""


def decode(cls: type[T], data: object, *, path: str, lenient: bool = False) -> T:
    """Converts `data` (from json.loads) to `cls`. Names in JSON are the field names in camelCase.

    `lenient`: unknown fields are skipped. A word that an enum does not have becomes its member UNKNOWN, or None in an
    optional field.

    Raises:
        ShapeError: unknown field, missing field, wrong type, or a value that an enum does not have.
    """
    return cast("T", _value(cls, data, path, lenient=lenient))


def encode(value: Any) -> Any:
    """The JSON of a dataclass. Times are ISO 8601 in UTC.

    None, and empty fields with ABSENT_IF_EMPTY, are left out. All other fields are written, defaults too.
    """
    if dataclasses.is_dataclass(value):
        written = {}
        for name, key, absent_if_empty in _written(cast("type", type(value))):
            field = getattr(value, name)
            if field is not None and (field or not absent_if_empty):
                written[key] = encode(field)
        return written
    if isinstance(value, tuple):
        return [encode(v) for v in value]
    if isinstance(value, Mapping):
        return {key: encode(v) for key, v in value.items()}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return str(value) if isinstance(value, StrEnum) else value


@cache
def camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(word.capitalize() for word in tail)


def json_names(cls: type) -> tuple[str, ...]:
    """The names of the dataclass' fields in JSON."""
    return tuple(key for _, key, _ in _written(cls))


@cache
def _written(cls: type) -> tuple[tuple[str, str, bool], ...]:
    """(attribute, name in JSON, whether it is left out when empty) of each field."""
    return tuple((f.name, camel(f.name), "absent_if_empty" in f.metadata) for f in dataclasses.fields(cls))


@cache
def _fields(cls: type) -> dict[str, tuple[str, Any, bool]]:
    hints = typing.get_type_hints(cls)
    return {
        camel(f.name): (
            f.name,
            hints[f.name],
            f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING,
        )
        for f in dataclasses.fields(cls)
    }


def _value(kind: Any, data: object, path: str, *, lenient: bool) -> object:
    if dataclasses.is_dataclass(kind):
        return _object(cast("type", kind), data, path, lenient=lenient)
    origin = typing.get_origin(kind)
    if origin is tuple:
        if not isinstance(data, list):
            raise ShapeError(f"{path}: must be a list, not {_name(data)}")
        element = typing.get_args(kind)[0]
        return tuple(_value(element, item, f"{path}[{i}]", lenient=lenient) for i, item in enumerate(data))
    if origin is Mapping:  # the keys are the user's own names: kept as they are
        if not isinstance(data, dict):
            raise ShapeError(f"{path}: must be an object, not {_name(data)}")
        element = typing.get_args(kind)[1]
        return {str(key): _value(element, item, f"{path}.{key}", lenient=lenient) for key, item in data.items()}
    if origin in (typing.Union, types.UnionType):  # X | None
        (inner,) = (a for a in typing.get_args(kind) if a is not type(None))
        if data is None or (lenient and _unknown_word(inner, data)):
            return None
        return _value(inner, data, path, lenient=lenient)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        if lenient and _unknown_word(kind, data) and "UNKNOWN" in kind.__members__:
            return kind["UNKNOWN"]
        if not isinstance(data, str) or data not in _words(kind):
            raise ShapeError(f"{path}: must be one of {', '.join(kind)}, not {data!r}")
        return kind(data)
    if kind is datetime:
        return _moment(data, path)
    if type(data) is not kind:  # a bool does not count as an int
        raise ShapeError(f"{path}: must be {_NAMES[kind]}, not {_name(data)}")
    if isinstance(data, int) and not _MOST_NEGATIVE <= data <= ~_MOST_NEGATIVE:
        raise ShapeError(f"{path}: must be a number of at most 64 bits")
    if isinstance(data, str) and (found := _HALVES.search(data)):
        raise ShapeError(f"{path}: has {found[0]!r} at character {found.start()}, which is not valid text; remove it")
    return data


def _unknown_word(kind: Any, data: object) -> bool:
    """Whether `data` is a word that another version of this enum may have."""
    if not (isinstance(kind, type) and issubclass(kind, StrEnum)):
        return False
    return isinstance(data, str) and data not in _words(kind)


@cache
def _words(kind: type[StrEnum]) -> frozenset[str]:
    return frozenset(kind)


def _moment(data: object, path: str) -> datetime:
    """An aware time in UTC."""
    try:
        moment = datetime.fromisoformat(data) if isinstance(data, str) else None
        if moment is not None and moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise ShapeError(f"{path}: must be a time with its time zone, such as 2026-01-31T12:00:00+00:00, not {data!r}")


def unknown_field(name: str, known: Iterable[str], *, path: str) -> str:
    """The text about a field that does not exist, with the nearest known one. `path`: of the object that has it."""
    fields = tuple(known)
    near = difflib.get_close_matches(name, fields, n=1)
    hint = f": did you mean {near[0]}?" if near else f"; it may have: {', '.join(fields)}"
    return f"{path}{'.' if path else ''}{name if name.isprintable() else repr(name)}: unknown field{hint}"


def _object(cls: type, data: object, path: str, *, lenient: bool) -> object:
    if not isinstance(data, dict):
        raise ShapeError(f"{path or 'the document'}: must be an object, not {_name(data)}")
    fields = _fields(cls)
    dot = f"{path}." if path else ""
    for key in () if lenient else data:
        if key not in fields:
            raise ShapeError(unknown_field(str(key), fields, path=path))
    values = {}
    for key, (name, kind, required) in fields.items():
        if key in data:
            values[name] = _value(kind, data[key], f"{dot}{key}", lenient=lenient)
        elif required:
            raise ShapeError(f"{dot}{key}: is missing; add it")
    return cls(**values)


_NAMES = {str: "a string", int: "a whole number", bool: "true or false"}


def _name(data: object) -> str:
    return (
        "null"
        if data is None
        else {dict: "an object", list: "a list", float: "a fraction"}.get(
            type(data), _NAMES.get(type(data), type(data).__name__)
        )
    )
