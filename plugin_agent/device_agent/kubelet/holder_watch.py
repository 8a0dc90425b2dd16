"""Keeps the device table informed of who holds what: PodResources, the kubelet's record, and doubts between the two.

PodResources names the pods. The record says what each container was given. The agent waits only briefly for either:
devices are served with or without them.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime

from device_agent.kubelet.podresources import HolderPoll, PodResources
from device_agent.kubelet.record_watch import RecordWatch, Settling
from device_agent.kubelet.registration import KubeletDirectory
from device_agent.kubelet.served_names import ServedNames
from device_agent.runtime.metrics import Metrics
from device_agent.runtime.settings import Settings
from device_agent.runtime.supervision import Supervisor
from device_agent.table.device_table import DeviceTable
from device_agent.table.holders import Listing
from device_agent.table.kubelet_view import Reading


class HolderWatch:
    """`changed` gets the names whose list changed, maybe none. `served`: its lists are sent again to settle doubts."""

    def __init__(
        self,
        table: DeviceTable,
        service: PodResources,
        directory: KubeletDirectory,
        *,
        served: ServedNames,
        changed: Callable[[frozenset[str]], None],
        tasks: Supervisor,
        metrics: Metrics,
        settings: Settings,
    ) -> None:
        self._table = table
        self._service = service
        self._changed = changed
        self._tasks = tasks
        self._metrics = metrics
        self._settings = settings
        self._poll = HolderPoll(service, deliver=self._listed, settings=settings)
        self._record = RecordWatch(directory, deliver=self._read, resent=served.sent_at, settings=settings)
        self._settling = Settling(
            doubtful=table.doubtful,
            ask=self._poll.ask,
            resend=served.resend,
            look=self._record.look,
            settled=self._settled,
            settings=settings,
        )

    async def begin(self) -> None:
        """Looks once, because the first list must have all held ids. Then starts the tasks that go on looking."""
        await self.look()
        self._tasks.keep("holders", self._poll.run)
        self._tasks.keep("record", self._record.run)
        self._tasks.keep("settling", self._settling.run)

    async def look(self) -> None:
        """Asks who holds what. It does not wait long for the kubelet."""
        try:
            async with asyncio.timeout(self._settings.holders_first):
                await asyncio.gather(self._record.look(), self._poll.ask())
        except TimeoutError:
            self._poll.soon()

    async def recorded(self) -> None:
        """Returns when the record that this life of the kubelet began with is in the table, or cannot be read."""
        await self._record.of_this_life()

    def allocated(self, _resource: str, _ids: tuple[str, ...]) -> None:
        """Ids were handed out: their pods will be known soon."""
        self._poll.soon()
        self._settling.stirred()

    async def close(self) -> None:
        await self._service.close()

    def _listed(self, listing: Listing | None, begun: float) -> None:
        self._metrics.pod_resources(available=listing is not None)
        changed = self._table.apply_listing(listing, begun=begun, now=time.monotonic(), wall=datetime.now(tz=UTC))
        self._changed(changed)
        self._settling.stirred()
        if listing is not None and self._table.nameless:
            self._tasks.once("record", self._record.look)

    def _read(self, reading: Reading) -> None:
        self._changed(self._table.apply_record(reading, now=time.monotonic(), wall=datetime.now(tz=UTC)))
        self._settling.stirred()

    def _settled(self) -> None:
        self._changed(self._table.settled(now=time.monotonic(), wall=datetime.now(tz=UTC)))
