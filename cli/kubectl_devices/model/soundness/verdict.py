"""All findings, the cause before its effects."""

from collections.abc import Iterable

from kubectl_devices.model.soundness import of_agents, of_configs, of_nodes, of_operator
from kubectl_devices.model.soundness.finding import Finding, Severity
from kubectl_devices.model.soundness.observed import Observed


def findings(seen: Observed) -> tuple[Finding, ...]:
    """Problems first; among them kinds, operator, agents, nodes, configurations."""
    parts = (of_operator.kinds, of_operator.operator, of_agents.agents, of_nodes.nodes, of_configs.configs)
    found = [finding for part in parts for finding in part(seen)]
    return tuple(sorted(found, key=lambda f: list(Severity).index(f.severity)))


def sound(found: Iterable[Finding]) -> bool:
    return all(f.severity is not Severity.PROBLEM for f in found)
