"""The typed DevicePluginConfig: defaults applied, and everything checked that the API server cannot judge.

Shape and texts of `resources` are the contract's (`device_agent.contract`): one parser, one set of messages.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from device_agent.contract import check, names
from device_agent.contract.codec import ShapeError, decode
from device_agent.contract.document import ContractError, Document, Resource, dump, parse_resource
from device_operator.errors import InvalidSpecError

DEFAULT_POOL: Final = "default"


class LogLevel(StrEnum):
    DEBUG = "Debug"
    INFO = "Info"
    WARNING = "Warning"
    ERROR = "Error"


@dataclass(frozen=True, slots=True)
class Toleration:
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Expression:
    """`operator`: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Term:
    """Expressions of labels and of metadata.name, ANDed; an empty term matches nothing."""

    match_expressions: tuple[Expression, ...] = ()
    match_fields: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentEnv:
    name: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """None: not set here, so the chart's or the operator's default holds. Quantities as written."""

    image: str | None = None
    image_pull_policy: str | None = None
    image_pull_secrets: tuple[str, ...] | None = None
    requests: Mapping[str, str] | None = None
    limits: Mapping[str, str] | None = None
    env: tuple[AgentEnv, ...] | None = None
    priority_class_name: str | None = None
    log_level: LogLevel | None = None
    kubelet_root_dir: str | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """`tolerations` None: every taint. `serves`: names of entries, all of them resolved. `agent`: merged."""

    name: str
    serves: tuple[str, ...]
    node_selector: Mapping[str, str] = field(default_factory=dict)
    terms: tuple[Term, ...] = ()
    tolerations: tuple[Toleration, ...] | None = None
    agent: AgentSettings = AgentSettings()


@dataclass(frozen=True, slots=True)
class Spec:
    """`max_unavailable`: a count or a percentage such as "10%"."""

    resources: tuple[Resource, ...]
    pools: tuple[Pool, ...]
    max_unavailable: int | str = "10%"
    paused: bool = False

    def document(self, pool: Pool) -> Document:
        """What the pool's agents serve, in the order of the entries."""
        return Document(tuple(r for r in self.resources if r.name in pool.serves))


def parse_spec(obj: Mapping[str, Any]) -> Spec:
    """The object's spec; `obj` is the whole DevicePluginConfig as JSON.

    Raises:
        InvalidSpecError: with every problem found.
    """
    raise NotImplementedError
