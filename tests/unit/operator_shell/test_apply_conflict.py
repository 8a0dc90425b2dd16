"""Another client writes in between: the operator reads, compares and writes again."""

import copy
from dataclasses import replace
from typing import Any, cast

import pytest
from device_operator.cluster.apply import Applier
from device_operator.cluster.client import ApiError, Client
from device_operator.render.manifests import Manifest
from device_operator.runtime import errors
from device_operator.spec.model import ConfigRef

OWNER = {"apiVersion": "device-operator.io/v1alpha1", "kind": "DevicePluginConfig", "name": "c", "uid": "owner"}
BODY: dict[str, Any] = {
    "metadata": {"name": "d", "ownerReferences": [OWNER]},
    "spec": {"template": {"spec": {"containers": ["agent"]}}},
}
MANIFEST = Manifest(pool="p", kind="DaemonSet", name="d", body=BODY, config_hash="", template_hash="", hash="h")
EXISTS = ApiError(code=409, reason="AlreadyExists", message="exists", request="create")
CONFLICT = ApiError(code=409, reason="Conflict", message="modified", request="update")


class Busy:
    """One DaemonSet that somebody else writes before each of our first `conflicts` updates."""

    def __init__(self, conflicts: int) -> None:
        self.conflicts = conflicts
        self.live = copy.deepcopy(BODY)
        self.live["metadata"] |= {"uid": "u", "resourceVersion": "1", "generation": 1}
        self.live["spec"]["template"]["spec"]["containers"] = ["forged"]
        self.reads = 0

    async def create(self, *_: object) -> None:
        raise EXISTS

    async def get(self, *_: object) -> dict[str, Any]:
        self.reads += 1
        return copy.deepcopy(self.live)

    async def update(self, _: object, body: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        assert body["metadata"]["resourceVersion"] == self.live["metadata"]["resourceVersion"]
        if dry_run:
            return body
        if self.conflicts:
            self.conflicts -= 1
            self.live["metadata"]["resourceVersion"] += "1"
            raise CONFLICT
        self.live = body
        return body


async def test_after_a_conflict_the_object_is_read_again() -> None:
    busy = Busy(conflicts=2)
    applier = Applier(cast("Client", busy), namespace="n")
    assert await applier.ensure(MANIFEST, owner=ConfigRef("c", "owner"), live=None)
    assert busy.reads == 3
    assert busy.live["spec"] == BODY["spec"]


async def test_after_a_few_conflicts_the_pass_fails() -> None:
    busy = Busy(conflicts=100)
    applier = Applier(cast("Client", busy), namespace="n")
    with pytest.raises(ApiError, match="modified"):
        await applier.ensure(MANIFEST, owner=ConfigRef("c", "owner"), live=None)
    assert busy.reads < 10


async def test_an_object_of_an_earlier_config_of_the_same_name_is_left_to_the_garbage_collector() -> None:
    busy = Busy(conflicts=0)
    applier = Applier(cast("Client", busy), namespace="n")
    with pytest.raises(errors.ForeignOwnerError, match="earlier DevicePluginConfig"):
        await applier.ensure(MANIFEST, owner=ConfigRef("c", "another"), live=None)
    assert busy.live["spec"] != BODY["spec"]


async def test_an_immutable_configmap_is_created_again() -> None:
    busy = Busy(conflicts=0)
    busy.live = {**busy.live, "immutable": True}
    deleted: list[str] = []

    async def delete(_: object, name: str, *, uid: str) -> None:
        deleted.append(f"{name} {uid}")

    busy.delete = delete  # type: ignore[attr-defined]
    applier = Applier(cast("Client", busy), namespace="n")
    manifest = replace(MANIFEST, kind="ConfigMap")
    assert await applier.ensure(manifest, owner=ConfigRef("c", "owner"), live=None)
    assert deleted == ["d u"]
