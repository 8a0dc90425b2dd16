"""A selection as plain JSON values, for people and other programs: what is offered, what is left out, and why. Pure.

`device-agent scan` prints it, and `kubectl devices explain` reads it. Of each device it has everything that a container
would get; `{position}` stands for the device's number in the container, which only Allocate knows.
"""

from collections.abc import Sequence
from typing import Any

from device_agent.contract.codec import encode
from device_agent.contract.document import Document
from device_agent.contract.template import parse_template
from device_agent.select.unit import NodeGrant, Selection, Unit


def described(document: Document, selection: Selection, *, errors: Sequence[str] = ()) -> dict[str, Any]:
    """Keys: devices, excluded, health, refused, notes, errors.

    `document`: the one by which the devices were selected. `errors`: what sources could not tell. `health` has the
    rules of each entry. The `notes` say why an entry finds nothing.
    """
    counts = {r.name: [list(env.counts) for env in r.inject.env] for r in document.resources}
    return {
        "devices": [_device(unit, counts[unit.entry]) for unit in selection.units],
        "excluded": [
            {"id": e.id, "source": e.source, "entry": e.entry, "reason": e.reason, "message": e.message}
            for e in selection.excluded
        ],
        "health": {r.name: encode(r.health) for r in document.resources},
        "refused": dict(selection.refused),
        "notes": dict(selection.notes),
        "errors": list(errors),
    }


def _device(unit: Unit, counts: Sequence[list[int]]) -> dict[str, Any]:
    device = {
        "id": unit.id,
        "resource": unit.resource,
        "entry": unit.entry,
        "source": unit.source,
        "value": unit.value,
        "identity": unit.identity.value,
        "replicas": unit.replicas,
        "numaNode": unit.numa_node,
        "problem": {"reason": unit.problem[0], "message": unit.problem[1]} if unit.problem else None,
        "nodes": list(unit.nodes),
        "inject": [_node(node) for node in unit.grants.nodes],
        "mounts": [
            {"hostPath": _plain(m.host_path), "containerPath": _plain(m.container_path), "readOnly": m.read_only}
            for m in unit.grants.mounts
        ],
        "env": [
            {"name": _plain(name), "value": _plain(value), **({"counts": counts[i]} if counts[i] else {})}
            for i, name, value in unit.grants.env
        ],
        "annotations": [{"name": _plain(name), "value": _plain(value)} for name, value in unit.grants.annotations],
        "cdiDevices": [_plain(name) for name in unit.grants.cdi_devices],
        "hardware": list(unit.hardware),
        "attributes": dict(sorted(unit.attributes.items())),
    }
    return {key: value for key, value in device.items() if value is not None}


def _node(node: NodeGrant) -> dict[str, str]:
    shown = {
        "hostPath": _plain(node.host_path),
        "containerPath": _plain(node.container_path),
        "permissions": node.permissions,
    }
    return {**shown, "env": _plain(node.env)} if node.env else shown


def _plain(text: str) -> str:
    """A rendered text as the container gets it, but for `{position}`."""
    template = parse_template(text)
    return "".join(f"{{{part}}}" if i % 2 else part for i, part in enumerate(template.parts))
