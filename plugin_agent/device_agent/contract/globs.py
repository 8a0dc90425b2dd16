"""Finds globs with an unclosed `[`. Nothing else reports this mistake: such a glob silently matches nothing.

The rules are those of fnmatch: `*`, `?`, `[set]`, `[!set]`. An unclosed `[` matches a literal `[`, which is nearly
always a typo. For a literal bracket write `[[]`.
"""

import dataclasses
import re
from collections.abc import Iterator
from typing import Final

from device_agent.contract.codec import camel
from device_agent.contract.document import GLOB, Match, Resource

_SET: Final = re.compile(r"\[!?+\]?+[^\]]*\]")  # a ']' at the beginning belongs to the set


def unclosed(text: str) -> bool:
    """Whether the glob has a `[` without its `]`."""
    return "[" in _SET.sub("", text)


def problems(resource: Resource, where: str) -> Iterator[str]:
    """One line for each glob with an unclosed `[`. `where`: the path of the entry."""
    for field, texts in every(resource):
        for text in texts:
            if unclosed(text):
                yield (
                    f"{where}.{field}: {text!r:.80} has a '[' without ']', so it matches a literal '['; "
                    "close it, or write '[[]' for the character itself"
                )


def every(resource: Resource) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(field path below the resource, its globs) of every field that has globs."""
    for i, entry in enumerate(resource.devices):
        at = f"devices[{i}]"
        source = getattr(entry, entry.kind)
        for field in dataclasses.fields(source):
            if GLOB in field.metadata:
                yield f"{at}.{entry.kind}.{camel(field.name)}", getattr(source, field.name)
    for at, match in matches_of(resource):
        yield f"{at}.values", match.values
    for i, node in enumerate(resource.inject.device_nodes):
        yield f"inject.deviceNodes[{i}].own", (node.own,)


def matches_of(resource: Resource) -> Iterator[tuple[str, Match]]:
    """(field path below the resource, match) of every match."""
    for i, match in enumerate(resource.exclude):
        yield f"exclude[{i}]", match
    for i, entry in enumerate(resource.devices):
        for j, match in enumerate(entry.include):
            yield f"devices[{i}].include[{j}]", match
    for i, per in enumerate(resource.sharing.per_device):
        yield f"sharing.perDevice[{i}].match", per.match
    for i, match in enumerate(resource.health.unhealthy_when):
        yield f"health.unhealthyWhen[{i}]", match
