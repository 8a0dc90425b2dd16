"""The files of a support archive, from what was read. Pure."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubectl_devices.model import redaction

Object = Mapping[str, Any]
_NODE_STATUS: Final = ("allocatable", "capacity", "conditions", "nodeInfo")

README: Final = """\
What a maintainer of device-operator needs to find a fault. Made by `kubectl devices bundle`.
check.json     what `kubectl devices check` found
missing.txt    what could not be read, and with which right it could
objects/       objects of the API as JSON, one file for each kind
logs/          of the operator and the agents; previous: of the container before the last restart
No Secret was read. Values that look like secrets are removed, and of nodes only labels, taints and state are kept.
It has names of nodes, of pods that hold devices, and serial numbers of devices: look through it before you share it.
"""


def objects(kind: str, found: Iterable[Object]) -> tuple[str, bytes]:
    """(path in the archive, content)."""
    kept = [_node(o) if kind == "nodes" else o for o in found]
    return f"objects/{kind}.json", _json([redaction.value(o) for o in kept])


def log(namespace: str, pod: str, content: str, *, previous: bool) -> tuple[str, bytes]:
    path = f"logs/{namespace}/{pod}{'.previous' if previous else ''}.log"
    return path, redaction.text(content).encode()


def findings(found: Iterable[Mapping[str, Any]]) -> tuple[str, bytes]:
    return "check.json", _json(redaction.value(list(found)))


def missing(gaps: Iterable[str]) -> tuple[str, bytes]:
    return "missing.txt", "".join(f"{gap}\n" for gap in gaps).encode()


def _node(raw: Object) -> Object:
    """Without addresses, images, annotations and volumes."""
    meta, status = raw["metadata"], raw.get("status", {})
    return {
        "metadata": {key: meta[key] for key in ("name", "labels", "creationTimestamp") if key in meta},
        "spec": {key: raw["spec"][key] for key in ("taints", "unschedulable") if key in raw.get("spec", {})},
        "status": {key: status[key] for key in _NODE_STATUS if key in status},
    }


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"
