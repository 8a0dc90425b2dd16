"""One node: a process tree in namespaces of its own, with containerd, the kubelet and kube-proxy inside.

A node's folder in the cluster's state holds what its standard paths show inside: `kubelet` is its /var/lib/kubelet,
and so on. The pid files hold pids as this machine sees them, so a service is signalled from out here.
"""

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from localcluster import archive, binaries, cgroups, files, imagestore, node_config
from localcluster.console import LocalClusterError
from localcluster.pki import Pki
from localcluster.processes import (
    SYSTEM_PATH,
    PidFiles,
    children,
    daemon_environment,
    enter_command,
    run,
    spawn,
    succeeds,
    tail,
    wait_until,
)
from localcluster.profile import Profile, node_name
from localcluster.services import Service, settle, wait_for_answers

SERVICES = ("containerd", "kube-proxy", "kubelet")
_INIT = Path(__file__).with_name("node-init.sh")
_SHOWN = ("kubelet", "cni-state", "cdi", "etc-kubernetes", "pod-logs", "container-logs")  # what node-init.sh binds
# What a node's shell asks without any program of its own. $1 port; $1 address, $2 port
_GET_HEALTH = r"""
    exec 3<>"/dev/tcp/127.0.0.1/$1"
    printf 'GET /healthz HTTP/1.0\r\n\r\n' >&3
    read -r _ code _ <&3
    [ "$code" = 200 ]
"""
_CONNECT = 'exec 3<>"/dev/tcp/$1/$2"'
_NAMESPACES = ("--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child")


class Node:
    def __init__(self, profile: Profile, index: int, *, state: Path, pids: PidFiles, pki: Pki) -> None:
        self.profile = profile
        self.index = index
        self.name = node_name(index)
        self.state = state
        self.folder = state / "nodes" / self.name
        self.pids = pids
        self.pki = pki
        self.address = profile.node_address(index)

    @property
    def first_process(self) -> int | None:
        """The pid of the node's first process, None when the node is down."""
        return self.pids.alive(self.name)

    def start_namespaces(self, store: Path | None = None) -> None:
        """Makes the empty node: namespaces, mounts, cgroups, its link to the bridge, a new one's images."""
        for below in (*_SHOWN, "cni", "images", "logs", "manifests"):
            (self.folder / below).mkdir(parents=True, exist_ok=True)
        if self.profile.nvidia_root:
            (self.folder / "proc" / "driver").mkdir(parents=True, exist_ok=True)  # node-init.sh shows it
        root = self.folder / "containerd"
        if store is not None and not root.exists():
            imagestore.give(store, root=root, marks=self.folder / "images")
        cgroups.make(self.profile.node_cgroup(self.index))
        ready = self.folder / "namespaces-ready"
        ready.unlink(missing_ok=True)
        log = self.folder / "logs" / "init.log"
        command: list[str | Path] = ["unshare", *_NAMESPACES, "bash", _INIT, self.folder, str(self.index)]
        if self.profile.node_hook is not None:
            command.append(self.profile.node_hook.resolve())
        outer = spawn(command, env=daemon_environment(self.state), log=log, cwd=self.state)
        self.pids.record(f"{self.name}.unshare", outer)
        wait_until(ready.exists, seconds=20, what=f"{self.name}'s namespaces", explain=lambda: tail(log))
        inner = children(outer)
        if not inner:
            raise LocalClusterError(f"{self.name}'s first process has ended\n{tail(log)}")
        self.pids.record(self.name, inner[0])
        self._connect(inner[0])

    def service(self, name: str) -> Service:
        answers = {
            "containerd": lambda: self._succeeds([binaries.path("ctr"), "version"]),
            "kube-proxy": lambda: self._succeeds(_bash(_GET_HEALTH, str(node_config.PROXY_HEALTH_PORT))),
            "kubelet": lambda: self._succeeds(_bash(_GET_HEALTH, str(node_config.KUBELET_HEALTH_PORT))),
        }
        if name not in answers:
            raise LocalClusterError(f"a node has no service {name!r}, but {', '.join(SERVICES)}")
        return Service(name=f"{self.name}.{name}", log=self._log(name), pids=self.pids, answers=answers[name])

    def services(self) -> list[Service]:
        return [self.service(name) for name in SERVICES]

    def start_services(self, names: Sequence[str] = SERVICES) -> None:
        """Starts the named services that do not run."""
        for name in names:
            service = self.service(name)
            settle(service)
            if not service.runs:
                self._start(name)

    def wait_for_containerd(self) -> None:
        wait_for_answers([self.service("containerd")])

    def wait_for_api_service(self) -> None:
        """Returns when the node reaches the API server by its ClusterIP, as pods do. kube-proxy makes that work."""
        log = self._log("kube-proxy")
        wait_until(
            lambda: self._succeeds(_bash(_CONNECT, self.profile.api_service, "443")),
            seconds=60,
            what=f"{self.name} to reach the API server at {self.profile.api_service}:443, kube-proxy's work",
            explain=lambda: tail(log),
        )

    def _succeeds(self, command: Sequence[str | Path]) -> bool:
        first = self.first_process
        return first is not None and succeeds([*enter_command(first), *command])

    def signal_service(self, name: str, signal_number: int) -> None:
        if not self.pids.send(self.service(name).name, signal_number):
            raise LocalClusterError(f"{name} does not run on {self.name}")

    def stop_service(self, name: str, signal_number: int = signal.SIGTERM) -> None:
        self.pids.end(self.service(name).name, signal_number)

    def end(self) -> None:
        """Ends the node and all that runs in it, in one step: the kernel ends a namespace with its first process."""
        self.pids.end(self.name, signal.SIGKILL)
        self.pids.end(f"{self.name}.unshare", signal.SIGKILL)
        for name in SERVICES:
            self.pids.forget(f"{self.name}.{name}")
        if Path(f"/sys/class/net/{self.profile.veth(self.index)}").exists():
            # the kernel removes it with the namespace, but in its own time
            succeeds(["ip", "link", "del", self.profile.veth(self.index)])
        cgroups.remove(self.profile.node_cgroup(self.index))

    def run(self, command: Sequence[str | Path], *, stdin: str | None = None) -> str:
        return run([*self._enter(), *command], stdin=stdin)

    def attach(self, command: Sequence[str]) -> int:
        """Runs a command in the node on the caller's own terminal."""
        return subprocess.call([*self._enter(), *command])

    def load(self, image: Path) -> bool:
        """Imports an image archive; False when the node has just this one already."""
        references, digest = archive.identify(image)
        mark = self.folder / "images" / digest
        present = self.ctr("images", "ls", "-q").split()
        if mark.exists() and all(reference in present for reference in references):
            return False
        self.ctr("images", "import", str(image.resolve()))
        mark.touch()
        return True

    def ctr(self, *arguments: str) -> str:
        return self.run([binaries.path("ctr"), "-n", "k8s.io", *arguments])

    def route_to(self, other: "Node") -> None:
        """Sets this node's route to the pods of the other node."""
        net = self.profile.node_pod_net(other.index)
        self.run(["ip", "route", "replace", net, "via", other.address])

    def _first(self) -> int:
        first = self.first_process
        if first is None:
            raise LocalClusterError(f"{self.name} of the cluster {self.profile.name!r} does not run")
        return first

    def _enter(self) -> list[str]:
        return enter_command(self._first())

    def _log(self, service: str) -> Path:
        return self.folder / "logs" / f"{service}.log"

    def _start(self, name: str) -> None:
        commands: dict[str, list[str | Path]] = {
            "containerd": [binaries.path("containerd"), "--config", self.folder / "containerd.toml"],
            "kube-proxy": [binaries.path("kube-proxy"), f"--config={self.folder}/kube-proxy.json"],
            "kubelet": [
                binaries.path("kubelet"),
                f"--config={self.folder}/kubelet.json",
                f"--kubeconfig={self.folder}/kubelet.kubeconfig",
                f"--hostname-override={self.name}",
                f"--node-ip={self.address}",
                *self.profile.kubelet_args,
            ],
        }
        self._write_files(name)  # the profile may have other settings than at the last start
        shims = binaries.folder("containerd")  # containerd finds its shim by PATH
        pid = spawn(
            commands[name],
            env=daemon_environment(self.state, path=f"{shims}:{SYSTEM_PATH}"),
            log=self._log(name),
            cwd=Path("/"),
            inside=self._first(),
        )
        self.pids.record(self.service(name).name, pid)

    def _write_files(self, service: str) -> None:
        """A service's own files, never another's: kube-proxy ends when its configuration is written while it runs."""
        writers = {
            "containerd": self._write_containerd,
            "kube-proxy": self._write_kube_proxy,
            "kubelet": self._write_kubelet,
        }
        writers[service]()

    def _write_containerd(self) -> None:
        nvidia_runtime = self._write_nvidia_runtime(self.profile.nvidia_root) if self.profile.nvidia_root else None
        text = node_config.containerd(
            folder=self.folder,
            plugins=binaries.folder("cni"),
            runc=binaries.path("runc"),
            nvidia_runtime=nvidia_runtime,
        )
        files.write(self.folder / "containerd.toml", text)
        files.write(self.folder / "cni/10-pods.conflist", node_config.pod_network(self.profile, self.index))

    def _write_kubelet(self) -> None:
        self.pki.make_node(self.index)
        server = self.profile.node_server
        self.pki.write_kubeconfig(self.name, server=server, target=self.folder / "kubelet.kubeconfig")
        text = node_config.kubelet(self.profile, self.index, folder=self.folder, pki=self.pki.folder)
        files.write(self.folder / "kubelet.json", text)
        files.write(self.folder / "resolv.conf", "")

    def _write_kube_proxy(self) -> None:
        kubeconfig = self.state / "kube-proxy.kubeconfig"
        self.pki.write_kubeconfig("kube-proxy", server=self.profile.node_server, target=kubeconfig)
        text = node_config.kube_proxy(self.profile, self.index, kubeconfig=kubeconfig)
        files.write(self.folder / "kube-proxy.json", text)

    def _write_nvidia_runtime(self, root: Path) -> Path:
        """The program that containerd calls: NVIDIA's runtime, which finds its configuration by a variable alone."""
        folder = self.folder / "nvidia"
        folder.mkdir(exist_ok=True)
        config, program = folder / "config.toml", folder / "runtime"
        text = node_config.nvidia_runtime(
            root=root,
            runc=binaries.path("runc"),
            hook=binaries.path("nvidia-cdi-hook"),
            log=self._log("nvidia-container-runtime"),
        )
        files.write(config, text)
        runtime = binaries.path("nvidia-container-runtime")
        script = f'#!/bin/sh\nNVIDIA_CTK_CONFIG_FILE_PATH="{config}" exec "{runtime}" "$@"\n'
        files.write(program, script, mode=0o755)
        return program

    def _connect(self, first_process: int) -> None:
        """A pair of interfaces, eth0 in the node and its end on the bridge. No default route: nothing leaves."""
        profile, end = self.profile, self.profile.veth(self.index)
        pair = ["ip", "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", str(first_process)]
        run(pair)
        run(["ip", "link", "set", end, "master", profile.bridge, "up"])
        # The route to the services lets programs of the node's own network reach ClusterIPs.
        script = f"""
            ip addr add {self.address}/24 dev eth0
            ip link set eth0 up
            sysctl -qw net.ipv4.ip_forward=1
            if [ -e /proc/sys/net/bridge ]; then sysctl -qw net.bridge.bridge-nf-call-iptables=1; fi
            ip route add {profile.service_net} dev eth0 src {self.address}
        """
        self.run(["bash", "-euc", script])
        net = profile.node_pod_net(self.index)
        run(["ip", "route", "replace", net, "via", self.address, "dev", profile.bridge])


def _bash(script: str, *arguments: str) -> list[str]:
    """A question in shell; no answer within three seconds is none."""
    return ["timeout", "3", "bash", "-euc", script, "ask", *arguments]
