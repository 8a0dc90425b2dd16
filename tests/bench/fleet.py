"""Plays what a cluster has beside the operator: nodes with their kubelets, agents' pods, agents, a user who edits.

Nodes are objects with the images, labels and conditions of real ones. Each has an agent pod and an inventory of 8
devices. Nobody runs the pods: the inventories say what their agents would say.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from device_operator.cluster.client import ApiResource, Client, Object, _Request
from device_operator.cluster.connection import connect
from device_operator.render.manifests import ANNOTATION_CONFIG_HASH, ANNOTATION_TEMPLATE
from kubeapi import CONFIGS, DAEMONSETS, NAMESPACE, Kube, config, eventually, pool

NODES = ApiResource("", "v1", "nodes")
PODS = ApiResource("", "v1", "pods", NAMESPACE)
INVENTORIES = ApiResource("device-operator.io", "v1alpha1", "nodedeviceinventories")
NAME, RESOURCE, DEVICES = "fleet", "example.com/dev", 8
KUBELET_SECONDS, AGENT_SECONDS = 300, 600
"""How often a kubelet writes the status of its node, and an agent its inventory, if nothing changes."""
AT_ONCE = 24
STAMP = "2026-01-01T00:00:00Z"
_MERGE = "application/merge-patch+json"

Call = Callable[[Client], Coroutine[Any, Any, None]]


class Fleet:
    """`held`: by node, how many of its devices containers hold."""

    def __init__(self, kubeconfig: Path, kube: Kube) -> None:
        self.held: list[int] = []
        self._kubeconfig = kubeconfig
        self._kube = kube
        self._edits = 0
        self._daemonset: Object = {}

    def apply(self) -> None:
        """The DevicePluginConfig, new or edited. An edit changes the configuration of each agent, and no pod."""
        body = config(NAME, resource=RESOURCE, nodePools=[pool("edge", fleet="yes")])
        body["spec"]["resources"][0]["devices"][0]["simulated"]["count"] = DEVICES + self._edits
        if self._edits:
            self._kube.patch(f"{CONFIGS}/{NAME}", {"spec": body["spec"]})
        else:
            self._kube.create(CONFIGS, body)
        self._edits += 1

    def find_daemonset(self) -> None:
        """Waits until the operator has written what was applied last."""
        before = self._daemonset and _annotation(self._daemonset, ANNOTATION_CONFIG_HASH)

        def changed() -> Object | None:
            found = self._kube.items(f"{DAEMONSETS}?labelSelector=device-operator.io/config={NAME}")
            return found[0] if found and _annotation(found[0], ANNOTATION_CONFIG_HASH) != before else None

        after = eventually("the DaemonSet has the hash of the new configuration", changed, seconds=300)
        if self._daemonset:
            old, new = (_annotation(d, ANNOTATION_TEMPLATE) for d in (self._daemonset, after))
            assert old == new, "the edit replaces pods; nobody here plays that"
        self._daemonset = after

    @property
    def config_hash(self) -> str:
        """What agents are to run with."""
        return _annotation(self._daemonset, ANNOTATION_CONFIG_HASH)

    def grow(self, size: int) -> None:
        new = range(len(self.held), size)
        self.held += [0] * len(new)
        asyncio.run(self._all(self._joining(n) for n in new))

    def report(self) -> None:
        """Every agent writes its inventory."""
        asyncio.run(self._all(self._reporting(n) for n in range(len(self.held))))

    def live(self, seconds: float, *, changes: int = 0) -> None:
        """Kubelets and agents say that they are alive. On `changes` nodes a container begins or ends with a device.

        More begin than end: so the sum over the fleet tells whether the operator has counted them.
        """
        size = len(self.held)
        calls = _spread([_heartbeat_of_node(n) for n in _some(size, size * seconds / KUBELET_SECONDS)], seconds)
        calls += _spread([_heartbeat_of_agent(n) for n in _some(size, size * seconds / AGENT_SECONDS)], seconds)
        changing = _some(size, changes)
        for i, n in enumerate(changing):
            self.held[n] += -1 if i % 3 == 2 else 1
        calls += _spread([self._reporting(n) for n in changing], seconds)
        asyncio.run(self._at_their_times(calls, seconds))

    def _joining(self, n: int) -> Call:
        return lambda client: _join(client, n, self._daemonset, self._inventory_status(n))

    def _reporting(self, n: int) -> Call:
        return lambda client: _patch_status(client, INVENTORIES, _inventory_name(n), self._inventory_status(n))

    def _inventory_status(self, n: int) -> Object:
        return _inventory_status(n, config_hash=self.config_hash, held=self.held[n])

    async def _all(self, calls: Iterable[Call]) -> None:
        waiting = iter(calls)

        async def worker(client: Client) -> None:
            for call in waiting:
                await call(client)

        async with Client(await connect(kubeconfig=str(self._kubeconfig))) as client:
            await asyncio.gather(*(worker(client) for _ in range(AT_ONCE)))

    async def _at_their_times(self, calls: list[tuple[float, Call]], seconds: float) -> None:
        now = asyncio.get_running_loop().time
        async with Client(await connect(kubeconfig=str(self._kubeconfig))) as client, asyncio.TaskGroup() as tasks:
            began = now()
            for due, call in sorted(calls, key=lambda pair: pair[0]):
                await asyncio.sleep(began + due - now())
                tasks.create_task(call(client))
            await asyncio.sleep(began + seconds - now())


def _some(size: int, count: float) -> list[int]:
    """`count` of the nodes, from all over the fleet."""
    return [i * size // round(count) for i in range(round(count))]


def _spread(calls: list[Call], seconds: float) -> list[tuple[float, Call]]:
    return [((i + 0.5) * seconds / len(calls), call) for i, call in enumerate(calls)]


def _annotation(obj: Object, key: str) -> str:
    return str(obj["metadata"]["annotations"][key])


def _heartbeat_of_node(n: int) -> Call:
    return lambda client: _patch_status(client, NODES, _node_name(n), {"conditions": _conditions(_now())})


def _heartbeat_of_agent(n: int) -> Call:
    return lambda client: _patch_status(client, INVENTORIES, _inventory_name(n), {"lastHeartbeatTime": _now()})


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _node_name(n: int) -> str:
    return f"node-{n:05}.cluster.example.com"


def _inventory_name(n: int) -> str:
    return f"{NAME}.{_node_name(n)}"


async def _join(client: Client, n: int, daemonset: Object, inventory_status: Object) -> None:
    """A node, its agent's pod, which runs at once, and the agent's inventory."""
    await client.create(NODES, _node(n))
    template, owner = daemonset["spec"]["template"]["metadata"], daemonset["metadata"]["ownerReferences"][0]
    pod = f"{daemonset['metadata']['name']}-{n:05}"
    spec = {"nodeName": _node_name(n), "automountServiceAccountToken": False}
    spec |= {"priorityClassName": "system-node-critical"}
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
            "metadata": {"name": _inventory_name(n), "ownerReferences": [owner]},
            "spec": {"nodeName": _node_name(n), "configName": NAME},
        },
    )
    await _patch_status(client, INVENTORIES, _inventory_name(n), inventory_status)


def _node(n: int) -> Object:
    labels = {f"feature.node.kubernetes.io/cpu-feature-{i:02}": "true" for i in range(24)}
    labels |= {"kubernetes.io/os": "linux", "kubernetes.io/hostname": _node_name(n), "fleet": "yes"}
    labels |= {"topology.kubernetes.io/zone": f"zone-{n % 6}", "node.kubernetes.io/instance-type": f"type-{n % 12}"}
    images = [
        {"names": [f"registry.example.com/team/{i:02}@sha256:{i:064}", f"registry.example.com/team/{i:02}:v1.2.3"],
         "sizeBytes": 10**8 + i}
        for i in range(50)
    ]  # fmt: skip
    return {
        "metadata": {"name": _node_name(n), "labels": labels},
        "spec": {"podCIDR": f"10.{n // 250}.{n % 250}.0/24"},
        "status": {"conditions": _conditions(STAMP), "images": images},
    }


def _conditions(heartbeat: str) -> list[Object]:
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    return [
        {"type": kind, "status": str(kind == "Ready"), "reason": "Kubelet", "message": f"{kind} is judged by the kubelet",
         "lastHeartbeatTime": heartbeat, "lastTransitionTime": STAMP}
        for kind in kinds
    ]  # fmt: skip


def _inventory_status(n: int, *, config_hash: str, held: int) -> Object:
    """`held`: how many of its devices a container holds."""
    holder = {"allocatedTo": [{"namespace": "training", "pod": f"trainer-{n}", "container": "main"}]}
    devices = [
        {
            "id": f"0000:{0x10 + i:02x}:00.0", "resource": RESOURCE, "health": "Healthy", "identity": "Stable",
            "numaNode": i % 2,
            "attributes": {"pci.vendor": "10de", "pci.device": "20b0", "driver": "example", "numaNode": str(i % 2)},
            "nodes": [f"/dev/example{i}"], **(holder if i < held else {}),
        }
        for i in range(DEVICES)
    ]  # fmt: skip
    counts = {"devices": DEVICES, "healthy": DEVICES, "capacity": DEVICES, "allocated": held}
    return {
        "poolName": "edge",
        "agentVersion": "0.1.0",
        "observedConfigHash": config_hash,
        "resources": [{"name": RESOURCE, "entry": RESOURCE, "registered": True, **counts}],
        "devices": devices,
        "podResources": "Available",
        "lastHeartbeatTime": _now(),
    }


async def _patch_status(client: Client, resource: ApiResource, name: str, status: Object) -> None:
    path = resource.path(name, subresource="status")
    # the product itself has no use for this request
    body: Object = {"status": status}
    request = _Request(verb="patch", method="PATCH", resource=resource, path=path, body=body, content=_MERGE)
    await client._call(request)
