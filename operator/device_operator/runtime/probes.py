"""The HTTP server of the process: /healthz, /readyz, /metrics.

/healthz fails when a watch has shown no sign of life for too long; a restart repairs that. It does not fail when the
API server is down: refusals and time-outs are signs of life. /readyz succeeds once the API server and the CRDs have
been found, also in a standby.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Liveness:
    """`phase`: what the process does now, in words. `silences`: resource -> seconds without a sign of life."""

    phase: str = "starting"
    ready: bool = False
    stale: float = 300.0
    silences: Callable[[], Mapping[str, float]] = dict

    def problems(self) -> list[str]:
        return [
            f"the watch of {resource} gave no sign of life for {silence:.0f} s"
            for resource, silence in self.silences().items()
            if silence > self.stale
        ]


async def serve(health: Liveness, registry: CollectorRegistry, *, listen: str) -> web.AppRunner:
    """Listens on `host:port`. The caller cleans up the runner.

    Raises:
        OSError: the address cannot be used.
        ValueError: `listen` is not an address.
    """
    host, _, port = listen.rpartition(":")

    async def healthz(_: web.Request) -> web.Response:
        problems = health.problems()
        return web.Response(status=503 if problems else 200, text="\n".join(problems) or health.phase)

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(status=200 if health.ready else 503, text=health.phase)

    async def metrics(_: web.Request) -> web.Response:
        started = time.monotonic()
        body = generate_latest(registry)
        logger.debug("scraped", extra={"seconds": round(time.monotonic() - started, 3)})
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    application = web.Application()
    application.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host.strip("[]") or None, int(port)).start()
    except BaseException:
        await runner.cleanup()
        raise
    return runner
