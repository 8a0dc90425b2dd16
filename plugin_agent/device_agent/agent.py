"""Wires the agent: which tasks run, what wakes them, in which order they start and stop. It decides nothing.

Start: configuration, one short question to PodResources, one scan, then the kubelet. From then on every change goes the
same way: event -> device table -> the registrations of the resources whose list changed, probes, report.
"""

import asyncio
import contextlib
import gc
import logging
import signal
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from typing import Final

from device_agent.contract.document import Document
from device_agent.contract.inventory import InventoryStatus
from device_agent.discovery.driver_library import DriverHost
from device_agent.discovery.driver_news import DriverNews
from device_agent.discovery.node_watch import NodeWatch
from device_agent.discovery.scan_loop import Applied, ScanCalls, ScanLoop
from device_agent.discovery.scanner import Scanner
from device_agent.discovery.source import Roots
from device_agent.health.memory import HEALTH
from device_agent.kubelet import sockets
from device_agent.kubelet.allocatable import Allocatable
from device_agent.kubelet.podresources import HolderPoll, PodResources
from device_agent.kubelet.record_watch import RecordWatch, Settling
from device_agent.kubelet.registration import KubeletDirectory, Registration
from device_agent.kubelet.served_names import ServedNames
from device_agent.options import Options
from device_agent.report import inventory
from device_agent.report import reporter as report
from device_agent.report.acknowledgement import Acknowledgement
from device_agent.report.cordoning import Cordoning
from device_agent.report.transitions import Transitions
from device_agent.runtime import logs
from device_agent.runtime.directory_watch import DirectoryWatch
from device_agent.runtime.metrics import Metrics, ResourceCount
from device_agent.runtime.probes import ProbeServer
from device_agent.runtime.supervision import Supervisor
from device_agent.store.configuration import CONFIG, MountedConfiguration
from device_agent.store.keeper import Keeper
from device_agent.store.node_store import NodeStore, boot_id
from device_agent.store.seating import Seating
from device_agent.store.seats import Seats
from device_agent.store.sweeper import Sweeper
from device_agent.table.cordons import CORDONS
from device_agent.table.device_table import DeviceTable
from device_agent.table.grants import GRANTS
from device_agent.table.holders import Listing
from device_agent.table.kubelet_view import Reading
from device_agent.table.memory import CordonMemory, GrantMemory, HealthMemory

logger = logging.getLogger(__name__)

_PUBLISH_SECONDS: Final = 0.02
_TURN_SECONDS: Final = 1.0


class Agent:
    """The process, from start to SIGTERM."""

    def __init__(self, options: Options) -> None:
        """Binds the probes' port.

        Raises:
            OSError: the port cannot be bound.
        """
        settings, roots = options.settings, Roots.below(options.host_root)
        self._options = options
        self._settings = settings
        self._kubelet_seen: object = None
        self._transitions = Transitions()
        self._offering = False
        self._stop = asyncio.Event()
        self._stopping = False
        self._settled = False
        self._tasks = Supervisor()
        self._publishing: asyncio.TimerHandle | None = None
        self._worth_telling = asyncio.Event()
        self._metrics = Metrics(version=options.identity.version)
        self._probes = ProbeServer(options.listen, metrics=self._metrics, healthy_within=settings.healthy_within)
        self._table = DeviceTable(
            Document(resources=()),
            owner=options.owner,
            config=options.identity.config,
            boot=boot_id(roots.proc),
            fault_rules={d.kind: d.fault_rule for d in options.drivers},
        )
        self._configuration = MountedConfiguration(
            options.config, seconds=settings.scan_deadline, changed=self._configuration_changed
        )
        self._keep_on_node(NodeStore(options.kubelet_dir, object_uid=options.owner, boot=boot_id(roots.proc)))
        self._acknowledgement = Acknowledgement(self._table, changed=self._changed)
        self._cordoning = Cordoning(self._table, changed=self._changed)
        self._look_at_node(roots)
        self._served = ServedNames(
            self._table,
            make=self._registration,
            spawn=self._tasks.keep,
            settle=settings.stream_settle,
            wait_for=self._wait_for,
        )

    def _keep_on_node(self, store: NodeStore) -> None:
        settings, config = self._settings, self._configuration
        health = HealthMemory(self._table, changed=self._changed)
        grants = GrantMemory(self._table, changed=self._changed)
        self._config_keeper = Keeper(store, CONFIG, config, settings=settings, told=config.kept_badly)
        self._health_keeper = Keeper(store, HEALTH, health, settings=settings, told=self._kept_badly)
        self._grant_keeper = Keeper(store, GRANTS, grants, settings=settings, told=self._kept_badly)
        cordons = CordonMemory(self._table, changed=self._changed)
        self._cordon_keeper = Keeper(store, CORDONS, cordons, settings=settings, told=self._kept_badly)
        self._keepers = (self._config_keeper, self._health_keeper, self._grant_keeper, self._cordon_keeper)
        self._sweeper = Sweeper(store, (CONFIG, HEALTH, GRANTS, CORDONS), settings=settings)
        options = self._options
        self._seating = Seating(
            Seats(options.kubelet_dir, object_uid=options.owner, config=options.identity.config),
            self._table,
            settings=settings,
            changed=self._changed,
            told=self._publish_soon,
            lost=self._stop_soon,
            look=self._look_at_holders,
        )

    def _look_at_node(self, roots: Roots) -> None:
        settings = self._settings
        host = DriverHost(roots, settings, registry=self._metrics.registry, config=self._options.identity.config)
        news = DriverNews(self._table, changed=self._changed, found=self._scan_soon)
        self._drivers = tuple(driver.open(host, news) for driver in self._options.drivers)
        self._scans = ScanLoop(
            Scanner(roots),
            configuration=self._configuration,
            feeds=self._drivers,
            table=self._table,
            metrics=self._metrics,
            settings=settings,
            calls=ScanCalls(
                first=self._first_holders,
                in_force=self._configured,
                applied=self._scanned,
                secured=self._seating.secured,
            ),
        )
        self._nodes = NodeWatch(
            roots.dev,
            changed=self._scan_soon,
            settings=settings,
            of_drivers={driver.kind: driver.nodes for driver in self._drivers},
        )

    async def run(self) -> None:
        """Returns after SIGTERM or SIGINT, when everything has been stopped and written."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_soon)
        self.prepare()
        self._probes.start()
        logger.info("probes", extra={"port": self._probes.port})
        self._tasks.keep("turn", self._turn)
        if await self._seated():
            await self._serve()
            await self._stop.wait()
        await self._put_away()

    async def _seated(self) -> bool:
        """Waits until no other agent of this object serves the node. False: this process has to end before."""
        taking = self._tasks.once("seat", self._seating.take)
        stopping = self._tasks.once("stop", self._stopped)
        await asyncio.wait((taking, stopping), return_when=asyncio.FIRST_COMPLETED)
        return not self._stop.is_set()

    async def _stopped(self) -> None:
        await self._stop.wait()

    async def _serve(self) -> None:
        """Starts the tasks."""
        if removed := sockets.remove_stale(self._options.kubelet_dir, owner=self._options.owner):
            logger.info("stale sockets removed", extra={"sockets": ",".join(removed)})
        self._tasks.keep("seats", self._seating.run)
        self._tasks.keep("kubelet", self._directory.watch)
        self._tasks.keep("configuration", self._watch_configuration)
        self._tasks.keep("uevents", self._scans.listen)
        await asyncio.gather(*(self._tasks.once("recall", keeper.recall) for keeper in self._keepers))
        for keeper in self._keepers:
            self._tasks.keep(f"store-{keeper.section.name}", keeper.run)
        self._tasks.keep("cordons", self._look_at_cordons)
        self._tasks.keep("nodes", self._nodes.run)
        self._tasks.keep("sweeper", self._sweeper.run)
        for driver in self._drivers:
            for name, task in driver.tasks().items():
                self._tasks.keep(name, task)
        self._tasks.keep("scan", self._scans.run)
        if self._reporter is not None:
            self._tasks.keep("report", self._report)

    def prepare(self) -> None:
        """Makes the parts that need a running loop. Starts no task."""
        options, settings = self._options, self._settings
        self._directory = KubeletDirectory(options.kubelet_dir, poll_seconds=settings.directory_poll)
        self._directory.listen(self, self._kubelet_looked_at)
        self._pod_resources = PodResources(
            options.pod_resources, deadline=settings.holders_deadline, itself=options.pod
        )
        self._allocatable = Allocatable(options.pod_resources, settings=settings)
        self._holders = HolderPoll(self._pod_resources, deliver=self._listed, settings=settings)
        self._record = RecordWatch(
            self._directory, deliver=self._recorded, resent=self._served.sent_at, settings=settings
        )
        self._settling = Settling(
            doubtful=self._table.doubtful,
            ask=self._holders.ask,
            resend=self._served.resend,
            look=self._record.look,
            settled=self._settled_doubts,
            settings=settings,
        )
        self._reporter = (
            report.Reporter(
                options.api,
                identity=options.identity,
                build=self._inventory,
                settings=settings,
                metrics=self._metrics,
                ordered=self._ordered,
                cordoned=self._cordoning.wanted,
                others=self._cordoning.objects,
                deleted=self._cordoning.drop,
            )
            if options.api
            else None
        )

    async def _report(self) -> None:
        """Waits for the first scan, then reports: the old inventory is better than an empty one."""
        assert self._reporter is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.report_wait):
                await self._worth_telling.wait()
        await self._reporter.run()

    # Start and end

    def _stop_soon(self) -> None:
        logger.info("stopping")
        # ends the process even if something hangs: otherwise the node waits until the kubelet sends SIGKILL
        killer = threading.Timer(self._settings.stop_within, logs.exit_now, (0,))
        killer.daemon = True
        killer.start()
        self._stop.set()

    async def _put_away(self) -> None:
        self._stopping = True
        await self._tasks.stop()
        await self._pod_resources.close()
        await asyncio.gather(*(keeper.close() for keeper in self._keepers))
        logger.info("stopped")

    async def _turn(self) -> None:
        while True:
            self._metrics.turned()
            await asyncio.sleep(_TURN_SECONDS)

    # Configuration and scans

    async def _watch_configuration(self) -> None:
        watch = DirectoryWatch(self._configuration.path.parent)
        try:
            while True:
                if await self._configuration.read():
                    self._configuration_changed()
                await watch.wait(seconds=self._settings.config_poll)
        finally:
            watch.close()

    def _configuration_changed(self) -> None:
        self._scans.soon()
        self._configured()

    def _kept_badly(self, _problem: str) -> None:
        self._publish_soon()

    def _scan_soon(self) -> None:
        self._scans.soon()

    def _ask_soon(self) -> None:
        self._holders.soon()

    async def _first_holders(self) -> None:
        """Asks who holds what, because the first list must have all held ids."""
        await self._look_at_holders()
        self._tasks.keep("holders", self._holders.run)
        self._tasks.keep("record", self._record.run)
        self._tasks.keep("settling", self._settling.run)

    async def _look_at_holders(self) -> None:
        """Asks who holds what. It does not wait long for the kubelet."""
        try:
            async with asyncio.timeout(self._settings.holders_first):
                await asyncio.gather(self._record.look(), self._holders.ask())
        except TimeoutError:
            self._holders.soon()

    def _scanned(self, scan: Applied) -> None:
        if not self._offering:
            self._offering = True
            self._tasks.keep("allocatable", lambda: self._allocatable.watch(self._served.registrations))
        self._changed(scan.changed)
        if not any(driver.awaited for driver in self._drivers):
            self._worth_telling.set()
        document, snapshot = scan.accepted.document, self._table.snapshot()
        self._nodes.follow(document)
        for driver in self._drivers:
            self._tasks.once(f"{driver.kind} scanned", partial(driver.scanned, document, snapshot))
        self._configuration.keep(scan.accepted)
        self._config_keeper.stirred()

    async def _look_at_cordons(self) -> None:
        """Other objects' agents may have cordoned hardware that this one serves too."""
        while True:
            await asyncio.sleep(self._settings.cordon_look)
            self._cordon_keeper.look_at_others()

    def _ordered(self, orders: report.Orders) -> None:
        self._acknowledgement.read(orders.acknowledgement)
        self._cordoning.read(orders.cordoned)

    def _configured(self) -> None:
        sha256 = self._scans.in_force.sha256 if self._scans.in_force else ""
        self._metrics.configured(sha256=sha256, error=bool(self._configuration.error))
        if self._configuration.error:
            self._worth_telling.set()
        self._publish_soon()

    # Changes of the table

    def _listed(self, listing: Listing | None, begun: float) -> None:
        self._metrics.pod_resources(available=listing is not None)
        changed = self._table.apply_listing(listing, begun=begun, now=time.monotonic(), wall=datetime.now(tz=UTC))
        self._changed(changed)
        self._settling.stirred()
        if listing is not None and self._table.nameless:
            self._tasks.once("record", self._record.look)

    def _recorded(self, reading: Reading) -> None:
        self._changed(self._table.apply_record(reading, now=time.monotonic(), wall=datetime.now(tz=UTC)))
        self._settling.stirred()

    def _settled_doubts(self) -> None:
        self._changed(self._table.settled(now=time.monotonic(), wall=datetime.now(tz=UTC)))

    def _allocated(self, _resource: str, _ids: tuple[str, ...]) -> None:
        self._holders.soon()
        self._settling.stirred()

    def _changed(self, names: frozenset[str]) -> None:
        """The lists of these resources changed, appeared or disappeared."""
        for keeper in self._keepers:
            keeper.stirred()
        self._seating.stirred()
        if self._offering and not self._stopping:
            self._served.follow(names)
        self._publish_soon()

    def _kubelet_looked_at(self) -> None:
        """Called on every change in the kubelet's directory.

        Publishes only if the kubelet's life or problem changed.
        """
        seen = (self._directory.life, self._directory.problem)
        if seen != self._kubelet_seen:
            self._kubelet_seen = seen
            self._publish_soon()

    def _registration(self, name: str) -> Registration:
        return Registration(
            name,
            table=self._table,
            directory=self._directory,
            owner=self._options.owner,
            settings=self._settings,
            metrics=self._metrics,
            allocatable=self._allocatable.ask,
            recorded=self._record.of_this_life,
            allocated=self._allocated,
            changed=self._publish_soon,
        )

    def _wait_for(self, name: str) -> str:
        """What the registration of this name waits for, or ''. A driver may start slowly; after its deadline it counts
        as hanging, and nothing waits for it.
        """
        if taken := self._table.taken_name(name):
            return taken
        kinds = {devices.kind for devices in self._table.entry(name).devices}
        awaited = (d.driver for d in self._drivers if d.awaited and d.kind in kinds)
        return next((f"{driver} has not answered yet" for driver in awaited), "")

    # What others see

    def _publish_soon(self) -> None:
        if self._publishing is None and not self._stopping:
            self._publishing = asyncio.get_running_loop().call_later(_PUBLISH_SECONDS, self._publish)

    def _publish(self) -> None:
        self._publishing = None
        snapshot = self._table.snapshot()
        for driver in self._drivers:
            driver.publish(snapshot)
        if self._offering:
            self._transitions.log(snapshot)
        counts = [
            ResourceCount(
                resource=state.name,
                healthy=state.counts.healthy,
                unhealthy=state.counts.unhealthy,
                unknown=state.counts.unknown,
                withheld=Counter(d.hold.word for d in state.devices if d.hold is not None and d.ids),
                capacity=state.capacity,
                allocated=state.allocated,
            )
            for state in snapshot.resources
        ]
        missing = self._missing()
        self._metrics.publish(counts, missing=missing)
        if not missing and not self._settled:
            # These objects stay. A full collection over them takes tens of milliseconds, in which a pod would wait.
            gc.collect()
            gc.freeze()
            self._settled = True
        if self._reporter is not None:
            self._reporter.changed()

    def _missing(self) -> tuple[str, ...]:
        """What keeps the agent from being ready. The API server and the health of devices do not."""
        if self._seating.waiting:
            return (self._seating.waiting,)
        if self._scans.in_force is None:
            return (self._configuration.error or "the first scan is not done",)
        return self._served.missing()

    def _inventory(self) -> InventoryStatus:
        observed = inventory.AgentFacts(
            config_hash=self._scans.in_force.sha256 if self._scans.in_force else "",
            config_error=self._configuration.error,
            registrations=self._served.states,
            health_error=self._health_keeper.problem,
            acknowledgement=self._acknowledgement.text,
            cordons=self._cordoning.text,
        )
        return inventory.build(
            self._table.snapshot(), observed, identity=self._options.identity, limit=self._settings.report_bytes
        )
