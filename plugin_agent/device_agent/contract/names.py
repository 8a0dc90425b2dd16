"""Names and limits that operator, agent and chart share."""

import hashlib
import re
from typing import Final

GROUP: Final = "device-operator.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

LABEL_CONFIG: Final = f"{GROUP}/config"
LABEL_POOL: Final = f"{GROUP}/pool"

CONFIG_FILE: Final = "config.json"
"""Key of the ConfigMap, and so the file's name in the agent's configuration directory."""
CONFIG_DIR: Final = "/etc/device-operator"
HOST_ROOT: Final = "/host"
"""Where the agent's pod has the node's /dev and /sys."""
DEVICE_PLUGINS_DIR: Final = "/var/lib/kubelet/device-plugins"
"""A constant of every kubelet: it does not move with --root-dir (kubelet pkg/kubelet/cm/devicemanager)."""
AGENT_PORT: Final = 9808
"""/healthz, /readyz and /metrics of the agent."""

ENV_NODE: Final = "NODE_NAME"
ENV_CONFIG: Final = "CONFIG_NAME"
ENV_CONFIG_UID: Final = "CONFIG_UID"
ENV_POOL: Final = "POOL_NAME"
ENV_NAMESPACE: Final = "POD_NAMESPACE"
ENV_POD: Final = "POD_NAME"
ENV_LOG_LEVEL: Final = "LOG_LEVEL"
"""Debug, Info, Warning or Error, as `agent.logLevel` of the DevicePluginConfig; absent: Info."""
ENV_DRIVER_ROOT: Final = "DRIVER_ROOT"
"""Where the agent's container has the driver's files; absent: the runtime brings them to their usual places."""
ENV_DRIVER_ACCESS: Final = "DRIVER_ACCESS"
"""`agent.driverAccess` as JSON, so that the agent's advice is about what is set; absent: nothing is."""
ENV_DEVICE_METRICS: Final = "DEVICE_METRICS"
"""Prometheus or None, as `agent.deviceMetrics`; absent: None."""
ENV_NODE_FEATURES: Final = "NODE_FEATURES"
"""NFD or None, as `agent.nodeFeatures`; absent: None."""

DRIVER_ROOT_DIR: Final = "/driver-root"
"""Where the agent's container has `agent.driverAccess.driverRoot`; the value of ENV_DRIVER_ROOT."""
FEATURES_DIR: Final = "/features.d"
"""Where the agent's container has node-feature-discovery's directory of local feature files."""

MAX_IDS: Final = 20_000
"""Ids of one resource on one node: beyond, a ListAndWatch message nears gRPC's 4 MiB."""
MAX_DOCUMENT_BYTES: Final = 900 * 1024
"""A ConfigMap holds 1 MiB in all."""
MAX_ID: Final = 63
"""Length of a device id (kubelet api.proto, a comment only, kept all the same)."""
MAX_NAMES_PER_ENTRY: Final = 16
"""Resource names that one entry with placeholders may give on one node."""

CDI_NAME: Final = re.compile(
    r"[A-Za-z](?:[A-Za-z0-9._-]*[A-Za-z0-9])?/[A-Za-z](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
    r"=[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?"
)
"""vendor/class=name by the CDI specification: with another one the runtime refuses the container."""
CDI_RULE: Final = "each part ends with a letter or digit, the first two begin with a letter"

_NAME_PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*")
_REQUESTS: Final = "requests."


def cut(text: str, *, limit: int) -> str:
    """`text` itself up to `limit` characters, else its beginning and 8 hex digits of its SHA-256."""
    if len(text) <= limit:
        return text
    return f"{text[: limit - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def resource_name_problem(name: str) -> str | None:
    """Why the kubelet would refuse `name` as an extended resource, or None.

    The rules are IsExtendedResourceName's of kubernetes pkg/apis/core/v1/helper, which
    Register applies (kubelet pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go).
    """
    domain, slash, part = name.partition("/")
    if not slash or not domain or not part:
        return "it needs a domain and a name: example.com/device"
    if "kubernetes.io/" in name:
        return "the domain kubernetes.io is reserved: use a domain of your own"
    if name.startswith(_REQUESTS):
        return "it must not begin with 'requests.'"
    if not _DOMAIN.fullmatch(domain) or len(domain) > 253 - len(_REQUESTS):
        return "the part before the slash must be a DNS name in lower case of at most 244 characters"
    if not _NAME_PART.fullmatch(part):
        return (
            "the part after the slash must be 1 to 63 letters, digits, '-', '_' or '.', "
            "beginning and ending with a letter or digit"
        )
    return None


def resource_name_from(text: str) -> str:
    """A rendered name made valid: other characters become '-' ('+' a '.'), cut at 63 with a hash.

    Raises:
        ValueError: nothing that could stand in a name is left.
    """
    domain, _, part = text.partition("/")
    part = re.sub(r"[^A-Za-z0-9._-]", "-", part.replace("+", ".")).strip("-._")
    if not part:
        raise ValueError(f"{text!r} leaves nothing for a resource name")
    return f"{domain}/{cut(part, limit=63)}"


def device_id(value: str, *, entry: str | None = None) -> str:
    """The id of a physical device from its `unit` value; `entry` is given for `ownership: None`.

    Printable ASCII without spaces is kept; anything else becomes '-', and the hash of the original is
    appended, so that two different values never give one id.
    """
    clean = re.sub(r"[^!-~]", "-", value)
    if clean != value:
        clean = f"{clean}-{hashlib.sha256(value.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"
    if entry is not None:
        clean = f"{hashlib.sha256(entry.encode()).hexdigest()[:8]}-{clean}"
    return cut(clean, limit=MAX_ID)


def replica_id(device: str, index: int) -> str:
    """The id of a device's replica: the first has the bare id, so that raising replicas keeps held ids."""
    return device if index == 0 else cut(f"{device}::{index}", limit=MAX_ID)


def pool_object_name(config: str, pool: str) -> str:
    """The name of a pool's DaemonSet; its ConfigMap's has the contract version appended.

    The six hex digits keep `a-b` + `c` apart from `a` + `b-c`.
    """
    digest = hashlib.sha256(f"{config}/{pool}".encode()).hexdigest()[:6]
    return f"{config}-{pool}-{digest}"


def inventory_name(config: str, node: str) -> str:
    """The name of a node's NodeDeviceInventory: the admission policy of the chart checks exactly this."""
    return f"{config}.{node}"
