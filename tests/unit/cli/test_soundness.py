"""`kubectl devices check`: which state of a cluster gives which finding."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from device_agent.contract.node_reasons import NodeReason
from kubectl_devices.model.fleet import read_inventory
from kubectl_devices.model.soundness.finding import Severity, age
from kubectl_devices.model.soundness.observed import Observed
from kubectl_devices.model.soundness.verdict import findings, sound

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
NAMESPACE = "device-operator"
LABELS = {"device-operator.io/config": "lab", "device-operator.io/pool": "default"}


def ago(**duration: float) -> str:
    return (NOW - timedelta(**duration)).strftime("%Y-%m-%dT%H:%M:%SZ")


def crd(plural: str, *versions: str) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{plural}.device-operator.io"},
        "spec": {
            "names": {"plural": plural},
            "versions": [{"name": version, "served": True} for version in versions or ("v1alpha1",)],
        },
        "status": {"conditions": [{"type": "Established", "status": "True"}]},
    }


def condition(kind: str, status: str, reason: str) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": f"text of {reason}",
        "observedGeneration": 1,
        "lastTransitionTime": ago(hours=1),
    }


GOOD = [
    condition("Accepted", "True", "Accepted"),
    condition("Progressing", "False", "Current"),
    condition("Degraded", "False", "AsWanted"),
    condition("Ready", "True", "Serving"),
]


def config(*conditions: dict[str, Any], updated: str = ago(minutes=1), **spec: Any) -> dict[str, Any]:
    changed = {c["type"]: c for c in (*GOOD, *conditions)}
    entry = {"name": "example.com/lab", "devices": [{"simulated": {"count": 2}}]}
    return {
        "metadata": {"name": "lab", "generation": 1, "creationTimestamp": ago(hours=2)},
        "spec": {"resources": [entry], **spec},
        "status": {"observedGeneration": 1, "lastUpdateTime": updated, "conditions": list(changed.values())},
    }


WITHHELD = config()
WITHHELD["status"]["summary"] = {"status": "AllWithheld", "message": "all cordoned"}


def node(name: str, *, ready: str = "True", **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/os": "linux", **labels}},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def pod(node: str, *, ready: str = "True", **status: Any) -> dict[str, Any]:
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": ago(minutes=10)}
    return {
        "metadata": {"name": f"lab-{node}", "namespace": NAMESPACE, "labels": LABELS},
        "spec": {"nodeName": node},
        "status": {"phase": "Running", "conditions": [condition], **status},
    }


def inventory(node: str, *, beat: str = ago(minutes=3), **status: Any) -> Any:
    given = {"poolName": "default", "agentVersion": "1", "lastHeartbeatTime": beat, **status}
    spec = {"nodeName": node, "configName": "lab"}
    return read_inventory({"metadata": {"name": f"lab.{node}"}, "spec": spec, "status": given})


DAEMONSET = {
    "metadata": {"name": "lab-default-1", "namespace": NAMESPACE, "labels": LABELS},
    "status": {"desiredNumberScheduled": 1, "currentNumberScheduled": 1},
}
DEPLOYMENT = {
    "metadata": {"name": "device-operator", "namespace": NAMESPACE},
    "spec": {"replicas": 2},
    "status": {"availableReplicas": 2},
}
LEASE = {"spec": {"holderIdentity": "operator-1", "leaseDurationSeconds": 15, "renewTime": ago(seconds=2)}}
SOUND = Observed(
    now=NOW,
    namespace=NAMESPACE,
    lease_name="device-operator",
    account_name="device-operator-agent",
    crds=(crd("devicepluginconfigs"), crd("nodedeviceinventories")),
    deployments=(DEPLOYMENT,),
    lease=LEASE,
    lease_read=True,
    account={},
    account_read=True,
    configs=(config(),),
    daemonsets=(DAEMONSET,),
    pods=(pod("n1"),),
    events=(),
    inventories=(inventory("n1"),),
    nodes=(node("n1"),),
)
REFUSED = {
    "reason": "FailedCreate",
    "message": "violates PodSecurity",
    "lastTimestamp": ago(minutes=2),
    "involvedObject": {"kind": "DaemonSet", "name": "lab-default-1"},
}


def reasons(seen: Observed, *severities: Severity) -> list[str]:
    return [f.reason for f in findings(seen) if f.severity in (severities or (Severity.PROBLEM,))]


def test_nothing_is_said_about_a_sound_installation():
    assert findings(SOUND) == ()


def test_nothing_is_said_about_what_may_not_be_read():
    blind = Observed(now=NOW, namespace=NAMESPACE, lease_name="device-operator", account_name="a", configs=(config(),))
    assert findings(blind) == ()


def test_who_may_read_nothing_is_not_told_that_all_is_well():
    blind = Observed(now=NOW, namespace=NAMESPACE, lease_name="device-operator", account_name="a")
    assert reasons(blind) == ["NothingChecked"]


LACKING = {**DAEMONSET, "status": {"desiredNumberScheduled": 1, "currentNumberScheduled": 0}}
WAITING = [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]
CRASHED = [{"state": {"terminated": {"exitCode": 2, "reason": "Error"}}}]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"crds": (crd("devicepluginconfigs"),)}, "KindMissing"),
        ({"kinds_missing": ("nodedeviceinventories",), "crds": None}, "KindMissing"),
        ({"crds": (crd("devicepluginconfigs", "v2"), crd("nodedeviceinventories"))}, "VersionNotServed"),
        ({"deployments": (), "lease": None}, "OperatorMissing"),
        ({"deployments": (), "lease": None, "lease_read": False}, "OperatorMissing"),
        ({"deployments": ({**DEPLOYMENT, "spec": {"replicas": 0}},)}, "OperatorScaledDown"),
        ({"deployments": ({**DEPLOYMENT, "status": {}},)}, "OperatorUnavailable"),
        ({"lease": None}, "OperatorNeverLed"),
        ({"lease": {"spec": {**LEASE["spec"], "renewTime": ago(seconds=40)}}}, "OperatorGone"),
        ({"lease": {"spec": {**LEASE["spec"], "holderIdentity": ""}}}, "OperatorGone"),
        ({"account": None}, "ServiceAccountMissing"),
        ({"daemonsets": (LACKING,), "events": (REFUSED,)}, "FailedCreate"),
        ({"pods": (pod("n1", ready="False", containerStatuses=WAITING),)}, "ImagePullBackOff"),
        ({"pods": (pod("n1", ready="False", containerStatuses=CRASHED),)}, "AgentCrashes"),
        ({"pods": (pod("n1", ready="False"),)}, "AgentNotReady"),
        ({"pods": ()}, "NodesWithoutAgent"),
        ({"inventories": (inventory("n1", beat=ago(hours=1)),)}, "InventoryOld"),
        ({"inventories": (inventory("n1", devices=7),)}, "InventoryUnreadable"),
        ({"configs": (config(condition("Accepted", "False", "InvalidSpec")),)}, "InvalidSpec"),
        ({"configs": (config(condition("Degraded", "True", "DevicesUnhealthy")),)}, "DevicesUnhealthy"),
        ({"configs": (config(condition("Ready", "False", "AgentCrashes")),)}, "AgentCrashes"),
        ({"configs": (config(updated=ago(hours=3)),)}, "StatusOld"),
        ({"configs": ({**config(), "status": {}},)}, "NotJudged"),
    ],
)
def test_each_fault_is_one_problem_with_a_place_and_a_cause(changes: dict[str, Any], reason: str):
    found = [f for f in findings(replace(SOUND, **changes)) if f.severity is Severity.PROBLEM]
    assert [f.reason for f in found] == [reason]
    assert found[0].where
    assert found[0].what
    assert not sound(found)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"configs": (config(paused=True),)}, "Paused"),
        ({"configs": (WITHHELD,)}, "AllWithheld"),
        ({"deployments": ()}, "OperatorMissing"),
        ({"deployments": (DEPLOYMENT, DEPLOYMENT)}, "TwoOperators"),
        ({"configs": (config(condition("Progressing", "True", "Updating")),)}, "Updating"),
        ({"nodes": (node("n1", ready="False"),), "pods": ()}, "NodesNotReady"),
        (
            {
                "nodes": (node("n1", hardware="edge"), node("n2")),
                "configs": (config(nodePools=[{"name": "default", "nodeSelector": {"hardware": "edge"}}]),),
            },
            "NodesWithoutPool",
        ),
        ({"configs": (), "inventories": (), "pods": (), "daemonsets": ()}, "NoConfig"),
        ({"inventories": (inventory("n1", cordonMessage="no device has the id x"),)}, "CordonWithoutDevice"),
    ],
)
def test_what_may_be_meant_is_told_and_is_no_problem(changes: dict[str, Any], reason: str):
    seen = replace(SOUND, **changes)
    assert reasons(seen, Severity.WARNING, Severity.NOTE) == [reason]
    assert sound(findings(seen))


def test_the_age_of_an_operator_that_is_gone_is_said():
    seen = replace(SOUND, lease={"spec": {**LEASE["spec"], "renewTime": ago(minutes=4, seconds=12)}})
    (found,) = findings(seen)
    assert "4m12s" in found.what
    assert "operator-1" in found.what


def test_one_cause_of_two_conditions_is_one_problem_with_the_words_meaning():
    both = (condition("Ready", "False", "AgentCrashes"), condition("Degraded", "True", "AgentCrashes"))
    seen = replace(SOUND, configs=(config(*both),))
    assert reasons(seen) == ["AgentCrashes"]
    assert findings(seen)[0].todo == NodeReason.AGENT_CRASHES.meaning


def test_the_operator_stands_before_what_follows_from_it():
    seen = replace(SOUND, lease=None, configs=(config(updated=ago(hours=3)),))
    assert reasons(seen) == ["OperatorNeverLed", "StatusOld"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59, "59s"), (60, "1m"), (252, "4m12s"), (3660, "1h1m"), (180000, "2d2h")]
)
def test_ages_read_as_those_of_kubectl(seconds: int, text: str):
    assert age(timedelta(seconds=seconds)) == text


def test_findings_are_json():
    (found,) = findings(replace(SOUND, lease=None))
    assert json.loads(json.dumps(found.severity)) == "PROBLEM"
