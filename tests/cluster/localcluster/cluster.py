"""A whole cluster: brought up, used and taken down. This is the interface that tests and the demo work with."""

import ipaddress
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from localcluster import archive, binaries, cgroups, imagestore, leftovers, packages, places
from localcluster.console import LocalClusterError, say, step
from localcluster.controlplane import ControlPlane
from localcluster.images import pause
from localcluster.machine import Machine
from localcluster.node import Node
from localcluster.pki import Pki
from localcluster.processes import PidFiles, run, succeeds, tail, wait_until
from localcluster.profile import Profile, named
from localcluster.services import check_running, wait_for_answers


class Cluster:
    """The cluster of a profile. `up` and `down` may be called in any state.

    Everything is under `state`: `admin.kubeconfig`, `logs/`, `nodes/node-1/...`. `down` keeps that folder, so that the
    next `up` finds the same objects and images; `clean` removes it.
    """

    def __init__(self, profile: Profile | str, *, state: Path | None = None) -> None:
        self.profile = named(profile) if isinstance(profile, str) else profile
        self.state = (state or places.clusters() / self.profile.name).resolve()
        self._pids = PidFiles(self.state / "run", self.state)
        self._pki = Pki(self.state / "pki", self.profile)
        self._control = ControlPlane(self.profile, state=self.state, pids=self._pids, pki=self._pki)

    # ---- life

    def up(self, nodes: int | None = None, *, images: Sequence[Path] = ()) -> None:
        """Starts what does not run, and returns when every service runs and answers and every node is Ready.

        `nodes`: how many; None: as the profile says. Further nodes that run already are left alone.
        `images`: archives that the nodes have from their start. This is much faster for a new node than `load_image`.
        """
        count = self.profile.nodes if nodes is None else nodes
        count = 0 if self.profile.control_plane_only else count
        replace(self.profile, nodes=count)  # checks the number
        packages.require_root()
        packages.ensure(packages.TO_RUN_NODES)
        nvidia = ("nvidia",) if self.profile.nvidia_root else ()
        binaries.build((*binaries.CLUSTER, *nvidia) if count else (*binaries.CONTROL_PLANE, "helm"))
        with self._locked("starting"), step(f"starting the cluster {self.profile.name!r}"):
            self._up(count, images)
        say(f"{count} nodes Ready, KUBECONFIG={self.kubeconfig}" if count else f"KUBECONFIG={self.kubeconfig}")

    def _up(self, count: int, images: Sequence[Path]) -> None:
        for below in ("logs", "run", "nodes"):
            (self.state / below).mkdir(parents=True, exist_ok=True)
        self._pki.make_cluster()
        self._control.write_kubeconfigs()
        if count:
            self._check_networks()
            Machine().claim(self.state)
            self._make_bridge()
        self._control.start_storage_and_api()
        nodes = [self._node(index) for index in range(1, count + 1)]
        started = [node for node in nodes if node.first_process is None]
        wanted = [pause().archive, *images] if nodes else []
        store = imagestore.prepare(wanted) if images and started else None
        for node in started:
            node.end()  # what a dead node has left, such as its cgroups
            node.start_namespaces(store)
            node.start_services(["containerd"])
        self._route(started)
        for node in nodes:
            node.start_services(["containerd"])
        for node in nodes:
            node.wait_for_containerd()
            for image in wanted:
                node.load(image)
        self._control.wait_for_api()
        self._control.start_controllers()
        began = time.time()
        fresh = [node for node in nodes if self._pids.alive(f"{node.name}.kubelet") is None]
        for node in nodes:
            node.start_services()
        self._allow_kubelet_access()
        self._wait_ready(nodes, fresh=fresh, since=began)

    def down(self) -> None:
        """Ends every process of the cluster; no mount, interface, cgroup or kernel setting of it stays."""
        if not self.state.exists():
            return
        with self._locked("stopping"):
            self._control.end_all_but_storage()
            for node in self._known_nodes():
                node.end()
            if Path(f"/sys/class/net/{self.profile.bridge}").exists():
                run(["ip", "link", "del", self.profile.bridge])
            cgroups.remove(self.profile.cgroup)
            Machine().release(self.state)
            self._control.end_storage()
            shutil.rmtree(self.state / "run", ignore_errors=True)

    def clean(self) -> None:
        """`down`, then removes the cluster's state."""
        self.down()
        shutil.rmtree(self.state, ignore_errors=True)

    def leftovers(self) -> list[str]:
        """What the cluster has on the machine outside its state folder; empty after `down`."""
        return leftovers.find(self.profile, state=self.state)

    # ---- use

    @property
    def kubeconfig(self) -> Path:
        return self._control.kubeconfig

    @property
    def server(self) -> str:
        return self.profile.server

    @property
    def pids(self) -> dict[str, int]:
        """The cluster's daemons that run: `etcd`, `apiserver`, `node-1` (its first process), `node-1.kubelet`, ..."""
        return self._pids.all_alive()

    def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002  # as in subprocess.run
        """Runs kubectl as the cluster's admin and returns what it printed."""
        return run(self._kubectl(arguments), stdin=input)

    def helm(self, *arguments: str) -> str:
        return run(self._helm(arguments), env=self._helm_environment())

    def attach(self, program: str, arguments: Sequence[str]) -> int:
        """kubectl or helm on the caller's own terminal; returns its exit status."""
        if program == "helm":
            return subprocess.call(self._helm(arguments), env=self._helm_environment())
        return subprocess.call(self._kubectl(arguments))

    def load_image(self, image: Path, nodes: Iterable[int] | None = None) -> list[str]:
        """Imports an image archive into the nodes that lack it, all when none are named; returns its references."""
        chosen = [self._node(index) for index in (self.running_nodes() if nodes is None else nodes)]
        started = time.monotonic()
        with ThreadPoolExecutor(max_workers=2) as pool:
            imported = list(pool.map(lambda node: node.load(image), chosen))
        references, _ = archive.identify(image)
        if any(imported):
            took = time.monotonic() - started
            say(f"imported {', '.join(references)} into {sum(imported)} nodes: {took:.1f} s")
        return references

    def run_in_node(self, index: int, *command: str, input: str | None = None) -> str:  # noqa: A002  # the same
        """Runs a command in all of a node's namespaces and returns what it printed."""
        return self._node(index).run(command, stdin=input)

    def attach_node(self, index: int, command: Sequence[str]) -> int:
        return self._node(index).attach(command)

    def node_dir(self, index: int) -> Path:
        """Where the node's /var/lib/kubelet is seen from outside the node."""
        return self._node(index).folder / "kubelet"

    def node_log(self, index: int, service: str) -> Path:
        return self._node(index).folder / "logs" / f"{service}.log"

    def running_nodes(self) -> list[int]:
        return [node.index for node in self._known_nodes() if node.first_process is not None]

    def stop_service(self, index: int, name: str, signal_number: int = signal.SIGTERM) -> None:
        """Ends `kubelet`, `containerd` or `kube-proxy` of a node and returns when it is gone."""
        self._node(index).stop_service(name, signal_number)

    def start_service(self, index: int, name: str) -> None:
        self._node(index).start_services([name])

    def restart_service(self, index: int, name: str, signal_number: int = signal.SIGTERM) -> None:
        self.stop_service(index, name, signal_number)
        self.start_service(index, name)

    def signal_service(self, index: int, name: str, signal_number: int) -> None:
        """Only sends the signal, e.g. SIGSTOP; nothing is waited for."""
        self._node(index).signal_service(name, signal_number)

    def stop_node(self, index: int) -> None:
        """A node loses its power: everything in it ends at once, its folder and its Node object stay."""
        self._node(index).end()

    # ---- parts

    def _node(self, index: int) -> Node:
        return Node(self.profile, index, state=self.state, pids=self._pids, pki=self._pki)

    def _known_nodes(self) -> list[Node]:
        names = [entry.name for entry in (self.state / "nodes").glob("node-*")]
        return [self._node(index) for index in sorted(int(name.removeprefix("node-")) for name in names)]

    def _locked(self, doing: str) -> AbstractContextManager[None]:
        lock = places.cache() / "clusters" / f".slot-{self.profile.slot}.lock"
        return places.locked(lock, what=f"{doing} a cluster of the same slot as {self.profile.name!r}")

    def _kubectl(self, arguments: Sequence[str]) -> list[str]:
        return [str(binaries.path("kubectl")), f"--kubeconfig={self.kubeconfig}", *arguments]

    def _helm(self, arguments: Sequence[str]) -> list[str]:
        return [str(binaries.path("helm")), f"--kubeconfig={self.kubeconfig}", *arguments]

    def _helm_environment(self) -> dict[str, str]:
        home = self.state / "helm"
        return {**os.environ, "HELM_CACHE_HOME": f"{home}", "HELM_CONFIG_HOME": f"{home}", "HELM_DATA_HOME": f"{home}"}

    def _make_bridge(self) -> None:
        bridge = self.profile.bridge
        if not Path(f"/sys/class/net/{bridge}").exists():
            # A bridge without an address of its own takes a port's, and changes it when ports come and go. For a while
            # nodes would still send to the old address.
            address = f"02:64:6f:00:00:{self.profile.slot:02x}"
            run(["ip", "link", "add", bridge, "address", address, "type", "bridge"])
            run(["ip", "addr", "add", f"{self.profile.gateway}/24", "dev", bridge])
        run(["ip", "link", "set", bridge, "up"])

    def _check_networks(self) -> None:
        """Refuses networks that the machine already uses for something else."""
        for route in json.loads(run(["ip", "-json", "route"])):
            if route["dev"] != self.profile.bridge and str(route["dst"]).startswith("10."):
                for net in (self.profile.node_net, self.profile.pod_net, self.profile.service_net):
                    if _overlap(str(route["dst"]), net):
                        raise LocalClusterError(
                            f"the cluster {self.profile.name!r} would use {net}, but this machine has a route to "
                            f"{route['dst']} by {route['dev']}: choose another cluster name"
                        )

    def _route(self, started: list[Node]) -> None:
        running = [node for node in self._known_nodes() if node.first_process is not None]
        for node in started:
            for other in running:
                if other.index != node.index:
                    node.route_to(other)
                    other.route_to(node)

    def _allow_kubelet_access(self) -> None:
        """Lets the API server's client certificate read logs, exec and metrics at the kubelets."""
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "local-cluster:apiserver-to-kubelet"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "system:kubelet-api-admin",
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "kube-apiserver-kubelet-client"}
            ],
        }
        wait_until(
            lambda: succeeds(self._kubectl(["get", "clusterrole", "system:kubelet-api-admin"])),
            seconds=30,
            what="the cluster's own roles",
        )
        self.kubectl("apply", "-f", "-", input=json.dumps(binding))

    def _wait_ready(self, nodes: list[Node], *, fresh: list[Node], since: float) -> None:
        """Waits until `nodes` are Ready. A fresh kubelet must show life first: before that, Ready is its predecessor's."""
        services = [*self._control.services(), *(service for node in nodes for service in node.services())]

        def ready() -> bool:
            check_running(services)
            return self._ready_nodes(since, {node.name for node in fresh}) >= {node.name for node in nodes}

        if nodes:
            logs = [self.node_log(node.index, "kubelet") for node in nodes]
            wait_until(ready, seconds=120, what="Ready nodes", explain=lambda: "\n".join(map(tail, logs)))
        if self.profile.controller_manager:
            account = self._kubectl(["get", "serviceaccount", "default"])
            wait_until(lambda: succeeds(account), seconds=30, what="the default ServiceAccount")
        for node in nodes:
            node.wait_for_api_service()
        wait_for_answers(services)

    def _ready_nodes(self, since: float, fresh: set[str]) -> set[str]:
        try:
            found = json.loads(self.kubectl("get", "nodes,leases", "-n", "kube-node-lease", "-o", "json"))["items"]
        except LocalClusterError:
            return set()
        # signs of a kubelet's life: a renewed lease, or a new Node, whose lease follows up to ten seconds later
        signs = {
            item["metadata"]["name"]
            for item in found
            if (item["kind"] == "Lease" and _seconds(item["spec"].get("renewTime")) > since)
            or (item["kind"] == "Node" and _seconds(item["metadata"]["creationTimestamp"]) > since - 1)
        }
        return {
            item["metadata"]["name"]
            for item in found
            if item["kind"] == "Node"
            and any(each["type"] == "Ready" and each["status"] == "True" for each in item["status"]["conditions"])
            and (item["metadata"]["name"] not in fresh or item["metadata"]["name"] in signs)
        }


def _seconds(timestamp: str | None) -> float:
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0


def _overlap(one: str, other: str) -> bool:
    return ipaddress.ip_network(one, strict=False).overlaps(ipaddress.ip_network(other))
