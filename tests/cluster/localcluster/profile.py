"""What one cluster is: its size and settings, and everything that keeps it apart from other clusters on the machine.

The slot follows from the profile's name. Ports, networks, interface names and cgroups follow from the slot. So clusters
run side by side, and a cluster is found again by its name alone.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localcluster.console import LocalClusterError

_RESERVED = {"demo": 0, "test": 1, "api": 2, "bench": 3}
_SLOTS = 64
_PORTS = 20000  # below the ports that Linux hands out by itself (32768 and up)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The settings of one cluster.

    `kubelet_config`: replaces values of the kubelet's configuration; nested maps are merged. `..._args`: added to the
    programs' command lines. `node_hook`: a shell file that each node sources in its own mount namespace, with its
    number as $1, before anything starts there. It can bind other trees over /dev or /sys. `nvidia_root`: directory of
    an NVIDIA driver's files. With it the nodes have NVIDIA's container runtime as the handler `nvidia`.
    """

    name: str
    nodes: int = 2
    control_plane_only: bool = False  # etcd and kube-apiserver: no node, no network interface
    controller_manager: bool = True
    kubelet_config: Mapping[str, Any] = field(default_factory=dict)
    kubelet_args: tuple[str, ...] = ()
    apiserver_args: tuple[str, ...] = ()
    controller_manager_args: tuple[str, ...] = ()
    scheduler_args: tuple[str, ...] = ()
    proxy_mode: str = "nftables"
    node_hook: Path | None = None
    nvidia_root: Path | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,18}[a-z0-9])?", self.name):
            raise LocalClusterError(f"{self.name!r} is no cluster name: a DNS label of at most 20 characters")
        if not 0 <= self.nodes <= 100:
            raise LocalClusterError(f"{self.nodes} nodes: a local cluster has at most 100")

    @property
    def slot(self) -> int:
        """0..63. Known names have slots of their own. Other names share the rest: two of them may have the same slot."""
        if self.name in _RESERVED:
            return _RESERVED[self.name]
        first = len(_RESERVED)
        return first + int(hashlib.sha256(self.name.encode()).hexdigest(), 16) % (_SLOTS - first)

    def _port(self, offset: int) -> int:
        return _PORTS + 10 * self.slot + offset

    @property
    def api_port(self) -> int:
        return self._port(0)

    @property
    def etcd_port(self) -> int:
        return self._port(1)

    @property
    def etcd_peer_port(self) -> int:
        return self._port(2)

    @property
    def controller_manager_port(self) -> int:
        return self._port(3)

    @property
    def scheduler_port(self) -> int:
        return self._port(4)

    @property
    def ports(self) -> tuple[int, ...]:
        used = [self.api_port, self.etcd_port, self.etcd_peer_port]
        if self.controller_manager:
            used.append(self.controller_manager_port)
        if not self.control_plane_only:
            used.append(self.scheduler_port)
        return tuple(used)

    @property
    def server(self) -> str:
        """The API server as programs of this machine reach it."""
        return f"https://127.0.0.1:{self.api_port}"

    @property
    def node_server(self) -> str:
        """The API server as nodes reach it."""
        return f"https://{self.gateway}:{self.api_port}"

    @property
    def node_net(self) -> str:
        return f"10.89.{self.slot}.0/24"

    @property
    def gateway(self) -> str:
        """The machine's own address in the nodes' network."""
        return f"10.89.{self.slot}.1"

    def node_address(self, index: int) -> str:
        return f"10.89.{self.slot}.{10 + index}"

    @property
    def pod_net(self) -> str:
        return f"10.{128 + self.slot}.0.0/16"

    def node_pod_net(self, index: int) -> str:
        return f"10.{128 + self.slot}.{index}.0/24"

    @property
    def service_net(self) -> str:
        return f"10.{192 + self.slot}.0.0/24"

    @property
    def api_service(self) -> str:
        """The ClusterIP of the Service `kubernetes`."""
        return f"10.{192 + self.slot}.0.1"

    @property
    def dns_service(self) -> str:
        """What pods have as their resolver. No DNS server runs there: without this setting the kubelet complains."""
        return f"10.{192 + self.slot}.0.10"

    @property
    def bridge(self) -> str:
        return f"lc{self.slot}"

    def veth(self, index: int) -> str:
        return f"lc{self.slot}n{index}"

    @property
    def cgroup(self) -> str:
        """The cluster's cgroup, relative to each hierarchy's root; its nodes' are below."""
        return f"device-operator-{self.name}"

    def node_cgroup(self, index: int) -> str:
        return f"{self.cgroup}/{node_name(index)}"


def node_name(index: int) -> str:
    return f"node-{index}"


PROFILES = {
    "demo": Profile(name="demo"),
    "test": Profile(name="test"),
    "api": Profile(name="api", nodes=0, control_plane_only=True, controller_manager=False),
}


def named(name: str) -> Profile:
    """A known profile, or the default settings under another name."""
    return PROFILES.get(name) or Profile(name=name)
