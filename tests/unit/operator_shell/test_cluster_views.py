"""Pruned API objects: what is kept, which changes count, and what an update of a live object contains."""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from device_agent.contract.inventory import InventoryDevice, InventoryResource, InventoryStatus
from device_agent.contract.reasons import DeviceHealth
from device_agent.contract.status import read_config_status
from device_operator.cluster import views
from device_operator.cluster.apply import RESTARTED_AT, wanted_from
from device_operator.cluster.cache import ClusterCache
from device_operator.render.manifests import RenderSettings, render
from device_operator.spec.model import ConfigRef
from device_operator.spec.parsing import parse_spec
from device_operator.spec.placement import matches

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODE: dict[str, Any] = {
    "metadata": {
        "name": "n",
        "labels": {"a": "b"},
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "resourceVersion": "1",
    },
    "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
    "status": {
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z", "lastHeartbeatTime": "1"}
        ],
        "images": [{"names": ["x"]}],
    },
}
INVENTORY: dict[str, Any] = {
    "metadata": {"name": "c.n", "uid": "u", "ownerReferences": [
        {"apiVersion": "device-operator.io/v1alpha1", "kind": "DevicePluginConfig", "name": "c", "uid": "owner"}]},
    "spec": {"nodeName": "n", "configName": "c"},
    "status": {
        "lastHeartbeatTime": "t1",
        "resources": [{"name": "r", "devices": 1}],
        "devices": [{"id": "a", "resource": "r", "health": "Healthy", "attributes": {"x": "y"}, "nodes": ["/dev/a"]}],
        "excluded": [{"id": "b"}],
        "history": [{"time": "t0", "resource": "r", "id": "a", "to": "Healthy"}],
        "historyOmitted": 3,
    },
}  # fmt: skip


def changed(raw: dict[str, Any], **status: Any) -> dict[str, Any]:
    new = copy.deepcopy(raw)
    new["status"] |= status
    return new


def test_a_nodes_heartbeat_is_no_change_and_a_label_is() -> None:
    before = views.node(NODE, None)
    beat = copy.deepcopy(NODE)
    beat["status"]["conditions"][0]["lastHeartbeatTime"] = "2"
    beat["status"]["images"] = []
    assert views.node(beat, None) == before
    beat["metadata"]["labels"]["a"] = "c"
    assert views.node(beat, None) != before


def test_a_node_that_never_reported_is_not_ready() -> None:
    assert not views.node({"metadata": {"name": "n"}}, None).ready


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ("Unknown", "its kubelet does not report"),
        ("False", "its kubelet reports NotReady; kubectl describe node says why"),
    ],
)
def test_a_silent_kubelet_and_one_that_is_not_ready_have_different_messages(status: str, why: str) -> None:
    conditions = [{"type": "Ready", "status": status, "message": "PLEG was last seen active 3m2s ago"}]
    seen = views.node({"metadata": {"name": "n"}, "status": {"conditions": conditions}}, None)
    assert (seen.ready, seen.why_not_ready) == (False, why)


def test_a_pruned_inventory_keeps_what_the_status_needs() -> None:
    view = views.inventory(INVENTORY, None, now=NOW)
    assert (view.node, view.config, view.owner_uid, view.heartbeat_seen) == ("n", "c", "owner", NOW)
    assert view.status == InventoryStatus(
        resources=(InventoryResource(name="r", devices=1),),
        devices=(InventoryDevice(id="a", resource="r", health=DeviceHealth.HEALTHY),),
    )


def test_of_excluded_is_kept_why_entries_have_no_device() -> None:
    looked = {"id": "devices[0]", "entry": "example.com/d", "reason": "NothingFound", "message": "devices[0]: no file"}
    left_out = [{"id": f"a{n}", "entry": "example.com/a", "reason": "TooManyIds"} for n in range(20)]
    of_others = [{"id": "x", "entry": "example.com/r", "reason": "Excluded"}, "no object", {"id": "y", "entry": ["z"]}]
    rows = [{"name": "example.com/r", "devices": 1}]
    raw = changed(INVENTORY, excluded=[*left_out, *of_others[:1], looked], resources=rows)
    seen = views.inventory(raw, None, now=NOW)
    assert seen.status is not None
    assert [(e.entry, e.id) for e in seen.status.excluded] == [("example.com/d", "devices[0]"), ("example.com/a", "a0")]
    assert views.inventory(changed(INVENTORY, excluded=of_others), None, now=NOW).unreadable


def test_an_inventory_that_was_never_written_has_no_status_and_is_not_unreadable() -> None:
    empty = {key: value for key, value in INVENTORY.items() if key != "status"}
    view = views.inventory(empty, None, now=NOW)
    assert (view.status, view.unreadable) == (None, "")


@pytest.mark.parametrize(
    ("status", "path"),
    [
        ({"devices": [{"id": "a", "resource": "r"}]}, "status.devices[0].health"),
        ({"devices": ["a"]}, "status.devices[0]"),
        ({"devices": {}}, "status.devices"),
        ({"resources": [{"devices": 1}]}, "status.resources[0].name"),
        ({"summary": 3}, "status.summary"),
    ],
)
def test_an_unreadable_inventory_names_the_field(status: dict[str, Any], path: str) -> None:
    view = views.inventory(changed(INVENTORY, **status), None, now=NOW)
    assert view.status is None
    assert view.unreadable.startswith(f"{path}: ")
    assert (view.node, view.owner_uid, view.heartbeat) == ("n", "owner", "t1")


def test_unknown_fields_of_a_newer_agent_are_ignored() -> None:
    newer = changed(INVENTORY, trend=[1], devices=[{"id": "a", "resource": "r", "health": "Healthy", "offered": True}])
    assert views.inventory(newer, None, now=NOW).status == views.inventory(INVENTORY, None, now=NOW).status


def test_words_that_only_a_newer_agent_knows_cost_nothing_else() -> None:
    devices = [
        {"id": "a", "resource": "r", "health": "Sleeping", "reason": "NotKnownHere", "offered": False},
        {"id": "b", "resource": "r", "health": "Healthy", "identity": "Fuzzy"},
    ]
    resources = [{"name": "r", "devices": 2, "healthy": 1, "reason": "NotKnownHere", "withheld": 1}]
    newer = changed(INVENTORY, devices=devices, resources=resources, podResources="Perhaps", summary={"withheld": 1})
    found = views.inventory(newer, None, now=NOW)
    assert found.unreadable == ""
    assert found.status is not None
    assert [(d.id, d.health, d.reason) for d in found.status.devices] == [
        ("a", DeviceHealth.UNKNOWN, "NotKnownHere"),
        ("b", DeviceHealth.HEALTHY, ""),
    ]
    assert (found.status.resources[0].reason, found.status.pod_resources) == ("NotKnownHere", None)


def test_an_older_agent_leaves_out_what_it_does_not_know() -> None:
    raw = copy.deepcopy(INVENTORY)
    raw["status"] = {"resources": [{"name": "r", "devices": 1, "healthy": 1}], "devices": [{**LEAST}]}
    found = views.inventory(raw, None, now=NOW)
    assert found.unreadable == ""
    assert found.status is not None
    assert (found.status.totals.devices, found.status.totals.healthy) == (1, 1)
    assert (found.status.resources[0].entry_name, found.status.observed_config_hash) == ("r", "")
    assert [d.id for d in found.status.devices] == ["a"]


LEAST = {"id": "a", "resource": "r", "health": "Healthy"}


def test_conditions_are_read_from_a_status_whose_lists_are_not_understood() -> None:
    """After a return to an older operator: what was told and when must not be forgotten."""
    ready = {"type": "Ready", "status": "True", "reason": "NotKnownHere", "message": "", "lastTransitionTime": "t"}
    raw = {"acceptedGeneration": 4, "conditions": [ready], "nodes": [{"name": "n", "state": "Dreaming"}]}
    found = read_config_status(raw)
    assert (found.accepted_generation, found.nodes) == (4, ())
    assert found.by_type["Ready"].last_transition_time == "t"


def test_a_heartbeat_is_seen_when_it_moves() -> None:
    later = NOW + timedelta(minutes=1)
    first = views.inventory(INVENTORY, None, now=NOW)
    assert views.inventory(changed(INVENTORY, lastHeartbeatTime="t1"), first, now=later).heartbeat_seen == NOW
    assert views.inventory(changed(INVENTORY, lastHeartbeatTime="t2"), first, now=later).heartbeat_seen == later


def test_a_new_leader_sees_the_age_of_a_report() -> None:
    written = {"manager": "agent", "subresource": "status", "time": "2025-12-31T23:00:00Z"}
    made = {"manager": "agent", "time": "2025-12-31T23:59:00Z"}
    raw = copy.deepcopy(INVENTORY)
    raw["metadata"]["managedFields"] = [made, written]
    first = views.inventory(raw, None, now=NOW)
    assert first.heartbeat_seen == NOW - timedelta(hours=1)
    written["time"] = "2026-01-01T09:00:00Z"
    assert views.inventory(raw, None, now=NOW).heartbeat_seen == NOW, "a clock that goes before ours"
    later = NOW + timedelta(minutes=1)
    assert views.inventory(changed(raw, lastHeartbeatTime="t2"), first, now=later).heartbeat_seen == later


def test_only_news_enqueues_a_pass() -> None:
    def told(raw: dict[str, Any], *, after: float) -> list[str]:
        """The names that `raw` enqueues if it comes that long after the first report."""
        enqueued: list[str] = []
        clock = [NOW]
        cache = ClusterCache(
            namespace="x", enqueue=enqueued.append, concerned=lambda *_: (), heartbeat_stale=100, now=lambda: clock[0]
        )
        cache.inventories.learn(INVENTORY)
        assert enqueued == ["c"]
        enqueued.clear()
        clock[0] = NOW + timedelta(seconds=after)
        cache.inventories.learn(raw)
        (kept,) = cache.inventories_of("c")
        assert kept.heartbeat == raw["status"]["lastHeartbeatTime"]
        return enqueued

    assert told(changed(INVENTORY, lastHeartbeatTime="t2"), after=50) == []
    assert told(changed(INVENTORY, lastHeartbeatTime="t2"), after=150) == ["c"], "a silence has ended"
    assert told(changed(INVENTORY, resources=[{"name": "r", "devices": 2}]), after=1) == ["c"]


def test_the_view_of_a_pod_describes_the_agents_container() -> None:
    status = {
        "phase": "Running",
        "containerStatuses": [
            {"name": "a-proxy", "state": {"running": {}}, "restartCount": 9},
            {
                "name": "agent",
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                "lastState": {"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": "2026-06-01T12:00:00Z"}},
                "restartCount": 4,
            },
        ],
    }
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["target"]}]}
                ]
            }
        }
    }
    pod = views.pod({"metadata": {"name": "p"}, "spec": {"affinity": affinity}, "status": status}, None)
    assert (pod.node, pod.waiting_reason, pod.exit_code, pod.terminated_reason, pod.restarts) == (
        "target", "CrashLoopBackOff", 3, "Error", 4,
    )  # fmt: skip
    assert pod.terminated_at == datetime(2026, 6, 1, 12, tzinfo=UTC)


def test_an_update_keeps_foreign_metadata_and_replaces_the_spec() -> None:
    rendered = {
        "metadata": {"name": "d", "labels": {"ours": "1"}, "ownerReferences": [{"uid": "owner", "name": "c"}]},
        "spec": {"template": {"metadata": {"annotations": {"hash": "new"}}, "spec": {"containers": ["agent"]}}},
    }
    live = {
        "metadata": {
            "name": "d",
            "resourceVersion": "7",
            "labels": {"ours": "forged", "theirs": "2"},
            "annotations": {"note": "kept"},
            "finalizers": ["theirs"],
            "ownerReferences": [{"uid": "other"}],
            "managedFields": [{}],
        },
        "spec": {
            "template": {
                "metadata": {"annotations": {"hash": "old", RESTARTED_AT: "then", "more": "x"}},
                "spec": {"containers": ["agent", "debug"]},
            }
        },
    }
    before = copy.deepcopy(rendered)
    wanted = wanted_from(rendered, live)
    assert rendered == before, "the rendered object is shared by passes"
    assert wanted["metadata"] == {
        "name": "d",
        "resourceVersion": "7",
        "labels": {"ours": "1", "theirs": "2"},
        "annotations": {"note": "kept"},
        "finalizers": ["theirs"],
        "ownerReferences": [{"uid": "owner", "name": "c"}, {"uid": "other"}],
    }
    assert wanted["spec"]["template"] == {
        "metadata": {"annotations": {"hash": "new", RESTARTED_AT: "then"}},
        "spec": {"containers": ["agent"]},
    }


def test_what_a_daemonset_runs_is_read_from_its_selector_and_annotation() -> None:
    given = {"name": "edge", "nodeSelector": {"hw": "edge"}, "serves": ["example.com/b"]}
    resources = [{"name": f"example.com/{n}", "devices": [{"simulated": {"count": 1}}]} for n in "ab"]
    spec = parse_spec({"metadata": {"name": "lab"}, "spec": {"resources": resources, "nodePools": [given]}})
    settings = RenderSettings(namespace="n", agent_image="example.com/a:1")
    (body,) = [m.body for m in render(ConfigRef("lab", "u"), spec, settings) if m.kind == "DaemonSet"]
    raw = {**copy.deepcopy(body), "metadata": {**body["metadata"], "uid": "uid"}}

    def runs() -> Any:
        view = views.daemonset(raw, None).daemonset
        assert view is not None
        return view.runs

    found = runs()
    assert (found.name, found.serves) == ("edge", ("example.com/b",))
    for labels, wanted in (({"hw": "edge"}, True), ({"hw": "core"}, False)):
        seen = copy.deepcopy(NODE)
        seen["metadata"]["labels"] = {"kubernetes.io/os": "linux", **labels}
        assert matches(found, views.node(seen, None)) is wanted
    raw["metadata"]["annotations"]["device-operator.io/serves"] = "{"
    assert runs() is None
