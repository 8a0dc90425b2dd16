"""The fleet of the operator's bench: nodes like real ones, and what their agents write. Plain objects, no kubelets."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from device_operator.cluster.client import ApiResource, Client, Object, _Request
from device_operator.cluster.connection import connect
from device_operator.render.manifests import ANNOTATION_CONFIG_HASH
from kubeapi import NAMESPACE

NODES = ApiResource("", "v1", "nodes")
PODS = ApiResource("", "v1", "pods", NAMESPACE)
INVENTORIES = ApiResource("device-operator.io", "v1alpha1", "nodedeviceinventories")
NAME, RESOURCE, DEVICES = "fleet", "example.com/dev", 8
AT_ONCE = 24
STAMP = "2026-01-01T00:00:00Z"
_MERGE = "application/merge-patch+json"


async def populate(kubeconfig: Path, daemonset: Object, numbers: range) -> None:
    """Makes these nodes, each with an agent's pod and an inventory."""
    async with Client(await connect(kubeconfig=str(kubeconfig))) as client:
        await _all((_node, client, n, daemonset) for n in numbers)


async def hold(kubeconfig: Path, nodes: int) -> None:
    """Every agent reports a holder."""
    async with Client(await connect(kubeconfig=str(kubeconfig))) as client:
        await _all((_report, client, n, "", 1) for n in range(nodes))


async def configure(kubeconfig: Path, nodes: int, config_hash: str) -> None:
    """Every agent reports this configuration."""
    async with Client(await connect(kubeconfig=str(kubeconfig))) as client:
        await _all((_configured, client, n, config_hash) for n in range(nodes))


async def change(kubeconfig: Path, nodes: int, *, share: float, seconds: float) -> None:
    """This share of the agents reports a second holder, one after the other within this time."""
    numbers = range(0, nodes, round(1 / share))
    async with Client(await connect(kubeconfig=str(kubeconfig))) as client:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for i, n in enumerate(numbers):
            await asyncio.sleep(max(0.0, begun + seconds * i / len(numbers) - loop.time()))
            await _report(client, n, "", 2)


async def _all(calls: Iterable[tuple[Any, ...]]) -> None:
    waiting = iter(list(calls))

    async def worker() -> None:
        for function, *arguments in waiting:
            await function(*arguments)

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


async def _node(client: Client, n: int, daemonset: Object) -> None:
    name = f"node-{n:05}.cluster.example.com"
    await client.create(NODES, _node_body(name, n))
    template, owner = daemonset["spec"]["template"]["metadata"], daemonset["metadata"]["ownerReferences"][0]
    pod = f"{daemonset['metadata']['name']}-{n:05}"
    spec = {"nodeName": name, "automountServiceAccountToken": False, "priorityClassName": "system-node-critical"}
    await client.create(
        PODS,
        {
            "metadata": {"name": pod, "labels": template["labels"], "annotations": template["annotations"]},
            "spec": {**spec, "containers": [{"name": "agent", "image": "example.com/agent:1"}]},
        },
    )
    state = {"name": "agent", "ready": True, "restartCount": 0, "image": "a", "imageID": "b"}
    running = {**state, "state": {"running": {"startedAt": STAMP}}}
    conditions = [{"type": t, "status": "True", "lastTransitionTime": STAMP} for t in ("PodScheduled", "Ready")]
    status = {"phase": "Running", "conditions": conditions, "containerStatuses": [running]}
    await _patch_status(client, PODS, pod, status)
    await client.create(
        INVENTORIES,
        {
            "apiVersion": "device-operator.io/v1alpha1",
            "kind": "NodeDeviceInventory",
            "metadata": {"name": f"{NAME}.{name}", "ownerReferences": [owner]},
            "spec": {"nodeName": name, "configName": NAME},
        },
    )
    await _report(client, n, daemonset["metadata"]["annotations"][ANNOTATION_CONFIG_HASH], 0)


def _node_body(name: str, n: int) -> Object:
    labels = {f"feature.node.kubernetes.io/cpu-feature-{i:02}": "true" for i in range(24)}
    labels |= {"kubernetes.io/os": "linux", "kubernetes.io/hostname": name, "fleet": "yes"}
    labels |= {"topology.kubernetes.io/zone": f"zone-{n % 6}", "node.kubernetes.io/instance-type": f"type-{n % 12}"}
    images = [
        {"names": [f"registry.example.com/team/{i:02}@sha256:{i:064}", f"registry.example.com/team/{i:02}:v1.2.3"],
         "sizeBytes": 10**8 + i}
        for i in range(50)
    ]  # fmt: skip
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    conditions = [
        {"type": kind, "status": str(kind == "Ready"), "reason": "Kubelet", "message": f"{kind} is judged by the kubelet",
         "lastHeartbeatTime": STAMP, "lastTransitionTime": STAMP}
        for kind in kinds
    ]  # fmt: skip
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"podCIDR": f"10.{n // 250}.{n % 250}.0/24"},
        "status": {"conditions": conditions, "images": images},
    }


async def _report(client: Client, n: int, config_hash: str, allocated: int) -> None:
    name = _inventory(n)
    ids = [f"0000:{0x10 + i:02x}:00.0" for i in range(DEVICES)]
    held = {"allocatedTo": [{"namespace": "training", "pod": f"trainer-{n}", "container": "main"}]}
    devices = [
        {
            "id": device, "resource": RESOURCE, "health": "Healthy", "identity": "Stable", "numaNode": i % 2,
            "attributes": {"pci.vendor": "10de", "pci.device": "20b0", "driver": "example", "numaNode": str(i % 2)},
            "nodes": [f"/dev/example{i}"], **(held if i < allocated else {}),
        }
        for i, device in enumerate(ids)
    ]  # fmt: skip
    counts = {"devices": DEVICES, "healthy": DEVICES, "capacity": DEVICES, "allocated": allocated}
    status = {
        "resources": [{"name": RESOURCE, "entry": RESOURCE, "registered": True, **counts}],
        "devices": devices,
        "podResources": "Available",
        "lastHeartbeatTime": STAMP,
    }
    if config_hash:
        status |= {"poolName": "edge", "agentVersion": "0.1.0", "observedConfigHash": config_hash}
    await _patch_status(client, INVENTORIES, name, status)


async def _configured(client: Client, n: int, config_hash: str) -> None:
    await _patch_status(client, INVENTORIES, _inventory(n), {"observedConfigHash": config_hash})


def _inventory(n: int) -> str:
    return f"{NAME}.node-{n:05}.cluster.example.com"


async def _patch_status(client: Client, resource: ApiResource, name: str, status: Object) -> None:
    path = resource.path(name, subresource="status")
    # the product itself has no use for this request
    body: Object = {"status": status}
    request = _Request(verb="patch", method="PATCH", resource=resource, path=path, body=body, content=_MERGE)
    await client._call(request)
