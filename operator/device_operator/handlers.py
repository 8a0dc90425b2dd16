"""kopf: brings events of DevicePluginConfigs to the store and the queue.

Only `on.event` is used: then kopf writes no finalizer and no annotation, and `kubectl delete` works without the
operator. Each setting below that differs from kopf's default was needed on a cluster.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import kopf
from device_agent.contract import names

from device_operator.cluster.configs import ConfigStore
from device_operator.cluster.connection import Connection

_LOGIN: Final = timedelta(minutes=10)


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

    @kopf.on.event(names.GROUP, names.VERSION, "devicepluginconfigs", registry=registry)
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
