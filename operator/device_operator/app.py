"""Wiring: what is started, in which order, and what ends the process.

The order: probes and metrics, client, API server and CRDs, Lease, caches, workers, kopf. kopf is last because, when it
ends, it cancels every task that was created after it. When one long-lived task ends, all end: after a
signal, a lost Lease, a missing permission, or an end of kopf. Nothing is started twice in one process.
"""

import asyncio
import contextlib
import logging
import secrets
import signal
import socket
import time
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from typing import Any, Final

import kopf
from device_agent.contract import names

from device_operator import __version__, handlers
from device_operator.cluster.acceptances import AcceptedSpecs
from device_operator.cluster.cache import CONFIGS, ClusterCache
from device_operator.cluster.client import UNREACHABLE, ApiError, Client
from device_operator.cluster.configs import ConfigStore
from device_operator.cluster.connection import Connection, connect
from device_operator.cluster.events import EventWriter
from device_operator.cluster.lease import Election, LeaseSettings
from device_operator.offline import render_settings
from device_operator.reconcile import Reconciler, ReconcileSettings
from device_operator.runtime import errors
from device_operator.runtime.logs import configure_logging
from device_operator.runtime.metrics import Telemetry
from device_operator.runtime.probes import Liveness, serve
from device_operator.runtime.settings import Settings
from device_operator.runtime.workers import Pacer, Workers
from device_operator.runtime.workqueue import WorkQueue
from device_operator.status.nodes import StatusSettings
from device_operator.status.pacing import Pace

logger = logging.getLogger(__name__)

_KINDS: Final = frozenset({"devicepluginconfigs", "devicepluginconfigs/status", "nodedeviceinventories"})
_SAMPLE_SECONDS: Final = 1.0
_LIST_RETRY: Final = 5.0


def run(settings: Settings) -> int:
    """Runs until a signal. Returns the exit status."""
    configure_logging(form=settings.log_format, level=settings.log_level)
    try:
        asyncio.run(_main(settings))
    except errors.FatalError as error:
        logger.error("ending", extra={"reason": str(error)})  # noqa: TRY400 -- the message says it all
        return 1
    except errors.UsageError:
        raise
    except Exception:
        logger.exception("ending")
        return 1
    logger.info("ended")
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    """The parts that exist before the process leads. `identity`: its name in the Lease."""

    settings: Settings
    identity: str
    connection: Connection
    client: Client
    telemetry: Telemetry
    health: Liveness


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The parts that run while the process leads."""

    configs: ConfigStore
    queue: WorkQueue
    cache: ClusterCache
    workers: Workers


async def _main(settings: Settings) -> None:
    health = Liveness(stale=settings.watch_stale_seconds)
    telemetry = Telemetry()
    try:
        runner = await serve(health, telemetry.registry, listen=settings.listen)
    except (OSError, ValueError, OverflowError) as error:
        raise errors.UsageError(f"--listen {settings.listen}: {error}") from error
    logger.info("started", extra={"version": __version__, "namespace": settings.namespace, "listen": settings.listen})
    try:
        connection = await connect(kubeconfig=settings.kubeconfig, context=settings.context)
        client = Client(
            connection,
            timeout=settings.request_timeout_seconds,
            idle=settings.watch_idle_seconds,
            observer=telemetry.observe_request,
        )
        process = _Process(
            settings=settings,
            identity=settings.identity or f"{socket.gethostname()}_{secrets.token_hex(4)}",
            connection=connection,
            client=client,
            telemetry=telemetry,
            health=health,
        )
        async with client:
            await _until_signal(_stand_for_election(process))
    finally:
        await runner.cleanup()


async def _until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Awaits `work`. SIGTERM and SIGINT cancel it; that is a normal end."""
    task = asyncio.create_task(work)
    _on_signal(task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
        logger.info("stopping")


def _on_signal(stop: Any) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)


async def _stand_for_election(process: _Process) -> None:
    this, settings, health = asyncio.current_task(), process.settings, process.health
    assert this is not None
    health.phase = "waiting for the API server and the CRDs"
    await _wait_for_kinds(process.client, retry=settings.lease_retry_seconds)
    health.ready = True
    election = Election(
        process.client,
        LeaseSettings(
            name=settings.lease_name,
            namespace=settings.namespace,
            identity=process.identity,
            duration=settings.lease_duration_seconds,
            renew_deadline=settings.lease_renew_deadline_seconds,
            retry=settings.lease_retry_seconds,
        ),
    )
    health.phase = "standing by"
    await election.acquire()
    process.telemetry.leader.set(1)
    health.phase = "reading the cluster"
    try:
        await _lead(process, election, stop=this.cancel)
    finally:
        process.telemetry.leader.set(0)
        await election.release()  # does nothing if the Lease is lost


async def _lead(process: _Process, election: Election, *, stop: Any) -> None:
    settings, client, health = process.settings, process.client, process.health
    parts = _assemble(process)
    collections = parts.cache.collections
    process.telemetry.watch_ages = lambda: {c.resource.plural: c.age for c in collections}
    health.silences = lambda: {c.resource.plural: c.silence for c in collections}
    listed = asyncio.Event()
    tasks: list[asyncio.Task[Any]] = []

    def start(name: str, work: Coroutine[Any, Any, None]) -> None:
        tasks.append(asyncio.create_task(work, name=name))

    async with _together(tasks):
        start("lease", election.hold())
        for collection in collections:
            start(f"watch {collection.resource.plural}", collection.run(client))
        start("resync", _resync(client, parts, listed, seconds=settings.resync_seconds))
        start("sample", _sample(parts, process.telemetry))
        await _first_or(tasks, parts.cache.wait_complete())
        await _first_or(tasks, listed.wait())  # an object can only be judged when all others are known
        logger.info("caches complete", extra={c.resource.plural: len(c) for c in collections})
        for number in range(settings.workers):
            start(f"worker {number}", parts.workers.run())
        registry = handlers.make_registry(configs=parts.configs, connection=process.connection, enqueue=parts.queue.add)
        start("kopf", _kopf(registry, identity=process.identity, stop=stop))
        health.phase = "leading"
        await _first_or(tasks, asyncio.Event().wait())


def _assemble(process: _Process) -> _Parts:
    settings, client = process.settings, process.client
    configs = ConfigStore()
    queue = WorkQueue(backoff=settings.backoff_seconds, backoff_max=settings.backoff_max_seconds)
    pacer = Pacer(queue, coalesce=settings.coalesce_seconds)
    events = EventWriter(client, identity=process.identity, dropped=process.telemetry.event_dropped)

    def reconsider() -> None:
        for config in configs:
            pacer.enqueue(config.ref.name)

    cache = ClusterCache(
        namespace=settings.namespace,
        enqueue=pacer.enqueue,
        concerned=lambda old, new: configs.concerned(old, new, held=accepted.held_pools),
        reconsider=reconsider,
        heartbeat_stale=settings.heartbeat_stale_seconds,
    )
    accepted = AcceptedSpecs(client, cache, namespace=settings.namespace)
    reconciler = Reconciler(
        client=client,
        configs=configs,
        cache=cache,
        accepted=accepted,
        events=events,
        settings=reconcile_settings(settings),
        clock=time.monotonic,
        report=process.telemetry.report,
        reconsider=reconsider,
    )
    workers = Workers(
        queue=queue,
        reconcile=reconciler.reconcile,
        refusals=(ApiError, *UNREACHABLE),
        pacer=pacer,
        observe=process.telemetry.observe_pass,
    )
    return _Parts(configs=configs, queue=queue, cache=cache, workers=workers)


def reconcile_settings(settings: Settings) -> ReconcileSettings:
    return ReconcileSettings(
        render=render_settings(settings),
        status=StatusSettings(
            settle=settings.node_settle_seconds,
            pod_stale=settings.pod_stale_seconds,
            heartbeat_stale=settings.heartbeat_stale_seconds,
        ),
        pace=Pace(
            seconds=settings.status_seconds,
            holders_seconds=settings.status_holders_seconds,
            refresh=settings.status_refresh_seconds,
            bytes_per_second=settings.status_bytes_per_second,
        ),
        resync=settings.resync_seconds,
        inventory_grace=settings.inventory_grace_seconds,
        failed_create=settings.failed_create_seconds,
    )


async def _kopf(registry: kopf.OperatorRegistry, *, identity: Any, stop: Any) -> None:
    try:
        # our handler of signals replaces kopf's, which would also wait for our tasks
        await handlers.run(registry, identity=identity, started=lambda: _on_signal(stop))
    except Exception as error:
        raise errors.FatalError(f"the watch of DevicePluginConfigs has ended: {error}") from error
    raise errors.FatalError("the watch of DevicePluginConfigs has ended")


async def _wait_for_kinds(client: Client, *, retry: float) -> None:
    """Returns when the API server serves both kinds. Logs once what it waits for."""
    told = ""
    while True:
        try:
            found = await client.discover(names.GROUP, names.VERSION)
            missing = _KINDS - {r["name"] for r in found["resources"]}
            reason = f"{', '.join(sorted(missing))} not served" if missing else ""
        except ApiError as error:
            reason = "the CRDs are not installed" if error.not_found else str(error)
        except UNREACHABLE as error:
            reason = f"the API server does not answer: {error or type(error).__name__}"
        if not reason:
            return
        if reason != told:
            logger.warning("waiting, not leading", extra={"reason": reason})
            told = reason
        await asyncio.sleep(retry)


async def _resync(client: Client, parts: _Parts, listed: asyncio.Event, *, seconds: float) -> None:
    """Lists all DevicePluginConfigs at once, then every `seconds`: kopf may have missed changes."""
    while True:
        found, version = [], 0
        try:
            async for page in client.pages(CONFIGS):
                found += page["items"]
                version = int(page["metadata"]["resourceVersion"])
        except (ApiError, *UNREACHABLE) as error:
            # later it may be an API server that has not read the roles yet
            if isinstance(error, ApiError) and error.forbidden and not listed.is_set():
                raise errors.PermissionMissingError(f"{CONFIGS} cannot be listed: {error.message}") from error
            logger.warning("not listed", extra={"resource": str(CONFIGS), "error": str(error)})
            await asyncio.sleep(_LIST_RETRY)
            continue
        if changed := parts.configs.replace(found, version=version):
            for name in {*changed, *(c.ref.name for c in parts.configs)}:
                parts.queue.add(name)
        listed.set()
        await asyncio.sleep(seconds)


async def _sample(parts: _Parts, telemetry: Telemetry) -> None:
    while True:
        telemetry.queue_depth.set(parts.queue.depth())
        await asyncio.sleep(_SAMPLE_SECONDS)


@contextlib.asynccontextmanager
async def _together(tasks: list[asyncio.Task[Any]]) -> AsyncIterator[None]:
    """Cancels the tasks at the end of the block, and waits for them."""
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _first_or(tasks: list[asyncio.Task[Any]], awaited: Coroutine[Any, Any, Any]) -> None:
    """Returns when `awaited` does. If one of `tasks` ends first, its exception is raised."""
    waiting = asyncio.create_task(awaited)
    try:
        done, _ = await asyncio.wait([*tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {waiting}:
            task.result()
            raise errors.FatalError(f"{task.get_name()} has ended")
    finally:
        waiting.cancel()
