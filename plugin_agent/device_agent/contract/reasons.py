"""The states and reasons of devices in the inventory, each word with its meaning for an admin.

A reason is one CamelCase word for machines; the message beside it is for people. Those of nodes are in `node_reasons`,
those of conditions and Events in `config_reasons`. `scripts/reasons.py` makes the tables of docs/troubleshooting.md
from all three.

Two kinds of words are not listed here, because others define them:
- `<vendor's word><number>`, such as `Xid79`: a numbered error of a device's driver. The message has its meaning.
- words of a newer agent, which an older operator passes on as they are.
"""

import re
from enum import StrEnum
from typing import Final, Self

OTHER: Final = "Other"
"""The label of a metric for a reason that is not listed, such as one of a newer agent."""
_NUMBERED: Final = re.compile(r"Xid[0-9]{1,3}")


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
        "The driver does not answer for this device, or a file of it cannot be read. The device is offered as before; "
        "the message has the cause (docs/health.md#a-device-that-cannot-be-read).",
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
        "A hostPath of inject.deviceNodes or inject.mounts does not exist on the node. Create it, or set "
        "optional: true. Of mounts, only paths below /dev and /sys are looked at.",
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
    SRAM_THRESHOLD_EXCEEDED = (
        "SramThresholdExceeded",
        "The device's SRAM had more uncorrectable errors than its threshold allows. Have it checked, or replace it.",
    )


class RefusalReason(Word):
    """`reason` of the metric `device_agent_allocation_errors_total`: why a pod was refused.

    It may also be the reason of a device.
    """

    WRONG_NUMBER = (
        "WrongNumber",
        "The container asks for a number of devices that sharing.maxPerContainer or allocation.counts does not allow. "
        "Correct the pod.",
    )
    UNKNOWN_ID = (
        "UnknownId",
        "The kubelet asked for an id that the agent does not list. A new pod gets another device; if it happens again, "
        "read the agent's log.",
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


def as_label(reason: str) -> str:
    """The reason of a device or of a refusal as the value of a metric's label. There are at most about a thousand."""
    if reason in _LABELS or _NUMBERED.fullmatch(reason):
        return str(reason)
    return OTHER


_LABELS: Final = frozenset({*DeviceReason, *Withheld, *RefusalReason})
