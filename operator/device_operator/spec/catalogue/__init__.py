"""Presets: named bases of `spec.resources` entries, as YAML data beside this module.

A preset holds fields that an admin could have written. It is merged below the entry before the entry is parsed, so
agents see only complete entries, and the code knows no vendor. A file maps names to `description` (one line) and
`resource` (fields of an entry, without its name).
"""

import difflib
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

import yaml

PRESET: Final = "preset"


class PresetError(ValueError):
    """The entry names no preset of the catalogue. The message begins with the field's path."""


@dataclass(frozen=True, slots=True)
class Preset:
    """`resource`: fields of an entry as JSON values. All callers share it: do not change it."""

    name: str
    description: str
    resource: Mapping[str, Any]


@functools.cache
def presets() -> Mapping[str, Preset]:
    """The catalogue by name, in the order of the files' names and of their lines."""
    return {preset.name: preset for preset in _read()}


def find(name: str, *, path: str) -> Preset:
    """Raises PresetError, with the nearest name, if there is no such preset. `path`: of the field, for messages."""
    known = presets()
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    hint = f": did you mean {near[0]}? There are: " if near else "; there are: "
    raise PresetError(f"{path}: {name!r} is no preset{hint}{', '.join(known)}")


def expand(entry: object, *, path: str) -> object:
    """The entry merged over its preset: fields of the entry win, and lists are replaced as a whole.

    A value that is no object is returned unchanged; the parser reports it. `path`: of the entry, for messages.

    Raises:
        PresetError: the preset is unknown, or no name.
    """
    if not isinstance(entry, dict) or PRESET not in entry:
        return entry
    own = {key: value for key, value in entry.items() if key != PRESET}
    name = entry[PRESET]
    if not isinstance(name, str):
        raise PresetError(f"{path}.{PRESET}: must be the name of a preset")
    return _laid_over(find(name, path=f"{path}.{PRESET}").resource, own)


def _laid_over(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _laid_over(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _read() -> Iterator[Preset]:
    files = [file for file in resources.files(__name__).iterdir() if file.name.endswith(".yaml")]
    for file in sorted(files, key=lambda f: f.name):
        for name, preset in yaml.safe_load(file.read_text(encoding="utf-8")).items():
            yield Preset(name, preset["description"], preset["resource"])
