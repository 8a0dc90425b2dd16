"""The reasons of a DevicePluginConfig's conditions and Events, each with its meaning for an admin.

Only the operator gives them.
"""

from device_agent.contract.reasons import Word


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
    NOTHING_FOUND = (
        "NothingFound",
        "No node finds a device for a resource; the message says where the agents looked, and which name may be meant. "
        "Correct the entry. If the hardware may be absent, set mayBeEmpty: true in the entry.",
    )
    NODES_LOST = (
        "NodesLost",
        "Nodes left their pool while pods hold devices there, so no agent watches these devices. Give the nodes their "
        "labels back. Or end the pods, and then delete the inventories that the message names.",
    )
    # Ready
    SERVING = "Serving", "The agents serve devices on all nodes, except at most maxUnavailable."
    AGENTS_STARTING = (
        "AgentsStarting",
        "Agents are starting, and no fault is known. The condition keeps its status until they are Ready or late.",
    )
    NO_NODES = (
        "NoNodes",
        "No node matches a pool. Check nodeSelector and the labels of the nodes. If the pool may have no node, set "
        "mayBeEmpty: true in the pool.",
    )
    NO_READY_NODES = "NoReadyNodes", "The pools match nodes, but none of them is Ready."
    NO_DEVICES = (
        "NoDevices",
        "The agents run, but no node has a device. If there is a fault, the condition Degraded has the cause.",
    )
    # column STATUS alone: it is no fault
    ALL_WITHHELD = (
        "AllWithheld",
        "All devices of a resource are withheld by plan, so a pod that asks for it waits. The message has the cause: "
        "a cordon, or pods or another DevicePluginConfig that have the hardware.",
    )
    # Stalled
    NOT_STALLED = "NotStalled", "Nothing waits for an admin."
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
        "A running pod was given a device node that belongs to other hardware by now, or is gone. The message has pod, "
        "node, device and path. Delete the pod; its successor gets what is there.",
    )
