"""kopf: brings events of DevicePluginConfigs to the store and the queue.

Only `on.event` is used: then kopf writes no finalizer and no annotation, and `kubectl delete` works without the
operator. Each setting below that differs from kopf's default was needed on a cluster.

kopf looks once, at its start, which kinds the API server lists. One that has just started does not list those of CRDs
yet, and then kopf would watch nothing, for ever. So kopf is told the kind: `app` knows that it is served.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import kopf
from device_agent.contract import names
from kopf._cogs.structs.references import Insights  # what kopf watches; it has no public name

from device_operator.cluster.configs import ConfigStore
from device_operator.cluster.connection import Connection

logger = logging.getLogger(__name__)

_LOGIN: Final = timedelta(minutes=10)
_PLURAL: Final = "devicepluginconfigs"
_KIND: Final = kopf.Resource(
    names.GROUP, names.VERSION, _PLURAL, namespaced=False, verbs=frozenset({"get", "list", "watch"})
)


def make_registry(
    *,
    configs: ConfigStore,
    connection: Connection,
    enqueue: Callable[[str], None],
    lifetime: timedelta = _LOGIN,
) -> kopf.OperatorRegistry:
    """A registry of its own, because kopf's is global."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await _credentials(connection, expires=datetime.now(UTC) + lifetime)

    @kopf.on.event(names.GROUP, names.VERSION, _PLURAL, registry=registry)
    async def changed(event: Any, **_: Any) -> None:
        raw = event["object"]
        name, uid = raw["metadata"]["name"], raw["metadata"]["uid"]
        gone = event["type"] == "DELETED"
        moved = configs.drop(name, uid=uid) if gone else configs.put(_plain(raw))
        if not moved:
            return  # an event of our own status write
        # another object may wait for nodes or names that this one frees
        for concerned in {name, *(c.ref.name for c in configs)}:
            enqueue(concerned)

    return registry


async def run(registry: kopf.OperatorRegistry, *, identity: Any, started: Callable[[], None]) -> None:
    """Runs kopf until it ends. `started()` is called when its tasks exist."""
    insights = Insights()
    watched = asyncio.create_task(_watched(insights), name="kind for kopf")
    try:
        ours = asyncio.all_tasks()
        # without an identity kopf asks for the name of the user, and fails for a uid that is not in /etc/passwd
        tasks: Collection[asyncio.Task[Any]] = await kopf.spawn_tasks(
            registry=registry, settings=make_settings(), clusterwide=True, identity=identity, insights=insights
        )
        started()
        await kopf.run_tasks(tasks, ignored=ours)
    finally:
        watched.cancel()


async def _watched(insights: Insights) -> None:
    """Adds the kind to what kopf watches, if kopf has not found it."""
    await insights.ready_resources.wait()
    async with insights.revised:
        if _KIND not in insights.watched_resources:
            logger.info("kind not listed yet", extra={"resource": f"{_PLURAL}.{names.GROUP}"})
            insights.watched_resources.add(_KIND)
            insights.revised.notify_all()


def make_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True  # a foreign ClusterKopfPeering named `default` would pause us
    settings.scanning.disabled = True  # `app` waits for the CRDs, so kopf needs no rights on CRDs and namespaces
    settings.posting.enabled = False
    settings.posting.loggers = False
    settings.watching.chunk_size = 500
    settings.watching.connect_timeout = 10
    settings.queueing.idle_timeout = 0.5  # this long a worker keeps its object in memory
    settings.queueing.worker_limit = None
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.enforce_retry_after = True
    # kopf's own pauses grow to 21 s: an API server that is back would wait for us
    settings.networking.error_backoffs = (1, 1, 2, 3, *[5] * 10)
    settings.execution.max_workers = 4
    settings.process.ultimate_exiting_timeout = 20  # below the pod's terminationGracePeriodSeconds
    settings.persistence.finalizer = f"{names.GROUP}/finalizer"  # never written, like all names of kopf
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=names.GROUP)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=names.GROUP)
    return settings


async def _credentials(connection: Connection, *, expires: datetime) -> kopf.ConnectionInfo:
    """Our credentials, valid for some minutes: kopf reads a ServiceAccount token once, and it changes every hour."""
    configuration = connection.configuration
    scheme, _, token = (await connection.authorization() or "").partition(" ")
    return kopf.ConnectionInfo(
        server=connection.server,
        ca_path=configuration.ssl_ca_cert,
        ca_data=configuration.ca_cert_data,
        insecure=not configuration.verify_ssl,
        scheme=scheme.capitalize() or None,
        token=token or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        expiration=expires,
    )


def _plain(raw: Any) -> dict[str, Any]:
    return dict(raw)
