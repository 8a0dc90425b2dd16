"""The typed DevicePluginConfig: defaults applied, and everything checked that the API server cannot judge.

Shape and texts of `resources` are the contract's (`device_agent.contract`): one parser, one set of messages.
The dataclasses' fields are the CRD's; a test keeps them in step.
"""

import difflib
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Final, TypeVar

from device_agent.contract import check, names
from device_agent.contract.codec import ShapeError, decode
from device_agent.contract.document import ContractError, Document, Resource, dump, parse_resource

from device_operator import catalogue, scheduling
from device_operator.errors import InvalidSpecError
from device_operator.quantity import quantity
from device_operator.scheduling import EVERY_TAINT, Term, Toleration

T = TypeVar("T")

DEFAULT_POOL: Final = "default"
DEFAULT_MAX_UNAVAILABLE: Final = "10%"
MAX_CONFIG_NAME: Final = 40
MAX_POOL_NAME: Final = 20
MAX_RESOURCES: Final = 64
MAX_POOLS: Final = 32
MAX_INT32: Final = 2**31 - 1
COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
"""What an agent may be given; of other names the API server takes some, in requests and limits alike."""
RESERVED_ENV: Final = (
    names.ENV_NODE,
    names.ENV_NAMESPACE,
    names.ENV_POD,
    names.ENV_CONFIG,
    names.ENV_CONFIG_UID,
    names.ENV_POOL,
    names.ENV_LOG_LEVEL,
    names.ENV_DRIVER_ROOT,
    names.ENV_DEVICE_METRICS,
    names.ENV_NODE_FEATURES,
)

_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_SUBDOMAIN = re.compile(scheduling.SUBDOMAIN)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CDI_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*=[A-Za-z0-9][A-Za-z0-9_.:-]*")
_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[^/\0]+)+")
_PERCENT = re.compile(r"(?:[1-9][0-9]?|100)%")


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
    """How agents reach the NVIDIA driver: what a container runtime brings (one or both), or `driver_root`.

    `runtime_class`: name of a RuntimeClass; `cdi_device`: a CDI device of all GPUs' management nodes; `driver_root`:
    directory of the node below which the driver is installed.
    """

    runtime_class: str | None = None
    driver_root: str | None = None
    cdi_device: str | None = None

    def sys_admin(self, *, mig: bool) -> bool:
        """The vendor's runtime shows MIG devices to monitor to containers with this capability alone."""
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
    """The agent's pods. None: not set here, so what the chart chose holds."""

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


@dataclass(frozen=True, slots=True)
class Pool:
    """`serves`: names of entries, all of them once resolved. `agent`: spec.agent with the pool's own laid over it.

    `tolerations` None: every taint is tolerated.
    """

    name: str
    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_selector_terms: tuple[Term, ...] = ()
    tolerations: tuple[Toleration, ...] | None = None
    serves: tuple[str, ...] = ()
    agent: AgentSettings = AgentSettings()

    @property
    def effective_tolerations(self) -> tuple[Toleration, ...]:
        return EVERY_TAINT if self.tolerations is None else self.tolerations


@dataclass(frozen=True, slots=True)
class Spec:
    """`max_unavailable`: a count, or a percentage such as "10%"."""

    resources: tuple[Resource, ...]
    pools: tuple[Pool, ...]
    max_unavailable: int | str = DEFAULT_MAX_UNAVAILABLE
    paused: bool = False

    def document(self, pool: Pool) -> Document:
        """What the pool's agents serve, in the order of the entries."""
        return Document(tuple(r for r in self.resources if r.name in pool.serves))

    def allowed_unavailable(self, nodes: int) -> int:
        """floor(maxUnavailable) of so many nodes."""
        if isinstance(self.max_unavailable, int):
            return self.max_unavailable
        return nodes * int(self.max_unavailable.removesuffix("%")) // 100


def parse_spec(obj: Mapping[str, Any]) -> Spec:
    """The object's spec; `obj` is the whole DevicePluginConfig as JSON.

    Raises:
        InvalidSpecError: with every problem found; of ill-shaped entries the first each.
    """
    problems: list[str] = []
    name = str(obj.get("metadata", {}).get("name", ""))
    if not _LABEL.fullmatch(name) or len(name) > MAX_CONFIG_NAME:
        problems.append(
            f"metadata.name: {name!r} must be at most {MAX_CONFIG_NAME} lower-case letters, digits and '-', "
            "alphanumeric at both ends: it is part of the names of DaemonSets and inventories"
        )
    raw = obj.get("spec")
    if not isinstance(raw, dict):
        what = "is missing; it needs" if raw is None else f"{raw!r:.40} must be an object, with"
        raise InvalidSpecError((*problems, f"spec: {what} at least spec.resources"))
    for key in sorted(map(str, raw.keys() - _SPEC_FIELDS)):
        near = difflib.get_close_matches(key, sorted(_SPEC_FIELDS), n=1)
        problems.append(f"spec.{key}: unknown field{f': did you mean {near[0]}?' if near else ''}")

    resources = tuple(_resources(raw.get("resources"), problems))
    paused = raw.get("paused", False)
    if not isinstance(paused, bool):
        problems.append("spec.paused: must be true or false")
    agent = _agent(raw.get("agent", {}), "spec.agent", problems)
    pools = _pools(raw.get("nodePools"), agent, [r.name for r in resources], problems)
    spec = Spec(resources, pools, _max_unavailable(raw.get("updateStrategy"), problems), bool(paused))
    problems += _size(spec)
    if problems:
        raise InvalidSpecError(tuple(problems))
    return spec


_SPEC_FIELDS = {"paused", "resources", "nodePools", "agent", "updateStrategy"}


def _resources(raw: object, problems: list[str]) -> Iterator[Resource]:
    if not isinstance(raw, list) or not raw:
        problems.append("spec.resources: must list at least one resource")
        return
    if len(raw) > MAX_RESOURCES:
        problems.append(
            f"spec.resources: {len(raw)} resources, at most {MAX_RESOURCES} in one object; divide them among several"
        )
        return
    parsed: list[Resource | None] = []
    for index, entry in enumerate(raw):
        try:
            path = f"spec.resources[{index}]"
            parsed.append(_parsed(catalogue.expand(entry, path=path), path))
        except (ContractError, catalogue.PresetError) as error:
            problems.append(str(error))
            parsed.append(None)
    good = tuple(r for r in parsed if r is not None)
    if len(good) == len(parsed):  # else the indexes in the messages would be off
        problems += check.problems(Document(good))
    yield from good


def _parsed(entry: object, path: str) -> Resource:
    return parse_resource(entry, path=path)  # type: ignore[arg-type] # of another shape: it says so


def _pools(raw: object, agent: AgentSettings, entries: list[str], problems: list[str]) -> tuple[Pool, ...]:
    if raw is None:
        return (Pool(DEFAULT_POOL, serves=tuple(entries), agent=agent),)
    if not isinstance(raw, list) or not raw:
        problems.append("spec.nodePools: must list at least one pool; omit it for one pool on every Linux node")
        return ()
    if len(raw) > MAX_POOLS:
        problems.append(
            f"spec.nodePools: {len(raw)} pools, at most {MAX_POOLS} in one object; divide them among several"
        )
        return ()
    pools: list[Pool] = []
    for index, entry in enumerate(raw):
        at = f"spec.nodePools[{index}]"
        given = dict(entry) if isinstance(entry, dict) else {}
        own = _agent(given.pop("agent", {}), f"{at}.agent", problems)
        pool = _shaped(Pool, given if isinstance(entry, dict) else entry, at, problems)
        if pool is None:
            continue
        problems += _pool_problems(pool, at, entries)
        if pool.name in [p.name for p in pools]:
            problems.append(f"{at}.name: {pool.name} is already the name of another pool; choose another")
        pools.append(replace(pool, serves=pool.serves or tuple(entries), agent=merged(agent, own)))
    return tuple(pools)


def _pool_problems(pool: Pool, at: str, entries: list[str]) -> Iterator[str]:
    if not _LABEL.fullmatch(pool.name) or len(pool.name) > MAX_POOL_NAME:
        yield (
            f"{at}.name: {pool.name!r} must be at most {MAX_POOL_NAME} lower-case letters, digits and '-', "
            "alphanumeric at both ends"
        )
    yield from scheduling.selector_problems(pool.node_selector, f"{at}.nodeSelector")
    for i, term in enumerate(pool.node_selector_terms):
        yield from scheduling.term_problems(term, f"{at}.nodeSelectorTerms[{i}]")
    for i, toleration in enumerate(pool.tolerations or ()):
        yield from scheduling.toleration_problems(toleration, f"{at}.tolerations[{i}]")
    for i, name in enumerate(pool.serves):
        if name not in entries:
            near = difflib.get_close_matches(name, entries, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            yield f"{at}.serves[{i}]: {name!r} is no entry of spec.resources: {hint}There are: {', '.join(entries)}"


def merged(base: AgentSettings, over: AgentSettings) -> AgentSettings:
    """A field set in `over` replaces the one of `base`; lists and maps are not merged."""
    return AgentSettings(
        **{
            f.name: getattr(base, f.name) if getattr(over, f.name) is None else getattr(over, f.name)
            for f in fields(AgentSettings)
        }
    )


def _agent(raw: object, at: str, problems: list[str]) -> AgentSettings:
    agent = _shaped(AgentSettings, _quantities_as_text(raw), at, problems)
    if agent is None:
        return AgentSettings()
    problems += _agent_problems(agent, at)
    return agent


def _quantities_as_text(raw: object) -> object:
    """`cpu: 1` is a number in JSON and a quantity all the same."""
    if not isinstance(raw, dict) or not isinstance(raw.get("resources"), dict):
        return raw
    resources = {
        kind: {k: str(v) if type(v) in (int, float) else v for k, v in amounts.items()}
        if isinstance(amounts, dict)
        else amounts
        for kind, amounts in raw["resources"].items()
    }
    return {**raw, "resources": resources}


def _agent_problems(agent: AgentSettings, at: str) -> Iterator[str]:
    if agent.image is not None and (not agent.image or re.search(r"\s", agent.image)):
        yield f"{at}.image: {agent.image!r} must be an image reference without spaces"
    for i, secret in enumerate(agent.image_pull_secrets or ()):
        if not _SUBDOMAIN.fullmatch(secret.name):
            yield f"{at}.imagePullSecrets[{i}].name: {secret.name!r} is no name of a Secret"
    if agent.resources is not None:
        yield from _compute_problems(agent.resources, f"{at}.resources")
    seen: set[str] = set()
    for i, env in enumerate(agent.env or ()):
        if not _ENV_NAME.fullmatch(env.name):
            yield f"{at}.env[{i}].name: {env.name!r} is no name of an environment variable"
        elif env.name in RESERVED_ENV:
            yield f"{at}.env[{i}].name: {env.name} is set by the operator; it can not be overridden"
        elif env.name in seen:
            yield f"{at}.env[{i}].name: {env.name} is given twice; keep one"
        if "\0" in env.value:
            yield f"{at}.env[{i}].value: has a NUL, which no environment can hold"
        seen.add(env.name)
    priority = agent.priority_class_name
    if priority is not None and not _SUBDOMAIN.fullmatch(priority):
        yield f"{at}.priorityClassName: {priority!r} is no name of a PriorityClass"
    root = agent.kubelet_root_dir
    if root is not None and not _PATH.fullmatch(root):
        yield (
            f"{at}.kubeletRootDir: {root!r} must be the absolute path of the kubelet's --root-dir, "
            "without '..' and '//'"
        )
    if agent.driver_access is not None:
        yield from _driver_access_problems(agent.driver_access, f"{at}.driverAccess")


def _driver_access_problems(access: DriverAccess, at: str) -> Iterator[str]:
    by_runtime = access.runtime_class is not None or access.cdi_device is not None
    if by_runtime == (access.driver_root is not None):
        yield (
            f"{at}: needs either runtimeClass or cdiDevice (the runtime brings the driver, both may be given), "
            "or driverRoot alone (the agent runs privileged)"
        )
    if access.runtime_class is not None and not _SUBDOMAIN.fullmatch(access.runtime_class):
        yield f"{at}.runtimeClass: {access.runtime_class!r} is no name of a RuntimeClass"
    root = access.driver_root
    if root is not None and (not root.startswith("/") or posixpath.normpath(root) != root):
        yield f"{at}.driverRoot: {root!r} must be / or an absolute path, without '..', '//' or a slash at the end"
    if access.cdi_device is not None and not _CDI_DEVICE.fullmatch(access.cdi_device):
        yield (
            f"{at}.cdiDevice: {access.cdi_device!r} must read vendor.com/class=name, "
            "such as management.nvidia.com/gpu=all"
        )


def _compute_problems(compute: ComputeResources, at: str) -> Iterator[str]:
    amounts: dict[tuple[str, str], Any] = {}
    for kind, given in (("requests", compute.requests), ("limits", compute.limits)):
        for name, text in (given or {}).items():
            amount = quantity(text)
            if name not in COMPUTE:
                yield f"{at}.{kind}.{name}: is nothing that an agent needs; there are {', '.join(COMPUTE)}"
            elif amount is None:
                yield f"{at}.{kind}.{name}: {text!r} is no quantity; write it as 100m, 0.5, 64Mi or 1Gi"
            else:
                amounts[kind, name] = amount
    for (kind, name), amount in amounts.items():
        if kind == "requests" and amount > amounts.get(("limits", name), amount):
            yield f"{at}.requests.{name}: is above limits.{name}; raise the limit or lower the request"


def _max_unavailable(raw: object, problems: list[str]) -> int | str:
    at = "spec.updateStrategy"
    if raw is None:
        return DEFAULT_MAX_UNAVAILABLE
    if not isinstance(raw, dict) or raw.keys() - {"maxUnavailable"}:
        problems.append(f"{at}: may have maxUnavailable alone")
        return DEFAULT_MAX_UNAVAILABLE
    value = raw.get("maxUnavailable", DEFAULT_MAX_UNAVAILABLE)
    whole = type(value) is int and 1 <= value <= MAX_INT32
    if whole or (isinstance(value, str) and _PERCENT.fullmatch(value)):
        return value  # type: ignore[no-any-return]
    problems.append(f"{at}.maxUnavailable: {value!r} must be a whole number from 1, or a percentage from 1% to 100%")
    return DEFAULT_MAX_UNAVAILABLE


def _size(spec: Spec) -> Iterator[str]:
    for pool in spec.pools:
        document = spec.document(pool)
        size = len(dump(document))
        if size > names.MAX_DOCUMENT_BYTES:
            yield (
                f"spec: the configuration of pool {pool.name} would be {size:,} bytes "
                f"({len(document.resources)} resources), a ConfigMap may carry {names.MAX_DOCUMENT_BYTES:,}: "
                f"{size - names.MAX_DOCUMENT_BYTES:,} too many; shorten values below inject, "
                "or divide the resources among pools with serves"
            )


def _shaped(cls: type[T], raw: object, at: str, problems: list[str]) -> T | None:
    try:
        return decode(cls, raw, path=at)
    except ShapeError as error:
        problems.append(str(error))
        return None
