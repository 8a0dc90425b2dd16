"""NVIDIA's driver before anybody asks for it: the admin's settings, and a door that loads the rest when it is needed.

Most nodes have no NVIDIA devices. The modules behind the door cost an agent's start a twentieth of its time.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from device_agent.contract.attributes import NVML
from device_agent.contract.document import Document, HealthRules
from device_agent.contract.values import dataclass
from device_agent.discovery.driver import NodeNames, Opener
from device_agent.discovery.driver_library import DriverHost
from device_agent.discovery.driver_news import DriverNews
from device_agent.health.news import Code, Ruling
from device_agent.nvml.access import NOTHING_SET, Access
from device_agent.table.snapshot import TableSnapshot

if TYPE_CHECKING:
    from device_agent.nvml.nvidia import NvidiaDriver


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the admin switched on. `features_dir`: node-feature-discovery's directory; None: no labels."""

    metrics: bool = False
    features_dir: Path | None = None


NOTHING_WANTED: Final = Wanted()


@dataclass(frozen=True, slots=True)
class Nvidia:
    """The admin's settings for NVIDIA's driver: a `discovery.driver_library.DriverSetup`.

    `driver_root`: where the driver is installed. `report`: whether telemetry and node labels are wanted.
    """

    driver_root: Path = Path("/")
    access: Access = NOTHING_SET
    report: Wanted = NOTHING_WANTED

    @property
    def kind(self) -> str:
        """The source's name in the configuration document."""
        return NVML

    def fault_rule(self, code: Code, rules: HealthRules) -> Ruling | None:
        """What an XID means under these rules, see `xids.rule`."""
        from device_agent.nvml import xids  # noqa: PLC0415 - see the module

        return xids.rule(code, rules)

    def open(self, host: DriverHost, news: DriverNews) -> "Door":
        """Opens the driver for this process. Nothing is loaded yet, unless telemetry or labels are wanted."""
        return Door(self, host=host, news=news)


class Door:
    """NVIDIA's driver as a `discovery.driver_library.DriverLibrary`. The first entry that needs it loads it."""

    kind: Final = NVML
    driver: Final = "the NVIDIA driver"
    nodes: Final = (NodeNames("", "nvidia"), NodeNames("nvidia-caps", "nvidia"))

    def __init__(self, setup: Nvidia, *, host: DriverHost, news: DriverNews) -> None:
        self._setup = setup
        self._host = host
        self._news = news
        self._opened = asyncio.Event()
        self._behind: NvidiaDriver | None = None
        if setup.report != NOTHING_WANTED:
            self._load()

    @property
    def awaited(self) -> bool:
        """See `NvidiaDriver.awaited`."""
        return self._behind is not None and self._behind.awaited

    async def for_scan(self, document: Document) -> Opener | None:
        """See `NvidiaDriver.for_scan`."""
        if self._behind is None and not asks(document):
            return None
        return await self._load().for_scan(document)

    def tasks(self) -> Mapping[str, Callable[[], Coroutine[Any, Any, None]]]:
        """Looks, and samples where telemetry is wanted. Both wait for the driver to be loaded."""
        return {"gpus": self._looks, "samples": self._samples}

    def publish(self, snapshot: TableSnapshot) -> None:
        """The table changed: who holds what now."""
        if self._behind is not None:
            self._behind.publish(snapshot)

    async def scanned(self, document: Document, snapshot: TableSnapshot) -> None:
        """After each scan: node labels follow what the driver has shown."""
        if self._behind is not None:
            await self._behind.scanned(document, snapshot)

    async def _looks(self) -> None:
        await self._opened.wait()
        await self._load().run()

    async def _samples(self) -> None:
        await self._opened.wait()
        await self._load().samples()

    def _load(self) -> "NvidiaDriver":
        if self._behind is None:
            from device_agent.nvml.nvidia import NvidiaDriver  # noqa: PLC0415 - see the module

            self._behind = NvidiaDriver(self._setup, host=self._host, news=self._news)
            self._opened.set()
        return self._behind


def asks(document: Document) -> bool:
    """Whether an entry asks for NVIDIA devices."""
    return any(entry.nvml for resource in document.resources for entry in resource.devices)
