"""Wires the agent: which tasks run, what wakes them, in which order they start and stop. It decides nothing.

Start: configuration, one short question to PodResources, one scan, then the kubelet. From then on every change goes the
same way: event -> device table -> the registrations of the resources whose list changed, probes, report.
"""

import asyncio
import gc
import logging
import signal
import threading
import time
from datetime import datetime
from functools import partial
from typing import Final

from device_agent.contract.document import Document
from device_agent.discovery.driver_library import DriverHost
from device_agent.discovery.driver_news import DriverNews
from device_agent.discovery.node_watch import NodeWatch
from device_agent.discovery.scan_loop import Applied, ScanCalls, ScanLoop
from device_agent.discovery.scanner import Scanner
from device_agent.discovery.source import Roots
from device_agent.health.memory import HEALTH
from device_agent.kubelet import sockets
from device_agent.kubelet.allocatable import Allocatable
from device_agent.kubelet.holder_watch import HolderWatch
from device_agent.kubelet.podresources import PodResources
from device_agent.kubelet.registration import KubeletDirectory, Registration
from device_agent.kubelet.served_names import ServedNames
from device_agent.options import Options
from device_agent.report.history import HISTORY, History
from device_agent.report.publication import Publication, Shown
from device_agent.report.transitions import Transition
from device_agent.runtime import logs
from device_agent.runtime.directory_watch import DirectoryWatch
from device_agent.runtime.metrics import Metrics
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
from device_agent.table.memory import CordonMemory, GrantMemory, HealthMemory

logger = logging.getLogger(__name__)

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
        self._offering = False
        self._stop = asyncio.Event()
        self._stopping = False
        self._tasks = Supervisor()
        self._metrics = Metrics(version=options.identity.version)
        self._probes = ProbeServer(options.listen, metrics=self._metrics, healthy_within=settings.healthy_within)
        boot = boot_id(roots.proc)
        self._table = DeviceTable(
            Document(resources=()),
            owner=options.owner,
            config=options.identity.config,
            boot=boot,
            fault_rules={d.kind: d.fault_rule for d in options.drivers},
        )
        self._configuration = MountedConfiguration(
            options.config, seconds=settings.scan_deadline, changed=self._configuration_changed
        )
        self._face_kubelet()
        self._keep_on_node(NodeStore(options.kubelet_dir, object_uid=options.owner, boot=boot))
        self._look_at_node(roots)
        self._publication = Publication(
            Shown(
                table=self._table,
                configuration=self._configuration,
                scans=self._scans,
                seating=self._seating,
                served=self._served,
                health=self._health_keeper,
                history=self._history,
                drivers=self._drivers,
            ),
            identity=options.identity,
            api=options.api,
            metrics=self._metrics,
            settings=settings,
            changed=self._changed,
            ready=self._ready,
            changes=self._devices_changed,
        )

    # Parts

    def _face_kubelet(self) -> None:
        options, settings = self._options, self._settings
        self._directory = KubeletDirectory(options.kubelet_dir, poll_seconds=settings.directory_poll)
        self._directory.listen(self, self._kubelet_looked_at)
        self._allocatable = Allocatable(options.pod_resources, settings=settings)
        self._served = ServedNames(
            self._table,
            make=self._registration,
            spawn=self._tasks.keep,
            settle=settings.stream_settle,
            wait_for=self._wait_for,
        )
        self._holders = HolderWatch(
            self._table,
            PodResources(options.pod_resources, deadline=settings.holders_deadline, itself=options.pod),
            self._directory,
            served=self._served,
            changed=self._changed,
            tasks=self._tasks,
            metrics=self._metrics,
            settings=settings,
        )

    def _registration(self, name: str) -> Registration:
        return Registration(
            name,
            table=self._table,
            directory=self._directory,
            owner=self._options.owner,
            settings=self._settings,
            metrics=self._metrics,
            allocatable=self._allocatable.ask,
            recorded=self._holders.recorded,
            allocated=self._holders.allocated,
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

    def _keep_on_node(self, store: NodeStore) -> None:
        options, settings, config = self._options, self._settings, self._configuration
        health = HealthMemory(self._table, changed=self._changed)
        grants = GrantMemory(self._table, changed=self._changed)
        cordons = CordonMemory(self._table, changed=self._changed)
        self._config_keeper = Keeper(store, CONFIG, config, settings=settings, told=config.kept_badly)
        self._health_keeper = Keeper(store, HEALTH, health, settings=settings, told=self._kept_badly)
        grant_keeper = Keeper(store, GRANTS, grants, settings=settings, told=self._kept_badly)
        self._cordon_keeper = Keeper(store, CORDONS, cordons, settings=settings, told=self._kept_badly)
        self._history = History(pace=settings.history_pace, clock=time.monotonic)
        self._history_keeper = Keeper(store, HISTORY, self._history, settings=settings, told=self._kept_badly)
        self._keepers = (
            self._config_keeper,
            self._health_keeper,
            grant_keeper,
            self._cordon_keeper,
            self._history_keeper,
        )
        self._sweeper = Sweeper(store, (CONFIG, HEALTH, GRANTS, CORDONS, HISTORY), settings=settings)
        self._seating = Seating(
            Seats(options.kubelet_dir, object_uid=options.owner, config=options.identity.config),
            self._table,
            settings=settings,
            changed=self._changed,
            told=self._publish_soon,
            lost=self._stop_soon,
            look=self._holders.look,
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
                first=self._holders.begin,
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

    # Start

    async def run(self) -> None:
        """Returns after SIGTERM or SIGINT, when everything has been stopped and written."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_soon)
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
        self._tasks.keep("report", self._publication.report)

    async def _turn(self) -> None:
        while True:
            self._metrics.turned()
            await asyncio.sleep(_TURN_SECONDS)

    # End

    def _stop_soon(self) -> None:
        logger.info("stopping")
        # ends the process even if something hangs: otherwise the node waits until the kubelet sends SIGKILL
        killer = threading.Timer(self._settings.stop_within, logs.exit_now, (0,))
        killer.daemon = True
        killer.start()
        self._stop.set()

    async def _put_away(self) -> None:
        self._stopping = True
        self._publication.close()
        await self._tasks.stop()
        await self._holders.close()
        self._history.release()
        await asyncio.gather(*(keeper.close() for keeper in self._keepers))
        logger.info("stopped")

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

    def _configured(self) -> None:
        self._publication.configured()

    def _scan_soon(self) -> None:
        self._scans.soon()

    def _scanned(self, scan: Applied) -> None:
        if not self._offering:
            self._offering = True
            self._tasks.keep("allocatable", lambda: self._allocatable.watch(self._served.registrations))
        self._changed(scan.changed)
        self._publication.scanned()
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

    # Changes of the table

    def _changed(self, names: frozenset[str]) -> None:
        """The lists of these resources changed, appeared or disappeared."""
        for keeper in self._keepers:
            keeper.stirred()
        self._seating.stirred()
        if self._offering and not self._stopping:
            self._served.follow(names)
        self._publish_soon()

    def _devices_changed(self, transitions: tuple[Transition, ...], now: datetime) -> None:
        """What changed in the table, as values: everyone who wants to know is called here."""
        self._history.add(transitions, now=now)
        self._history_keeper.stirred()

    def _kubelet_looked_at(self) -> None:
        """Called on every change in the kubelet's directory.

        Publishes only if the kubelet's life or problem changed.
        """
        seen = (self._directory.life, self._directory.problem)
        if seen != self._kubelet_seen:
            self._kubelet_seen = seen
            self._publish_soon()

    def _kept_badly(self, _problem: str) -> None:
        self._publish_soon()

    def _publish_soon(self) -> None:
        self._publication.soon()

    def _ready(self) -> None:
        # The objects of the start stay. A full collection over them takes tens of milliseconds, and a pod would wait.
        gc.collect()
        gc.freeze()
