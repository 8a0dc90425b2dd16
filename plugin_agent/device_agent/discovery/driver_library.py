"""A driver library as the process uses it: a feed for scans, news of its devices, telemetry.

The agent opens each library by its `DriverSetup`, which `options.py` lists.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from device_agent.contract.document import Document, HealthRules
from device_agent.contract.values import dataclass
from device_agent.discovery.driver import DriverFeed
from device_agent.discovery.driver_news import DriverNews
from device_agent.discovery.source import Roots
from device_agent.health.news import Code, Ruling
from device_agent.runtime.exposition import Registry
from device_agent.runtime.settings import Settings
from device_agent.table.snapshot import TableSnapshot


class DriverLibrary(DriverFeed, Protocol):
    """An opened driver library."""

    def tasks(self) -> Mapping[str, Callable[[], Coroutine[Any, Any, None]]]:
        """Name -> task that runs as long as the agent does."""
        ...

    def publish(self, snapshot: TableSnapshot) -> None:
        """The table changed: telemetry names the current holders."""
        ...

    async def scanned(self, document: Document, snapshot: TableSnapshot) -> None:
        """The result of a scan with this document is in the table. Files for other programs on the node can follow."""
        ...


@dataclass(frozen=True, slots=True)
class DriverHost:
    """What the process gives a library. `registry`: for its telemetry.

    `config`: the DevicePluginConfig's name, '' outside a cluster.
    """

    roots: Roots
    settings: Settings
    registry: Registry
    config: str


class DriverSetup(Protocol):
    """A driver library before it is opened, as the admin has set it up."""

    @property
    def kind(self) -> str:
        """The source's name in the document."""
        ...

    def fault_rule(self, code: Code, rules: HealthRules) -> Ruling | None:
        """`health.news.FaultRule`: what a fault of its devices means."""
        ...

    def open(self, host: DriverHost, news: DriverNews) -> DriverLibrary:
        """Opens the library for this process. Call it once."""
        ...
