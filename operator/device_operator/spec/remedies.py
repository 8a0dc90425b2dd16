"""What to do about texts of Kubernetes: why an agent's pod is not made, or does not start. Pure.

The texts are those of the API server's admission and of the kubelet, in the Events about a DaemonSet or a pod.
"""

from collections.abc import Sequence
from typing import Final

_REFUSALS: Final = (
    ("violates PodSecurity", "kubectl label namespace {namespace} pod-security.kubernetes.io/enforce=privileged"),
    ("service account", "make the agents' ServiceAccount again with helm upgrade"),
    ("serviceaccount", "make the agents' ServiceAccount again with helm upgrade"),
    ("quota", "raise or delete the quota, see kubectl -n {namespace} get resourcequota"),
    ("PriorityClass", "correct agent.priorityClassName, see kubectl get priorityclass"),
    ("RuntimeClass", "correct agent.driverAccess.runtimeClass, see kubectl get runtimeclass"),
)
"""Part of a text of admission -> what to do. The first that fits counts."""
_STARTS: Final = (
    ('"pod-resources"', "set agent.kubeletRootDir to the --root-dir of the node's kubelet"),
    ("no runtime for", "install this runtime on the node, or let the pool select other nodes"),
    ('configmap "', "wait: the operator makes the ConfigMap again"),
)
"""Part of a Warning of the kubelet about a container that is being made -> what to do."""
PULL: Final = "correct agent.image or agent.imagePullSecrets, or see to the registry"


def of_refusal(text: str, *, namespace: str) -> str:
    """What to do if the API server refuses a pod; '' if the text is not known."""
    return _first(_REFUSALS, text).format(namespace=namespace or "NAMESPACE")


def of_start(text: str) -> str:
    """What to do if the kubelet cannot start a pod; '' if the text is not known."""
    return _first(_STARTS, text)


def _first(known: Sequence[tuple[str, str]], text: str) -> str:
    return next((todo for part, todo in known if part in text), "")
