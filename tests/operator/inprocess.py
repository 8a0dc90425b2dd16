"""The operator's parts in the test's own process, on the real API server.

The test says when a pass runs, and what happens between two of its requests; the clocks are the test's.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from device_operator.cluster.acceptances import AcceptedSpecs
from device_operator.cluster.cache import ClusterCache
from device_operator.cluster.client import ApiResource, Client, Object
from device_operator.cluster.configs import ConfigStore
from device_operator.cluster.connection import Connection, connect
from device_operator.cluster.events import EventWriter
from device_operator.reconcile import Reconciler, ReconcileSettings
from device_operator.render.manifests import RenderSettings
from device_operator.runtime.workers import Pass
from kubeapi import CONFIGS, NAMESPACE, Kube

Step = tuple[str, str]
"""A verb and a plural, such as ("create", "daemonsets")."""


class SteppedClient(Client):
    """`before[step]` runs once, before the next request of that step; `held[step]` keeps such requests waiting."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.before: dict[Step, Callable[[], Any]] = {}
        self.held: dict[Step, asyncio.Event] = {}
        self.waiting: list[Step] = []
        self.lists: list[str] = []

    async def _step(self, verb: str, resource: ApiResource) -> None:
        if hook := self.before.pop((verb, resource.plural), None):
            hook()
            await asyncio.sleep(0)
        if event := self.held.get((verb, resource.plural)):
            self.waiting.append((verb, resource.plural))
            await event.wait()

    async def create(self, resource: ApiResource, body: Object) -> Object:
        await self._step("create", resource)
        return await super().create(resource, body)

    async def replace_status(self, resource: ApiResource, name: str, *, uid: str, status: Object) -> Object:
        await self._step("status", resource)
        return await super().replace_status(resource, name, uid=uid, status=status)

    async def pages(self, resource: ApiResource, **options: Any) -> AsyncIterator[Object]:
        if resource.plural == "events":
            self.lists.append(options.get("fields", ""))
        await self._step("list", resource)
        async for page in super().pages(resource, **options):
            yield page


class Operator:
    """Passes by hand. `clock`: seconds that the monotonic clock is ahead; times of objects are the API server's."""

    def __init__(self, client: SteppedClient, kube: Kube) -> None:
        self.client = client
        self.kube = kube
        self.clock = 0.0
        self.ahead = timedelta()
        self.enqueued: list[str] = []
        self.configs = ConfigStore()
        self.cache = ClusterCache(
            namespace=NAMESPACE,
            enqueue=self.enqueued.append,
            concerned=lambda *_: (),
            reconsider=self._reconsider,
            now=self._now,
        )
        self.reconciler = Reconciler(
            client=client,
            configs=self.configs,
            cache=self.cache,
            accepted=AcceptedSpecs(client, self.cache, namespace=NAMESPACE),
            events=EventWriter(client, identity="test"),
            settings=ReconcileSettings(render=RenderSettings(namespace=NAMESPACE, agent_image="example.com/agent:1")),
            clock=lambda: self.clock,
            now=self._now,
            reconsider=self._reconsider,
        )

    def _now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def _reconsider(self) -> None:
        self.enqueued += [c.ref.name for c in self.configs]

    def hear(self, name: str) -> None:
        """kopf's event about the object has come."""
        self.configs.put(self.kube.get(f"{CONFIGS}/{name}"))

    async def reconcile(self, name: str) -> Pass:
        """One pass, after the watches have caught up with what the test wrote."""
        await self.caught_up()
        return await self.reconciler.reconcile(name)

    async def caught_up(self) -> None:
        """Every watch knows the objects that the API server has now."""

        def behind() -> list[str]:
            return [c.resource.plural for c in self.cache.collections if self._labelled(c.resource) != set(c.views)]

        await eventually_in_loop("the watches have caught up", lambda: not behind())

    def _labelled(self, resource: ApiResource) -> set[str]:
        label = {
            "daemonsets": "device-operator.io/config",
            "configmaps": "device-operator.io/config",
            "pods": "device-operator.io/config",
            "controllerrevisions": "device-operator.io/accepted-spec",
        }.get(resource.plural)
        query = f"?labelSelector={label}" if label else ""
        return {item["metadata"]["name"] for item in self.kube.items(f"{resource.path()}{query}")}

    def condition(self, name: str, kind: str) -> tuple[str, str]:
        conditions = self.kube.get(f"{CONFIGS}/{name}")["status"]["conditions"]
        return next((c["status"], c["reason"]) for c in conditions if c["type"] == kind)


async def eventually_in_loop(what: str, condition: Callable[[], Any], *, seconds: float = 20.0) -> None:
    """Waits for the condition while the loop goes on."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not condition():
        assert loop.time() < deadline, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def started(kubeconfig: Path, kube: Kube) -> AsyncIterator[Operator]:
    async with SteppedClient(await connect(kubeconfig=str(kubeconfig))) as client:
        operator = Operator(client, kube)
        watches = [asyncio.create_task(c.run(client)) for c in operator.cache.collections]
        try:
            await operator.cache.wait_complete()
            yield operator
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)
    await asyncio.sleep(0.2)  # TLS connections of watches that were cut off close a moment after their session
