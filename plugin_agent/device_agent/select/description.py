"""A selection as plain JSON values, for people and other programs: what is offered, what is left out, and why. Pure.

`device-agent scan` prints it, and `kubectl devices explain` reads it.
"""

from collections.abc import Sequence
from typing import Any

from device_agent.select.unit import Selection, Unit


def described(selection: Selection, *, errors: Sequence[str] = ()) -> dict[str, Any]:
    """Keys: devices, excluded, refused, notes, errors. `errors`: what sources could not tell. The `notes` say why an
    entry finds nothing.
    """
    return {
        "devices": [_device(unit) for unit in selection.units],
        "excluded": [
            {"id": e.id, "source": e.source, "entry": e.entry, "reason": e.reason, "message": e.message}
            for e in selection.excluded
        ],
        "refused": dict(selection.refused),
        "notes": dict(selection.notes),
        "errors": list(errors),
    }


def _device(unit: Unit) -> dict[str, Any]:
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
        "inject": [
            {"hostPath": n.host_path, "containerPath": n.container_path, "permissions": n.permissions}
            for n in unit.grants.nodes
        ],
        "env": [{"name": name, "value": value} for _, name, value in unit.grants.env],
        "hardware": list(unit.hardware),
        "attributes": dict(sorted(unit.attributes.items())),
    }
    return {key: value for key, value in device.items() if value is not None}
