"""The state of a node and its cause, for each way in which an agent can fail to serve."""

from typing import Any

import pytest
from device_operator.spec.placement import NodeView
from device_operator.status.nodes import NodeReport, StatusSettings, node_reports
from device_operator.status.observed import Observed
from device_operator.status.pools import PoolView
from unit.operator_core.build import LAB, NOW, ago, inventory, node, pod
from unit.operator_core.node_causes import CAUSES, SERVING

POOL = PoolView(name="default", nodes=("node-1",))


def report(
    *, pool: PoolView = POOL, on: NodeView | None = None, paused: bool = False, since: Any = None, **seen: Any
) -> NodeReport:
    observed = Observed(now=NOW, nodes=(on or node(),), **seen)
    (found,) = node_reports(LAB, [pool], observed, settings=StatusSettings(), paused=paused, progressing_since=since)
    return found


@pytest.mark.parametrize(("given", "wanted"), CAUSES.values(), ids=CAUSES.keys())
def test_a_node_and_its_cause(given: dict[str, Any], wanted: tuple[str, str, str]):
    found = report(**given)
    assert (found.state, found.reason) == wanted[:2]
    assert wanted[2] in found.message


@pytest.mark.parametrize("name", CAUSES)
def test_the_message_of_a_cause_is_the_same_a_second_later(name: str):
    """A message that counted seconds would be a status write each second."""
    given = {"now": NOW, **CAUSES[name][0]}
    pool, paused = given.pop("pool", POOL), given.pop("paused", False)
    given["nodes"] = (given.pop("on", node()),)
    later = given | {"now": ago(-0.5)}
    first, second = (
        node_reports(LAB, [pool], Observed(**seen), settings=StatusSettings(), paused=paused) for seen in (given, later)
    )
    assert [r.message for r in first] == [r.message for r in second]


@pytest.mark.parametrize("name", CAUSES)
def test_only_nodes_with_a_serving_agent_are_served(name: str):
    given, (state, _, _) = CAUSES[name]
    assert report(**given).served == (state in ("Serving", "NoDevices"))


GRACE = {
    "no pod yet",
    "no DaemonSet yet",
    "FailedCreate of long ago",
    "pod being replaced",
    "container being made",
    "container being made, the kubelet says why not",
    "just started",
}
GRACE |= {
    "agent not Ready for want of a kubelet",
    "not Ready for a moment",
    "Ready, no report yet",
    "report of the pool before",
}


@pytest.mark.parametrize("name", CAUSES)
def test_grace_is_only_for_nodes_without_a_known_cause(name: str):
    assert report(**CAUSES[name][0]).grace == (name in GRACE)


@pytest.mark.parametrize("name", ["no pod yet", "no DaemonSet yet", "pod being replaced"])
def test_grace_without_a_pod_ends_when_the_controller_has_had_its_time(name: str):
    given = CAUSES[name][0]
    assert report(**given, since=ago(299)).grace
    assert not report(**given, since=ago(301)).grace


@pytest.mark.parametrize(
    ("on", "settled", "young"),
    [
        (node(age=301), True, False),
        (node(age=299), False, True),
        (node(age=3600, ready_changed_at=ago(20)), False, True),  # back from a reboot
        (node(ready=False), False, False),
        (node(deleting=True), False, False),
    ],
)
def test_a_node_counts_once_it_has_been_ready_for_a_while(on: NodeView, *, settled: bool, young: bool):
    found = report(on=on, **SERVING)
    assert (found.settled, found.young) == (settled, young)


@pytest.mark.parametrize(
    ("heard", "ready", "updated"),
    [(40, False, False), (20, False, True), (40, True, True)],
)
def test_a_report_older_than_a_pod_that_is_not_ready_does_not_count(heard: float, *, ready: bool, updated: bool):
    seen = {"pods": (pod(age=30, ready=ready),), "inventories": (inventory(heard=heard),)}
    assert report(**seen).updated == updated


@pytest.mark.parametrize(
    ("template", "config", "updated"),
    [("t2", "c2", True), ("t1", "c2", False), ("t2", "c1", False)],
)
def test_a_node_is_updated_with_the_current_template_and_configuration(template: str, config: str, *, updated: bool):
    pool = PoolView(name="default", nodes=("node-1",), config_hash="c2", template_hash="t2")
    seen = {"pods": (pod(template_hash=template),), "inventories": (inventory(observedConfigHash=config),)}
    assert report(pool=pool, **seen).updated == updated


def test_the_newest_pod_that_is_not_being_deleted_counts():
    pods = (pod(age=900, deleting=True), pod(age=600, ready=False, waiting_reason="ErrImagePull"), pod(age=120))
    assert report(pods=pods, inventories=(inventory(),)).state == "Serving"


@pytest.mark.parametrize(
    ("name", "problem"),
    [("no file found", False), ("one of two resources not found", False), ("driver not loaded", True)],
)
def test_a_missing_driver_is_a_problem_and_missing_hardware_is_not(name: str, *, problem: bool):
    assert report(**CAUSES[name][0]).problem == problem


def test_an_old_end_of_the_container_is_not_in_the_message():
    old = {"restarts": 2, "exit_code": 137, "terminated_reason": "Error", "terminated_at": ago(3600)}
    found = report(pods=(pod(ready=False, ready_changed_at=ago(70), **old),), inventories=(inventory(),))
    assert found.message == "pod lab-default-node-1 is not Ready since 2026-06-01T11:58:50Z: its log says why"


def test_one_restart_is_written_in_the_singular():
    crashes = pod(ready=False, waiting_reason="CrashLoopBackOff", exit_code=1, restarts=1)
    assert report(pods=(crashes,)).message == "pod lab-default-node-1: exit code 1, 1 restart"


def test_a_node_that_is_not_listed_is_not_reported():
    observed = Observed(now=NOW, nodes=(node("node-2"),))
    assert node_reports(LAB, [POOL], observed, settings=StatusSettings()) == ()
