"""Random faults on a real cluster, while pods come and go: no device is ever in two hands, and none is lost.

FAULTS: how many (a short form runs with the other tests, `make soak` runs hundreds). FAULTS_SEED: which. The log of each
step is kept in the file that the test prints first.
"""

import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from device_agent.kubelet import checkpoint
from kube import NAMESPACE, Kube, Object, wait_for
from localcluster import LocalClusterError, binaries

pytestmark = pytest.mark.disruptive

NAMES = ("example.com/fault", "example.com/fault.renamed")
CONFIG = "faults"
DISKS = 4
FAULTS = int(os.environ.get("FAULTS", "12"))
SEED = int(os.environ.get("FAULTS_SEED", "0")) or random.randrange(1, 10**6)


class Storm:
    """The cluster under faults. `pods`: name -> the device that it has opened, '' while it is not known to run."""

    def __init__(self, kube: Kube, log: Path) -> None:
        self.kube = kube
        self.random = random.Random(SEED)
        self.name = NAMES[0]
        self.replicas = 1
        self.pods: dict[str, str] = {}
        self.made = 0
        self._log = log
        self._begun = time.monotonic()
        self.plugins = kube.cluster.node_dir(1) / "device-plugins"

    def say(self, what: str) -> None:
        with self._log.open("a") as file:
            file.write(f"{time.monotonic() - self._begun:8.1f} {what}\n")

    # What an admin and the scheduler do

    def configure(self) -> None:
        resource = {
            "name": self.name,
            "devices": [{"sysfs": {"subsystem": "block", "names": [f"loop[0-{DISKS - 1}]"]}}],
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

    def come(self) -> None:
        self.made += 1
        name = f"guest-{self.made}"
        self.kube.apply(self.kube.pod_object(name, limits={self.name: 1}, node="node-1", restart="Always"))
        self.pods[name] = ""

    def go(self) -> None:
        if self.pods:
            name = self.random.choice(sorted(self.pods))
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
        self._names_known()
        self.kube.cluster.stop_service(1, "kubelet")
        yield
        self.kube.cluster.start_service(1, "kubelet")

    def _names_known(self) -> None:
        """What no List has ever named is not known to have run on. The agent keeps the names on the node."""
        running = {name for name, disk in self.pods.items() if disk}

        def named() -> bool:
            kept = [json.loads(f.read_text()) for f in (self.plugins / "device-operator" / "grants").glob("*.json")]
            names = {item["name"] for file in kept for item in file["items"]}
            assert running <= names, f"{running - names} not named"
            return True

        wait_for("the names of the holders", named, seconds=120)

    def _kill(self, find: Callable[[], Object]) -> None:
        with suppress(StopIteration, KeyError, LocalClusterError):
            status = find()["status"]["containerStatuses"][0]
            container = status["containerID"].rpartition("/")[2]
            tasks = self.kube.cluster.run_in_node(1, str(binaries.path("ctr")), "-n", "k8s.io", "task", "ls")
            for line in tasks.splitlines():
                if line.startswith(container):
                    self.kube.cluster.run_in_node(1, "kill", "-KILL", line.split()[1])

    # What must hold

    def look(self) -> None:
        """Which pods run, and what they have opened. Rejected pods are taken away, as a controller would."""
        phases = {p["metadata"]["name"]: p["status"].get("phase") for p in self.kube.every("pods")}
        for name in tuple(self.pods):
            if phases.get(name) in (None, "Failed", "Succeeded"):
                del self.pods[name]
                self.kube("delete", "pod", name, "--ignore-not-found", "--grace-period=0", "--force")
            elif phases[name] == "Running" and not self.pods[name]:
                with suppress(LocalClusterError):
                    self.pods[name] = self.kube.pod_env(name, "DISK")
        self.say(f"  pods {json.dumps(self.pods)}")
        disks = [disk for disk in self.pods.values() if disk]
        assert len(disks) == len(set(disks)), f"in two hands: {self.pods}"


@pytest.mark.timeout(600 + 90 * FAULTS)
def test_random_faults_put_no_device_into_two_hands_and_lose_none(kube: Kube) -> None:
    log = Path(tempfile.gettempdir()) / f"device-operator-faults-{SEED}.log"
    print(f"seed {SEED}, log {log}")
    storm = Storm(kube, log)
    faults = [
        storm.rename, storm.kill_agent, storm.kill_operator, storm.kill_kubelet, storm.kill_containerd,
        storm.tear_record, storm.remove_record, storm.lose_own_files, storm.restart_a_container,
    ]  # fmt: skip
    with kube.config(CONFIG, {"resources": [{"name": NAMES[0], "devices": [{"simulated": {"count": 1}}]}]}):
        storm.configure()
        kube.wait_node("node-1", storm.name, DISKS, DISKS, seconds=120)
        try:
            for number in range(FAULTS):
                for _ in range(storm.random.randrange(3)):
                    step = storm.come if len(storm.pods) < DISKS and storm.random.random() < 0.7 else storm.go
                    storm.say(step.__name__)
                    step()
                time.sleep(storm.random.uniform(0, 4))
                storm.look()
                fault = storm.random.choice(faults)
                storm.say(f"{number} {fault.__name__}")
                fault()
                wait_for("the API and the node", lambda: kube.get("node", "node-1"), seconds=120)
                storm.look()
        finally:
            storm.say("the end: everybody goes")
            while storm.pods:
                storm.go()
        kube.wait_node("node-1", storm.name, DISKS, DISKS, seconds=180)
        wait_for(
            "every device free, offered once",
            lambda: (
                {
                    (d["id"], d["resource"], d["health"])
                    for d in kube.inventory(CONFIG, "node-1")["status"]["devices"]
                    if not d.get("allocatedTo")
                }
                == {(f"loop{n}", storm.name, "Healthy") for n in range(DISKS)}
            ),
            seconds=120,
        )
