"""Watches names below /dev that no kernel event announces: companions, what `files` looks for, and driver nodes.

The kernel announces devices, and their nodes follow. But nvidia-modprobe calls mknod for modules without a registered
device, so /dev/nvidia-uvm appears without an event. udev makes its links, such as /dev/serial/by-id/x, after the
kernel's event, when the scan is over. An admin may also remove a node. So a name that appears, disappears or leads
elsewhere is a hint to scan.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from device_agent.contract.document import Document
from device_agent.contract.template import parse_template
from device_agent.discovery.driver import NodeNames
from device_agent.runtime.directory_watch import DirectoryWatch
from device_agent.runtime.settings import Settings
from device_agent.select.kernel_names import literal_part

_DEV: Final = "/dev/"
_MAX_DIRECTORIES: Final = 32
"""The most directories that are watched. Periodic scans notice the rest."""


class NodeWatch:
    """`run` is its task. `changed`: called when nodes of the followed document appeared or disappeared.

    `of_drivers`: source in the document -> the nodes that its driver's tools make.
    """

    def __init__(
        self,
        dev: Path,
        *,
        changed: Callable[[], None],
        settings: Settings,
        of_drivers: Mapping[str, tuple[NodeNames, ...]],
    ) -> None:
        self._dev = dev
        self._of_drivers = of_drivers
        self._changed = changed
        self._settings = settings
        self._wanted: frozenset[NodeNames] = frozenset()
        self._edited = asyncio.Event()

    def follow(self, document: Document) -> None:
        """Follows the nodes of this document from now on."""
        wanted = frozenset(_wanted(document, self._of_drivers))
        if wanted != self._wanted:
            self._wanted = wanted
            self._edited.set()

    async def run(self) -> None:
        """Watches until it is cancelled."""
        while True:
            self._edited.clear()
            directories = sorted({w.directory for w in self._wanted})[:_MAX_DIRECTORIES]
            watches = [DirectoryWatch(self._dev / directory, writes=False) for directory in directories]
            try:
                await self._follow(watches)
            finally:
                for watch in watches:
                    watch.close()

    async def _follow(self, watches: Iterable[DirectoryWatch]) -> None:
        """Watches until another document is followed. The first look is a hint to scan too, because nodes may have
        appeared since the scan with this document.
        """
        before: frozenset[str] = frozenset()
        while not self._edited.is_set():
            waits = [watch.wait(seconds=self._settings.config_poll) for watch in watches]
            await _first(*waits, self._edited.wait())
            if (now := self._there()) != before:
                before = now
                self._changed()
            # read a directory once for a burst of changes
            await asyncio.sleep(self._settings.hint_coalesce)

    def _there(self) -> frozenset[str]:
        found: set[str] = set()
        for wanted in self._wanted:
            with contextlib.suppress(OSError), os.scandir(self._dev / wanted.directory) as entries:
                found.update(_where(entry) for entry in entries if entry.name.startswith(wanted.prefix))
        return frozenset(found)


def _where(entry: os.DirEntry[str]) -> str:
    """The path, and where it leads if it is a link."""
    with contextlib.suppress(OSError):
        if entry.is_symlink():
            return f"{entry.path} -> {os.readlink(entry.path)}"  # noqa: PTH115 as for the entry
    return entry.path


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _wanted(document: Document, of_drivers: Mapping[str, tuple[NodeNames, ...]]) -> Iterator[NodeNames]:
    for resource in document.resources:
        for kind in {entry.kind for entry in resource.devices}:
            yield from of_drivers.get(kind, ())
        for entry in resource.devices:
            for pattern in entry.files.paths if entry.files else ():
                yield from _on_the_way(pattern.removeprefix(_DEV))
        for spec in resource.inject.device_nodes:
            if spec.host_path.startswith(_DEV):
                # the part before the first placeholder
                directory, _, name = parse_template(spec.host_path).prefix.removeprefix(_DEV).rpartition("/")
                yield NodeNames(directory, name)


def _on_the_way(pattern: str) -> Iterator[NodeNames]:
    """The names that lead to a path below /dev, up to its first glob. Directories on the way may still be missing."""
    segments = pattern.split("/")
    for i, segment in enumerate(segments):
        prefix = literal_part(segment)
        yield NodeNames("/".join(segments[:i]), prefix)
        if prefix != segment:
            return
