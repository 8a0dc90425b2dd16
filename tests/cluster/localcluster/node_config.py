"""The configuration files of a node's programs, as documents."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from localcluster.profile import Profile, node_name

PAUSE_IMAGE = "localhost/pause:1"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
KUBELET_HEALTH_PORT = 10248
PROXY_HEALTH_PORT = 10256


def containerd(*, folder: Path, plugins: Path, runc: Path, nvidia_runtime: Path | None = None) -> str:
    # restrict_oom_score_adj: without CAP_SYS_RESOURCE no process may lower its score, and pods would not start.
    return f"""\
version = 3
root = "{folder}/containerd"
state = "/run/containerd"
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{PAUSE_IMAGE}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  enable_cdi = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["{plugins}"]
  conf_dir = "{folder}/cni"
{_handler("runc", runc)}{_handler("nvidia", nvidia_runtime) if nvidia_runtime else ""}"""


def _handler(name: str, program: Path) -> str:
    return f"""\
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{name}]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{name}.options]
  BinaryName = "{program}"
  SystemdCgroup = false
"""


def nvidia_runtime(*, root: Path, runc: Path, hook: Path, log: Path) -> str:
    """NVIDIA's container runtime on the driver below `root`; it takes the devices of its own choice, mode `auto`."""
    return f"""\
accept-nvidia-visible-devices-as-volume-mounts = true
[nvidia-container-cli]
root = "{root}"
load-kmods = false
[nvidia-container-runtime]
debug = "{log}"
mode = "auto"
runtimes = ["{runc}"]
[nvidia-ctk]
path = "{hook}"
"""


def containerd_store(root: Path) -> str:
    """For a containerd that only fills its image store."""
    return f"""\
version = 3
root = "{root}"
state = "/run/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"]
[grpc]
  address = "{CONTAINERD_SOCKET}"
"""


def pod_network(profile: Profile, index: int) -> str:
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        "ipMasq": False,  # a node has no way out, and pods see each other's own addresses
        "ipam": {
            "type": "host-local",
            "dataDir": "/run/cni-addresses",
            "ranges": [[{"subnet": profile.node_pod_net(index)}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, ports]}, indent=1)


def kubelet(profile: Profile, index: int, *, folder: Path, pki: Path) -> str:
    name = node_name(index)
    document = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{profile.node_cgroup(index)}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": ["none"],
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True, "cacheTTL": "10s"},
            "x509": {"clientCAFile": f"{pki}/ca.crt"},
        },
        "authorization": {
            "mode": "Webhook",
            "webhook": {"cacheAuthorizedTTL": "10s", "cacheUnauthorizedTTL": "5s"},
        },
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": KUBELET_HEALTH_PORT,
        "tlsCertFile": f"{pki}/{name}.crt",
        "tlsPrivateKeyFile": f"{pki}/{name}.key",
        "evictionHard": {  # a full disk of this machine must not evict pods
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "2s",
        "nodeStatusReportFrequency": "10s",
        "syncFrequency": "5s",
        "fileCheckFrequency": "5s",
        "staticPodPath": f"{folder}/manifests",
        "resolvConf": f"{folder}/resolv.conf",
        "clusterDomain": "cluster.local",
        "clusterDNS": [profile.dns_service],
        "podLogsDir": "/var/log/pods",
        # else the kubelet makes a folder in the machine's /usr/libexec
        "volumePluginDir": "/run/kubelet-volume-plugins",
        "maxPods": 110,
    }
    return json.dumps(merged(document, profile.kubelet_config), indent=1)


def kube_proxy(profile: Profile, index: int, *, kubeconfig: Path) -> str:
    document = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "mode": profile.proxy_mode,
        "clusterCIDR": profile.pod_net,
        "hostnameOverride": node_name(index),
        "bindAddress": "0.0.0.0",  # in the node's own network namespace
        "healthzBindAddress": f"127.0.0.1:{PROXY_HEALTH_PORT}",
        "metricsBindAddress": "127.0.0.1:10249",
        # zero leaves the kernel's settings alone; they cannot be written from a network namespace
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
    return json.dumps(document, indent=1)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over`: maps are merged, everything else is replaced."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        result[key] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return result
