"""A scan as the agent prints it (`device_agent.select.description`), as tables for people. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from device_agent.contract import attributes
from device_agent.contract.document import Document, Match, Resource

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


def given(scan: Scan) -> Table:
    """Everything that a container with the device would get, one row each."""
    rows = ((d["resource"], d["id"], kind, text) for d in scan["devices"] for kind, text in _gifts(d))
    return table("RESOURCE DEVICE KIND WHAT_A_CONTAINER_GETS", rows)


def _gifts(device: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    nodes = device.get("inject", ())
    yield from (("node", f"{_placed(n)} ({n['permissions']})") for n in nodes)
    for mount in device.get("mounts", ()):
        yield "mount", f"{_placed(mount)} ({'read-only' if mount['readOnly'] else 'writable'})"
    for env in device.get("env", ()):
        sizes = f" (requests of {_either(map(str, env['counts']))} alone)" if env.get("counts") else ""
        yield "env", f"{env['name']}={env['value']}{sizes}"
    yield from (("env", f"{n['env']}={n['containerPath']}") for n in nodes if n.get("env"))
    yield from (("annotation", f"{a['name']}={a['value']}") for a in device.get("annotations", ()))
    yield from (("CDI", name) for name in device.get("cdiDevices", ()))


def _placed(item: Mapping[str, Any]) -> str:
    same = item["hostPath"] == item["containerPath"]
    return str(item["hostPath"]) if same else f"{item['hostPath']} as {item['containerPath']}"


def checks(document: Document) -> Table:
    """What makes a device of each entry Unhealthy, and when it is Healthy again."""
    return table("ENTRY UNHEALTHY_IF", ((r.name, text) for r in document.resources for text in _checks(r)))


def _checks(resource: Resource) -> Iterator[str]:
    health = resource.health
    yield f"it vanishes (it stays listed {health.removal_grace_seconds} s), or a node, companion or mount is missing"
    if any(entry.kind == attributes.NVML for entry in resource.devices):
        yield "the NVIDIA driver reports a fault"
        yield from (f"the driver reports XID {rule.xid}, until {rule.clears}" for rule in health.xids)
        if health.ignore_xids:
            yield f"but not by XID {_either(map(str, health.ignore_xids))}"
    if health.unhealthy_when:
        yield (
            f"{' or '.join(map(_matched, health.unhealthy_when))}; checked every {health.interval_seconds} s, "
            f"{health.failure_threshold} bad checks in a row, Healthy after {health.recovery_threshold} good ones"
        )


def _matched(match: Match) -> str:
    return f"{match.attribute} is {_either(match.values)}"


def _either(words: Iterable[str]) -> str:
    return " or ".join(words)


def left_out(scan: Scan) -> Table:
    rows = ((e["entry"], e["id"], e["reason"], e["message"]) for e in scan["excluded"])
    return table("ENTRY DEVICE REASON MESSAGE", rows)


def remarks(scan: Scan) -> Iterable[str]:
    if any("{position}" in text for d in scan["devices"] for _, text in _gifts(d)):
        yield "{position} is the device's number in the container: 0 for the first in the order of ids, then 1, 2, …"
    yield from (f"{name} is not served: {why}" for name, why in scan["refused"].items())
    yield from (f"{name}: {why}" for name, why in scan["notes"].items())
    yield from scan["errors"]
