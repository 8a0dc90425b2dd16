"""The DevicePluginConfigs as last seen: which changes count, and how other objects are seen."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from device_operator.cluster.configs import ConfigStore
from device_operator.spec.model import Pool
from device_operator.spec.placement import NodeView


def config(name: str, *, generation: int = 1, version: int = 1, uid: str = "u", **meta: Any) -> dict[str, Any]:
    entry = {"name": "example.com/a", "devices": [{"simulated": {"count": 1}}]}
    return {
        "apiVersion": "device-operator.io/v1alpha1",
        "kind": "DevicePluginConfig",
        "metadata": {"name": name, "uid": uid, "generation": generation, "resourceVersion": str(version), **meta},
        "spec": {"resources": [entry]},
    }


def test_changes_that_need_a_pass() -> None:
    store = ConfigStore()
    assert store.put(config("a"))
    assert not store.put(config("a", version=2)), "our own status write"
    assert store.put(config("a", generation=2, version=3))
    assert not store.put(config("a", generation=1, version=1)), "an event older than what is known"
    assert store.put(config("a", generation=2, version=4, deletionTimestamp="2026-01-01T00:00:00Z"))
    assert store.put(config("a", uid="another", version=5))


def test_only_the_object_with_the_given_uid_is_dropped() -> None:
    store = ConfigStore()
    store.put(config("a", uid="new"))
    assert not store.drop("a", uid="old")
    assert store.drop("a", uid="new")
    assert store.get("a") is None


def test_a_complete_list_brings_what_events_missed() -> None:
    store = ConfigStore()
    store.put(config("stays", uid="stays"))
    store.put(config("vanished", uid="vanished"))
    assert store.replace([config("stays", uid="stays"), config("new", uid="new")], version=9) == {"vanished", "new"}
    assert {c.ref.name for c in store} == {"stays", "new"}


def test_a_list_that_is_older_than_an_event_neither_hides_nor_revives() -> None:
    store = ConfigStore()
    listed = [config("gone", uid="gone", version=1), config("stays", uid="stays", version=2)]
    for raw in listed:
        store.put(raw)
    store.drop("gone", uid="gone")
    store.put(config("new", uid="new", version=3))
    assert store.replace(listed, version=2) == set()
    assert {c.ref.name for c in store} == {"stays", "new"}


def test_the_answer_to_a_write_does_not_revive_an_object() -> None:
    store, old = ConfigStore(), config("a", uid="old")
    store.put(old)
    store.drop("a", uid="old")
    assert not store.put(old)
    assert store.get("a") is None
    store.put(config("a", uid="new", version=5))
    assert not store.put(old)
    found = store.get("a")
    assert found is not None
    assert found.ref.uid == "new"


def nodes_of(pools: Iterable[Pool]) -> list[str]:
    return [pool.name for pool in pools]


def test_others_have_the_pools_they_hold_and_the_pools_they_want() -> None:
    store = ConfigStore()

    def judged(name: str, status: str, *, observed: int) -> dict[str, Any]:
        condition = {"type": "Accepted", "status": status, "observedGeneration": observed}
        condition |= {"reason": "Accepted", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        return {**config(name, generation=2), "status": {"conditions": [condition]}}

    for raw in (
        config("new"),
        judged("accepted", "True", observed=2),
        judged("edited", "True", observed=1),
        judged("rejected", "False", observed=2),
        judged("mended", "False", observed=1),
        {**config("unusable"), "spec": {}},
    ):
        store.put(raw)
    held = (Pool("earlier"),)
    others = store.others("new", held=lambda ref: held if ref.name in ("accepted", "edited", "rejected") else ())
    assert {o.name: (nodes_of(o.held), nodes_of(o.wanted)) for o in others} == {
        "accepted": (["earlier"], ["default"]),
        "edited": (["earlier"], ["default"]),
        "rejected": (["earlier"], []),
        "mended": ([], ["default"]),
        "unusable": ([], []),
    }


def test_a_node_change_concerns_objects_that_want_or_hold_the_node() -> None:
    store = ConfigStore()
    for name, selector in (("wants", "edge"), ("holds", "lab"), ("neither", "lab")):
        pools = [{"name": "one", "nodeSelector": {"hardware": selector}}]
        raw = config(name, uid=name)
        store.put({**raw, "spec": {**raw["spec"], "nodePools": pools}})
    edge = Pool("earlier", node_selector={"hardware": "edge"})
    labels = {"kubernetes.io/os": "linux", "hardware": "edge"}
    node = NodeView(name="n", labels=labels, created=datetime(2026, 1, 1, tzinfo=UTC))
    for change in ((None, node), (node, None)):
        assert store.concerned(*change, held=lambda ref: [edge] if ref.name == "holds" else []) == {"wants", "holds"}
