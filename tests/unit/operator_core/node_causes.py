"""The faults of a node as the operator sees them, each with its state and reason."""

from dataclasses import replace
from typing import Any

from device_agent.kubelet.allocatable import foreign_message
from device_operator.spec.scheduling import Toleration
from device_operator.status.observed import ApplyProblem, FailedCreate, PodWarning
from device_operator.status.pools import PoolView, pool_daemonset
from unit.operator_core.build import KVM, LAB, ago, counts, device, inventory, node, pod, taint


def refused(name: str, message: str) -> dict[str, Any]:
    """A rendered name that the agent refuses."""
    return {"name": name, "devices": 0, "reason": "ResourceRefused", "message": message}


def nothing_found(entry: str, message: str) -> dict[str, Any]:
    return {"id": "devices[0]", "entry": entry, "reason": "NothingFound", "message": message}


def unreadable(entry: str, message: str) -> dict[str, Any]:
    return {"id": "x", "entry": entry, "reason": "Unreadable", "message": message}


NO_SOCKET = "the kubelet's socket is not there: the kubelet is starting or down"
GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-{profile}"
SERVING = {"pods": (pod(),), "inventories": (inventory(),)}
FAILED_CREATE = FailedCreate(pool_daemonset(LAB, "default"), 'violates PodSecurity "restricted"', ago(30), "ops")

CAUSES: dict[str, tuple[dict[str, Any], tuple[str, str, str]]] = {
    "serving": (SERVING, ("Serving", "Serving", "")),
    "nothing found": (
        {"pods": (pod(),), "inventories": (inventory(resources=[counts(devices=0)], devices=[]),)},
        ("NoDevices", "NoDevices", "found nothing to serve"),
    ),
    "a device that cannot be read": (
        {"pods": (pod(),), "inventories": (inventory(excluded=[unreadable(KVM, "/sys/x/vendor: Input/output error")]),)},
        ("Serving", "DevicesUnknown", f"cannot be read: {KVM}: /sys/x/vendor: Input/output error"),
    ),
    "two devices that cannot be read": (
        {"pods": (pod(),), "inventories": (inventory(excluded=[unreadable(KVM, "a"), unreadable(KVM, "b")]),)},
        ("Serving", "DevicesUnknown", f"cannot be read: {KVM}: a; {KVM}: b"),
    ),
    "no pod yet": ({}, ("Pending", "AwaitingPod", "has made no pod yet")),
    "no DaemonSet yet": ({"pool": PoolView(name="default", nodes=("node-1",), applied=False)}, ("Pending", "NotApplied", "")),
    "paused": (
        {"pool": PoolView(name="default", nodes=("node-1",), applied=False), "paused": True},
        ("Pending", "Paused", "spec.paused is true"),
    ),
    "not written": (
        {"pool": PoolView(name="default", nodes=("node-1",), problem=ApplyProblem("default", "NotOwned", "somebody else's"))},
        ("Pending", "NotOwned", "somebody else's"),
    ),
    "a taint": (
        {"on": node(taints=(taint("gpu", "yes"),)), "pool": PoolView(name="default", nodes=("node-1",), tolerations=())},
        ("Pending", "Tainted", "taint gpu=yes:NoSchedule keeps the agent away: add a matching toleration to pool default"),
    ),
    "two taints": (
        {
            "on": node(taints=(taint("gpu", "yes"), taint("old", effect="NoExecute"))),
            "pool": PoolView(name="default", nodes=("node-1",), tolerations=(Toleration("other"),)),
        },
        ("Pending", "Tainted", "taints gpu=yes:NoSchedule, old:NoExecute keep the agent away"),
    ),
    "FailedCreate": (
        {"failed_creates": (FAILED_CREATE,)},
        (
            "Pending",
            "FailedCreate",
            ("the DaemonSet cannot make the pod (kubectl label namespace ops pod-security.kubernetes.io/enforce=privileged): "
            'violates PodSecurity "restricted"'),
        ),
    ),
    "FailedCreate of long ago": (
        {"failed_creates": (FailedCreate(FAILED_CREATE.daemonset, "quota", ago(3000)),)},
        ("Pending", "AwaitingPod", ""),
    ),
    "pod being replaced": ({"pods": (pod(deleting=True),)}, ("Pending", "Replacing", "")),
    "not scheduled": (
        {"pods": (pod(ready=False, phase="Pending", unscheduled="0/3 nodes: Insufficient memory"),)},
        ("Pending", "Unschedulable", "Insufficient memory"),
    ),
    "image cannot be pulled": (
        {"pods": (pod(ready=False, waiting_reason="ImagePullBackOff", waiting_message="no such tag"),)},
        ("Failed", "ImagePullFailed", "ImagePullBackOff (correct agent.image or agent.imagePullSecrets, or see to the registry): no such tag"),
    ),
    "container cannot be made": (
        {"pods": (pod(ready=False, waiting_reason="CreateContainerConfigError", waiting_message="no such secret"),)},
        ("Failed", "CreateContainerConfigError", "no such secret"),
    ),
    "container being made": (
        {"pods": (pod(ready=False, age=20, waiting_reason="ContainerCreating", namespace="ops"),)},
        ("Pending", "ContainerCreating", "since 2026-06-01T11:59:40Z; kubectl describe pod -n ops lab-default-node-1 says why"),
    ),
    "container being made, the kubelet says why not": (
        {
            "pods": (pod(ready=False, age=20, waiting_reason="ContainerCreating", namespace="ops"),),
            "pod_warnings": (PodWarning("lab-default-node-1", "FailedMount", "no such secret", ago(3)), PodWarning("other", "X", "y", ago(1))),
        },
        ("Pending", "ContainerCreating", "since 2026-06-01T11:59:40Z: FailedMount: no such secret"),
    ),
    "agent crashes": (
        {
            "pods": (
                pod(
                    ready=False,
                    waiting_reason="CrashLoopBackOff",
                    terminated_reason="Error",
                    terminated_message="no kubelet socket",
                    exit_code=1,
                    restarts=4,
                ),
            )
        },
        ("Failed", "AgentCrashes", "exit code 1 (Error), 4 restarts: no kubelet socket"),
    ),
    "pod failed": ({"pods": (pod(ready=False, phase="Failed", terminated_reason="Evicted"),)}, ("Failed", "PodFailed", "Evicted")),
    "just started": ({"pods": (pod(ready=False, age=5),)}, ("Pending", "Starting", "starts")),
    "never got Ready": ({"pods": (pod(ready=False, age=90),)}, ("Failed", "AgentNotReady", "since 2026-06-01T11:58:30Z")),
    "not Ready for a moment": (
        {"pods": (pod(ready=False, ready_changed_at=ago(30)),), "inventories": (inventory(),)},
        ("Serving", "AgentNotReady", "is not Ready since 2026-06-01T11:59:30Z"),
    ),
    "not Ready any more": (
        {"pods": (pod(ready=False, ready_changed_at=ago(61)),), "inventories": (inventory(),)},
        ("Stale", "AgentNotReady", "is not Ready since 2026-06-01T11:58:59Z"),
    ),
    "Ready, no report yet": ({"pods": (pod(ready_changed_at=ago(5)),)}, ("Pending", "NoReport", "")),
    "Ready, no report": ({"pods": (pod(),)}, ("Stale", "NoReport", "rights of its ServiceAccount")),
    "report of the pool before": (
        {"pods": (pod(ready_changed_at=ago(5)),), "inventories": (inventory(poolName="edge"),)},
        ("Pending", "NoReport", ""),
    ),
    "report of an object deleted before": (
        {"pods": (pod(),), "inventories": (inventory(owner="uid-old"),)},
        ("Stale", "NoReport", ""),
    ),
    "heartbeat stands still": (
        {"pods": (pod(),), "inventories": (inventory(heard=1501),)},
        ("Stale", "NoHeartbeat", "came at 2026-06-01T11:34:59Z"),
    ),
    "inventory not understood": (
        {"pods": (pod(),), "inventories": (replace(inventory(), status=None, unreadable="status.summary: must be an object"),)},
        ("Stale", "InventoryUnreadable", "lab.node-1 cannot be read: status.summary: must be an object"),
    ),
    "inventory not written yet": (
        {"pods": (pod(),), "inventories": (replace(inventory(), status=None),)},
        ("Stale", "NoReport", "has not reported"),
    ),
    "configuration not understood": (
        {"pods": (pod(),), "inventories": (inventory(configError="contract version 2"),)},
        ("Serving", "ConfigError", "keeps its previous configuration: contract version 2"),
    ),
    "resource refused": (
        {"pods": (pod(),), "inventories": (inventory(resources=[counts(reason="ResourceRefused", message="30,000 ids")]),)},
        ("Serving", "ResourceRefused", "example.com/kvm: 30,000 ids"),
    ),
    "resource refused, none of it left": (
        {
            "pods": (pod(),),
            "inventories": (
                inventory(
                    resources=[counts(devices=0, registered=False, reason="ResourceRefused", message="30,000 ids")], devices=[]
                ),
            ),
        },
        ("NoDevices", "ResourceRefused", "example.com/kvm: 30,000 ids"),
    ),
    "a rendered name refused": (
        {
            "pods": (pod(),),
            "inventories": (inventory(resources=[counts(), refused("example.com/a", "30,000 ids")]),),
        },
        ("Serving", "ResourceRefused", "example.com/a: 30,000 ids"),
    ),
    "driver not loaded": (
        {
            "pods": (pod(),),
            "inventories": (
                inventory(
                    resources=[
                        counts(GPU, devices=0, registered=False, reason="DriverUnavailable", message="driver not loaded"),
                        counts(MIG, devices=0, registered=False, reason="DriverUnavailable", message="driver not loaded"),
                    ],
                    devices=[],
                ),
            ),
        },
        ("NoDevices", "DriverUnavailable", "nvidia.com/gpu, nvidia.com/mig-{profile}: driver not loaded"),
    ),
    "driver gone under its devices": (
        {
            "pods": (pod(),),
            "inventories": (inventory(resources=[counts(GPU, healthy=0, reason="DriverUnavailable", message="driver not loaded")]),),
        },
        ("Serving", "DriverUnavailable", "nvidia.com/gpu: driver not loaded"),
    ),
    "no file found": (
        {
            "pods": (pod(),),
            "inventories": (
                inventory(
                    resources=[counts(devices=0)],
                    devices=[],
                    excluded=[nothing_found(KVM, "devices[0]: no file matches /dev/nothere*")],
                ),
            ),
        },
        ("NoDevices", "NoDevices", "example.com/kvm: devices[0]: no file matches /dev/nothere*"),
    ),
    "one of two resources not found": (
        {
            "pods": (pod(),),
            "inventories": (
                inventory(resources=[counts(), counts("example.com/a", devices=0)], excluded=[nothing_found("example.com/a", "devices[0]: no file")]),
            ),
        },
        ("Serving", "Serving", ""),
    ),
    "not registered": (
        {"pods": (pod(),), "inventories": (inventory(resources=[counts(registered=False)]),)},
        ("Serving", "NotRegistered", "does not know example.com/kvm"),
    ),
    "no holders": (
        {"pods": (pod(),), "inventories": (inventory(podResources="Unavailable"),)},
        ("Serving", "PodResourcesUnavailable", "agent.kubeletRootDir"),
    ),
    "health not kept": (
        {
            "pods": (pod(),),
            "inventories": (
                inventory(healthError="the disk hangs", devices=[device(health="Unhealthy", reason="Missing")]),
            ),
        },
        ("Serving", "HealthNotKept", "the disk hangs"),
    ),
    "unhealthy device": (
        {"pods": (pod(),), "inventories": (inventory(devices=[device(health="Unhealthy", reason="Missing")]),)},
        ("Serving", "DevicesUnhealthy", "1 of 1 devices Unhealthy: kvm (Missing)"),
    ),
    "no answer about a device": (
        {
            "pods": (pod(),),
            "inventories": (inventory(devices=[device(health="Unknown", reason="DriverHangs", message="NVML hangs")]),),
        },
        ("Serving", "DevicesUnknown", "1 of 1 devices Unknown: kvm (DriverHangs: NVML hangs)"),
    ),
    "no answer, and nobody says why": (
        {"pods": (pod(),), "inventories": (inventory(devices=[device(health="Unknown", message="NVML hangs")]),)},
        ("Serving", "DevicesUnknown", "1 of 1 devices Unknown: kvm (NVML hangs)"),
    ),
    "an unhealthy device beside unknown ones": (
        {
            "pods": (pod(),),
            "inventories": (inventory(devices=[device("a", health="Unknown"), device("b", health="Unhealthy", reason="Missing")]),),
        },
        ("Serving", "DevicesUnhealthy", "b (Missing)"),
    ),
    "node down": (
        {"on": node(ready=False, ready_changed_at=ago(120)), "pods": (pod(ready=False, ready_changed_at=ago(90)),), "inventories": (inventory(),)},
        ("Stale", "NodeNotReady", "the node is NotReady since 2026-06-01T11:58:00Z"),
    ),
    "node down for a moment": (
        {
            "on": node(ready=False, ready_changed_at=ago(5)),
            "pods": (pod(ready=False, ready_changed_at=ago(5), restarts=2, exit_code=137, terminated_at=ago(3600)),),
            "inventories": (inventory(),),
        },
        ("Stale", "NodeNotReady", "the node is NotReady since 2026-06-01T11:59:55Z: its kubelet does not report"),
    ),
    "node down, its pod still called Ready": (
        {"on": node(ready=False, ready_changed_at=ago(5)), **SERVING},
        ("Stale", "NodeNotReady", "its kubelet does not report"),
    ),
    "node down after its agent crashed": (
        {"on": node(ready=False), "pods": (pod(ready=False, waiting_reason="CrashLoopBackOff"),)},
        ("Pending", "NodeNotReady", ""),
    ),
    "kubelet says why": (
        {"on": node(ready=False, why_not_ready="cni plugin not initialized"), **SERVING},
        ("Stale", "NodeNotReady", ": cni plugin not initialized"),
    ),
    "kubelet gone, node not yet given up": (
        {"pods": (pod(),), "inventories": (inventory(resources=[counts(registered=False, reason="NotRegistered", message=NO_SOCKET)]),)},
        ("Serving", "NotRegistered", f"example.com/kvm is not registered with the kubelet: {NO_SOCKET}"),
    ),
    "another plugin has the name": (
        {
            "pods": (pod(),),
            "inventories": (inventory(resources=[counts(registered=False, reason="ForeignPlugin", message=foreign_message(KVM, ["x"]))]),),
        },
        ("Serving", "ForeignPlugin", "another device plugin on this node serves example.com/kvm (x)"),
    ),
    "agent not Ready for want of a kubelet": (
        {
            "pods": (pod(ready=False, ready_changed_at=ago(30)),),
            "inventories": (inventory(resources=[counts(registered=False, reason="NotRegistered", message=NO_SOCKET)]),),
        },
        ("Serving", "AgentNotReady", f"since 2026-06-01T11:59:30Z: example.com/kvm is not registered with the kubelet: {NO_SOCKET}"),
    ),
    "agent ended just before": (
        {
            "pods": (
                pod(ready=False, ready_changed_at=ago(70), restarts=1, exit_code=137, terminated_reason="OOMKilled", terminated_at=ago(71)),
            ),
            "inventories": (inventory(),),
        },
        ("Stale", "AgentNotReady", "its log says why; exit code 137 (OOMKilled), 1 restart"),
    ),
    "node going": ({"on": node(deleting=True)}, ("Pending", "NodeNotReady", "being deleted")),
}  # fmt: skip
