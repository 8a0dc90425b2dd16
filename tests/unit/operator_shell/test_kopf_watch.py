"""kopf against an API server that has just started."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from device_agent.contract import names
from device_operator import handlers
from device_operator.cluster.configs import ConfigStore
from device_operator.cluster.connection import Connection
from kubernetes.aio.client.configuration import Configuration

KINDS = f"/apis/{names.GROUP}/{names.VERSION}"


class Server:
    """Has one DevicePluginConfig. `listed`: whether /apis names its group yet."""

    def __init__(self, *, listed: bool) -> None:
        self._listed = listed
        self.watches = 0
        self.address = ""

    async def versions(self, _: web.Request) -> web.Response:
        return web.json_response({"kind": "APIVersions", "versions": ["v1"]})

    async def core(self, _: web.Request) -> web.Response:
        kind = {"name": "namespaces", "singularName": "", "namespaced": False, "kind": "Namespace", "verbs": ["list"]}
        return web.json_response({"kind": "APIResourceList", "resources": [kind]})

    async def groups(self, _: web.Request) -> web.Response:
        version = {"groupVersion": f"{names.GROUP}/{names.VERSION}", "version": names.VERSION}
        group = {"name": names.GROUP, "versions": [version], "preferredVersion": version}
        return web.json_response({"kind": "APIGroupList", "groups": [group] if self._listed else []})

    async def kinds(self, _: web.Request) -> web.Response:
        kind = {"name": "devicepluginconfigs", "singularName": "", "namespaced": False, "kind": "DevicePluginConfig"}
        return web.json_response({"kind": "APIResourceList", "resources": [{**kind, "verbs": ["list", "watch"]}]})

    async def configs(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            meta = {"resourceVersion": "1"}
            return web.json_response({"kind": "DevicePluginConfigList", "metadata": meta, "items": [config("listed")]})
        self.watches += 1
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(json.dumps({"type": "ADDED", "object": config("added")}).encode() + b"\n")
        await asyncio.Event().wait()
        return response


def config(name: str) -> dict[str, Any]:
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": "2", "generation": 1}
    return {"apiVersion": f"{names.GROUP}/{names.VERSION}", "kind": "DevicePluginConfig", "metadata": meta, "spec": {}}


@pytest.fixture(params=[True, False], ids=["listed", "not listed yet"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    server = Server(listed=request.param)
    application = web.Application()
    application.add_routes(
        [
            web.get("/api", server.versions),
            web.get("/api/v1", server.core),
            web.get("/apis", server.groups),
            web.get(KINDS, server.kinds),
            web.get(f"{KINDS}/devicepluginconfigs", server.configs),
        ]
    )
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.address = site.name
    yield server
    await runner.cleanup()


async def test_objects_are_watched_though_the_api_server_does_not_list_their_kind_yet(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = handlers.make_settings()
    settings.process.ultimate_exiting_timeout = None  # kopf would kill the process of the tests
    monkeypatch.setattr(handlers, "make_settings", lambda: settings)
    configuration = Configuration()
    configuration.host = server.address
    heard: asyncio.Queue[str] = asyncio.Queue()
    registry = handlers.make_registry(
        configs=ConfigStore(), connection=Connection(configuration), enqueue=heard.put_nowait
    )
    kopf = asyncio.create_task(handlers.run(registry, identity="test", started=lambda: None))
    told: set[str] = set()

    async def listen() -> None:
        while told != {"listed", "added"}:
            told.add(await heard.get())

    listening = asyncio.create_task(listen())
    await asyncio.wait([kopf, listening], timeout=20, return_when=asyncio.FIRST_COMPLETED)
    for task in (kopf, listening):
        task.cancel()
    await asyncio.gather(kopf, listening, return_exceptions=True)
    assert told == {"listed", "added"}
    assert server.watches == 1
