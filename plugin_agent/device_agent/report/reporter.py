"""Writes the node's inventory to the API server: on change, coalesced, and as a heartbeat.

Only this node's agent writes it. Each answer brings what admins have written: cordons and the acknowledgement.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from device_agent.contract import names
from device_agent.contract.inventory import InventoryCordon, InventoryStatus
from device_agent.contract.values import dataclass
from device_agent.report.api_client import JSON, MERGE_PATCH, ApiCallError, ApiServer
from device_agent.report.inventory import AgentIdentity, new_object, patch
from device_agent.runtime.metrics import Metrics
from device_agent.runtime.settings import Settings
from device_agent.runtime.worker import Worker, WorkerBusyError

logger = logging.getLogger(__name__)

PLURAL: Final = "nodedeviceinventories"
_LOOKS: Final = 3
ACKNOWLEDGE: Final = f"{names.GROUP}/acknowledge"
"""Annotation of the inventory: `<device id>=<since>[,...]`, failures that an admin says are over."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What admins have written into the inventory. `acknowledgement`: the annotation, or ''.

    `uid`, `generation`: of the object; the generation grows with each change of its spec.
    """

    acknowledgement: str = ""
    cordoned: tuple[InventoryCordon, ...] = ()
    uid: str = ""
    generation: int = 0

    def older_than(self, other: "Orders") -> bool:
        """Whether these orders came from a cache that had not seen the latest spec yet."""
        return self.uid == other.uid and self.generation < other.generation


def write(
    server: ApiServer, identity: AgentIdentity, body: Mapping[str, Any], cordoned: tuple[InventoryCordon, ...] = ()
) -> Orders:
    """Patches the status; creates the object, with these cordons, if it does not exist. Blocking.

    Raises:
        ApiCallError: not written.
    """
    objects = f"/apis/{names.API_VERSION}/{PLURAL}"
    status = f"{objects}/{identity.inventory_name}/status"
    try:
        return _orders(server.request("PATCH", status, body=dict(body), kind=MERGE_PATCH))
    except ApiCallError as error:
        if error.status != 404:
            raise
    try:
        server.request("POST", objects, body=new_object(identity, cordoned), kind=JSON)
    except ApiCallError as error:
        if error.status != 409:  # an earlier request of ours has created it, and its answer was lost
            raise
    return _orders(server.request("PATCH", status, body=dict(body), kind=MERGE_PATCH))


def read(server: ApiServer, identity: AgentIdentity) -> Orders:
    """Blocking. The answer may be a moment old: all agents read often, and the API server's cache is enough.

    Raises:
        ApiCallError: not read.
    """
    return _orders(server.request("GET", _cached(identity.inventory_name)))


def absent(server: ApiServer, inventory: str) -> bool:
    """Whether an inventory does not exist. Blocking.

    Raises:
        ApiCallError: not known.
    """
    try:
        server.request("GET", _cached(inventory))
    except ApiCallError as error:
        if error.status != 404:
            raise
        return True
    return False


def _cached(inventory: str) -> str:
    """The path of an inventory in the API server's cache. Otherwise etcd would be asked each time."""
    return f"/apis/{names.API_VERSION}/{PLURAL}/{inventory}?resourceVersion=0"


def _orders(inventory: Any) -> Orders:
    """What cannot be read is left out: the API server has checked the object."""
    acknowledgement = ""
    cordoned: list[InventoryCordon] = []
    with contextlib.suppress(KeyError, TypeError):
        acknowledgement = str(inventory["metadata"]["annotations"][ACKNOWLEDGE])
    with contextlib.suppress(KeyError, TypeError):
        cordoned = [InventoryCordon(str(i["id"]), str(i.get("reason") or "")) for i in inventory["spec"]["cordoned"]]
    uid, generation = "", 0
    with contextlib.suppress(KeyError, TypeError, ValueError):
        uid, generation = str(inventory["metadata"]["uid"]), int(inventory["metadata"]["generation"])
    return Orders(acknowledgement, tuple(cordoned), uid, generation)


class Reporter:
    """Writes the inventory for as long as it runs.

    `build`: gives the present status.
    `ordered`: gets what admins have written. It comes with each answer to a write, and from reads in between.
    `cordoned`: gives the cordons for an inventory that has to be created again.
    `others`: gives the other DevicePluginConfigs whose cordons count here.
    `deleted`: gets those of `others` whose inventory of this node was missing in `_LOOKS` reads in a row. Fewer reads
    would not be enough: an inventory that was deleted by hand is soon created again.
    """

    def __init__(
        self,
        server: ApiServer,
        *,
        identity: AgentIdentity,
        build: Callable[[], InventoryStatus],
        settings: Settings,
        metrics: Metrics,
        ordered: Callable[[Orders], None] = lambda _: None,
        cordoned: Callable[[], tuple[InventoryCordon, ...]] = tuple,
        others: Callable[[], tuple[str, ...]] = tuple,
        deleted: Callable[[frozenset[str]], None] = lambda _: None,
    ) -> None:
        self._server = server
        self._identity = identity
        self._build = build
        self._ordered = ordered
        self._cordoned = cordoned
        self._others = others
        self._deleted = deleted
        self._absent: dict[str, int] = {}
        """DevicePluginConfig -> reads in a row without its inventory."""
        self._settings = settings
        self._metrics = metrics
        self._worker = Worker("report")
        self._changed = asyncio.Event()
        self._written: InventoryStatus | None = None
        self._written_at = 0.0
        self._read_at = 0.0
        self._told = ""
        self._latest = Orders()
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
            if self._news(status) or due:
                pause = await self._write(status)
                await asyncio.sleep(pause)
                continue
            read_at = self._read_at + settings.inventory_poll
            if time.monotonic() >= read_at:
                await self._read()
                await self._look_for_others()
                continue
            due_at = min(self._written_at + settings.heartbeat, read_at)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(due_at - time.monotonic(), 0)):
                    await self._changed.wait()

    def _news(self, status: InventoryStatus) -> bool:
        """Whether the API server does not have this yet. The history alone is no reason to write: it goes with the next
        write, so that a device which flaps costs no more than its state does.
        """
        before = self._written
        same_history = before and replace(before, history=status.history, history_omitted=status.history_omitted)
        return status != same_history

    async def _read(self) -> None:
        """Reads what admins have written. If somebody deleted the inventory, it is written again at once."""
        self._read_at = time.monotonic()
        try:
            orders = await self._worker.call(
                lambda: read(self._server, self._identity), seconds=self._settings.report_deadline
            )
        except ApiCallError as error:
            if error.status == 404:
                self._written = None
        except (TimeoutError, WorkerBusyError):
            pass
        else:
            self._take(orders)

    def _take(self, orders: Orders) -> None:
        if not orders.older_than(self._latest):
            self._latest = orders
            self._ordered(orders)

    async def _look_for_others(self) -> None:
        """Looks for the inventories of other objects whose cordons count here."""
        others = self._others()
        self._absent = {config: self._absent.get(config, 0) for config in others}
        for config in others:
            inventory = names.inventory_name(config, self._identity.node)
            with contextlib.suppress(ApiCallError, TimeoutError, WorkerBusyError):
                gone = await self._worker.call(
                    lambda name=inventory: absent(self._server, name),  # type: ignore[misc]
                    seconds=self._settings.report_deadline,
                )
                self._absent[config] = self._absent[config] + 1 if gone else 0
        self._deleted(frozenset(config for config, reads in self._absent.items() if reads >= _LOOKS))

    async def _write(self, status: InventoryStatus) -> float:
        """Writes the status. Returns the seconds until the next write may come."""
        body, cordoned = patch(status, heartbeat=time.time()), self._cordoned()
        try:
            orders = await self._worker.call(
                lambda: write(self._server, self._identity, body, cordoned),
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
        self._take(orders)
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
