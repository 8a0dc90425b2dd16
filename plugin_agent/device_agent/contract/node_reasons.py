"""The states and reasons of nodes in the status of a DevicePluginConfig, each with its meaning for an admin.

Kubernetes' own words for a container that cannot start, such as `CreateContainerConfigError`, may also be a node's
reason. They are not listed here.
"""

from device_agent.contract.reasons import Word


class NodeState(Word):
    """`status.nodes[].state` of the DevicePluginConfig."""

    SERVING = "Serving", "The agent serves devices. A reason other than Serving names a fault."
    PENDING = "Pending", "The agent does not run yet. The message says what it waits for."
    STALE = "Stale", "The agent has stopped reporting. Check the node's kubelet, then the agent's pod and log."
    FAILED = (
        "Failed",
        "The agent's pod cannot start, or ends repeatedly: kubectl logs -n device-operator POD --previous.",
    )
    NO_DEVICES = (
        "NoDevices",
        "The agent runs, but the node has no device to serve. This is a fault only if the reason names one, such as "
        "DriverUnavailable.",
    )


class NodeReason(Word):
    """`status.nodes[].reason` of the DevicePluginConfig; also of Ready and Degraded, where nodes are their cause."""

    SERVING = "Serving", "No problems found on this node."
    NO_DEVICES = "NoDevices", "The agent found nothing to serve. The message says where the sources looked."
    # before there is a pod
    PAUSED = "Paused", "spec.paused is true, so no agent is created. Set it to false."
    NOT_OWNED = (
        "NotOwned",
        "A DaemonSet or ConfigMap of the pool's name belongs to something else; the message names the owner. Delete or "
        "rename that object.",
    )
    APPLY_FAILED = (
        "ApplyFailed",
        "The API server refused an object of the pool; the message has its text. The operator tries again.",
    )
    TAINTED = (
        "Tainted",
        "A taint of the node keeps the agent away; the message names it. Add a toleration to the pool, or omit "
        "tolerations to tolerate every taint.",
    )
    FAILED_CREATE = (
        "FailedCreate",
        "The API server refuses the agent's pod (pod security, quota, RuntimeClass); the message has its text.",
    )
    NOT_APPLIED = "NotApplied", "The pool's DaemonSet does not exist yet. Wait a moment."
    AWAITING_POD = "AwaitingPod", "The DaemonSet controller has not created the agent's pod yet. Wait a moment."
    REPLACING = "Replacing", "The agent's pod is being replaced. Wait."
    # while the pod starts
    UNSCHEDULABLE = "Unschedulable", "The agent's pod is not scheduled; the message has the scheduler's text."
    CONTAINER_CREATING = (
        "ContainerCreating",
        "The container cannot be created yet. The message has the kubelet's last warning, such as a RuntimeClass that "
        "the node's container runtime does not know.",
    )
    POD_INITIALIZING = "PodInitializing", "The pod is being set up; the message has the kubelet's last warning."
    IMAGE_PULL_FAILED = (
        "ImagePullFailed",
        "The node cannot pull the agent's image. Check agent.image, agent.imagePullSecrets and the registry.",
    )
    STARTING = "Starting", "The agent's pod has just started. Wait."
    POD_FAILED = "PodFailed", "The agent's pod ended; the message has its exit code and its last output."
    AGENT_CRASHES = (
        "AgentCrashes",
        "The agent's container ends repeatedly: kubectl logs -n device-operator POD --previous.",
    )
    # while the agent runs
    AGENT_NOT_READY = "AgentNotReady", "The agent runs, but is not Ready; the message or the agent's log says why."
    NODE_NOT_READY = (
        "NodeNotReady",
        "The node's kubelet does not report, or says that the node is not ready, or the node is being deleted. Repair "
        "the node; the agent is not the cause.",
    )
    NO_REPORT = (
        "NoReport",
        "The agent is Ready, but has written no inventory. Its log says why: rights of its ServiceAccount, an "
        "admission policy, or no connection to the API server.",
    )
    INVENTORY_UNREADABLE = (
        "InventoryUnreadable",
        "The operator cannot read the node's inventory; the message names the field. Use operator and agents of the "
        "same release.",
    )
    NO_HEARTBEAT = "NoHeartbeat", "The agent is Ready, but has stopped writing its inventory. Its log says why."
    CONFIG_ERROR = (
        "ConfigError",
        "The agent cannot use the new configuration and keeps the earlier one; the message says what is wrong.",
    )
    FOREIGN_PLUGIN = (
        "ForeignPlugin",
        "Another device plugin on the node serves the resource's name, and the agent waits until it is gone. Remove "
        "it, or rename the resource.",
    )
    NOT_REGISTERED = "NotRegistered", "The kubelet does not know the resource; the message has the cause."
    RESOURCE_REFUSED = (
        "ResourceRefused",
        "The agent refuses a resource: status.excluded of the inventory has the reason (NameTaken, TooManyNames, "
        "TooManyIds) and the numbers.",
    )
    DRIVER_UNAVAILABLE = (
        "DriverUnavailable",
        "The devices' driver or its library cannot be reached, hangs, or starts slowly; the message says which, and "
        "what to try (docs/gpu.md#how-the-agent-reaches-the-driver, "
        "docs/health.md#a-driver-that-hangs-a-driver-that-is-slow).",
    )
    ENV_COLLISION = (
        "EnvCollision",
        "A container holds two resources that set the same environment variable, so it has only one of the values. "
        "Request one of the two, or inject the devices in another way "
        "(docs/gpu.md#how-pods-get-their-gpu-the-presets).",
    )
    HEALTH_NOT_KEPT = (
        "HealthNotKept",
        "The agent cannot write or read the record of device health on the node's disk; status.healthError of the "
        "inventory has the cause (docs/health.md#where-health-is-kept).",
    )
    DEVICES_UNHEALTHY = "DevicesUnhealthy", "Devices are Unhealthy; status.unhealthyDevices has them with reasons."
    DEVICES_UNKNOWN = (
        "DevicesUnknown",
        "Some devices gave no answer, or cannot be read. Known ones are offered as before, and not counted as healthy "
        "(docs/health.md#states).",
    )
    KUBELET_RECORD_UNREADABLE = (
        "KubeletRecordUnreadable",
        "The kubelet's record of what it gave to pods (kubelet_internal_checkpoint) cannot be read, or has a form that "
        "this agent does not know. Until then the agent relies on PodResources and on the last record it read. Use a "
        "release that supports the node's Kubernetes version, or look at the node's disk.",
    )
    KUBELET_KEEPS = (
        "KubeletKeeps",
        "The kubelet keeps the device for a pod that is gone, and gives it to nobody (kubernetes/kubernetes#130145). "
        "Restart the kubelet on the node; running pods go on.",
    )
    STALE_GRANT = (
        "StaleGrant",
        "A running pod was given a device node that belongs to other hardware by now, or is gone, because device nodes "
        "were numbered anew. The message has pod and path. Delete the pod; its successor gets what is there.",
    )
    POD_RESOURCES_UNAVAILABLE = (
        "PodResourcesUnavailable",
        "The kubelet does not say which pod holds what. Set agent.kubeletRootDir to the kubelet's --root-dir.",
    )
    RESOURCE_CONFLICT = (
        "ResourceConflict",
        "Agents of two DevicePluginConfigs report one resource name on this node. One agent serves it, the other "
        "waits. Rename one, or make the pools exclude each other. Both objects are Degraded.",
    )
    DEVICE_CONFLICT = (
        "DeviceConflict",
        "Another DevicePluginConfig offers some of the same hardware on this node under another name, so two pods may "
        "get one device. Put the devices into one object, or keep them apart by include and exclude. Both objects are "
        "Degraded.",
    )
