"""Situations, each with the alerts that fire in it. They are made by the programs' own code."""

from collections.abc import Callable
from typing import Any

from device_agent.contract.config_reasons import ConditionReason
from device_agent.contract.node_reasons import NodeReason
from device_agent.nvml.model import GpuSample
from device_operator.spec.placement import Overlap
from device_operator.status.observed import ApplyProblem
from unit.chart.scrapes import Fleet, Gpus, passed
from unit.nvml.telemetry_samples import offering, whole
from unit.operator_core.build import KVM, ago, counts, device, entry, inventory, node, pod, pools, spec
from unit.operator_core.statuses import READY_BEFORE, WRONG, fleet

Make = Callable[[Fleet, int], None]
"""Fills the fleet as it is after 0 or 1 hours."""
HOLDER = [{"namespace": "default", "pod": "p", "container": "c"}]
SELECTED = {"name": "edge", "nodeSelector": {"hardware": "edge"}}
CAMERA = "example.com/camera"
NOTHING = {"resources": [counts(), counts(CAMERA, devices=0)]}


def one(*found: Any, **status: Any) -> Make:
    """One node whose agent reports `status`."""
    return situation(*found, nodes=(node(),), pods=(pod(),), inventories=(inventory(**status),))


def situation(*found: Any, **seen: Any) -> Make:
    def make(fleet_: Fleet, _: int) -> None:
        assert fleet_.lead is not None
        passed(fleet_.lead, *found, **seen)

    return make


def broken(**fields: Any) -> Make:
    bad = {"health": "Unhealthy", "reason": "Xid79", **fields}
    return one(resources=[counts(healthy=0)], devices=[device(**bad)])


def nobody(fleet_: Fleet, _: int) -> None:
    fleet_.lead = None


def no_leader(fleet_: Fleet, _: int) -> None:
    assert fleet_.lead is not None
    fleet_.lead.leader.set(0)


def failing_passes(fleet_: Fleet, hours: int) -> None:
    assert fleet_.lead is not None
    for _ in range(30 * hours):
        fleet_.lead.observe_pass("failed", 0.1)


def old_watch(fleet_: Fleet, _: int) -> None:
    assert fleet_.lead is not None
    fleet_.lead.watch_ages = lambda: {"nodes": 900.0, "pods": 4.0}


def refused(number: int) -> Make:
    def make(fleet_: Fleet, hours: int) -> None:
        for _ in range(number * hours):
            fleet_.agent("node-1").allocated(KVM, seconds=0.1, refused="HeldAs")

    return make


def reports(*, failed: int, written: int) -> Make:
    def make(fleet_: Fleet, hours: int) -> None:
        for error, number in ((True, failed), (False, written)):
            for _ in range(number * hours):
                fleet_.agent("node-1").reported(error=error)

    return make


def gpu(celsius: float) -> Make:
    def make(fleet_: Fleet, _: int) -> None:
        shown = offering(whole(0), holders={"nvidia.com/gpu": {"GPU-0": ("a", "b")}})
        samples = [GpuSample(uuid="GPU-0", temperature_celsius=celsius)]
        fleet_.agent("node-1").registry.register(Gpus(samples, shown))

    return make


PULL = {"waiting_reason": "ImagePullBackOff"}
OTHER_OBJECT = Overlap("node-1", ConditionReason.DEVICE_CONFLICT, "default", "other", (KVM,), reported=True)
RIVAL = Overlap("node-1", ConditionReason.RESOURCE_CONFLICT, "default", "other", (KVM,), reported=True)
LEFT = inventory(poolName="edge", resources=[counts(allocated=1)], devices=[device(allocatedTo=HOLDER)])
SERVED: dict[str, Any] = {"nodes": (node(),), "pods": (pod(),), "inventories": (inventory(),)}

CAUSES: dict[str, tuple[Make, dict[str, int]]] = {
    "no operator": (nobody, {"DeviceOperatorAbsent": 1}),
    "no leader": (no_leader, {"DeviceOperatorNoLeader": 1}),
    "failing passes": (failing_passes, {"DeviceOperatorPassesFailing": 1}),
    "an old watch": (old_watch, {"DeviceOperatorWatchOld": 1}),
    "a rejected edit": (situation(spec(), rejected=WRONG, generation=2, **SERVED), {"DevicePluginConfigRejected": 1}),
    "two nodes of three without image": (
        situation(**fleet(1, waiting=2, **PULL)),
        {"DevicePluginConfigNotReady": 1, "DeviceNodeNotServed": 2},
    ),
    "a ConfigMap of somebody else": (
        situation(problems=(ApplyProblem("default", NodeReason.NOT_OWNED, "somebody's"),), **SERVED),
        {"DevicePluginConfigProblem": 1},
    ),
    "a pool without nodes": (situation(pools(SELECTED), nodes=(node(),)), {"DevicePluginConfigProblem": 1}),
    "a resource without devices": (
        one(spec(resources=[entry(), entry(CAMERA)]), **NOTHING),
        {"DeviceNothingFound": 1},
    ),
    "a lost node": (
        situation(pools({**SELECTED, "mayBeEmpty": True}), nodes=(node(),), inventories=(LEFT,)),
        {"DeviceNodesLost": 1},
    ),
    "one device in two objects": (situation(conflicts=(OTHER_OBJECT,), **SERVED), {"DeviceConflict": 1}),
    "one resource in two objects": (situation(conflicts=(RIVAL,), **SERVED), {"DeviceConflict": 1}),
    "no heartbeat": (
        situation(**SERVED | {"inventories": (inventory(heard=1600),)}),
        {"DeviceInventoryStale": 1, "DevicePluginConfigNotReady": 1},
    ),
    "a driver that is away": (
        one(resources=[counts(reason="DriverUnavailable", message="not loaded")]),
        {"DeviceDriverUnavailable": 1},
    ),
    "a device without an answer": (
        one(devices=[device(health="Unknown", reason="NoAnswer")]),
        {"DeviceDriverUnavailable": 1},
    ),
    "a kubelet that does not know": (one(resources=[counts(registered=False)]), {"DeviceResourceNotOffered": 1}),
    "holders unknown": (one(podResources="Unavailable"), {"DeviceNodeProblem": 1}),
    "an unhealthy device": (broken(), {"DevicesUnhealthy": 1}),
    "the wrong hardware": (one(devices=[device(staleGrant="pod a/b has /dev/kvm")]), {"DeviceStaleGrant": 1}),
    "refused pods": (refused(20), {"DeviceAllocationsRefused": 1}),
    "reports that fail": (reports(failed=20, written=0), {"DeviceReportsFailing": 1}),
    "a hot GPU": (gpu(95.0), {"DeviceGpuHot": 1}),
}
"""Name -> the situation, and how many alerts of each name fire."""

STARTING = {"ready_changed_at": ago(20), "age": 20}
PLANNED: dict[str, Make] = {
    "all is well": situation(**fleet(3)),
    "withheld": one(resources=[counts(withheld=1)], devices=[device(withheld="HeldAs")]),
    "draining": one(resources=[counts(devices=2, withheld=1)], devices=[device(), device("old", withheld="Draining")]),
    "cordoned": one(resources=[counts(withheld=1)], devices=[device(withheld="Cordoned")]),
    "cordoned because it is broken": broken(withheld="Cordoned"),
    "recovering": broken(reason="Recovering"),
    "paused, never applied": situation(spec(paused=True), nodes=(node(),)),
    "paused": situation(spec(paused=True), **SERVED),
    "a resource that may be empty": one(spec(resources=[entry(), entry(CAMERA, mayBeEmpty=True)]), **NOTHING),
    "a pool that may be empty": situation(pools({**SELECTED, "mayBeEmpty": True}), nodes=(node(),)),
    "a rollout": situation(**fleet(2, waiting=1, **STARTING), previous=READY_BEFORE),
    "a pod that is replaced": situation(**SERVED | {"pods": (pod(deleting=True),)}, previous=READY_BEFORE),
    "a node that joins": situation(
        nodes=(node("a"), node("new", age=60)),
        pods=(pod("a"), pod("new", ready=False, **STARTING)),
        inventories=(inventory("a"),),
    ),
    "a node that is shut down": situation(
        nodes=(node("a"), node("b", ready=False)),
        pods=(pod("a"), pod("b")),
        inventories=(inventory("a"), inventory("b")),
    ),
    "a refused pod": refused(3),
    "reports that fail at times": reports(failed=5, written=20),
    "a warm GPU": gpu(85.0),
}
