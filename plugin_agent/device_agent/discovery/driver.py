"""How the scan sees a driver library.

Most sources read files and need nothing before a scan. A library may be slow, or hang. So a feed asks it before the
scan, on the event loop, and makes the answer a source for that one scan.
"""

from collections.abc import Callable
from typing import Protocol

from device_agent.contract.document import Document
from device_agent.contract.values import dataclass
from device_agent.discovery.source import Source
from device_agent.discovery.sysfs_tree import SysfsTree


class DriverSource(Source, Protocol):
    """A source made from one answer of a driver library."""

    def vanished(self) -> str:
        """Advice for an admin about a device that the library no longer shows: where to look, what to do."""
        ...

    def reason(self, *, expected: bool) -> str:
        """Why it shows no devices, or why its answer cannot be used now; '' if all is well.

        `expected`: the entry had devices before. Then their absence is reported even if nothing shows such hardware.
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
    """A driver library as the scan loop sees it."""

    @property
    def kind(self) -> str:
        """The source's name in the document."""
        ...

    @property
    def driver(self) -> str:
        """Its name in messages, such as `the NVIDIA driver`."""
        ...

    @property
    def nodes(self) -> tuple[NodeNames, ...]:
        """Device nodes that its tools create without a kernel event. If they change, a scan is due."""
        ...

    @property
    def awaited(self) -> bool:
        """Whether it was asked for the first time and has neither answered nor timed out."""
        ...

    async def for_scan(self, document: Document) -> Opener | None:
        """Its current answer, or the last one while it is slow. None: no entry asks for its devices."""
        ...
