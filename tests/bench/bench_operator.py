"""Measures the operator against its budgets (docs of the budgets: the table that this prints).

bench_operator.py [--json FILE] [--nodes N...] [--without NAME]...     NAME: import fleet
Exit status 1 when a budget is exceeded or a part could not be measured. The fleet has N nodes
with the images, labels and conditions of real ones. Each node has an agent pod and an inventory of 8 devices. With
several N it grows. The fleet has a kube-apiserver and etcd of its own.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "operator"))

import fleet
from device_operator.cluster.client import ApiError, Object
from device_operator.render.manifests import ANNOTATION_CONFIG_HASH
from fleet import DEVICES, NAME, RESOURCE
from kubeapi import CONFIGS, NAMESPACE, Kube, Owned, both, condition, config, eventually, pool
from localcluster import Cluster, LocalClusterError, Profile, places
from measuring import Result, measure, parser
from operator_process import OperatorProcess

MEMORY = {5000: 150, 10_000: 250}
"""Nodes -> the most MiB. Other fleets are measured, not judged."""
MINUTE = 60.0
_WRITES = ("create", "patch", "update", "delete")


def measure_import(_: Sequence[int]) -> list[Result]:
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


def measure_fleet(sizes: Sequence[int]) -> list[Result]:
    cluster = Cluster(Profile(name="bench-operator", nodes=0, control_plane_only=True, controller_manager=False))
    cluster.clean()
    cluster.up()
    try:
        return _fleet(cluster, sizes)
    finally:
        cluster.clean()


def _fleet(cluster: Cluster, sizes: Sequence[int]) -> list[Result]:
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
        results: list[Result] = []
        for before, nodes in pairwise((0, *sorted(sizes))):
            began = time.monotonic()
            asyncio.run(fleet.populate(cluster.kubeconfig, template, range(before, nodes)))
            print(
                f"  {nodes - before} nodes, pods and inventories written in {time.monotonic() - began:.0f} s",
                flush=True,
            )
            results += _measured(start, kube, cluster.kubeconfig, nodes)
            template = _daemonset(kube)
        kube.close()
        return results


def _measured(start: Callable[[], OperatorProcess], kube: Kube, kubeconfig: Path, nodes: int) -> list[Result]:
    operator = start()
    try:
        return _measure(operator, kube, kubeconfig, nodes)
    except AssertionError:
        print(operator.text[-4000:], file=sys.stderr)
        raise
    finally:
        operator.end()


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

    results = [
        Result(f"{nodes}: start to caches complete", read, "s"),
        Result(f"{nodes}: start to the right status", told, "s"),
        Result(f"{nodes}: first passes, mean of a full pass", seconds / passes, "s"),
        *_holders(operator, kube, kubeconfig, nodes),
        *_edit(operator, kube, kubeconfig, nodes),
        *_quiet(operator, kubeconfig, nodes),
    ]
    end_settled, end_peak = _memory(operator)
    size = len(json.dumps(kube.get(f"{CONFIGS}/{NAME}")["status"], separators=(",", ":"))) / 1024
    return [
        Result(f"{nodes}: memory, settled", max(settled, end_settled), "MiB", MEMORY.get(nodes)),
        Result(f"{nodes}: memory, peak", max(peak, end_peak), "MiB"),
        *results,
        Result(f"{nodes}: status, of at most 384 KiB", size, "KiB"),
    ]


def _holders(operator: OperatorProcess, kube: Kube, kubeconfig: Path, nodes: int) -> list[Result]:
    """Every agent reports a holder within some seconds: a busy cluster, or the end of an outage."""
    cpu, before, written = _cpu(operator), _passes(operator), _writes(operator)
    began = time.monotonic()
    asyncio.run(fleet.hold(kubeconfig, nodes))
    eventually("the holders are counted", lambda: kube.get(f"{CONFIGS}/{NAME}")["status"]["summary"]["allocated"] == nodes,
               seconds=300)  # fmt: skip
    storm = time.monotonic() - began
    _rest(operator)
    after = _passes(operator)
    each = (after[1] - before[1]) / max(1, after[0] - before[0])
    return [
        Result(f"{nodes}: every inventory changes, until told", storm, "s"),
        Result(f"{nodes}: every inventory changes, processor", _cpu(operator) - cpu, "s"),
        Result(f"{nodes}: every inventory changes, mean of a full pass", each, "s"),
        Result(f"{nodes}: every inventory changes, writes", _writes(operator) - written, ""),
    ]


def _edit(operator: OperatorProcess, kube: Kube, kubeconfig: Path, nodes: int) -> list[Result]:
    """An edit, to the last node's new hash. The bench plays kubelets and agents; its own time is told apart."""
    was = _daemonset(kube)["metadata"]["annotations"][ANNOTATION_CONFIG_HASH]
    spec = kube.get(f"{CONFIGS}/{NAME}")["spec"]
    seconds = spec["resources"][0].get("health", {}).get("removalGraceSeconds", 60) + 1
    spec["resources"][0]["health"] = {"removalGraceSeconds": seconds}
    written, began = _writes(operator), time.monotonic()
    kube.patch(f"{CONFIGS}/{NAME}", {"spec": spec})

    def hashed() -> str:
        found = str(_daemonset(kube)["metadata"]["annotations"][ANNOTATION_CONFIG_HASH])
        return found if found != was else ""

    config_hash = eventually("the DaemonSet with the new hash", hashed, seconds=120)
    rendered = time.monotonic() - began
    asyncio.run(fleet.configure(kubeconfig, nodes, config_hash))
    reported = time.monotonic()

    def updated() -> bool:
        pools = kube.get(f"{CONFIGS}/{NAME}")["status"]["pools"]
        return pools[0]["configHash"] == config_hash and pools[0]["nodes"]["updated"] == nodes

    eventually("every node updated", updated, seconds=120)
    told = time.monotonic() - reported
    _rest(operator)
    return [
        Result(f"{nodes}: edit to the DaemonSet's new hash", rendered, "s"),
        Result(f"{nodes}: last node's new hash to the status", told, "s"),
        Result(f"{nodes}: edit to the last node's new hash, the bench's agents included", reported + told - began, "s"),
        Result(f"{nodes}: edit, writes", _writes(operator) - written, ""),
    ]


def _quiet(operator: OperatorProcess, kubeconfig: Path, nodes: int) -> list[Result]:
    """Two minutes: nothing changes, then one inventory of a hundred does. Renewals of the lease are not counted."""
    _rest(operator)
    cpu, written = _cpu(operator), _writes(operator)
    time.sleep(MINUTE)
    idle, quiet = _cpu(operator) - cpu, _writes(operator) - written
    cpu, written = _cpu(operator), _writes(operator)
    began = time.monotonic()
    asyncio.run(fleet.change(kubeconfig, nodes, share=0.01, seconds=MINUTE))
    time.sleep(max(0.0, began + MINUTE - time.monotonic()))
    return [
        Result(f"{nodes}: quiet, writes in a minute", quiet, ""),
        Result(f"{nodes}: quiet, processor in a minute", idle, "s"),
        Result(f"{nodes}: 1 % of the nodes change, writes in a minute", _writes(operator) - written, ""),
        Result(f"{nodes}: 1 % of the nodes change, processor in a minute", _cpu(operator) - cpu, "s"),
    ]


def _writes(operator: OperatorProcess) -> float:
    every = sum(operator.metric("api_requests_total", verb=verb) for verb in _WRITES)
    return every - sum(operator.metric("api_requests_total", verb=verb, resource="leases") for verb in _WRITES)


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


PARTS: dict[str, Callable[[Sequence[int]], list[Result]]] = {"import": measure_import, "fleet": measure_fleet}


def main() -> int:
    made = parser(__doc__, program="operator", parts=PARTS)
    made.add_argument("--nodes", type=int, nargs="+", default=list(MEMORY), help="default: %(default)s")
    options = made.parse_args()
    parts = {name: partial(part, options.nodes) for name, part in PARTS.items()}
    failures = (ApiError, AssertionError, LocalClusterError, OSError, subprocess.SubprocessError)
    return measure(parts, program="operator", options=options, failures=failures)


if __name__ == "__main__":
    sys.exit(main())
