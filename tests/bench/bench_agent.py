"""Measures the agent against its budgets (docs of the budgets: the table that this prints).

bench_agent.py [--json FILE] [--without NAME]...     NAME: memory start allocate register hotplug gpus table
Exit status 1 when a budget is exceeded or a part could not be measured. Latencies are ratios to a bare grpc.aio
server that echoes and to a small device plugin in Go. All of them take turns, so the machine's speed cancels out.
"""

import contextlib
import fcntl
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))

from agent.harness import AgentProcess, Node, Start, document, simulated
from agent.standin import Kubelet, until
from device_agent.kubelet import rpc
from device_agent.kubelet.proto import deviceplugin_pb2 as dp
from fakenvml import Scenario, a100s, linked
from google.protobuf.message import Message
from localcluster import LocalClusterError
from measuring import Result, measure, parser
from peers import PEER, echo_server, go_plugin
from rounds import Case, in_rounds
from table_steps import table_steps
from unit.allocate.nodes import CUBE_MESH

SLOW = {"scan_interval": 60.0, "holders_poll_min": 10.0, "holders_poll_max": 30.0, "holders_soon": 1.0,
        "config_poll": 10.0, "directory_poll": 2.0}  # fmt: skip
"""The agent's real settings. The shorter ones of the test harness would change the results."""
STARTS = 9
LOOPS = range(240, 244)
SIM = "example.com/sim"
GPU = "nvidia.com/gpu"


@contextlib.contextmanager
def place() -> Iterator[tuple[Node, Kubelet, Callable[..., AgentProcess]]]:
    root = Path(tempfile.mkdtemp(prefix="da-", dir="/tmp"))
    node = Node(root)
    kubelet = Kubelet(node.plugins, pod_resources=node.pod_resources).start()
    start = Start(node)
    try:
        yield node, kubelet, lambda *arguments: start("--log-level=Info", *arguments, settings=SLOW, unread=True)
    finally:
        for agent in start.agents:
            if agent.process.poll() is None:
                agent.terminate()
        kubelet.stop()
        shutil.rmtree(root)
        if kubelet.violations:
            raise AssertionError(kubelet.violations)


def rss(pid: int | str) -> float:
    """MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ValueError(pid)


def memory() -> Iterator[Result]:
    code = (
        "import os; os.environ['GRPC_ENABLE_FORK_SUPPORT'] = '0'\n"
        "import device_agent.__main__, device_agent.agent\n"
        "print(open('/proc/self/status').read().split('VmRSS:')[1].split()[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    yield Result("memory after import", int(done.stdout) / 1024, "MiB", 42)
    with place() as (node, kubelet, start), go_plugin(kubelet, devices=8) as peer:
        node.configure(document(simulated(count=8)))
        agent = start()
        ids = sorted(kubelet.wait_for(SIM, 8))
        agent.wait_ready()
        with channel_to(kubelet) as channel, channel_to(kubelet, PEER) as go:
            allocate, allocate_there = unary(channel, rpc.ALLOCATE), unary(go, rpc.ALLOCATE)
            request, request_there = allocate_request(ids[:1]), allocate_request(["peer-0"])
            for _ in range(2000):
                allocate(request)
                allocate_there(request_there)
            agent.get("/metrics")
            before = rss(agent.process.pid)
            yield Result("memory serving 8 devices", before, "MiB", 45)
            yield Result("Go plugin: memory serving 8 devices", rss(peer), "MiB")
            for _ in range(10_000):
                allocate(request)
        # the budget allows for memory that the allocator takes in advance
        yield Result("growth over 10,000 Allocates", rss(agent.process.pid) - before, "MiB", 0.5)


def start_up() -> Iterator[Result]:
    times, listed = [], []
    for _ in range(STARTS):
        with place() as (node, kubelet, start):
            node.configure(document(simulated(count=8)))
            agent = start()
            kubelet.wait_for(SIM, 8)
            times.append(kubelet.registrations[0][1] - agent.started)
            listed.append(kubelet.lists[SIM][0][0] - agent.started)
    # the fastest counts: each start does the same work, and other programs make some starts slower
    yield Result(f"process start to registered, fastest of {STARTS}", min(times), "s")
    yield Result(f"process start to listed, fastest of {STARTS}", min(listed), "s", 0.2)
    yield Result(f"process start to listed, median of {STARTS}", statistics.median(listed), "s")


def allocate() -> Iterator[Result]:
    with echo_server() as echo, place() as (node, kubelet, start), go_plugin(kubelet, devices=8):
        entry = {"name": SIM, "devices": [{"simulated": {"count": 8, "numaNodes": 2}}]}
        many = {"name": "example.com/many", "devices": [{"simulated": {"count": 1000, "numaNodes": 2}}]}
        node.configure(document(entry, many))
        start()
        eight, thousand = sorted(kubelet.wait_for(SIM, 8)), sorted(kubelet.wait_for("example.com/many", 1000))
        with (
            channel_to(kubelet) as few,
            channel_to(kubelet, "example.com/many") as lots,
            channel_to(kubelet, PEER) as go,
        ):
            payload = allocate_request(eight[:1]).SerializeToString()
            cases = {
                "echo": Case(lambda: echo(payload)),
                "Allocate, 8 devices": case(few, rpc.ALLOCATE, allocate_request(eight[:1])),
                "Go plugin: Allocate, 8 devices": case(go, rpc.ALLOCATE, allocate_request(["peer-0"])),
                "Allocate, 1,000 devices": case(lots, rpc.ALLOCATE, allocate_request(thousand[:1])),
                "preferred 4 of 8, topology": case(few, rpc.PREFERRED, preferred_request(eight, 4)),
            }
            for size in (1, 4, 500, 999):
                name = f"preferred {size} of 1,000"
                cases[name] = case(lots, rpc.PREFERRED, preferred_request(thousand, size), calls=8)
            found = in_rounds(cases)
    echoed, peer = found.pop("echo"), found.pop("Go plugin: Allocate, 8 devices")
    ours = found["Allocate, 8 devices"]
    for name, latency in (("echo", echoed), ("Go plugin: Allocate", peer), ("Allocate, 8 devices", ours)):
        yield Result(f"{name}: p50", latency.p50 * 1000, "ms")
        yield Result(f"{name}: p99", latency.p99 * 1000, "ms")
    for quantile, ratio in zip(("p50", "p99"), ours.ratios(peer), strict=True):
        yield Result(f"Allocate, 8 devices: {quantile}", ratio, "x Go")
    budgets = {"Allocate, 8 devices": (1.3, 2.0), "preferred 4 of 8, topology": (2.0, None)}
    for name, latency in found.items():
        most = budgets.get(name, (10.0, None) if name.startswith("preferred") else (None, None))
        p50, p99 = latency.ratios(echoed)
        yield Result(f"{name}: p50", p50, "x echo", most[0])
        yield Result(f"{name}: p99", p99, "x echo", most[1])


def register() -> Iterator[Result]:
    times = []
    with place() as (node, kubelet, start):
        node.configure(document(*(simulated(f"example.com/sim{n}", 2) for n in range(8))))
        start()
        names = [f"example.com/sim{n}" for n in range(8)]
        for name in names:
            kubelet.wait_for(name, 2)
        for turn in range(7):
            kubelet.stop()
            time.sleep(0.3)  # a kubelet takes longer to come back; the agent has begun to try again
            before = len(kubelet.registrations)
            begun = time.monotonic()
            kubelet.start()
            until(lambda: len(kubelet.registrations) == before + 8, what=f"turn {turn}")  # noqa: B023 - as above
            times.append(kubelet.registrations[-1][1] - begun)
            for name in names:
                kubelet.wait_for(name, 2)
    yield Result("kubelet.sock again to all 8 registered, median of 7", statistics.median(times), "s", 0.3)
    yield Result("the same, slowest", max(times), "s")


def hotplug() -> Iterator[Result]:
    added, removed = [], []
    loops = {"name": "example.com/loop", "devices": [{"sysfs": {"subsystem": "block", "names": ["loop24*"]}}]}
    with place() as (node, kubelet, start), Path("/dev/loop-control").open("rb") as control:
        for number in LOOPS:
            if Path(f"/sys/block/loop{number}").exists():
                fcntl.ioctl(control, 0x4C81, number)
        node.configure(document(loops))
        agent = start("--host-root=/")
        agent.wait_ready()
        try:
            for turn in range(3):
                for count, number in enumerate(LOOPS, 1):
                    begun = time.monotonic()
                    fcntl.ioctl(control, 0x4C80, number)  # LOOP_CTL_ADD
                    kubelet.wait_for("example.com/loop", count)
                    if (turn, count) != (0, 1):  # the very first is a registration, not a list
                        added.append(kubelet.lists["example.com/loop"][-1][0] - begun)
                for count, number in enumerate(LOOPS, 1):
                    begun = time.monotonic()
                    fcntl.ioctl(control, 0x4C81, number)  # LOOP_CTL_REMOVE
                    kubelet.wait_for("example.com/loop", len(LOOPS) - count)
                    removed.append(kubelet.lists["example.com/loop"][-1][0] - begun)
        finally:
            for number in LOOPS:
                with contextlib.suppress(OSError):
                    fcntl.ioctl(control, 0x4C81, number)
    yield Result("device plugged in to the kubelet told, median", statistics.median(added), "s")
    yield Result("device plugged in to the kubelet told, slowest", max(added), "s", 0.5)
    yield Result("device unplugged to the kubelet told, median", statistics.median(removed), "s")
    yield Result("device unplugged to the kubelet told, slowest", max(removed), "s", 0.5)


def gpus() -> Iterator[Result]:
    """NVIDIA GPUs by the fake driver library, linked as one cube mesh or two."""
    for count in (8, 16):
        times = []
        for turn in range(5):
            with gpu_place(count) as (scenario, kubelet, start):
                agent = start()
                until(lambda: kubelet.registrations, what="registered")
                times.append(kubelet.registrations[0][1] - agent.started)
                ids = kubelet.wait_for(GPU, count)
                agent.wait_ready()
                if turn == 0:
                    yield Result(f"memory serving {count} GPUs", rss(agent.process.pid), "MiB", 55)
                    yield from reaction(scenario, kubelet, count)
                    yield from preferences(kubelet, sorted(ids), count)
        yield Result(f"process start to registered, {count} GPUs, median of 5", statistics.median(times), "s", 1.0)


@contextlib.contextmanager
def gpu_place(count: int) -> Iterator[tuple[Scenario, Kubelet, Callable[..., AgentProcess]]]:
    with place() as (node, kubelet, start):
        meshes = {(a + at, b + at): links for at in range(0, count, 8) for (a, b), links in CUBE_MESH.items()}
        scenario = Scenario(node.root / "driver", gpus=linked(a100s(count), meshes), dev=node.host / "dev")
        scenario.make_nodes()
        scenario.make_proc(node.host / "proc")
        scenario.make_sysfs(node.host / "sys")
        node.configure(document({"name": GPU, "devices": [{"nvml": {"kind": "GPU"}}]}))
        yield scenario, kubelet, lambda: start(f"--driver-root={scenario.root}")


def reaction(scenario: Scenario, kubelet: Kubelet, count: int) -> Iterator[Result]:
    times = []
    for number in range(4):
        bad = scenario.gpus[number].uuid
        begun = time.monotonic()
        scenario.xid(number, 79)
        until(lambda: kubelet.health(GPU).get(bad) == "Unhealthy", what=bad)  # noqa: B023 - at once
        times.append(kubelet.lists[GPU][-1][0] - begun)
    yield Result(f"fatal XID to the kubelet told, {count} GPUs, median", statistics.median(times), "s")
    yield Result(f"fatal XID to the kubelet told, {count} GPUs, slowest", max(times), "s", 0.5)


def preferences(kubelet: Kubelet, ids: list[str], count: int) -> Iterator[Result]:
    sizes = range(1, 9) if count == 8 else (2, 4, 8, 12)
    with echo_server() as echo, channel_to(kubelet, GPU) as channel:
        payload = preferred_request(ids, 1).SerializeToString()
        cases = {"echo": Case(lambda: echo(payload), calls=20)}
        for size in sizes:
            request = preferred_request(ids, size)
            cases[f"preferred {size} of {count} GPUs"] = case(channel, rpc.PREFERRED, request, calls=20)
        found = in_rounds(cases)
    echoed = found.pop("echo")
    for name, latency in found.items():
        four = name == "preferred 4 of 8 GPUs"
        p50, p99 = latency.ratios(echoed)
        yield Result(f"{name}: p50", latency.p50 * 1000, "ms", 1.0 if four else 5.0)
        yield Result(f"{name}: p50", p50, "x echo", 2.0 if four else None)
        yield Result(f"{name}: p99", p99, "x echo")


def channel_to(kubelet: Kubelet, name: str = SIM) -> grpc.Channel:
    path = kubelet.directory / kubelet.clients[name].endpoint
    return grpc.insecure_channel(f"unix:{path}", options=(rpc.LOCAL_AUTHORITY,))


def case(channel: grpc.Channel, method: rpc.Method, request: Message, *, calls: int = 40) -> Case:
    """Bytes in and out, as for the echo server: this client's own work on messages must not count."""
    call, payload = channel.unary_unary(method.path), request.SerializeToString()
    method.answer.FromString(call(payload))
    return Case(lambda: call(payload), calls=calls)


def unary(channel: grpc.Channel, method: rpc.Method) -> Callable:
    return channel.unary_unary(
        method.path,
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.answer.FromString,
    )


def allocate_request(ids: list[str]) -> dp.AllocateRequest:
    return dp.AllocateRequest(container_requests=[dp.ContainerAllocateRequest(devices_ids=ids)])


def preferred_request(ids: list[str], size: int) -> dp.PreferredAllocationRequest:
    container = dp.ContainerPreferredAllocationRequest(available_deviceIDs=ids, allocation_size=size)
    return dp.PreferredAllocationRequest(container_requests=[container])


PARTS = {"memory": memory, "start": start_up, "allocate": allocate, "register": register, "hotplug": hotplug,
         "gpus": gpus, "table": table_steps}  # fmt: skip


def main() -> int:
    options = parser(__doc__, program="agent", parts=PARTS).parse_args()
    failures = (OSError, AssertionError, LocalClusterError, subprocess.SubprocessError)
    with bytecode():
        return measure(PARTS, program="agent", options=options, failures=failures)


@contextlib.contextmanager
def bytecode() -> Iterator[None]:
    """Compiled as in the image, whatever this environment has: compiling costs an agent's start time and memory."""
    with tempfile.TemporaryDirectory(prefix="da-") as folder:
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        subprocess.run([sys.executable, "-c", "import device_agent.__main__, device_agent.agent, pynvml"], check=True)
        yield


if __name__ == "__main__":
    sys.exit(main())
