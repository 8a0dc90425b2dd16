"""Measures the operator against its budgets (docs of the budgets: the table that this prints).

bench_operator.py [--json FILE] [--nodes N] [--without NAME]...     NAME: import fleet
Exit status 1 when a budget is exceeded or a part could not be measured. The fleet has N nodes
with the images, labels and conditions of real ones. Each node has an agent pod and an inventory of 8 devices. The
fleet has a kube-apiserver and etcd of its own.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "operator"))

from device_operator.cluster.client import ApiError, ApiResource, Client, Object, _Request
from device_operator.cluster.connection import connect
from kubeapi import CONFIGS, NAMESPACE, Kube, Owned, both, condition, config, eventually, pool
from localcluster import Cluster, LocalClusterError, Profile, places
from measuring import Result, measure, parser
from operator_process import OperatorProcess

NODES = ApiResource("", "v1", "nodes")
PODS = ApiResource("", "v1", "pods", NAMESPACE)
INVENTORIES = ApiResource("device-operator.io", "v1alpha1", "nodedeviceinventories")
NAME, RESOURCE, DEVICES = "fleet", "example.com/dev", 8
AT_ONCE = 24
STAMP = "2026-01-01T00:00:00Z"
_MERGE = "application/merge-patch+json"


def measure_import(_: int) -> list[Result]:
    """All that `run` imports, in a process of its own."""
    code = "import time, sys; t = time.perf_counter(); from device_operator import app; print(time.perf_counter() - t)"
    read = "; print(*[l.split()[1] for l in open('/proc/self/status') if l.startswith('VmRSS')])"
    seconds, rss = min(
        tuple(
            map(
                float,
                subprocess.run([sys.executable, "-c", code + read], capture_output=True, check=True).stdout.split(),
            )
        )
        for _ in range(3)
    )
    return [Result("import: memory", rss / 1024, "MiB", 75), Result("import: time", seconds, "s")]


def measure_fleet(nodes: int) -> list[Result]:
    cluster = Cluster(Profile(name="bench-operator", nodes=0, control_plane_only=True, controller_manager=False))
    cluster.clean()
    cluster.up()
    try:
        return _fleet(cluster, nodes)
    finally:
        cluster.clean()


def _fleet(cluster: Cluster, nodes: int) -> list[Result]:
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("create", "serviceaccount", "default", "-n", NAMESPACE)
    cluster.kubectl("apply", "-f", str(places.CHECKOUT / "crds"))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(places.CHECKOUT / "crds"))
    kube = Kube(cluster.kubeconfig)
    kube.create(CONFIGS, config(NAME, resource=RESOURCE, nodePools=[pool("edge", fleet="yes")]))
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "operator.log"
        start = _starter(cluster, log)
        operator = start()
        try:
            operator.wait_leading()
            template = _daemonset(kube)
        finally:
            operator.end()
        began = time.monotonic()
        asyncio.run(_populate(cluster.kubeconfig, template, nodes))
        print(f"  {nodes} nodes, pods and inventories written in {time.monotonic() - began:.0f} s", flush=True)
        operator = start()
        try:
            return _measure(operator, kube, cluster.kubeconfig, nodes)
        except AssertionError:
            print(operator.text[-4000:], file=sys.stderr)
            raise
        finally:
            operator.end()
            kube.close()


def _starter(cluster: Cluster, log: Path) -> Callable[[], OperatorProcess]:
    """The product's own settings, but for the age from which a node counts."""
    slow: dict[str, object] = {
        "coalesce-seconds": 0.2,
        "status-seconds": 5,
        "status-holders-seconds": 30,
        "status-bytes-per-second": 16384,
        "lease-duration-seconds": 15,
        "lease-renew-deadline-seconds": 10,
        "lease-retry-seconds": 2,
        "log-level": "info",
    }
    return lambda: OperatorProcess(log=log, kubeconfig=cluster.kubeconfig, namespace=NAMESPACE, **slow)


def _measure(operator: OperatorProcess, kube: Kube, kubeconfig: Path, nodes: int) -> list[Result]:
    began = time.monotonic()
    operator.wait_leading(seconds=300)
    read = time.monotonic() - began

    def ready() -> bool:
        return condition(kube.get(f"{CONFIGS}/{NAME}"), "Ready").get("status") == "True"

    eventually("Ready", ready, seconds=300)
    told = time.monotonic() - began
    _rest(operator)
    status = kube.get(f"{CONFIGS}/{NAME}")["status"]
    assert status["summary"]["devices"] == f"{nodes * DEVICES}/{nodes * DEVICES}", status["summary"]
    settled, peak = _memory(operator)
    passes, seconds = _passes(operator)

    # every agent tells of a holder within some seconds: a busy cluster, or the end of an outage
    before_cpu, before = _cpu(operator), _passes(operator)
    written = operator.metric("api_requests_total", verb="patch", resource="devicepluginconfigs")
    began = time.monotonic()
    asyncio.run(_hold(kubeconfig, nodes))
    eventually("the holders are counted", lambda: kube.get(f"{CONFIGS}/{NAME}")["status"]["summary"]["allocated"] == nodes,
               seconds=300)  # fmt: skip
    storm = time.monotonic() - began
    _rest(operator)
    cpu, after = _cpu(operator) - before_cpu, _passes(operator)
    writes = operator.metric("api_requests_total", verb="patch", resource="devicepluginconfigs") - written
    end_settled, end_peak = _memory(operator)
    each = (after[1] - before[1]) / max(1, after[0] - before[0])
    size = len(json.dumps(status, separators=(",", ":"))) / 1024
    return [
        Result(f"{nodes} nodes: memory, settled", max(settled, end_settled), "MiB", 150 * max(nodes, 5000) / 5000),
        Result(f"{nodes} nodes: memory, peak", max(peak, end_peak), "MiB"),
        Result("start to caches complete", read, "s"),
        Result("start to the right status", told, "s"),
        Result("first passes: mean of a full pass", seconds / passes, "s"),
        Result("every inventory changes: until told", storm, "s"),
        Result("every inventory changes: processor", cpu, "s"),
        Result("every inventory changes: passes", after[0] - before[0], ""),
        Result("every inventory changes: mean of a full pass", each, "s"),
        Result("every inventory changes: status writes", writes, ""),
        Result("status, of at most 384 KiB", size, "KiB"),
    ]


def _rest(operator: OperatorProcess) -> None:
    """Returns when two seconds went by without a pass."""
    last, since = _passes(operator)[0], time.monotonic()
    while time.monotonic() - since < 2.0:
        time.sleep(0.2)
        now = _passes(operator)[0]
        if now != last:
            last, since = now, time.monotonic()


def _passes(operator: OperatorProcess) -> tuple[float, float]:
    return operator.metric("reconcile_seconds_count"), operator.metric("reconcile_seconds_sum")


def _memory(operator: OperatorProcess) -> tuple[float, float]:
    """MiB: now, at most so far."""
    lines = Path(f"/proc/{operator.process.pid}/status").read_text().splitlines()
    found = {line.split()[0]: float(line.split()[1]) / 1024 for line in lines if line.startswith(("VmRSS", "VmHWM"))}
    return found["VmRSS:"], found["VmHWM:"]


def _cpu(operator: OperatorProcess) -> float:
    fields = Path(f"/proc/{operator.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _daemonset(kube: Kube) -> Object:
    def owned(name: str, kind: str = "daemonsets") -> dict[str, Object]:
        root = f"/apis/apps/v1/namespaces/{NAMESPACE}" if kind == "daemonsets" else f"/api/v1/namespaces/{NAMESPACE}"
        return {
            o["metadata"]["name"]: o
            for o in kube.items(f"{root}/{kind}?labelSelector=device-operator.io/config={name}")
        }

    lookup: Owned = owned
    return both(lookup, NAME)[1]


async def _populate(kubeconfig: Path, daemonset: Object, nodes: int) -> None:
    async with Client(await connect(kubeconfig=str(kubeconfig))) as client:
        await _all((_node, client, n, daemonset) for n in range(nodes))


async def _hold(kubeconfig: Path, nodes: int) -> None:
    async with Client(await connect(kubeconfig=str(kubeconfig))) as client:
        await _all((_report, client, n, "", 1) for n in range(nodes))


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
    await _report(client, n, daemonset["metadata"]["annotations"]["device-operator.io/config-hash"], 0)


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
    name = f"{NAME}.node-{n:05}.cluster.example.com"
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


async def _patch_status(client: Client, resource: ApiResource, name: str, status: Object) -> None:
    path = resource.path(name, subresource="status")
    # the product itself has no use for this request
    body: Object = {"status": status}
    request = _Request(verb="patch", method="PATCH", resource=resource, path=path, body=body, content=_MERGE)
    await client._call(request)


PARTS: dict[str, Callable[[int], list[Result]]] = {"import": measure_import, "fleet": measure_fleet}


def main() -> int:
    made = parser(__doc__, program="operator", parts=PARTS)
    made.add_argument("--nodes", type=int, default=5000, help="default: %(default)s")
    options = made.parse_args()
    parts = {name: partial(part, options.nodes) for name, part in PARTS.items()}
    failures = (ApiError, AssertionError, LocalClusterError, OSError, subprocess.SubprocessError)
    return measure(parts, program="operator", options=options, failures=failures)


if __name__ == "__main__":
    sys.exit(main())
