"""A status computed from what tests see, and what it says in short."""

import dataclasses
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from device_agent.contract.codec import encode
from device_agent.contract.inventory import InventoryStatus
from device_agent.contract.status import read_config_status
from device_operator.render.manifests import render
from device_operator.runtime.errors import InvalidSpecError
from device_operator.spec.acceptance import AcceptedState, InForce, Rejected
from device_operator.spec.model import Spec
from device_operator.spec.placement import Assignment, NodeView, Overlap, assignment
from device_operator.status.nodes import StatusSettings
from device_operator.status.observed import Observed
from device_operator.status.situation import Computed
from device_operator.status.summary import compute
from unit.operator_core.build import (
    LAB,
    NOW,
    SETTINGS,
    inventory,
    node,
    pod,
    spec,
)

CRD = yaml.safe_load((Path(__file__).parents[3] / "crds" / "devicepluginconfigs.yaml").read_text())
SCHEMA = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
WRONG = Rejected.invalid(InvalidSpecError(("spec.resources[0].unit: unknown attribute 'x'",)))
READY_BEFORE = {
    "conditions": [
        {"type": "Ready", "status": "True", "reason": "Serving", "message": "", "observedGeneration": 1}
        | {"lastTransitionTime": "2026-05-01T00:00:00Z"}
    ]
}


CRASH = {"waiting_reason": "CrashLoopBackOff", "exit_code": 1}
GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-{profile}"


def strict(schema: Any) -> Any:
    """The schema, which now refuses undeclared fields. The API server would drop them."""
    if isinstance(schema, dict):
        closed = {k: strict(v) for k, v in schema.items()}
        if "properties" in schema and schema.get("type") == "object":
            closed["additionalProperties"] = False
        return closed
    return [strict(item) for item in schema] if isinstance(schema, list) else schema


def status(
    found: Spec | Rejected | None = None,
    *,
    rejected: Rejected | None = None,
    lost: str = "",
    nodes: tuple[NodeView, ...] = (),
    previous: dict[str, Any] | None = None,
    generation: int = 1,
    limits: StatusSettings | None = None,
    validate: bool = True,
    conflicts: tuple[Overlap, ...] = (),
    unchecked: tuple[str, ...] = (),
    **seen: Any,
) -> dict[str, Any]:
    """The status as it is written, for `seen` as `judged` takes it."""
    computed = judged(
        found, rejected=rejected, lost=lost, nodes=nodes, previous=previous, generation=generation, limits=limits,
        conflicts=conflicts, unchecked=unchecked, **seen,
    ).status  # fmt: skip
    written: dict[str, Any] = encode(computed)
    assert read_config_status(written) == computed
    if validate:
        jsonschema.validate(written, strict(SCHEMA))
    return written


def judged(
    found: Spec | Rejected | None = None,
    *,
    rejected: Rejected | None = None,
    lost: str = "",
    nodes: tuple[NodeView, ...] = (),
    previous: dict[str, Any] | None = None,
    generation: int = 1,
    limits: StatusSettings | None = None,
    conflicts: tuple[Overlap, ...] = (),
    unchecked: tuple[str, ...] = (),
    **seen: Any,
) -> Computed:
    """The status and what is wrong. Pods and inventories have the current template and configuration, unless they name
    others.

    `found`: the spec in force, or why none is; `rejected`: the present generation, beside a spec in force.
    """
    found = found or spec()
    assigned, manifests, in_force = Assignment({}), (), None
    if isinstance(found, Rejected):
        rejected = found
    else:
        in_force = InForce(generation - (rejected is not None), found)
        assigned = assignment(found, nodes=nodes, others=[])
        assigned = dataclasses.replace(assigned, overlaps=(*assigned.overlaps, *conflicts), unchecked=unchecked)
        manifests = render(LAB, found, SETTINGS)
        current = {m.pool: m for m in manifests}
        seen["pods"] = tuple(
            dataclasses.replace(p, template_hash=p.template_hash or current[p.pool].template_hash)
            for p in seen.get("pods", ())
        )
        seen["inventories"] = tuple(
            dataclasses.replace(i, status=_on_the_current(i.status, {p: m.config_hash for p, m in current.items()}))
            for i in seen.get("inventories", ())
        )
    return compute(
        AcceptedState(ref=LAB, generation=generation, rejected=rejected, in_force=in_force, lost=lost),
        observed=Observed(now=NOW, nodes=nodes, **seen),
        previous=read_config_status(previous),
        assigned=assigned,
        manifests=manifests,
        settings=limits,
    )


def _on_the_current(status: InventoryStatus | None, hashes: dict[str, str]) -> InventoryStatus | None:
    if status is None or status.observed_config_hash:
        return status
    return dataclasses.replace(status, observed_config_hash=hashes[status.pool_name])


def conditions(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Without those for kstatus."""
    return {k: said for k, said in all_conditions(found).items() if k not in ("Reconciling", "Stalled")}


def all_conditions(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in found["conditions"]}


def word(found: dict[str, Any]) -> str:
    """Column STATUS of kubectl get."""
    return str(found["summary"]["status"])


def message(found: dict[str, Any], kind: str) -> str:
    return next(str(c["message"]) for c in found["conditions"] if c["type"] == kind)


def fleet(serving: int, *, waiting: int = 0, node_age: float = 3600, **waiting_pod: Any) -> dict[str, Any]:
    """Nodes: `serving` of them serve, `waiting` of them have the pod of `waiting_pod`."""
    names = [f"node-{i:04}" for i in range(serving + waiting)]
    return {
        "nodes": tuple(node(name, age=node_age) for name in names),
        "pods": tuple(pod(name) for name in names[:serving])
        + tuple(pod(name, ready=False, **waiting_pod) for name in names[serving:]),
        "inventories": tuple(inventory(name) for name in names[:serving]),
    }


def numbers(found: dict[str, Any]) -> dict[str, Any]:
    """The summary without its word and the word's message."""
    return {k: v for k, v in found["summary"].items() if k not in ("status", "message")}
