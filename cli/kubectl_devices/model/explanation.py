"""A scan as the agent prints it (`device_agent.select.description`), as tables for people. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from kubectl_devices.model.table import Table, table

Scan = Mapping[str, Any]


def offered(scan: Scan) -> Table:
    """What each device would be. PROBLEM: why it would be Unhealthy."""
    rows = (
        (
            d["resource"],
            d["id"],
            str(d.get("replicas", 1)),
            "" if d.get("numaNode") is None else str(d["numaNode"]),
            d.get("identity", ""),
            ",".join(d.get("nodes", ())),
            ": ".join(d["problem"].values()) if d.get("problem") else "",
        )
        for d in scan["devices"]
    )
    return table("RESOURCE DEVICE REPLICAS NUMA IDENTITY NODES PROBLEM", rows)


def left_out(scan: Scan) -> Table:
    rows = ((e["entry"], e["id"], e["reason"], e["message"]) for e in scan["excluded"])
    return table("ENTRY DEVICE REASON MESSAGE", rows)


def remarks(scan: Scan) -> Iterable[str]:
    yield from (f"{name} is not served: {why}" for name, why in scan["refused"].items())
    yield from (f"{name}: {why}" for name, why in scan["notes"].items())
    yield from scan["errors"]
