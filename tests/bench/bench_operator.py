"""Measures the operator against its budgets (docs of the budgets: the table that this prints).

bench_operator.py [--json FILE] [--nodes N...] [--without NAME]...     NAME: import fleet
With 5,000 and then 10,000 nodes, as by default, it takes about a quarter of an hour.
Exit status 1 when a budget is exceeded or a part could not be measured. The fleet grows from each number of nodes to
the next, and the operator starts anew for each. The fleet has a kube-apiserver and etcd of its own.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "operator"))

from device_operator.cluster.client import ApiError
from fleet import Fleet
from fleet_steps import Steps
from kubeapi import NAMESPACE, Kube
from localcluster import Cluster, LocalClusterError, Profile, places
from measuring import Result, measure, parser
from operator_process import OperatorProcess


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


def measure_fleet(sizes: Sequence[int]) -> Iterator[Result]:
    """The results of each size come as soon as they are there: a failure at the next size does not lose them."""
    cluster = Cluster(Profile(name="bench-operator", nodes=0, control_plane_only=True, controller_manager=False))
    cluster.clean()
    cluster.up()
    try:
        with closing(Kube(cluster.kubeconfig)) as kube, tempfile.TemporaryDirectory() as folder:
            start = _starter(cluster, Path(folder) / "operator.log")
            fleet = _prepared(cluster, kube, start)
            for size in sizes:
                _grow(fleet, size)
                yield from _measured(start(), kube, fleet)
    finally:
        cluster.clean()


def _prepared(cluster: Cluster, kube: Kube, start: Callable[[], OperatorProcess]) -> Fleet:
    """A fleet without nodes, with the DaemonSet that an operator wrote for it."""
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("create", "serviceaccount", "default", "-n", NAMESPACE)
    cluster.kubectl("apply", "-f", str(places.CHECKOUT / "crds"))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(places.CHECKOUT / "crds"))
    fleet = Fleet(cluster.kubeconfig, kube)
    fleet.apply()
    operator = start()
    try:
        fleet.find_daemonset()
    finally:
        operator.end()
    return fleet


def _grow(fleet: Fleet, size: int) -> None:
    began, before = time.monotonic(), len(fleet.held)
    fleet.grow(size)
    written = f"{size - before} nodes, pods and inventories written in {time.monotonic() - began:.0f} s"
    print(f"  {written}: {size} in all", flush=True)


def _measured(operator: OperatorProcess, kube: Kube, fleet: Fleet) -> list[Result]:
    began = time.monotonic()
    try:
        return Steps(operator, kube, fleet).results()
    except AssertionError:
        print(operator.text[-4000:], file=sys.stderr)
        raise
    finally:
        operator.end()
        print(f"  {len(fleet.held)} nodes: {time.monotonic() - began:.0f} s", flush=True)


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
        "failed-create-seconds": 10,
        "log-level": "info",
    }
    return lambda: OperatorProcess(log=log, kubeconfig=cluster.kubeconfig, namespace=NAMESPACE, **slow)


PARTS: dict[str, Callable[[Sequence[int]], Iterable[Result]]] = {"import": measure_import, "fleet": measure_fleet}


def main() -> int:
    made = parser(__doc__, program="operator", parts=PARTS)
    made.add_argument("--nodes", type=int, nargs="+", default=[5000, 10_000], metavar="N", help="default: %(default)s")
    options = made.parse_args()
    parts = {name: partial(part, sorted(options.nodes)) for name, part in PARTS.items()}
    failures = (ApiError, AssertionError, ExceptionGroup, LocalClusterError, OSError, subprocess.SubprocessError)
    return measure(parts, program="operator", options=options, failures=failures)


if __name__ == "__main__":
    sys.exit(main())
