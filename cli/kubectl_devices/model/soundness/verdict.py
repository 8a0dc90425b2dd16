"""All findings, the cause before its effects."""

from collections.abc import Iterable, Iterator

from kubectl_devices.model.soundness import of_agents, of_configs, of_nodes, of_operator
from kubectl_devices.model.soundness.finding import CheckReason, Finding, Severity
from kubectl_devices.model.soundness.observed import Observed


def findings(seen: Observed) -> tuple[Finding, ...]:
    """Problems first; among them rights, kinds, operator, agents, nodes, configurations."""
    parts = (blind, of_operator.kinds, of_operator.operator, of_agents.agents, of_nodes.nodes, of_configs.configs)
    found = [finding for part in parts for finding in part(seen)]
    return tuple(sorted(found, key=lambda f: list(Severity).index(f.severity)))


def blind(seen: Observed) -> Iterator[Finding]:
    """Nothing of the product could be read, so nothing can be said about it."""
    if seen.configs is None and seen.deployments is None and not seen.lease_read:
        yield Finding(
            reason=CheckReason.NOTHING_CHECKED,
            where="your rights",
            what="you may read neither the operator's Deployment and Lease nor the DevicePluginConfigs",
            todo="ask for the rights that docs/kubectl-devices.md lists",
        )


def sound(found: Iterable[Finding]) -> bool:
    return all(f.severity is not Severity.PROBLEM for f in found)
