"""The states and reasons in the API: words of agent and operator, each with its meaning for an admin.

A reason is one CamelCase word for machines; the message beside it is for people. `scripts/reasons.py` makes the tables
of docs/troubleshooting.md from this module.

Three kinds of words are not listed here, because others define them:
- `<vendor's word><number>`, such as `Xid79`: a numbered error of a device's driver. The message has its meaning.
- Kubernetes' own words for a container that cannot start, such as `CreateContainerConfigError`, as a node's reason.
- words of a newer agent, which an older operator passes on as they are.
"""

from enum import StrEnum
from typing import Self


class Word(StrEnum):
    """A word of the API. `meaning`: a few sentences that say what it means and what to do."""

    meaning: str

    def __new__(cls, word: str, meaning: str) -> Self:
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning = meaning
        return member


class DeviceHealth(Word):
    """`status.devices[].health` of the inventory."""

    HEALTHY = "Healthy", "Nothing is wrong with the device. It is offered to pods, if it is not withheld."
    UNHEALTHY = "Unhealthy", "The device is not offered. Its reason says why."
    UNKNOWN = "Unknown", "The last check gave no answer. The device is offered as before."


class Withheld(Word):
    """`status.devices[].withheld` of the inventory: why a device is not offered, by plan.

    This is no failure: it sets no condition, no alert and no Warning. The device's health is reported beside it.
    """

    HELD_AS = (
        "HeldAs",
        "A pod holds the hardware under another name, id or number of replicas, or through another object; the "
        "message names them. Or another object's agent on the node serves the hardware or the resource's name. It is "
        "offered again when that pod or agent has let it go. A restart of the agent does not help.",
    )
    DRAINING = (
        "Draining",
        "The device is there, but the configuration no longer offers it under this name and id; the message has the "
        "field. It stays listed until no pod holds it.",
    )
    CORDONED = (
        "Cordoned",
        "An admin has cordoned the device, in spec.cordoned of an inventory or in spec.cordon of a "
        "DevicePluginConfig. Pods that hold it run on. Take the cordon away to offer it again "
        "(docs/maintenance.md).",
    )


class DeviceReason(Word):
    """`status.devices[].reason` of the inventory: why a device is Unhealthy or Unknown."""

    MISSING = (
        "Missing",
        "Scans no longer find the device. It stays listed for removalGraceSeconds, and until no pod holds it. Plug it "
        "in again, or read the node's kernel log.",
    )
    DRIVER_UNAVAILABLE = (
        "DriverUnavailable",
        "The driver hangs or does not answer; the message has the call or the cause. An Unknown device is offered as "
        "before. A device is Unhealthy if a pod holds it and the driver has not listed it since the agent started "
        "(docs/health.md#a-driver-that-hangs-a-driver-that-is-slow).",
    )
    NO_ANSWER = (
        "NoAnswer",
        "The driver answers for other devices, but not for this one. The device is offered as before; the message says "
        "what to try on the node.",
    )
    UNHEALTHY_WHEN = (
        "UnhealthyWhen",
        "The device matches health.unhealthyWhen of its resource; the message has the attribute and its value.",
    )
    RECOVERING = (
        "Recovering",
        "The checks are good again, but health.recoveryThreshold asks for more good checks. Wait.",
    )
    DEVICE_NODE_MISSING = (
        "DeviceNodeMissing",
        "The kernel has the device, but its node below /dev does not exist. Load its driver's module, or check udev.",
    )
    COMPANION_MISSING = (
        "CompanionMissing",
        "A hostPath of inject.deviceNodes does not exist on the node. Create it, or set optional: true.",
    )
    SIMULATED_FAULT = "SimulatedFault", "The configuration asks for it: simulated.unhealthy lists the device's index."
    KUBELET_FORGOT = (
        "KubeletForgot",
        "The kubelet lost its record, for example in a power cut, and takes the device for free. The pod in the "
        "message still has it. Delete that pod: the kubelet will know the new one.",
    )
    DUPLICATE_IDENTITY = (
        "DuplicateIdentity",
        "Another device has the same id. Choose a unit that tells the two apart, such as usb.port.",
    )
    GPU_LOST = (
        "GpuLost",
        "The driver has lost the GPU: it fell off its bus or cannot be reached. Reset it, or reboot the node; then "
        "check seat, power and cooling.",
    )
    RESET_REQUIRED = (
        "ResetRequired",
        "The driver refuses work until the device is reset. End the pods that hold it, then reset it.",
    )
    REBOOT_REQUIRED = "RebootRequired", "The driver asks for a reboot. Drain the node and reboot it."
    DRAIN_REQUIRED = (
        "DrainRequired",
        "The driver asks to remove all work from the device. End the pods that hold it; the message has the next step.",
    )
    RECOVERY_ACTION_PENDING = (
        "RecoveryActionPending",
        "The driver asks for an action that the agent does not know; the message has the driver's word for it.",
    )
    UNCORRECTABLE_ECC = (
        "UncorrectableEcc",
        "The device's memory had errors that could not be corrected. End the pods that hold it, then reset it.",
    )
    RETIRED_PAGES_PENDING = (
        "RetiredPagesPending",
        "Faulty memory pages are retired at the next reset. Reset the device, or reboot the node.",
    )
    ROW_REMAP_FAILED = (
        "RowRemapFailed",
        "A faulty row of the device's memory could not be replaced by a spare one. Replace the device.",
    )


class ExclusionReason(Word):
    """`status.excluded[].reason` of the inventory: why a device that a source found is not served."""

    NOTHING_FOUND = (
        "NothingFound",
        "The entry found no device; the message says where it looked. Check class, path or id. For NVIDIA devices the "
        "message says why the driver shows none.",
    )
    NOT_A_DEVICE = (
        "NotADevice",
        "The path is neither a device node nor a directory with device nodes. Correct the path.",
    )
    NOT_INCLUDED = "NotIncluded", "An include of the resource does not match; the message has the value."
    EXCLUDED = "Excluded", "An exclude of the resource matches; the message has the value."
    OWNED_BY_EARLIER_ENTRY = "OwnedByEarlierEntry", "An earlier entry of spec.resources has the same hardware."
    GROUP_NOT_VIABLE = (
        "GroupNotViable",
        "The device's IOMMU group cannot be given away as a whole. Bind all functions of the group to vfio-pci, and "
        "use unit: iommuGroup.",
    )
    DUPLICATE_IDENTITY = (
        "DuplicateIdentity",
        "Another device has the same id, such as the same serial number. Choose another unit, such as usb.port.",
    )
    MISSING_ATTRIBUTE = (
        "MissingAttribute",
        "The device lacks an attribute that unit or a placeholder needs. Use another attribute, or exclude the device.",
    )
    UNSAFE_VALUE = (
        "UnsafeValue",
        "The value of an attribute has characters that are not allowed in a path. Use another attribute in the path.",
    )
    MAX_DEVICES = "MaxDevices", "maxDevices keeps the device for the host. Raise it to offer more devices."
    TOO_MANY_NAMES = (
        "TooManyNames",
        "The name with placeholders gives more than 16 resource names on the node. Use an attribute with fewer values.",
    )
    TOO_MANY_IDS = (
        "TooManyIds",
        "Devices times replicas exceed 20,000 ids of one resource. Lower sharing.replicas, or set maxDevices.",
    )
    NAME_TAKEN = "NameTaken", "The rendered name is already a resource of an earlier entry. Rename one of the two."
    CONTAINER_PATH_CONFLICT = (
        "ContainerPathConflict",
        "Two device nodes would have the same path in the container. Change containerPath, or use a placeholder in it.",
    )
    MIG_ENABLED = (
        "MigEnabled",
        "nvml.kind is GPU, but MIG mode of this GPU is enabled. Use nvml.kind: MIG, or disable MIG mode.",
    )
    MIG_DISABLED = (
        "MigDisabled",
        "nvml.kind is MIG, but MIG mode of this GPU is disabled. Use nvml.kind: GPU, or enable MIG mode.",
    )
    NO_MIG_DEVICES = (
        "NoMigDevices",
        "MIG mode is enabled, but the GPU has no partitions. Create them on the node, for example with nvidia-smi mig.",
    )
    UNREADABLE = (
        "Unreadable",
        "The device exists, but its attributes cannot be read; the message says what failed. If a GPU was lost before "
        "the agent started, reset it, or reboot the node.",
    )


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
        "The agent runs, but the node has no device to serve. A reason other than NoDevices names a fault, such as "
        "DriverUnavailable or ConfigError.",
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
        "A taint of the node keeps the agent away; the message names it. Add a matching toleration to the pool, or "
        "remove its tolerations: then it tolerates every taint.",
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
        "The last check of some devices gave no answer. They are offered as before, and not counted as healthy "
        "(docs/health.md#states).",
    )
    KUBELET_RECORD_UNREADABLE = (
        "KubeletRecordUnreadable",
        "The kubelet's record of what it gave to pods (kubelet_internal_checkpoint) cannot be read, or has a form that "
        "this agent does not know. Use a release that supports the node's Kubernetes version, or look at the node's "
        "disk. Until then the agent relies on PodResources and on the last record it read.",
    )
    KUBELET_KEEPS = (
        "KubeletKeeps",
        "The kubelet keeps the device for a pod that is gone, and gives it to nobody (kubernetes/kubernetes#130145). "
        "Restart the kubelet on the node; running pods go on.",
    )
    STALE_GRANT = (
        "StaleGrant",
        "A running pod holds a device node that now belongs to other hardware, or is gone, because device nodes were "
        "numbered anew. The message has pod and path. Delete the pod; the new one gets what is there.",
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
    SEAT_TAKEN = (
        "SeatTaken",
        "Only the text of the agent's /readyz has this word; in status.nodes the reason is AgentNotReady. Another "
        "agent of the same DevicePluginConfig serves the node, as while the node moves to another pool. This agent "
        "waits. If it stays, look for a second agent pod on the node.",
    )
    DEVICE_CONFLICT = (
        "DeviceConflict",
        "Another DevicePluginConfig offers some of the same hardware on this node under another name, so two pods may "
        "get one device. Put the devices into one object, or keep them apart by include and exclude. Both objects are "
        "Degraded.",
    )


class ConditionReason(Word):
    """`status.conditions[].reason` of the DevicePluginConfig. Ready and Degraded may also have a node's reason."""

    # Accepted
    ACCEPTED = "Accepted", "The generation is in force. The message may have warnings for the admin."
    INVALID_SPEC = (
        "InvalidSpec",
        "The spec has mistakes that only the operator can find; the message lists them. The generation that was "
        "accepted last stays in force.",
    )
    POOL_OVERLAP = (
        "PoolOverlap",
        "Two pools of the object match one node. Make their nodeSelector or nodeSelectorTerms exclude each other.",
    )
    RESOURCE_CONFLICT = (
        "ResourceConflict",
        "Another DevicePluginConfig serves the resource on a node of this one. Rename the resource, or make the pools "
        "exclude each other.",
    )
    SPEC_NOT_KEPT = (
        "SpecNotKept",
        "The API server refuses the ControllerRevision that keeps the accepted spec; the message has its text. The "
        "generation that was accepted last stays in force. The operator tries again.",
    )
    ACCEPTED_SPEC_LOST = (
        "AcceptedSpecLost",
        "The latest edit is rejected, and the ControllerRevision with the accepted spec is gone or unreadable. The "
        "agents keep running unchanged. Apply a valid spec.",
    )
    # Progressing
    UPDATING = (
        "Updating",
        "Some nodes do not have the current configuration or pod template yet; the message names them.",
    )
    CURRENT = "Current", "All nodes have the current configuration and pod template."
    PAUSED = "Paused", "spec.paused is true: the operator changes nothing, but still reports."
    HALTED = (
        "Halted",
        "A pool lost all devices of a resource by the new spec, or cannot use it. The next pools keep their spec. The "
        "message names them. Correct the spec, or return to the spec before it "
        "(docs/operations.md#return-to-an-earlier-spec).",
    )
    NOT_ACCEPTED = (
        "NotAccepted",
        "No spec of the object was accepted yet, so nothing runs. The condition Accepted has the cause.",
    )
    # Degraded
    AS_WANTED = "AsWanted", "No problems found."
    DEVICE_CONFLICT = (
        "DeviceConflict",
        "Another DevicePluginConfig offers some of the same hardware under another name. Put the devices into one "
        "object, or keep them apart by include and exclude.",
    )
    NOT_OWNED = "NotOwned", "A DaemonSet or ConfigMap of a pool's name belongs to something else. Delete or rename it."
    APPLY_FAILED = "ApplyFailed", "The API server refused an object of a pool. The operator tries again."
    DEVICES_UNHEALTHY = "DevicesUnhealthy", "Devices are Unhealthy; status.unhealthyDevices has them with reasons."
    DEVICES_UNKNOWN = "DevicesUnknown", "The last check of some devices gave no answer. They are offered as before."
    # Ready
    SERVING = "Serving", "The agents serve devices on all nodes, except at most maxUnavailable."
    AGENTS_STARTING = (
        "AgentsStarting",
        "Agents are starting, and no fault is known. The condition keeps its status until they are Ready or late.",
    )
    NO_NODES = "NoNodes", "No node matches the pools. Check nodeSelector and the labels of the nodes."
    NO_READY_NODES = "NoReadyNodes", "The pools match nodes, but none of them is Ready."
    NO_DEVICES = (
        "NoDevices",
        "The agents run, but no node has a device. If there is a fault, the condition Degraded has the cause.",
    )
    # all of them
    OBSERVING = "Observing", "The operator has started and still reads the cluster's objects. Wait a moment."


class EventReason(Word):
    """Reasons of the Events about a DevicePluginConfig. Other Events have the reason of their condition."""

    ACCEPTED = "Accepted", "The operator accepted a generation."
    UPDATING = "Updating", "Agents are getting another configuration or pod template."
    UPDATED = "Updated", "All agents have the current configuration and pod template."
    READY = "Ready", "The object became Ready."
    NOT_READY = "NotReady", "The object is no longer Ready; the message has the cause."
    RECOVERED = "Recovered", "The object is no longer Degraded."
    DEVICE_HEALTHY = "DeviceHealthy", "A device is Healthy again."
    DEVICE_UNHEALTHY = "DeviceUnhealthy", "A device became Unhealthy; the message has the reason."
    DEVICE_UNKNOWN = "DeviceUnknown", "The last check of a device gave no answer; the message has the reason."
    DEVICES_CHANGED = (
        "DevicesChanged",
        "A planned change: devices are withheld (Draining, HeldAs, Cordoned) or offered again. The message has the "
        "numbers.",
    )
    STALE_GRANT = (
        "StaleGrant",
        "A running pod holds a device node that now belongs to other hardware, or is gone. The message has pod, node, "
        "device and path. Delete the pod; the new one gets what is there.",
    )
