"""The nodes: which of them a pool wants and has no agent, and which no pool wants."""

from collections.abc import Iterator
from datetime import UTC, datetime

from device_agent.contract import names
from device_operator.runtime.errors import InvalidSpecError
from device_operator.spec.model import Pool
from device_operator.spec.parsing import parse_spec
from device_operator.spec.placement import NodeView, matches
from device_operator.spec.wording import name_some

from kubectl_devices.model.soundness.finding import CheckReason, Finding, Severity
from kubectl_devices.model.soundness.observed import Object, Observed, condition


def nodes(seen: Observed) -> Iterator[Finding]:
    if seen.nodes is None or not seen.configs:
        return
    pools = {str(raw["metadata"]["name"]): _pools(raw) for raw in seen.configs}
    wanted: set[str] = set()
    linux = [node for node in map(view, seen.nodes) if node.os == "linux"]
    for config, there in pools.items():
        for pool in there:
            matched = [node for node in linux if matches(pool, node)]
            wanted |= {node.name for node in matched}
            if seen.pods is not None:
                yield from _without_agent(config, pool, matched, seen)
    alone = sorted(node.name for node in linux if node.name not in wanted)
    if alone and all(pools.values()):
        yield Finding(
            severity=Severity.NOTE,
            reason=CheckReason.NODES_WITHOUT_POOL,
            where=f"Nodes {name_some(alone)}",
            what="no pool of any DevicePluginConfig matches, so their devices are not served",
            todo="if that is not meant: compare spec.nodePools with kubectl get nodes --show-labels",
        )


def _pools(raw: Object) -> tuple[Pool, ...]:
    """() for a spec that the operator rejects: the condition Accepted says why."""
    try:
        return parse_spec(raw).pools
    except InvalidSpecError:
        return ()


def _without_agent(config: str, pool: Pool, matched: list[NodeView], seen: Observed) -> Iterator[Finding]:
    """Nodes without any pod of an agent; one that is not Ready has a finding of its own."""
    there = {
        pod["spec"].get("nodeName")
        for pod in seen.agents
        if pod["metadata"]["labels"][names.LABEL_CONFIG] == config and "deletionTimestamp" not in pod["metadata"]
    }
    lacking = [node for node in matched if node.name not in there]
    for ready in (True, False):
        group = [node.name for node in lacking if node.ready is ready]
        if group:
            yield Finding(
                severity=Severity.PROBLEM if ready else Severity.WARNING,
                reason=CheckReason.NODES_WITHOUT_AGENT if ready else CheckReason.NODES_NOT_READY,
                where=f"Nodes {name_some(group)}",
                what=f"pool {pool.name} of {config} matches them, but no agent's pod is there"
                + ("" if ready else "; the nodes themselves are not Ready"),
                todo=f"kubectl get dpc {config} -o yaml: status.nodes has the cause, such as a taint or pod security",
            )


def view(raw: Object) -> NodeView:
    meta, ready = raw["metadata"], condition(raw, "Ready")
    return NodeView(
        name=meta["name"],
        labels=meta.get("labels", {}),
        created=datetime.fromtimestamp(0, UTC),
        ready=ready.get("status") == "True",
    )
