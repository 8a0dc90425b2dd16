"""What an agent must own on its node before it serves it, and which locks stand for that. Pure.

A lock has a name. The name of a resource is one lock. A physical device is one exclusive lock on each of its own sysfs
paths, and a shared lock on every path above these. So a device and a part of it exclude each other, and two parts of
one device do not.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Final

from device_agent.contract.values import dataclass

Key = tuple[str, str]
"""(resource name, device id)."""

Locks = Mapping[str, bool]
"""Name of a lock -> whether it is exclusive. In the order in which they are taken."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an agent serves, or is about to. `devices`: their sysfs paths; a device without a path needs no lock."""

    names: frozenset[str] = frozenset()
    devices: Mapping[Key, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Taken:
    """What other live agents of the node have of it. `by`: the DevicePluginConfigs of these agents, as far as known.

    `devices` lacks those whose resource name is taken.
    """

    names: frozenset[str] = frozenset()
    devices: frozenset[Key] = frozenset()
    by: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.names or self.devices)


NOTHING: Final = Taken()


def seat(object_uid: str) -> str:
    """The lock of the one agent that serves an object on this node."""
    return f"object {object_uid}"


def of_name(resource: str) -> str:
    """The lock of a resource name."""
    return f"resource {resource}"


def of_device(hardware: Iterable[str]) -> Locks:
    """The locks of one device. No agent waits for a lock: it gives back what it got, and tries again later.

    All agents take the locks in the same order. So if two want the same device at once, one of them gets it.
    """
    locks: dict[str, bool] = {}
    for path in hardware:
        locks[path] = True
        for above in _above(path):
            locks.setdefault(above, False)
    return {f"hardware {path}": locks[path] for path in sorted(locks)}


def _above(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        if path:
            yield path
