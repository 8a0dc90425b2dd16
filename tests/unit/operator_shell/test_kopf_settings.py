"""kopf: what is set away from its defaults, and that an event does nothing but fill the queue."""

from typing import Any

from device_operator.cluster.configs import ConfigStore
from device_operator.handlers import make_settings


def config(name: str, *, generation: int = 1, version: int = 1, uid: str = "u", **meta: Any) -> dict[str, Any]:
    entry = {"name": "example.com/a", "devices": [{"simulated": {"count": 1}}]}
    return {
        "apiVersion": "device-operator.io/v1alpha1",
        "kind": "DevicePluginConfig",
        "metadata": {"name": name, "uid": uid, "generation": generation, "resourceVersion": str(version), **meta},
        "spec": {"resources": [entry]},
    }


def test_settings_read_back() -> None:
    settings = make_settings()
    assert settings.peering.standalone
    assert settings.scanning.disabled
    assert not settings.posting.enabled
    assert not settings.posting.loggers
    assert settings.watching.chunk_size == 500
    assert settings.queueing.idle_timeout <= 0.5
    assert settings.queueing.worker_limit is None
    assert settings.networking.request_timeout == 30
    assert settings.networking.enforce_retry_after
    assert settings.process.ultimate_exiting_timeout is not None
    assert settings.process.ultimate_exiting_timeout < 30
    assert settings.persistence.finalizer == "device-operator.io/finalizer"


def test_what_a_pass_must_look_at() -> None:
    store = ConfigStore()
    assert store.put(config("a"))
    assert not store.put(config("a", version=2)), "our own status write"
    assert store.put(config("a", generation=2, version=3))
    assert not store.put(config("a", generation=1, version=1)), "an event older than what is known"
    assert store.put(config("a", generation=2, version=4, deletionTimestamp="2026-01-01T00:00:00Z"))
    assert store.put(config("a", uid="another", version=5))


def test_only_the_object_that_is_meant_is_dropped() -> None:
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


def test_how_others_count() -> None:
    store = ConfigStore()

    def judged(name: str, status: str, *, observed: int) -> dict[str, Any]:
        condition = {"type": "Accepted", "status": status, "observedGeneration": observed}
        return {**config(name, generation=2), "status": {"conditions": [condition]}}

    for raw in (
        config("new"),
        judged("accepted", "True", observed=2),
        judged("edited", "True", observed=1),
        judged("refused", "False", observed=2),
        judged("mended", "False", observed=1),
    ):
        store.put(raw)
    found = {other.name: other.accepted for other in store.others("me")}
    assert found == {"new": None, "accepted": True, "edited": True, "refused": False, "mended": None}
