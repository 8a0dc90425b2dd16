"""What an Allocate answer says of itself: which hardware the container is given under which ids. Pure.

The kubelet keeps each answer in its own record, and uses it at every start of the container. So an agent that starts
later, with another configuration or of another object, reads there what a pod really has (`kubelet/checkpoint.py`).
The text is one annotation for each resource. With a key common to all resources the kubelet would log a conflict
(pkg/kubelet/cm/devicemanager/pod_devices.go, deviceRunContainerOptions). The container runtime keeps the annotation as
metadata; pods cannot read it.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any, Final

from device_agent.contract.codec import ShapeError, decode, encode
from device_agent.contract.inventory import Identity
from device_agent.contract.values import dataclass
from device_agent.select.unit import Grants, Unit

PREFIX: Final = "grant.device-operator.io/"
MAX_BYTES: Final = 4096
"""Of one annotation. Devices beyond are left out; their device nodes still stand in the answer."""
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class GrantedDevice:
    """A device as it was when a container got it. The fields are those of `select.unit.Unit`.

    `exclusive`: nobody else may have the hardware meanwhile. `nodes`: those of its own device nodes that the
    container got, path -> number such as `char/4:64`, '' where it has none.
    """

    id: str
    entry: str
    value: str
    identity: Identity
    source: str
    hardware: tuple[str, ...]
    exclusive: bool
    nodes: Mapping[str, str] = field(default_factory=dict)
    numa_node: int | None = None
    parts: tuple[str, ...] = ()

    def unit(self, *, resource: str, entry: str) -> Unit:
        """The device as a unit that cannot be given to anybody."""
        return Unit(
            entry=entry,
            resource=resource,
            id=self.id,
            value=self.value,
            identity=self.identity,
            source=self.source,
            attributes={},
            nodes=(),
            grants=Grants(),
            hardware=self.hardware,
            own_nodes=self.nodes,
            numa_node=self.numa_node,
            parts=self.parts,
        )


@dataclass(frozen=True, slots=True)
class GrantedId:
    """Of which device an id is, and which of its replicas."""

    device: str
    replica: int = 0


@dataclass(frozen=True, slots=True)
class GrantNote:
    """The content of one annotation.

    `owner`: uid of the DevicePluginConfig. `boot`: of the node; numbers of device nodes are of that boot alone.
    `ids` and `devices` by id; some may have been left out.
    """

    version: int
    owner: str
    boot: str
    ids: Mapping[str, GrantedId] = field(default_factory=dict)
    devices: Mapping[str, GrantedDevice] = field(default_factory=dict)


@lru_cache(maxsize=1024)
def key_of(resource: str) -> str:
    """The annotation's name for a resource."""
    return PREFIX + hashlib.sha256(resource.encode()).hexdigest()[:16]


def granted(unit: Unit, *, exclusive: bool) -> GrantedDevice:
    """The device as a container gets it now."""
    given = {node.host_path for node in unit.grants.nodes}
    return GrantedDevice(
        id=unit.id,
        entry=unit.entry,
        value=unit.value,
        identity=unit.identity,
        source=unit.source,
        hardware=unit.hardware,
        exclusive=exclusive,
        nodes={path: number for path, number in unit.own_nodes.items() if path in given},
        numa_node=unit.numa_node,
        parts=unit.parts,
    )


def device_text(unit: Unit, *, exclusive: bool) -> str:
    """One device as JSON. It takes tens of microseconds, so callers keep it: a pod waits for the answer."""
    return _json(encode(granted(unit, exclusive=exclusive)))


class NoteWriter:
    """Writes the annotations of one agent. `owner` and `boot` as in `GrantNote`."""

    def __init__(self, *, owner: str, boot: str) -> None:
        self._head = f'{{"version":{_VERSION},"owner":{_json(owner)},"boot":{_json(boot)},"ids":{{'

    def write(
        self, resource: str, ids: Iterable[tuple[str, GrantedId]], text_of: Callable[[str], str]
    ) -> tuple[str, str]:
        """(name, value) of the annotation, the JSON of a `GrantNote`. `text_of`: device id -> its `device_text`."""
        names: list[str] = []
        devices: dict[str, str] = {}
        size = len(self._head) + len('},"devices":{}}')
        for i, of in sorted(ids, key=lambda item: item[0]):
            name = f'{_quoted(i)}:{{"device":{_quoted(of.device)},"replica":{of.replica}}}'
            text = "" if of.device in devices else f"{_quoted(of.device)}:{text_of(of.device)}"
            size += len(name) + len(text) + 2
            if size > MAX_BYTES:
                break
            names.append(name)
            if text:
                devices[of.device] = text
        return key_of(resource), f'{self._head}{",".join(names)}}},"devices":{{{",".join(devices.values())}}}}}'


def read_note(text: str) -> GrantNote | None:
    """The content of an annotation's value. None: it is not ours, or this agent cannot read its version."""
    try:
        data: Any = json.loads(text)
        if not isinstance(data, dict) or data.get("version") != _VERSION:
            return None
        note = decode(GrantNote, data, path="note", lenient=True)
    except (ShapeError, ValueError, RecursionError):
        return None
    return note if all(of.device in note.devices for of in note.ids.values()) else None


@lru_cache(maxsize=4096)
def _quoted(text: str) -> str:
    return json.dumps(text)


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
