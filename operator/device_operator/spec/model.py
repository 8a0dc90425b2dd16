"""A typed DevicePluginConfig: its identity, its pools and its spec, with defaults applied. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from device_agent.contract.document import CordonRule, Document, Resource

from device_operator.spec.agent_settings import AgentSettings
from device_operator.spec.scheduling import EVERY_TAINT, Term, Toleration


@dataclass(frozen=True, slots=True)
class ConfigRef:
    """A DevicePluginConfig."""

    name: str
    uid: str


DEFAULT_POOL: Final = "default"
DEFAULT_MAX_UNAVAILABLE: Final = "10%"


@dataclass(frozen=True, slots=True)
class Pool:
    """`serves`: names of entries; the parser replaces an empty list with all entries. `tolerations` None: every taint.

    `agent`: settings of the pool, merged over `spec.agent`. `may_be_empty`: a pool without nodes is no fault.
    """

    name: str
    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_selector_terms: tuple[Term, ...] = ()
    tolerations: tuple[Toleration, ...] | None = None
    serves: tuple[str, ...] = ()
    agent: AgentSettings = field(default_factory=AgentSettings)
    may_be_empty: bool = False

    @property
    def effective_tolerations(self) -> tuple[Toleration, ...]:
        return EVERY_TAINT if self.tolerations is None else self.tolerations


@dataclass(frozen=True, slots=True)
class Spec:
    """`max_unavailable`: a count, or a percentage such as "10%". `cordon`: devices withheld on every node."""

    resources: tuple[Resource, ...]
    pools: tuple[Pool, ...]
    max_unavailable: int | str = DEFAULT_MAX_UNAVAILABLE
    paused: bool = False
    cordon: tuple[CordonRule, ...] = ()

    def document(self, pool: Pool) -> Document:
        """What the pool's agents serve, in the order of the entries. What concerns the operator alone is left out."""
        served = (r for r in self.resources if r.name in pool.serves)
        return Document(tuple(replace(r, may_be_empty=False) for r in served), self.cordon)

    def allowed_unavailable(self, nodes: int) -> int:
        """How many of `nodes` may be unavailable, rounded down."""
        if isinstance(self.max_unavailable, int):
            return self.max_unavailable
        return nodes * int(self.max_unavailable.removesuffix("%")) // 100
