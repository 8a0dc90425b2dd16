"""Writes the node's inventory to the API server: on change, coalesced, and as a heartbeat.

Only this node's agent writes it. Each answer brings the admin's acknowledgement.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from device_agent.contract import names
from device_agent.contract.inventory import InventoryStatus
from device_agent.report.api_client import JSON, MERGE_PATCH, ApiCallError, ApiServer
from device_agent.report.inventory import AgentIdentity, new_object, patch
from device_agent.runtime.metrics import Metrics
from device_agent.runtime.settings import Settings
from device_agent.runtime.worker import Worker, WorkerBusyError

logger = logging.getLogger(__name__)

PLURAL: Final = "nodedeviceinventories"
ACKNOWLEDGE: Final = f"{names.GROUP}/acknowledge"
"""Annotation of the inventory: `<device id>=<since>[,...]`, failures that an admin says are over."""


def write(server: ApiServer, identity: AgentIdentity, body: Mapping[str, Any]) -> str:
    """Patches the status; creates the object if it does not exist. Blocking. Returns the acknowledgement, or ''.

    Raises:
        ApiCallError: not written.
    """
    objects = f"/apis/{names.API_VERSION}/{PLURAL}"
    status = f"{objects}/{identity.inventory_name}/status"
    try:
        return _acknowledgement(server.request("PATCH", status, body=dict(body), kind=MERGE_PATCH))
    except ApiCallError as error:
        if error.status != 404:
            raise
    try:
        server.request("POST", objects, body=new_object(identity), kind=JSON)
    except ApiCallError as error:
        if error.status != 409:  # an earlier request of ours has created it, and its answer was lost
            raise
    return _acknowledgement(server.request("PATCH", status, body=dict(body), kind=MERGE_PATCH))


def read(server: ApiServer, identity: AgentIdentity) -> str:
    """The acknowledgement, or ''. Blocking.

    Raises:
        ApiCallError: not read.
    """
    return _acknowledgement(server.request("GET", f"/apis/{names.API_VERSION}/{PLURAL}/{identity.inventory_name}"))


def _acknowledgement(inventory: Any) -> str:
    try:
        return str(inventory["metadata"]["annotations"][ACKNOWLEDGE])
    except (KeyError, TypeError):
        return ""


class Reporter:
    """Writes the inventory for as long as it runs. `build`: the status of now.

    `acknowledged` gets the acknowledgement from each answer. While `awaiting()` is true, it is also polled.
    """

    def __init__(
        self,
        server: ApiServer,
        *,
        identity: AgentIdentity,
        build: Callable[[], InventoryStatus],
        settings: Settings,
        metrics: Metrics,
        acknowledged: Callable[[str], None] = lambda _: None,
        awaiting: Callable[[], bool] = lambda: False,
    ) -> None:
        self._server = server
        self._identity = identity
        self._build = build
        self._acknowledged = acknowledged
        self._awaiting = awaiting
        self._settings = settings
        self._metrics = metrics
        self._worker = Worker("report")
        self._changed = asyncio.Event()
        self._written: InventoryStatus | None = None
        self._written_at = 0.0
        self._read_at = 0.0
        self._told = ""
        self._failures = 0

    def changed(self) -> None:
        """Asks for a report: the table or something beside it may have changed."""
        self._changed.set()

    async def run(self) -> None:
        settings = self._settings
        await asyncio.sleep(_spread(settings.report_first))
        while True:
            self._changed.clear()
            status = self._build()
            due = time.monotonic() - self._written_at >= settings.heartbeat
            if status != self._written or due:
                pause = await self._write(status)
                await asyncio.sleep(pause)
                continue
            due_at = self._written_at + settings.heartbeat
            if self._awaiting():
                read_at = self._read_at + settings.acknowledge_poll
                if time.monotonic() >= read_at:
                    await self._read()
                    continue
                due_at = min(due_at, read_at)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(due_at - time.monotonic(), 0)):
                    await self._changed.wait()

    async def _read(self) -> None:
        """Reads the acknowledgement only; the inventory that was written is still true."""
        self._read_at = time.monotonic()
        with contextlib.suppress(ApiCallError, TimeoutError, WorkerBusyError):
            self._acknowledged(
                await self._worker.call(
                    lambda: read(self._server, self._identity), seconds=self._settings.report_deadline
                )
            )

    async def _write(self, status: InventoryStatus) -> float:
        """Seconds until the next write may come."""
        body = patch(status, heartbeat=time.time())
        try:
            acknowledgement = await self._worker.call(
                lambda: write(self._server, self._identity, body),
                # up to three requests, each with its own time limit
                seconds=3 * self._settings.report_deadline,
            )
        except (ApiCallError, TimeoutError, WorkerBusyError) as error:
            return self._failed(error)
        if self._told:
            logger.info("the inventory is written again")
        self._written, self._written_at, self._told, self._failures = status, time.monotonic(), "", 0
        self._metrics.reported(error=False)
        self._read_at = time.monotonic()
        self._acknowledged(acknowledgement)
        return self._settings.report_interval

    def _failed(self, error: Exception) -> float:
        self._metrics.reported(error=True)
        text = str(error) or "no answer in time"
        log = logger.debug if text == self._told else logger.warning
        log("the inventory is not written", extra={"error": text})
        self._told = text
        self._failures += 1
        asked = min(error.retry_after, self._settings.heartbeat) if isinstance(error, ApiCallError) else 0.0
        # the whole fleet comes back at once after an outage
        most = min(self._settings.report_interval * 2.0 ** min(self._failures, 10), self._settings.report_spread)
        return max(asked, most / 2) + _spread(most / 2)


def _spread(most: float) -> float:
    return random.uniform(0, most)  # noqa: S311 - spreads load
