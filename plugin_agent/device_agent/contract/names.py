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
"""Key in the ConfigMap, and name of the file in the agent's configuration directory."""
CONFIG_DIR: Final = "/etc/device-operator"
HOST_ROOT: Final = "/host"
"""Where the node's /dev and /sys are mounted in the agent's pod."""
DEVICE_PLUGINS_DIR: Final = "/var/lib/kubelet/device-plugins"
"""The same for every kubelet, whatever its --root-dir (kubelet pkg/kubelet/cm/devicemanager)."""
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
"""Where the driver's files are in the agent's container; absent: the runtime puts them in their usual places."""
ENV_DRIVER_ACCESS: Final = "DRIVER_ACCESS"
"""`agent.driverAccess` as JSON, for the advice in the agent's messages; absent: nothing is set."""
ENV_DEVICE_METRICS: Final = "DEVICE_METRICS"
"""Prometheus or None, as `agent.deviceMetrics`; absent: None."""
ENV_NODE_FEATURES: Final = "NODE_FEATURES"
"""NFD or None, as `agent.nodeFeatures`; absent: None."""

DRIVER_ROOT_DIR: Final = "/driver-root"
"""Where `agent.driverAccess.driverRoot` is mounted in the agent's container; the value of ENV_DRIVER_ROOT."""
FEATURES_DIR: Final = "/features.d"
"""Where node-feature-discovery's directory of feature files is mounted in the agent's container."""

MAX_IDS: Final = 20_000
"""The most ids of one resource on one node. With more, a ListAndWatch message comes near gRPC's limit of 4 MiB."""
MAX_DOCUMENT_BYTES: Final = 900 * 1024
"""A ConfigMap has at most 1 MiB in all."""
MAX_ID: Final = 63
"""The most characters of a device id. The kubelet's api.proto asks for this in a comment and does not check it."""
MAX_NAMES_PER_ENTRY: Final = 16
"""The most resource names that one entry with placeholders may make on one node."""

CDI_NAME: Final = re.compile(
    r"[A-Za-z](?:[A-Za-z0-9._-]*[A-Za-z0-9])?/[A-Za-z](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
    r"=[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?"
)
"""vendor/class=name by the CDI specification. The container runtime refuses any other form."""
CDI_RULE: Final = "each part ends with a letter or digit, the first two begin with a letter"

_NAME_PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*")
_VARIABLE = re.compile("[ -<>-~]+")
_REQUESTS: Final = "requests."


def cut(text: str, *, limit: int) -> str:
    """`text` if it has at most `limit` characters; else its beginning and 8 hex digits of its SHA-256."""
    if len(text) <= limit:
        return text
    return f"{text[: limit - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def resource_name_problem(name: str) -> str | None:
    """Why the kubelet would refuse `name` as an extended resource, or None.

    These are the rules of IsExtendedResourceName in kubernetes pkg/apis/core/v1/helper. The kubelet applies them in
    Register (kubelet pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go).
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


def variable_problem(name: str) -> str | None:
    """Why a container cannot get an environment variable of this name, or None.

    The kubelet's relaxed rule: IsRelaxedEnvVarName in apimachinery pkg/api/validation.
    """
    if _VARIABLE.fullmatch(name):
        return None
    return "the name of an environment variable must be printable ASCII characters without '=': write it as NAME_1"


def resource_name_from(text: str) -> str:
    """Makes a name with filled placeholders valid: '+' becomes '.', other bad characters '-'; cut at 63 with a hash.

    Raises:
        ValueError: no valid character is left.
    """
    domain, _, part = text.partition("/")
    part = re.sub(r"[^A-Za-z0-9._-]", "-", part.replace("+", ".")).strip("-._")
    if not part:
        raise ValueError(f"{text!r} leaves nothing for a resource name")
    return f"{domain}/{cut(part, limit=63)}"


def device_id(value: str, *, entry: str | None = None) -> str:
    """The id of a physical device from its `unit` value. `entry`: given only for `ownership: None`.

    Printable ASCII without spaces is kept. Other characters become '-', and a hash of the original is appended, so
    that two different values never give the same id.
    """
    clean = re.sub(r"[^!-~]", "-", value)
    if clean != value:
        clean = f"{clean}-{hashlib.sha256(value.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"
    if entry is not None:
        clean = f"{hashlib.sha256(entry.encode()).hexdigest()[:8]}-{clean}"
    return cut(clean, limit=MAX_ID)


def replica_id(device: str, index: int) -> str:
    """The id of a replica. The first replica has the device's own id, so that ids in use stay when replicas grow."""
    return device if index == 0 else cut(f"{device}::{index}", limit=MAX_ID)


def pool_object_name(config: str, pool: str) -> str:
    """The name of a pool's DaemonSet. The ConfigMap's name is this one with the contract version appended.

    The six hex digits make the names for `a-b` + `c` and `a` + `b-c` differ.
    """
    digest = hashlib.sha256(f"{config}/{pool}".encode()).hexdigest()[:6]
    return f"{config}-{pool}-{digest}"


def inventory_name(config: str, node: str) -> str:
    """The name of a node's NodeDeviceInventory. The chart's admission policy checks this form."""
    return f"{config}.{node}"
