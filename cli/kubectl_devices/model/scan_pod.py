"""The pod that scans a node: root there, without capabilities, like an agent, and gone after some seconds. Pure."""

from typing import Any, Final

from device_agent.contract import names
from device_agent.contract.document import Document, dump
from device_operator.spec.agent_settings import AgentSettings
from device_operator.spec.driver_access import CONTAINER, PRIVILEGED_SELINUX_TYPE, PodNeeds, pod_needs

Object = dict[str, Any]
LABEL: Final = f"{names.GROUP}/purpose"
DEADLINE_SECONDS: Final = 120
"""After this the kubelet ends the pod, also if nobody deletes it."""


def pod(
    *, name: str, node: str, namespace: str, image: str, agent: AgentSettings, document: Document, selinux_type: str
) -> Object:
    """It is bound to the node by its name, so neither taints nor a full node keep it away."""
    needs = pod_needs(agent, document)
    mounts, volumes = _volumes(name, needs)
    security: Object = {"readOnlyRootFilesystem": True}
    if needs.privileged:
        security["privileged"] = True
    else:
        capabilities: Object = {"drop": ["ALL"], **({"add": list(needs.capabilities)} if needs.capabilities else {})}
        security |= {"allowPrivilegeEscalation": False, "capabilities": capabilities}
    variables = [*needs.env, *((e.name, e.value) for e in agent.env or ())]
    container: Object = {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": str(agent.image_pull_policy or "IfNotPresent"),
        "args": ["scan"],
        "env": [{"name": key, "value": value} for key, value in variables],
        "resources": {"limits": {"cpu": "500m", "memory": "128Mi"}},
        "securityContext": security,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
    if needs.driver_root:  # /dev is the node's then, and the kubelet would create the file there
        container["terminationMessagePath"] = "/tmp/termination-log"  # noqa: S108 in the container
    spec: Object = {
        "nodeName": node,
        "restartPolicy": "Never",
        "activeDeadlineSeconds": DEADLINE_SECONDS,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "tolerations": [{"operator": "Exists"}],
        "imagePullSecrets": [{"name": secret.name} for secret in agent.image_pull_secrets or ()],
        "securityContext": {
            "runAsUser": 0,
            "runAsGroup": 0,
            "seccompProfile": {"type": "RuntimeDefault"},
            "seLinuxOptions": {"type": PRIVILEGED_SELINUX_TYPE if needs.privileged else selinux_type},
        },
        "containers": [container],
        "volumes": volumes,
        **({"runtimeClassName": needs.runtime_class} if needs.runtime_class else {}),
    }
    meta = {"name": name, "namespace": namespace, "labels": {LABEL: "scan"}, "annotations": dict(needs.annotations)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def config_map(pod: Object, document: Document) -> Object:
    """The document. It belongs to the pod (as created, with its uid), so it goes with the pod."""
    meta = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "ownerReferences": [owner]},
        "data": {names.CONFIG_FILE: dump(document).decode()},
    }


def _volumes(name: str, needs: PodNeeds) -> tuple[list[Object], list[Object]]:
    """(mounts, volumes), as in the DaemonSet of the agents, without the kubelet's directories."""
    mounts: list[Object] = [
        {"name": "config", "mountPath": names.CONFIG_DIR, "readOnly": True},
        {"name": "dev", "mountPath": f"{names.HOST_ROOT}/dev", "readOnly": True},
        {"name": "sys", "mountPath": f"{names.HOST_ROOT}/sys", "readOnly": True},
    ]
    volumes: list[Object] = [
        {"name": "config", "configMap": {"name": name}},
        {"name": "dev", "hostPath": {"path": "/dev", "type": "Directory"}},
        {"name": "sys", "hostPath": {"path": "/sys", "type": "Directory"}},
    ]
    if needs.request:
        mounts.append({"name": "asks-runtime", "mountPath": needs.request, "readOnly": True})
        volumes.append({"name": "asks-runtime", "hostPath": {"path": "/dev/null", "type": "CharDevice"}})
    if needs.driver_root:
        mounts += [
            {"name": "dev", "mountPath": "/dev"},
            {"name": "driver-root", "mountPath": names.DRIVER_ROOT_DIR, "readOnly": True},
        ]
        volumes.append({"name": "driver-root", "hostPath": {"path": needs.driver_root, "type": "Directory"}})
    return mounts, volumes
