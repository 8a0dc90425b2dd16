"""A node under random faults, while pods come and go."""

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
from device_agent.kubelet import checkpoint
from hardware import add_loop, remove_loop
from kube import NAMESPACE, Kube, Object, wait_for
from localcluster import LocalClusterError, binaries

NAMES = ("example.com/fault", "example.com/fault.renamed")
CONFIG = "faults"
FIXED = ("loop0", "loop1", "loop2")
PLUGGED = (40, 41)
"""Loop devices that come and go."""
DISK_BYTES = 1 << 20
"""Of the file system with the kubelet's record and the agent's files."""


class Storm:
    """The cluster under faults. `pods`: name -> the device that it has opened, '' while it is not known to run."""

    def __init__(self, kube: Kube, log: Path, *, seed: int) -> None:
        self.kube = kube
        self.random = random.Random(seed)
        self.name = NAMES[0]
        self.narrowed = False
        self.there = set(PLUGGED)
        self.pods: dict[str, str] = {}
        self.made = 0
        self._read: dict[str, str] = {}
        """Name of a pod -> the container whose device is in `pods`."""
        self._log = log
        self._begun = time.monotonic()
        self.plugins = Path("/proc") / str(kube.cluster.pids["node-1"]) / "root/var/lib/kubelet/device-plugins"

    def say(self, what: str) -> None:
        with self._log.open("a") as file:
            file.write(f"{time.monotonic() - self._begun:8.1f} {what}\n")

    @contextmanager
    def small_disk(self) -> Iterator[None]:
        """A file system of its own, which can be filled, for the kubelet's record and the agent's files."""
        folder = "/var/lib/kubelet/device-plugins"
        self.kube.cluster.stop_service(1, "kubelet")
        self._in_node("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "small", folder)
        self.kube.cluster.start_service(1, "kubelet")
        try:
            yield
        finally:
            self.kube.cluster.stop_service(1, "kubelet")
            self._in_node("umount", "--lazy", folder)
            self.kube.cluster.start_service(1, "kubelet")

    def _in_node(self, *command: str) -> str:
        return self.kube.cluster.run_in_node(1, *command)

    # What an admin and the scheduler do

    def configure(self) -> None:
        names = ["loop[0-1]", "loop4[01]"] if self.narrowed else ["loop[0-2]", "loop4[01]"]
        resource = {
            "name": self.name,
            "devices": [{"sysfs": {"subsystem": "block", "names": names}}],
            "inject": {"env": [{"name": "DISK", "value": "{name}"}]},
            "health": {"removalGraceSeconds": 0},
        }
        spec = {"resources": [resource], "nodePools": [{"name": "one", "nodeSelector": {"hardware": "edge"}}]}
        self.kube.apply(
            {
                "apiVersion": "device-operator.io/v1alpha1",
                "kind": "DevicePluginConfig",
                "metadata": {"name": CONFIG},
                "spec": spec,
            }
        )

    def rename(self) -> None:
        self.name = NAMES[NAMES.index(self.name) - 1]
        self.configure()

    def narrow_or_widen(self) -> None:
        self.narrowed = not self.narrowed
        self.configure()

    def plug_or_unplug(self) -> None:
        number = self.random.choice(PLUGGED)
        (remove_loop if number in self.there else add_loop)(number)
        self.there ^= {number}

    def come(self) -> None:
        self.made += 1
        name = f"guest-{self.made}"
        self.kube.apply(self.kube.pod_object(name, limits={self.name: 1}, node="node-1", restart="Always"))
        self.pods[name] = ""

    def go(self, name: str = "") -> None:
        if name := name or (self.random.choice(sorted(self.pods)) if self.pods else ""):
            del self.pods[name]
            self.kube("delete", "pod", name, "--ignore-not-found", "--grace-period=0", "--force", "--wait=true")

    # Faults

    def kill_agent(self) -> None:
        self._kill(lambda: self.kube.agent(CONFIG, "node-1"))

    def kill_operator(self) -> None:
        pods = self.kube.every("pods", namespace=NAMESPACE, labels="app.kubernetes.io/component=operator")
        pod = self.random.choice(pods)["metadata"]["name"]
        self.kube("delete", "pod", pod, "-n", NAMESPACE, "--grace-period=0", "--force", "--wait=false")

    def kill_kubelet(self) -> None:
        self.kube.cluster.restart_service(1, "kubelet", signal.SIGKILL)

    def kill_containerd(self) -> None:
        self.kube.cluster.restart_service(1, "containerd", signal.SIGKILL)

    def stop_api_server(self) -> None:
        os.kill(self.kube.cluster.pids["apiserver"], signal.SIGKILL)
        time.sleep(self.random.uniform(1, 8))
        self.kube.cluster.up(nodes=2)

    def hang_api_server(self) -> None:
        pid = self.kube.cluster.pids["apiserver"]
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self.random.uniform(1, 8))
        os.kill(pid, signal.SIGCONT)

    def fill_disk_or_empty_it(self) -> None:
        if self._filler.exists():
            self._filler.unlink()
            return
        with suppress(OSError), self._filler.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass

    @property
    def _filler(self) -> Path:
        return self.plugins / "filler"

    def tear_record(self) -> None:
        with self._without_kubelet():
            file = self.plugins / checkpoint.FILE
            file.write_bytes(file.read_bytes()[: self.random.randrange(1, 60)])

    def remove_record(self) -> None:
        with self._without_kubelet():
            (self.plugins / checkpoint.FILE).unlink(missing_ok=True)

    def lose_own_files(self) -> None:
        for path in (self.plugins / "device-operator").rglob("*.json"):
            path.unlink(missing_ok=True)

    def restart_a_container(self) -> None:
        running = [name for name, disk in self.pods.items() if disk]
        if running:
            self._kill(lambda: self.kube.get("pod", self.random.choice(running)))

    @contextmanager
    def _without_kubelet(self) -> Iterator[None]:
        """For the loss of its record. What no List has ever named is not known to have run on: nothing is admitted now,
        and what was is named.
        """
        self._filler.unlink(missing_ok=True)
        self.kube("cordon", "node-1")
        try:
            self._wait_for_names()
            self.kube.cluster.stop_service(1, "kubelet")
            yield
            self.kube.cluster.start_service(1, "kubelet")
        finally:
            self.kube("uncordon", "node-1")

    def _wait_for_names(self) -> None:
        """The agent keeps the names on the node. A pod that cannot start, as its device is unplugged, is taken away.

        A kubelet that has just lost its record admits pods without giving them a device: nobody has registered the
        resource yet, and the API server still shows how many the node had.
        """

        def starting() -> list[str]:
            return [p["metadata"]["name"] for p in self._on_node() if p["status"].get("phase") == "Pending"]

        def named() -> bool:
            self._read_devices()
            running = {name for name, disk in self.pods.items() if disk}
            kept = [json.loads(f.read_text()) for f in (self.plugins / "device-operator" / "grants").glob("*.json")]
            names = {item["name"] for file in kept for item in file["items"]}
            assert running <= names, f"{running - names} not named"
            return True

        with suppress(AssertionError):
            wait_for("every pod to start", lambda: not starting(), seconds=20)
        for name in starting():
            self.say(f"  {name} cannot start")
            self.go(name)
        wait_for("the names of the holders", named, seconds=120)

    def _on_node(self) -> list[Object]:
        return [p for p in self.kube.every("pods") if p["spec"].get("nodeName") and p["metadata"]["name"] in self.pods]

    def _kill(self, find: Callable[[], Object]) -> None:
        with suppress(StopIteration, KeyError, LocalClusterError):
            status = find()["status"]["containerStatuses"][0]
            container = status["containerID"].rpartition("/")[2]
            tasks = self._in_node(str(binaries.path("ctr")), "-n", "k8s.io", "task", "ls")
            for line in tasks.splitlines():
                if line.startswith(container):
                    self._in_node("kill", "-KILL", line.split()[1])

    # What must hold

    def look(self) -> None:
        """No device is in two hands. For some seconds the API may still show a container that has ended."""
        self._read_devices()
        self.say(f"  pods {json.dumps(self.pods)}")

        def each_once() -> bool:
            disks = [disk for disk in self.pods.values() if disk]
            if len(disks) == len(set(disks)):
                return True
            self._read.clear()
            self._read_devices()
            raise AssertionError(f"in two hands: {self.pods}")

        wait_for("each device to be in one hand", each_once, seconds=15, every=1)

    def _read_devices(self) -> None:
        """Which pods run, and what their containers have. Rejected pods are taken away, as a controller would.

        A kubelet that has lost its record gives a container that starts again another device.
        """
        found = {p["metadata"]["name"]: p["status"] for p in self.kube.every("pods")}
        for name in tuple(self.pods):
            status = found.get(name, {})
            if status.get("phase") in (None, "Failed", "Succeeded"):
                del self.pods[name]
                self.kube("delete", "pod", name, "--ignore-not-found", "--grace-period=0", "--force")
                continue
            container = next((c for c in status.get("containerStatuses", ()) if "running" in c["state"]), {})
            if (identity := container.get("containerID", "")) != self._read.get(name):
                self.pods[name], self._read[name] = "", ""
                with suppress(LocalClusterError):
                    self.pods[name], self._read[name] = self.kube.pod_env(name, "DISK"), identity

    def tell(self) -> None:
        """After a failure: what agent, kubelet and node know, into the log."""
        with suppress(LocalClusterError, StopIteration):
            agent = self.kube.agent(CONFIG, "node-1")["metadata"]["name"]
            self.say(self.kube("logs", agent, "-n", NAMESPACE, "--tail=300"))
        with suppress(LocalClusterError):
            self.say(self.kube("get", "pods,ndi", "-A", "-o", "wide"))
        for path in (*(self.plugins / "device-operator" / "grants").glob("*.json"), self.plugins / checkpoint.FILE):
            with suppress(OSError):
                self.say(f"{path.name} {path.read_text()}")
        with suppress(grpc.RpcError):
            self.say(json.dumps({name: self.kube.held_ids(1, resource=name) for name in NAMES}))

    def calm(self) -> None:
        """Everybody goes, and everything is there again."""
        self.say("the end")
        self._filler.unlink(missing_ok=True)
        while self.pods:
            self.go()
        for number in set(PLUGGED) - self.there:
            add_loop(number)
        self.there, self.narrowed = set(PLUGGED), False
        self.configure()
