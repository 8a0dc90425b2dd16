"""Removes files that agents of deleted objects have left on the node.

The agents of a deleted object end with it, and none of them can know that it will not come back. So its files stay. The
agents of other objects remove them. Every agent touches its own files at each round; files that nobody has touched for
a month have no agent.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from device_agent.runtime.settings import Settings
from device_agent.runtime.worker import Worker, WorkerBusyError
from device_agent.store.files import UnusableFileError, read_whole, stamp_of
from device_agent.store.node_store import NodeStore, is_object_file
from device_agent.store.section import Section, SectionError, boot_of

logger = logging.getLogger(__name__)

T = TypeVar("T")

_UNFINISHED_SECONDS: Final = 86_400.0
"""An unfinished file exists for milliseconds; an older one is left over from a killed agent."""
_NANO: Final = 1e-9


InUse = Callable[[], Callable[[Any], bool]]
"""Called on the loop before each round. The result tells whether an item is still needed."""


def sweep(
    store: NodeStore, section: Section[T], *, in_use: Callable[[T], bool] | None, now: float, age: float
) -> list[str]:
    """Removes useless files of other objects, and touches this object's. Returns the names of the removed files.

    `now`: epoch seconds. `age`: a file that nobody has touched for so many seconds has no agent. `in_use` None: such a
    file's items are never needed. If a reboot ends the items, only the boot counts, not the age: files of another boot
    are removed, and those of this boot stay.

    Raises:
        OSError: the directory cannot be read.
    """
    went = []
    for path, modified in _files(store.directory(section)):
        if path.name == store.own:
            with suppress(OSError):
                os.utime(path)
            continue
        if path.name.startswith("."):
            useless = now - modified >= _UNFINISHED_SECONDS
        elif not is_object_file(path.name):
            useless = False
        elif section.until_reboot:
            useless = _of_another_boot(path, section, boot=store.boot)
        else:
            useless = now - modified >= age and _unused(path, section, in_use)
        if useless and _remove(path):
            went.append(f"{section.name}/{path.name}")
    return went


def _files(directory: Path) -> Iterator[tuple[Path, float]]:
    paths: list[Path] = []
    with suppress(FileNotFoundError):
        paths = list(directory.iterdir())
    for path in paths:
        with suppress(OSError, UnusableFileError):
            modified, _, _ = stamp_of(path)
            yield path, modified * _NANO


def _of_another_boot(path: Path, section: Section[T], *, boot: str) -> bool:
    try:
        raw, _ = read_whole(path, limit=section.max_bytes)
    except (OSError, UnusableFileError):
        return False
    return bool(boot) and boot_of(raw) not in ("", boot)


def _unused(path: Path, section: Section[T], in_use: Callable[[T], bool] | None) -> bool:
    if in_use is None:
        return True
    try:
        raw, _ = read_whole(path, limit=section.max_bytes)
        return not any(map(in_use, section.parse(raw, boot_id="")))
    except (SectionError, UnusableFileError):
        return True
    except OSError:
        return False


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


class Sweeper:
    """Sweeps the sections one hour after the start, then once a day."""

    def __init__(self, store: NodeStore, sections: Mapping[Section[Any], InUse | None], *, settings: Settings) -> None:
        self._store = store
        self._sections = sections
        self._settings = settings
        self._worker = Worker("sweeper")

    async def run(self) -> None:
        """Sweeps until cancelled."""
        await asyncio.sleep(self._settings.sweep_first)
        while True:
            for section, in_use in self._sections.items():
                await self._sweep(section, in_use and in_use())
            await asyncio.sleep(self._settings.sweep_interval)

    async def _sweep(self, section: Section[T], in_use: Callable[[T], bool] | None) -> None:
        now = time.time()
        try:
            went = await self._worker.call(
                lambda: sweep(self._store, section, in_use=in_use, now=now, age=self._settings.sweep_age),
                seconds=self._settings.store_deadline,
            )
        except (OSError, TimeoutError, WorkerBusyError) as error:
            logger.info("files of deleted objects cannot be removed", extra={"error": str(error) or "the disk hangs"})
            return
        if went:
            logger.info("removed files of deleted objects", extra={"files": ",".join(went)})
