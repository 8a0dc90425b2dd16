"""What may come between two steps of a pass: edits, rivals, lists that are older than the events."""

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from device_operator.cluster import cache as kinds
from device_operator.cluster import views
from device_operator.cluster.apply import Applier
from device_operator.cluster.cache import ClusterCache
from device_operator.cluster.client import ApiError, ApiResource, Client
from device_operator.cluster.collection import Change
from device_operator.cluster.configs import ConfigStore
from device_operator.cluster.events import EventWriter
from device_operator.reconcile import Reconciler, ReconcileSettings
from device_operator.render.manifests import RenderSettings

NOW = datetime(2026, 6, 1, tzinfo=UTC)
NAMESPACE = "device-operator"


class Api:
    """Objects by kind and name with the API server's counters; `before[verb]` runs once before that verb's next call."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.before: dict[str, Callable[[], Any]] = {}
        self.written: list[tuple[str, str]] = []
        self.events: dict[str, list[dict[str, Any]]] = {}
        self.asked: list[str] = []
        self._version = 0

    def stored(self, plural: str, body: dict[str, Any], **meta: Any) -> dict[str, Any]:
        self._version += 1
        name = body["metadata"]["name"]
        old = self.objects.get((plural, name), {"metadata": {}})
        generation = old["metadata"].get("generation", 0) + (body.get("spec") != old.get("spec"))
        kept = {"uid": old["metadata"].get("uid", f"uid-{self._version}"), "creationTimestamp": "2026-06-01T00:00:00Z"}
        new = copy.deepcopy(body)
        new["metadata"] |= {**kept, "generation": generation, "resourceVersion": str(self._version), **meta}
        self.objects[plural, name] = new
        return copy.deepcopy(new)

    async def _called(self, verb: str) -> None:
        await asyncio.sleep(0)
        if hook := self.before.pop(verb, None):
            hook()

    async def create(self, resource: ApiResource, body: dict[str, Any]) -> dict[str, Any]:
        await self._called("create")
        self.written.append(("create", resource.plural))
        if (resource.plural, body["metadata"]["name"]) in self.objects:
            raise ApiError(code=409, reason="AlreadyExists", message="exists", request="create")
        return self.stored(resource.plural, body)

    async def get(self, resource: ApiResource, name: str) -> dict[str, Any]:
        await self._called("get")
        return copy.deepcopy(self.objects[resource.plural, name])

    async def update(self, resource: ApiResource, body: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        await self._called("update")
        if dry_run:
            return body
        self.written.append(("update", resource.plural))
        return self.stored(resource.plural, body)

    async def delete(self, resource: ApiResource, name: str, *, uid: str) -> None:
        self.written.append(("delete", resource.plural))
        if self.objects[resource.plural, name]["metadata"]["uid"] == uid:
            del self.objects[resource.plural, name]

    async def pages(self, *_: object, fields: str = "", **__: object) -> AsyncIterator[dict[str, Any]]:
        self.asked.append(fields)
        yield {"items": self.events.get(fields, [])}

    async def replace_status(
        self, resource: ApiResource, name: str, *, uid: str, status: dict[str, Any]
    ) -> dict[str, Any]:
        await self._called("status")
        if (resource.plural, name) not in self.objects:
            raise ApiError(code=404, reason="NotFound", message="gone", request="status")
        self.written.append(("status", resource.plural))
        return self.stored(resource.plural, {**self.objects[resource.plural, name], "status": status})


class World:
    """The operator without its process: store, cache and reconciler around one API."""

    def __init__(self) -> None:
        self.api = Api()
        self.configs = ConfigStore()
        self.enqueued: list[str] = []
        client = cast("Client", self.api)
        self.cache = ClusterCache(
            namespace=NAMESPACE, enqueue=self.enqueued.append, concerned=lambda *_: (), reconsider=self._reconsider
        )
        for collection in self.cache.collections:
            collection.complete.set()
        self.reconciler = Reconciler(
            client=client,
            configs=self.configs,
            cache=self.cache,
            applier=Applier(client, namespace=NAMESPACE),
            events=EventWriter(client, identity="test"),
            settings=ReconcileSettings(render=RenderSettings(namespace=NAMESPACE, agent_image="example.com/agent:1")),
            clock=lambda: 0.0,
            now=lambda: NOW,
            reconsider=self._reconsider,
        )
        self.cache.nodes._views["node-1"] = views.node(
            {"metadata": {"name": "node-1", "labels": {"kubernetes.io/os": "linux"}}}, None
        )

    def _reconsider(self) -> None:
        self.enqueued += [c.ref.name for c in self.configs]

    def apply(self, name: str, *, resource: str = "example.com/x", told: bool = True, **spec: Any) -> dict[str, Any]:
        """As kubectl does; `told`: kopf's event has arrived."""
        entry = {"name": resource, "devices": [{"simulated": {"count": 1}}]}
        old = self.api.objects.get(("devicepluginconfigs", name), {})
        raw = self.api.stored(
            "devicepluginconfigs", {**old, "metadata": {"name": name}, "spec": {"resources": [entry], **spec}}
        )
        if told:
            self.configs.put(raw)
        return raw

    def watch(self) -> None:
        """The watches have caught up."""
        for collection, prune in ((self.cache.daemonsets, views.daemonset), (self.cache.configmaps, views.configmap)):
            plural = collection.resource.plural
            live = {name: prune(raw, None) for (kind, name), raw in self.api.objects.items() if kind == plural}
            for name in live.keys() | collection.views.keys():
                old, new = collection.views.get(name), live.get(name)
                collection._views.pop(name, None)
                if new is not None:
                    collection._views[name] = new
                if old != new:
                    collection._changed(Change(name, old, new))

    def agent(self, config: str, *names: str, devices: Iterable[str] = ()) -> None:
        """Its pod on node-1, and its report of devices under these names; `devices`: ids, under the first one."""
        uid = self.api.objects["devicepluginconfigs", config]["metadata"]["uid"]
        pod = {"name": f"{config}-pod", "labels": {"device-operator.io/config": config}}
        seen = views.pod({"metadata": pod, "spec": {"nodeName": "node-1"}}, None)
        self.cache.pods._changed(Change(seen.name, None, seen))
        owner = {"kind": "DevicePluginConfig", "apiVersion": "device-operator.io/v1alpha1", "name": config, "uid": uid}
        raw = {
            "metadata": {"name": f"{config}.node-1", "uid": f"{uid}-i", "ownerReferences": [owner]},
            "spec": {"nodeName": "node-1", "configName": config},
            "status": {
                "resources": [{"name": name, "devices": 1} for name in names],
                "devices": [{"id": id_, "resource": names[0], "health": "Healthy"} for id_ in devices],
            },
        }
        report = views.inventory(raw, None, now=NOW)
        before = {i.name: i for i in self.cache.inventories_of(config)}
        self.cache.inventories._changed(Change(report.name, before.get(report.name), report))

    def condition(self, name: str, kind: str) -> tuple[str, str]:
        conditions = self.api.objects["devicepluginconfigs", name]["status"]["conditions"]
        return next((c["status"], c["reason"]) for c in conditions if c["type"] == kind)


@pytest.fixture
def world() -> World:
    return World()


async def test_an_edit_that_slips_in_before_the_status_write_is_looked_at_at_once(world: World) -> None:
    world.apply("a")
    edits: list[dict[str, Any]] = []
    world.api.before["status"] = lambda: edits.append(world.apply("a", told=False, agent={"logLevel": "Debug"}))
    done = await world.reconciler.reconcile("a")
    # kopf's event of the edit is older than the answer to our write, and so is no news
    assert not world.configs.put(edits[0])
    assert done.again == 0.0 or "a" in world.enqueued
    await world.reconciler.reconcile("a")
    assert world.api.objects["devicepluginconfigs", "a"]["status"]["observedGeneration"] == 2


async def test_two_objects_whose_agents_come_to_one_name_are_both_told(world: World) -> None:
    world.apply("a", resource="example.com/{name}")
    world.apply("b", resource="example.com/x")
    world.agent("a", "example.com/x")
    await world.reconciler.reconcile("a")
    assert world.condition("a", "Degraded")[1] != "ResourceConflict"
    world.enqueued.clear()
    world.agent("b", "example.com/x")
    assert {"a", "b"} <= set(world.enqueued)
    for name in ("a", "b"):
        await world.reconciler.reconcile(name)
        assert world.condition(name, "Degraded") == ("True", "ResourceConflict")


async def test_two_objects_whose_agents_come_to_one_device_are_both_told(world: World) -> None:
    world.apply("a", resource="example.com/a")
    world.apply("b", resource="example.com/b")
    world.agent("a", "example.com/a", devices=["0000:3b:00.0"])
    world.agent("b", "example.com/b", devices=["0000:3c:00.0"])
    for name in ("a", "b"):
        await world.reconciler.reconcile(name)
        assert world.condition(name, "Degraded")[1] != "DeviceConflict"
    world.enqueued.clear()
    world.agent("b", "example.com/b", devices=["0000:3c:00.0", "0000:3b:00.0"])
    assert {"a", "b"} <= set(world.enqueued)
    for name in ("a", "b"):
        await world.reconciler.reconcile(name)
        assert world.condition(name, "Degraded") == ("True", "DeviceConflict")


async def test_a_verdict_counts_for_others_before_its_status_is_written(world: World) -> None:
    world.apply("b")

    async def the_other() -> None:
        await world.reconciler.reconcile("a")

    tasks = []

    def arrives() -> None:  # of the same second, and before it by name
        world.apply("a")
        tasks.append(asyncio.ensure_future(the_other()))

    world.api.before["create"] = arrives
    await world.reconciler.reconcile("b")
    await asyncio.gather(*tasks)
    assert world.condition("b", "Accepted") == ("True", "Accepted")
    assert world.condition("a", "Accepted") == ("False", "ResourceConflict")


@pytest.mark.parametrize(
    "edit",
    [
        {"resource": "example.com/x", "agent": {"env": [{"name": "NODE_NAME", "value": "x"}]}},
        {"resource": "example.com/y", "nodePools": [{"name": "one"}, {"name": "two"}]},
    ],
    ids=["cannot be parsed", "overlaps itself"],
)
async def test_what_runs_is_a_rival_though_the_edit_was_refused(world: World, edit: dict[str, Any]) -> None:
    world.apply("a")
    await world.reconciler.reconcile("a")
    world.watch()
    world.apply("a", **edit)
    await world.reconciler.reconcile("a")
    assert world.condition("a", "Accepted")[0] == "False"

    world.apply("b")
    await world.reconciler.reconcile("b")
    assert world.condition("b", "Accepted") == ("False", "ResourceConflict")

    world.apply("a")
    await world.reconciler.reconcile("a")
    assert world.condition("a", "Accepted") == ("True", "Accepted")


async def test_a_paused_object_holds_what_it_runs_and_what_it_will_run(world: World) -> None:
    world.apply("a")
    await world.reconciler.reconcile("a")
    world.watch()
    world.apply("a", resource="example.com/y", paused=True)
    await world.reconciler.reconcile("a")
    for name, resource in (("b", "example.com/x"), ("c", "example.com/y")):
        world.apply(name, resource=resource)
        await world.reconciler.reconcile(name)
        assert world.condition(name, "Accepted") == ("False", "ResourceConflict")


async def test_who_was_refused_is_judged_again_when_the_rival_lets_go(world: World) -> None:
    world.apply("a")
    await world.reconciler.reconcile("a")
    world.watch()
    world.apply("b")
    await world.reconciler.reconcile("b")
    world.apply("a", resource="example.com/y")
    world.enqueued.clear()
    await world.reconciler.reconcile("a")
    world.watch()
    assert "b" in world.enqueued
    await world.reconciler.reconcile("b")
    assert world.condition("b", "Accepted") == ("True", "Accepted")


async def test_a_refused_edit_goes_on_telling_of_every_node_of_what_runs(world: World) -> None:
    world.apply("a", updateStrategy={"maxUnavailable": "50%"})
    await world.reconciler.reconcile("a")
    world.watch()
    world.apply("a", agent={"env": [{"name": "NODE_NAME", "value": "x"}]})
    await world.reconciler.reconcile("a")
    (node,) = world.api.objects["devicepluginconfigs", "a"]["status"]["nodes"]
    assert (node["name"], node["state"]) == ("node-1", "Pending")


def test_a_list_that_is_older_than_an_event_neither_hides_nor_revives(world: World) -> None:
    gone, stays = world.apply("gone"), world.apply("stays")
    listed, version = [gone, stays], world.api._version
    world.configs.drop("gone", uid=gone["metadata"]["uid"])
    world.apply("new")

    assert world.configs.replace(listed, version=version) == set()
    assert {c.ref.name for c in world.configs} == {"stays", "new"}


def test_the_answer_to_a_write_does_not_revive_an_object(world: World) -> None:
    old = world.apply("a")
    world.configs.drop("a", uid=old["metadata"]["uid"])
    assert not world.configs.put(old)
    assert world.configs.get("a") is None
    del world.api.objects["devicepluginconfigs", "a"]
    new = world.apply("a")
    assert not world.configs.put(old)
    assert world.configs.get("a") is not None
    assert world.configs.get("a").ref.uid == new["metadata"]["uid"]  # type: ignore[union-attr]


async def test_an_object_that_lost_its_owner_is_named(world: World) -> None:
    world.apply("a")
    await world.reconciler.reconcile("a")
    world.watch()
    for (kind, _), raw in world.api.objects.items():
        if kind == kinds.daemonsets("").plural:
            raw["metadata"]["ownerReferences"] = []
    world.watch()
    await world.reconciler.reconcile("a")
    assert world.condition("a", "Degraded") == ("True", "NotOwned")


def starting_pod(number: int, *, ready: bool = False) -> dict[str, Any]:
    waiting = [{"name": "agent", "state": {"waiting": {"reason": "ContainerCreating"}}}]
    labels = {"device-operator.io/config": "a", "device-operator.io/pool": "default"}
    return {
        "metadata": {"name": f"a-pod-{number}", "namespace": NAMESPACE, "labels": labels},
        "spec": {"nodeName": f"node-{number}"},
        "status": {
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [] if ready else waiting,
        },
    }


async def test_of_starting_pods_a_few_are_asked_about_and_of_others_none(world: World) -> None:
    world.apply("a")
    world.cache.nodes._views["node-1"] = replace(world.cache.nodes._views["node-1"], ready=True)
    for number in range(1, 9):
        seen = views.pod(starting_pod(number, ready=number > 7), None)
        world.cache.pods._changed(Change(seen.name, None, seen))
    asked = [f"involvedObject.kind=Pod,involvedObject.name=a-pod-{n},type=Warning" for n in range(1, 6)]
    world.api.events[asked[0]] = [
        {"metadata": {}, "involvedObject": {"name": "a-pod-1"}, "reason": reason, "message": text, "lastTimestamp": at}
        for reason, text, at in (
            ("FailedCreatePodSandBox", f'sandbox "{"0c" * 32}": no runtime for "nvidia"', "2026-06-01T00:00:09Z"),
            ("FailedMount", "older", "2026-06-01T00:00:01Z"),
        )
    ]
    done = await world.reconciler.reconcile("a")
    assert world.api.asked == asked
    (node,) = world.api.objects["devicepluginconfigs", "a"]["status"]["nodes"]
    assert node["message"].endswith(': FailedCreatePodSandBox: sandbox "…": no runtime for "nvidia"')
    assert done.again is not None
    assert done.again <= 10.0  # nothing else tells of the next Event
    await world.reconciler.reconcile("a")
    assert world.api.asked == asked  # an answer is good for some seconds


def orphan(world: World, *, written: str, clock: list[float]) -> str:
    """An inventory of `a` on a node that is in no pool, as a new leader finds it."""
    world.reconciler._clock = lambda: clock[0]
    raw = world.apply("a", nodePools=[{"name": "gpu", "nodeSelector": {"hardware": "gpu"}}])
    owner = {"kind": "DevicePluginConfig", "apiVersion": "device-operator.io/v1alpha1", "name": "a"}
    found = {
        "metadata": {
            "name": "a.node-1",
            "ownerReferences": [{**owner, "uid": raw["metadata"]["uid"]}],
            "managedFields": [{"subresource": "status", "time": written}],
        },
        "spec": {"nodeName": "node-1", "configName": "a"},
        "status": {"poolName": "gpu", "lastHeartbeatTime": written},
    }
    found = world.api.stored("nodedeviceinventories", found)
    report = views.inventory(found, None, now=NOW)
    world.cache.inventories._changed(Change(report.name, None, report))
    return report.name


async def test_an_inventory_that_nobody_has_written_for_the_grace_goes_at_once(world: World) -> None:
    name = orphan(world, written="2026-05-31T23:19:59Z", clock=[0.0])
    await world.reconciler.reconcile("a")
    assert ("nodedeviceinventories", name) not in world.api.objects


async def test_an_inventory_of_a_node_that_has_just_left_the_pool_stays_for_the_grace(world: World) -> None:
    clock = [0.0]
    name = orphan(world, written="2026-05-31T23:55:00Z", clock=clock)
    done = await world.reconciler.reconcile("a")
    assert ("nodedeviceinventories", name) in world.api.objects
    assert done.again is not None
    assert done.again <= 300
    clock[0] = 1790.0
    done = await world.reconciler.reconcile("a")
    assert ("nodedeviceinventories", name) in world.api.objects
    assert done.again is not None
    assert done.again <= 10
    clock[0] = 1801.0
    await world.reconciler.reconcile("a")
    assert ("nodedeviceinventories", name) not in world.api.objects


async def test_an_inventory_stays_while_its_agents_pod_is_there(world: World) -> None:
    """Not for one that is being deleted: on a node that is dead it stays so for ever."""
    name = orphan(world, written="2026-05-31T20:00:00Z", clock=[0.0])
    seen = views.pod(starting_pod(1), None)
    world.cache.pods._changed(Change(seen.name, None, seen))
    await world.reconciler.reconcile("a")
    assert ("nodedeviceinventories", name) in world.api.objects
    world.cache.pods._changed(Change(seen.name, seen, replace(seen, deleting=True)))
    await world.reconciler.reconcile("a")
    assert ("nodedeviceinventories", name) not in world.api.objects
