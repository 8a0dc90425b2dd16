"""Shows what the agent has and does: to probes, metrics, the log, the drivers' telemetry and the API server.

They are all brought up to date together, a moment after a change, and from one snapshot of the device table. What
admins write into the inventory takes the other way, from the reporter to the table.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from device_agent.contract.inventory import InventoryStatus
from device_agent.contract.reasons import DeviceHealth, as_label
from device_agent.contract.values import dataclass
from device_agent.discovery.driver_library import DriverLibrary
from device_agent.discovery.scan_loop import ScanLoop
from device_agent.health.watchlist import Record
from device_agent.kubelet.served_names import ServedNames
from device_agent.report import inventory
from device_agent.report.acknowledgement import Acknowledgement
from device_agent.report.api_client import ApiServer
from device_agent.report.cordoning import Cordoning
from device_agent.report.history import History
from device_agent.report.inventory import AgentIdentity
from device_agent.report.reporter import Orders, Reporter
from device_agent.report.transitions import Comparison, Transition, count, log
from device_agent.runtime.metrics import Metrics, ResourceCount
from device_agent.runtime.settings import Settings
from device_agent.store.configuration import MountedConfiguration
from device_agent.store.keeper import Keeper
from device_agent.store.seating import Seating
from device_agent.table.device_table import DeviceTable
from device_agent.table.snapshot import TableSnapshot

_PUBLISH_SECONDS: Final = 0.02
"""From the first of several changes to the one publication of them."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The parts of the process whose state is shown. Nothing here changes them. `health`: keeps the devices' health."""

    table: DeviceTable
    configuration: MountedConfiguration
    scans: ScanLoop
    seating: Seating
    served: ServedNames
    health: Keeper[Record]
    history: History
    drivers: Sequence[DriverLibrary]


class Publication:
    """Publishes `shown`. `api` None: no inventory is written.

    `changed` gets the names whose list an admin's order changed, maybe none. `ready`: called once, when the agent is
    ready for the first time. `changes`: gets what changed in the table since the last publication or report.
    """

    def __init__(
        self,
        shown: Shown,
        *,
        identity: AgentIdentity,
        api: ApiServer | None,
        metrics: Metrics,
        settings: Settings,
        changed: Callable[[frozenset[str]], None],
        ready: Callable[[], None],
        changes: Callable[[tuple[Transition, ...], datetime], None],
    ) -> None:
        self._shown = shown
        self._identity = identity
        self._metrics = metrics
        self._settings = settings
        self._ready = ready
        self._was_ready = False
        self._closed = False
        self._due: asyncio.TimerHandle | None = None
        self._worth_reporting = asyncio.Event()
        self._changes = changes
        self._comparison = Comparison()
        self._acknowledgement = Acknowledgement(shown.table, changed=changed)
        self._cordoning = Cordoning(shown.table, changed=changed)
        self._reporter = self._reporter_to(api) if api else None

    def _reporter_to(self, api: ApiServer) -> Reporter:
        return Reporter(
            api,
            identity=self._identity,
            build=self._inventory,
            settings=self._settings,
            metrics=self._metrics,
            ordered=self._ordered,
            cordoned=self._cordoning.wanted,
            others=self._cordoning.objects,
            deleted=self._cordoning.drop,
        )

    def soon(self) -> None:
        """Publishes a moment later: something that is shown may have changed."""
        if self._due is None and not self._closed:
            self._due = asyncio.get_running_loop().call_later(_PUBLISH_SECONDS, self._publish)

    def configured(self) -> None:
        """Another configuration is in force, or the mounted one's error has changed."""
        error = bool(self._shown.configuration.error)
        self._metrics.configured(sha256=self._config_hash, error=error)
        if error:
            self._worth_reporting.set()
        self.soon()

    def scanned(self) -> None:
        """A scan's devices are in the table."""
        if not self._awaiting:
            self._worth_reporting.set()

    async def report(self) -> None:
        """Keeps the inventory up to date, until cancelled. Before the first scan the old inventory is better than an
        empty one.
        """
        if self._reporter is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.report_wait):
                await self._worth_reporting.wait()
        await self._reporter.run()

    def close(self) -> None:
        """From now on changes belong to the end of the process and are not shown."""
        self._closed = True

    def _publish(self) -> None:
        self._due = None
        snapshot, missing = self._shown.table.snapshot(), self._missing()
        for driver in self._shown.drivers:
            driver.publish(snapshot)
        self._compare(snapshot)
        self._metrics.publish(counts(snapshot), missing=missing)
        if not missing and not self._was_ready:
            self._was_ready = True
            self._ready()
        if self._reporter is not None:
            self._reporter.changed()

    def _compare(self, snapshot: TableSnapshot) -> None:
        """Tells what changed. Every snapshot that is shown goes through here first, so the history is never behind."""
        if self._closed or self._shown.scans.in_force is None:
            return
        now = datetime.now(tz=UTC)
        kept = self._shown.history.last
        if transitions := self._comparison.take(snapshot, kept=kept, now=now, awaiting=self._awaiting):
            log(transitions)
            count(transitions, self._metrics)
            self._changes(transitions, now)

    def _missing(self) -> tuple[str, ...]:
        """What keeps the agent from being ready. The API server and the health of devices do not."""
        if self._shown.seating.waiting:
            return (self._shown.seating.waiting,)
        if self._shown.scans.in_force is None:
            return (self._shown.configuration.error or "the first scan is not done",)
        return self._shown.served.missing()

    @property
    def _awaiting(self) -> bool:
        """Whether a driver has not shown its devices yet."""
        return any(driver.awaited for driver in self._shown.drivers)

    @property
    def _config_hash(self) -> str:
        """Of the configuration in force, or ''."""
        in_force = self._shown.scans.in_force
        return in_force.sha256 if in_force else ""

    def _inventory(self) -> InventoryStatus:
        snapshot, limit = self._shown.table.snapshot(), self._settings.report_bytes
        self._compare(snapshot)
        observed = inventory.AgentFacts(
            config_hash=self._config_hash,
            config_error=self._shown.configuration.error,
            registrations=self._shown.served.states,
            health_error=self._shown.health.problem,
            acknowledgement=self._acknowledgement.text,
            cordons=self._cordoning.text,
            history=self._shown.history.recent(datetime.now(tz=UTC)),
        )
        return inventory.build(snapshot, observed, identity=self._identity, limit=limit)

    def _ordered(self, orders: Orders) -> None:
        self._acknowledgement.read(orders.acknowledgement)
        self._cordoning.read(orders.cordoned)


def counts(snapshot: TableSnapshot) -> list[ResourceCount]:
    """The numbers of each resource, for the gauges."""
    return [
        ResourceCount(
            resource=state.name,
            healthy=state.counts.healthy,
            unhealthy=state.counts.unhealthy,
            unknown=state.counts.unknown,
            withheld=Counter(d.hold.word for d in state.devices if d.hold is not None and d.ids),
            not_healthy=Counter(
                (str(d.told), as_label(d.reason))
                for d in state.devices
                if d.told is not DeviceHealth.HEALTHY and d.hold is None and d.ids
            ),
            capacity=state.capacity,
            allocated=state.allocated,
        )
        for state in snapshot.resources
    ]
