"""What the DaemonSet controller, the kubelet and an agent would write for one node, written by the test."""

from datetime import UTC, datetime, timedelta
from typing import Any

from kubeapi import DAEMONSETS, GROUP, INVENTORIES, NODES, PODS, Kube, Object

HASH = f"{GROUP}/config-hash"


def now(*, ago: float = 0.0) -> str:
    return (datetime.now(UTC) - timedelta(seconds=ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Agent:
    """The agent of one node, running and reporting `devices`: id -> health."""

    def __init__(self, kube: Kube, daemonset: Object, node: str) -> None:
        self._kube = kube
        self._daemonset = daemonset
        self.node = node
        labels = daemonset["spec"]["template"]["metadata"]["labels"]
        self.config, self.pool = labels[f"{GROUP}/config"], labels[f"{GROUP}/pool"]
        self.pod = f"{daemonset['metadata']['name']}-{node}"
        self.inventory = f"{self.config}.{node}"

    def run(self) -> None:
        """The pod, as made by the controller and started by the kubelet."""
        meta = self._live()["spec"]["template"]["metadata"]
        spec = {"nodeName": self.node, "containers": [{"name": "agent", "image": "example.com/agent:1"}]}
        self._kube.create(
            PODS,
            {
                "metadata": {"name": self.pod, "labels": meta["labels"], "annotations": meta["annotations"]},
                "spec": {**spec, "automountServiceAccountToken": False},
            },
        )
        self.set_ready(ready=True)

    def set_ready(self, *, ready: bool, ago: float = 600.0) -> None:
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": now(ago=ago)}
        status = {"phase": "Running", "conditions": [condition]}
        self._kube.patch(f"{PODS}/{self.pod}/status", {"status": status})

    def wait_for(self, reason: str, message: str = "") -> None:
        """The pod, made again by the controller; its container cannot be made for now."""
        waiting = {"name": "agent", "image": "", "imageID": "", "ready": False, "restartCount": 0}
        waiting["state"] = {"waiting": {"reason": reason, "message": message}}
        condition = {"type": "Ready", "status": "False", "lastTransitionTime": now()}
        status = {"phase": "Pending", "conditions": [condition], "containerStatuses": [waiting]}
        self._kube.patch(f"{PODS}/{self.pod}/status", {"status": status})

    def end(self) -> None:
        self._kube.delete(f"{PODS}/{self.pod}", gracePeriodSeconds=0)

    def report(
        self,
        devices: dict[str, str],
        *,
        resource: str,
        allocated: dict[str, str] | None = None,
        stale: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        """The inventory; `allocated`: device id -> pod that holds it; `stale`: device id -> its staleGrant."""
        path = f"{INVENTORIES}/{self.inventory}"
        if self._kube.find(path) is None:
            owner = self._daemonset["metadata"]["ownerReferences"][0]
            self._kube.create(
                INVENTORIES,
                {
                    "apiVersion": f"{GROUP}/v1alpha1",
                    "kind": "NodeDeviceInventory",
                    "metadata": {
                        "name": self.inventory,
                        "ownerReferences": [{k: owner[k] for k in ("apiVersion", "kind", "name", "uid")}],
                    },
                    "spec": {"nodeName": self.node, "configName": self.config},
                },
            )
        healthy, held = sum(h == "Healthy" for h in devices.values()), allocated or {}
        status = {
            "poolName": self.pool,
            "observedConfigHash": self._live()["metadata"]["annotations"][HASH],
            "podResources": "Available",
            "resources": [
                {
                    "name": resource,
                    "entry": resource,
                    "registered": True,
                    "devices": len(devices),
                    "healthy": healthy,
                    "unhealthy": sum(h == "Unhealthy" for h in devices.values()),
                    "unknown": sum(h == "Unknown" for h in devices.values()),
                    "capacity": len(devices),
                    "allocated": len(held),
                }
            ],
            "devices": [
                {
                    "id": device,
                    "resource": resource,
                    "health": health,
                    **({} if health == "Healthy" else {"reason": "Test", "message": "for the test", "since": now()}),
                    **({"staleGrant": stale[device]} if stale and device in stale else {}),
                    **(
                        {"allocatedTo": [{"namespace": "default", "pod": held[device], "container": "main"}]}
                        if device in held
                        else {}
                    ),
                }
                for device, health in devices.items()
            ],
            "lastHeartbeatTime": now(),
            **more,
        }
        self._kube.patch(f"{path}/status", {"status": status})

    def _live(self) -> Object:
        return self._kube.get(f"{DAEMONSETS}/{self._daemonset['metadata']['name']}")


def ready_node(kube: Kube, body: Object) -> None:
    """The node as its kubelet would write it, Ready for ten minutes."""
    name = body["metadata"]["name"]
    kube.create(NODES, body)
    # the taint that admission puts on a new node, and that the node lifecycle controller takes away
    kube.patch(f"{NODES}/{name}", {"spec": {"taints": None}})
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": now(ago=600), "lastHeartbeatTime": now()}
    kube.patch(f"{NODES}/{name}/status", {"status": {"conditions": [condition]}})
