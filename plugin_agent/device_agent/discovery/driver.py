"""Devices that a driver's library tells of: what such a library is to the scan and to the process, whoever made it.

Most sources read files and need nothing before a scan. A library is another matter: it may take its time, or hang. So a
feed asks it before the scan, on the event loop, and hands over what it was told as a source for that one scan. Between
scans it tells what happens to its devices (`driver_news`).
"""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from prometheus_client import CollectorRegistry

from device_agent.contract.document import Document, HealthRules
from device_agent.discovery.driver_news import DriverNews
from device_agent.discovery.source import Roots, Source
from device_agent.discovery.sysfs_tree import SysfsTree
from device_agent.health.news import Code, Ruling
from device_agent.runtime.settings import Settings
from device_agent.table.snapshot import TableSnapshot


class DriverSource(Source, Protocol):
    """A source made from one answer of a driver's library."""

    def vanished(self) -> str:
        """What to tell an admin of a device that it no longer shows: where to look, what to do."""
        ...

    def reason(self, *, expected: bool) -> str:
        """Why it shows no devices, or cannot be believed now; '' where all is well.

        `expected`: the entry had devices before, so that their absence is news on any node.
        """
        ...


Opener = Callable[[SysfsTree], DriverSource]
"""Makes the source of one scan. It is called in the scan's thread and makes no call to the library."""


@dataclass(frozen=True, slots=True)
class NodeNames:
    """Names in `directory`, below /dev, that begin with `prefix`. The directory '' is /dev itself."""

    directory: str
    prefix: str


class DriverFeed(Protocol):
    """A driver's library as the scan loop sees it."""

    @property
    def kind(self) -> str:
        """The source's name in the document."""
        ...

    @property
    def driver(self) -> str:
        """What messages call it, such as `the NVIDIA driver`."""
        ...

    @property
    def nodes(self) -> tuple[NodeNames, ...]:
        """Device nodes that its tools make without a word of the kernel: when they change, a scan is due."""
        ...

    @property
    def awaited(self) -> bool:
        """It was asked for the first time, and has neither answered nor run out of time."""
        ...

    async def for_scan(self, document: Document) -> Opener | None:
        """What it tells now, or told last when it takes its time; None where no entry asks for its devices."""
        ...


class DriverLibrary(DriverFeed, Protocol):
    """A driver's library as the process has it."""

    def tasks(self) -> Mapping[str, Callable[[], Coroutine[Any, Any, None]]]:
        """By name what runs as long as the agent does."""
        ...

    def publish(self, snapshot: TableSnapshot) -> None:
        """The table changed: telemetry names the holders of now."""
        ...

    async def scanned(self, document: Document, snapshot: TableSnapshot) -> None:
        """A scan made with this document is in the table: what is kept for others on the node can follow."""
        ...


@dataclass(frozen=True, slots=True)
class DriverHost:
    """What a library gets of the process. `registry`: for its telemetry.

    `config`: the DevicePluginConfig's name, '' outside a cluster.
    """

    roots: Roots
    settings: Settings
    registry: CollectorRegistry
    config: str


class DriverSetup(Protocol):
    """A driver's library before it is asked anything: what an admin has set for it."""

    @property
    def kind(self) -> str:
        """The source's name in the document."""
        ...

    def fault_rule(self, code: Code, rules: HealthRules) -> Ruling | None:
        """`health.news.FaultRule`: what a fault of its devices means."""
        ...

    def open(self, host: DriverHost, news: DriverNews) -> DriverLibrary:
        """The library for this process; to be called once."""
        ...
