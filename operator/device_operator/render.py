"""An accepted spec as manifests: a ConfigMap and a DaemonSet per pool. Equal input gives equal bytes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from device_agent.contract import names
from device_operator.model import Identity
from device_operator.spec import Spec

ANNOTATION_CONFIG_HASH: Final = f"{names.GROUP}/config-hash"
"""On ConfigMap and DaemonSet (not on its pods): SHA-256 of the document, what agents report as observedConfigHash."""
ANNOTATION_TEMPLATE: Final = f"{names.GROUP}/template-hash"
"""On DaemonSet and pod template: SHA-256 of the pod template without this annotation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderSettings:
    """What the chart decides for all agents; `spec.agent` and a pool's `agent` go before it."""

    namespace: str
    agent_image: str
    service_account: str = "device-agent"
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """`body`: the object, JSON values only. `hash`: SHA-256 of the body."""

    pool: str
    kind: str
    name: str
    body: dict[str, Any]
    config_hash: str
    template_hash: str
    hash: str


def render(identity: Identity, spec: Spec, settings: RenderSettings) -> tuple[Manifest, ...]:
    """For each pool in order: its ConfigMap, then its DaemonSet."""
    raise NotImplementedError


def dump_yaml(manifests: Iterable[Manifest]) -> str:
    """One YAML document each, byte-stable."""
    raise NotImplementedError
