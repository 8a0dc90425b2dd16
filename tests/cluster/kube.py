"""How tests use a cluster: they create and read objects, and wait for a condition. A failure shows the last answer."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc
import yaml
from localcluster import Cluster, LocalClusterError

T = TypeVar("T")
Object = dict[str, Any]
NAMESPACE = "device-operator"


def wait_for(what: str, look: Callable[[], T], *, seconds: float = 60, every: float = 0.25) -> T:
    """Returns the first true answer of `look`. If none comes in time, it fails with the last answer or error."""
    deadline = time.monotonic() + seconds
    last: object = None
    while time.monotonic() < deadline:
        try:
            last = look()
            if last:
                return last
        except (LocalClusterError, grpc.RpcError, LookupError, ValueError, AssertionError) as error:
            last = error
        time.sleep(every)
    raise AssertionError(f"waited {seconds:.0f} s in vain for {what}; last seen: {last!r}")


class Kube:
    """A cluster with the product in it, as an admin with kubectl sees it."""

    def __init__(self, cluster: Cluster, *, image: str) -> None:
        self.cluster = cluster
        self.image = image
        """An image with python3 that every node has."""

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl(*arguments, input=stdin)

    def refuses(self, *arguments: str, stdin: str | None = None) -> str:
        """The error of a command that must fail."""
        try:
            answer = self(*arguments, stdin=stdin)
        except LocalClusterError as error:
            return str(error)
        raise AssertionError(f"kubectl {' '.join(arguments)} was expected to fail and said: {answer}")

    def get(self, kind: str, name: str, *, namespace: str | None = None) -> Object:
        where = ["-n", namespace] if namespace else []
        return dict(json.loads(self("get", kind, name, *where, "-o", "json")))

    def every(self, kind: str, *, namespace: str | None = None, labels: str = "") -> list[Object]:
        where = ["-n", namespace] if namespace else []
        return list(json.loads(self("get", kind, *where, "-l", labels, "-o", "json"))["items"])

    def apply(self, *objects: Object) -> None:
        self("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    # ---- DevicePluginConfigs

    @contextmanager
    def config(self, name: str, spec: Object) -> Iterator[None]:
        """Creates the object for the block. Afterwards nothing of it is left."""
        self.apply(device_plugin_config(name, spec))
        try:
            yield
        finally:
            self.remove_config(name)

    def remove_config(self, name: str) -> None:
        self("delete", "dpc", name, "--ignore-not-found", "--wait=true")
        labels = f"device-operator.io/config={name}"

        def gone() -> bool:
            objects = self.every("daemonsets,configmaps,pods", namespace=NAMESPACE, labels=labels)
            inventories = [i for i in self.every("ndi") if i["spec"]["configName"] == name]
            return not objects and not inventories

        wait_for(f"everything of {name} to go", gone, seconds=90)

    def conditions(self, name: str) -> dict[str, Object]:
        return {c["type"]: c for c in self.get("dpc", name).get("status", {}).get("conditions", [])}

    def wait_ready(self, name: str, *, seconds: float = 90) -> Object:
        def ready() -> Object | None:
            found = self.get("dpc", name)
            status = found.get("status", {})
            state = {c["type"]: c["status"] for c in status.get("conditions", [])}
            current = status.get("observedGeneration") == found["metadata"]["generation"]
            return found if current and state.get("Ready") == "True" and state.get("Progressing") == "False" else None

        return wait_for(f"{name} to be Ready", ready, seconds=seconds)

    def inventory(self, config: str, node: str) -> Object:
        return self.get("ndi", f"{config}.{node}")

    def agent(self, config: str, node: str) -> Object:
        """The agent's pod on a node."""
        pods = self.every("pods", namespace=NAMESPACE, labels=f"device-operator.io/config={config}")
        return next(p for p in pods if p["spec"].get("nodeName") == node and "deletionTimestamp" not in p["metadata"])

    # ---- nodes

    def node_has(self, node: str, resource: str) -> tuple[int, int]:
        """(allocatable, capacity) of a resource as the node's status says, 0 where it has none."""
        status = self.get("node", node)["status"]
        return int(status["allocatable"].get(resource, 0)), int(status["capacity"].get(resource, 0))

    def wait_node(self, node: str, resource: str, allocatable: int, capacity: int, *, seconds: float = 30) -> None:
        wanted = (allocatable, capacity)

        def look() -> bool:
            found = self.node_has(node, resource)
            assert found == wanted, f"{resource} on {node}: {found}"
            return True

        wait_for(f"{resource} on {node} to be {wanted}", look, seconds=seconds)

    # ---- pods

    @contextmanager
    def pod(self, name: str, **fields: Any) -> Iterator[Object]:
        """A pod that runs until the block ends."""
        self.apply(self.pod_object(name, **fields))
        try:
            yield wait_for(f"pod {name} to run", lambda: self._running(name), seconds=60)
        finally:
            self("delete", "pod", name, "--ignore-not-found", "--grace-period=0", "--force", "--wait=true")

    def pod_object(
        self,
        name: str,
        *,
        limits: Object,
        node: str,
        script: str = "",
        restart: str = "Never",
        stay: bool = True,
        runtime_class: str | None = None,
    ) -> Object:
        """A pod whose Python `script` runs and, with `stay`, then sleeps."""
        program = f"import os, time\n{script}\n" + ("time.sleep(36000)\n" if stay else "")
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "restartPolicy": restart,
                "runtimeClassName": runtime_class,
                "nodeSelector": {"kubernetes.io/hostname": node},
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": False,
                "containers": [
                    {
                        "name": "main",
                        "image": self.image,
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["python3", "-u", "-c", program],
                        "resources": {"limits": limits},
                    }
                ],
            },
        }

    def _running(self, name: str) -> Object | None:
        pod = self.get("pod", name)
        assert pod["status"].get("phase") not in ("Failed", "Succeeded"), pod["status"]
        return pod if pod["status"].get("phase") == "Running" else None

    def log(self, pod: str, *, until: str, seconds: float = 30) -> str:
        """The pod's log once it contains `until`."""

        def look() -> str | None:
            text = self("logs", pod)
            return text if until in text else None

        return wait_for(f"{until!r} in the log of {pod}", look, seconds=seconds)

    def pod_env(self, pod: str, variable: str) -> str:
        return self("exec", pod, "--", "python3", "-c", f"import os; print(os.environ.get({variable!r}, ''))").strip()

    def held_ids(self, node_index: int, *, resource: str) -> dict[str, list[str]]:
        """pod name -> device ids of the resource, as the node's kubelet lists them (PodResources v1)."""
        from podresources import list_held

        return list_held(self._pod_resources(node_index), resource=resource)

    def listed_pods(self, node_index: int) -> set[str]:
        """Names of the pods that the node's kubelet knows."""
        from podresources import list_pods

        return list_pods(self._pod_resources(node_index))

    def _pod_resources(self, node_index: int) -> Path:
        return self.cluster.node_dir(node_index) / "pod-resources" / "kubelet.sock"


def device_plugin_config(name: str, spec: Object) -> Object:
    return {
        "apiVersion": "device-operator.io/v1alpha1",
        "kind": "DevicePluginConfig",
        "metadata": {"name": name},
        "spec": spec,
    }


@contextmanager
def operator_stopped(kube: Kube) -> Iterator[None]:
    """The operator is scaled to nothing while the block runs."""
    _scale_operator(kube, 0)
    try:
        yield
    finally:
        _scale_operator(kube, 2)


def _scale_operator(kube: Kube, replicas: int) -> None:
    kube("scale", "deployment", "device-operator", "-n", NAMESPACE, f"--replicas={replicas}")
    labels = "app.kubernetes.io/component=operator"
    wait_for(
        f"{replicas} operators",
        lambda: len(kube.every("pods", namespace=NAMESPACE, labels=labels)) == replicas,
    )
    if replicas:
        kube("rollout", "status", "deployment/device-operator", "-n", NAMESPACE, "--timeout=60s")
