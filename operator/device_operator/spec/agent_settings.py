"""`spec.agent` and the `agent` of a pool: settings of the agents' pods, and their validation. Pure.

A field that is None was not set; `render` has the defaults. The fields are those of the CRD; a test compares them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from device_agent.contract import names

from device_operator.spec import scheduling

COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
"""Compute resources that an agent may have. The API server would accept other names too."""
RESERVED_ENV: Final = (
    names.ENV_NODE,
    names.ENV_NAMESPACE,
    names.ENV_POD,
    names.ENV_CONFIG,
    names.ENV_CONFIG_UID,
    names.ENV_POOL,
    names.ENV_LOG_LEVEL,
    names.ENV_DRIVER_ROOT,
    names.ENV_DRIVER_ACCESS,
    names.ENV_DEVICE_METRICS,
    names.ENV_NODE_FEATURES,
)

MAX_OBJECT_NAME: Final = 253
_NAME_RULE: Final = "use lower-case letters, digits, '-' and '.', a letter or digit at both ends"
_SUBDOMAIN = re.compile(scheduling.SUBDOMAIN)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[^/\0]+)+")

_QUANTITY = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}


class PullPolicy(StrEnum):
    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class LogLevel(StrEnum):
    DEBUG = "Debug"
    INFO = "Info"
    WARNING = "Warning"
    ERROR = "Error"


class DeviceMetrics(StrEnum):
    NONE = "None"
    PROMETHEUS = "Prometheus"


class NodeFeatures(StrEnum):
    NONE = "None"
    NFD = "NFD"


@dataclass(frozen=True, slots=True)
class DriverAccess:
    """How agents reach the NVIDIA driver: by the container runtime (one field or both), or by `driver_root` alone.

    `runtime_class`: name of a RuntimeClass; `cdi_device`: a CDI device of all GPUs' management nodes; `driver_root`:
    directory of the node below which the driver is installed.
    """

    runtime_class: str | None = None
    driver_root: str | None = None
    cdi_device: str | None = None

    def sys_admin(self, *, mig: bool) -> bool:
        """Whether the pod needs SYS_ADMIN: without it NVIDIA's runtime shows no MIG devices to a monitoring pod."""
        return mig and self.runtime_class is not None and self.cdi_device is None


@dataclass(frozen=True, slots=True)
class AgentEnv:
    name: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class PullSecret:
    name: str


@dataclass(frozen=True, slots=True)
class ComputeResources:
    """Quantities as strings; None: the defaults of `render`."""

    requests: Mapping[str, str] | None = None
    limits: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Settings of the agent's pods. None: not set here; the setting of the chart is used."""

    image: str | None = None
    image_pull_policy: PullPolicy | None = None
    image_pull_secrets: tuple[PullSecret, ...] | None = None
    resources: ComputeResources | None = None
    env: tuple[AgentEnv, ...] | None = None
    priority_class_name: str | None = None
    log_level: LogLevel | None = None
    kubelet_root_dir: str | None = None
    driver_access: DriverAccess | None = None
    device_metrics: DeviceMetrics | None = None
    node_features: NodeFeatures | None = None


def merged(base: AgentSettings, over: AgentSettings) -> AgentSettings:
    """A field set in `over` replaces the one of `base`; lists and maps are not merged."""
    return AgentSettings(
        **{
            f.name: getattr(base, f.name) if getattr(over, f.name) is None else getattr(over, f.name)
            for f in fields(AgentSettings)
        }
    )


def quantity(text: str) -> Decimal | None:
    """The amount; None if `text` is not a quantity, or is negative (apimachinery pkg/api/resource)."""
    match = _QUANTITY.fullmatch(text)
    if not match or match[1].startswith("-"):
        return None
    number, suffix = Decimal(match[1]), match[2] or ""
    if suffix in _BINARY:
        return number * Decimal(1024) ** _BINARY[suffix]
    if suffix in _DECIMAL:
        return number.scaleb(_DECIMAL[suffix])
    return number.scaleb(int(suffix[1:])) if suffix else number


def quantities_as_text(raw: object) -> object:
    """Numbers in `resources` as text: `cpu: 1` is a number in JSON, and a valid quantity."""
    if not isinstance(raw, dict) or not isinstance(raw.get("resources"), dict):
        return raw
    resources = {
        kind: {k: str(v) if type(v) in (int, float) else v for k, v in amounts.items()}
        if isinstance(amounts, dict)
        else amounts
        for kind, amounts in raw["resources"].items()
    }
    return {**raw, "resources": resources}


def problems(agent: AgentSettings, at: str) -> Iterator[str]:
    if agent.image is not None and (not agent.image or re.search(r"\s", agent.image)):
        yield (
            f"{at}.image: {agent.image!r} must be an image reference without spaces, "
            "such as registry.example.com/device-agent:1"
        )
    for i, secret in enumerate(agent.image_pull_secrets or ()):
        if not _is_name(secret.name):
            yield f"{at}.imagePullSecrets[{i}].name: {secret.name!r:.80} is no name of a Secret: {_NAME_RULE}"
    if agent.resources is not None:
        yield from _compute_problems(agent.resources, f"{at}.resources")
    seen: set[str] = set()
    for i, env in enumerate(agent.env or ()):
        if not _ENV_NAME.fullmatch(env.name):
            yield f"{at}.env[{i}].name: {env.name!r} must be letters, digits and '_', not beginning with a digit"
        elif env.name in RESERVED_ENV:
            yield f"{at}.env[{i}].name: {env.name} is set by the operator and cannot be overridden; remove it"
        elif env.name in seen:
            yield f"{at}.env[{i}].name: {env.name} is given twice; keep one"
        if "\0" in env.value:
            yield f"{at}.env[{i}].value: has a NUL character, which no environment variable can hold; remove it"
        seen.add(env.name)
    priority = agent.priority_class_name
    if priority is not None and not _is_name(priority):
        yield f"{at}.priorityClassName: {priority!r:.80} is no name of a PriorityClass: {_NAME_RULE}"
    root = agent.kubelet_root_dir
    if root is not None and not _PATH.fullmatch(root):
        yield (
            f"{at}.kubeletRootDir: {root!r} must be the absolute path of the kubelet's --root-dir, such as "
            "/var/lib/kubelet, without '..', '//' and a slash at the end"
        )
    if agent.driver_access is not None:
        yield from _driver_access_problems(agent.driver_access, f"{at}.driverAccess")


def _is_name(text: str) -> bool:
    return len(text) <= MAX_OBJECT_NAME and _SUBDOMAIN.fullmatch(text) is not None


def _driver_access_problems(access: DriverAccess, at: str) -> Iterator[str]:
    by_runtime = access.runtime_class is not None or access.cdi_device is not None
    if by_runtime == (access.driver_root is not None):
        yield (
            f"{at}: needs either runtimeClass or cdiDevice (the runtime brings the driver, both may be given), "
            "or driverRoot alone (the agent runs privileged)"
        )
    if access.runtime_class is not None and not _is_name(access.runtime_class):
        yield (
            f"{at}.runtimeClass: {access.runtime_class!r:.80} is no name of a RuntimeClass, such as nvidia: "
            f"{_NAME_RULE}"
        )
    root = access.driver_root
    if root not in (None, "/") and (not _PATH.fullmatch(root) or set("*?[") & set(root)):
        yield (
            f"{at}.driverRoot: {root!r} must be / or an absolute path, "
            "without '..', '//', '*', '?', '[' or a slash at the end; / is a driver installed on the node itself"
        )
    if access.cdi_device is not None and not names.CDI_NAME.fullmatch(access.cdi_device):
        yield (
            f"{at}.cdiDevice: {access.cdi_device!r} must read vendor.com/class=name, "
            f"such as management.nvidia.com/gpu=all; {names.CDI_RULE}"
        )


def _compute_problems(compute: ComputeResources, at: str) -> Iterator[str]:
    amounts: dict[tuple[str, str], Any] = {}
    for kind, given in (("requests", compute.requests), ("limits", compute.limits)):
        for name, text in (given or {}).items():
            amount = quantity(text)
            if name not in COMPUTE:
                yield f"{at}.{kind}.{name}: is not a compute resource of agents; use {', '.join(COMPUTE)}"
            elif amount is None:
                yield f"{at}.{kind}.{name}: {text!r} is no quantity; write it as 100m, 0.5, 64Mi or 1Gi"
            else:
                amounts[kind, name] = amount
    for (kind, name), amount in amounts.items():
        if kind == "requests" and amount > amounts.get(("limits", name), amount):
            yield f"{at}.requests.{name}: is above limits.{name}; raise the limit or lower the request"
