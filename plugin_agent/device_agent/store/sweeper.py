"""Removes from the node what agents of other objects have left there and nobody can use any more.

An object that is deleted leaves its files behind: its agents end with it, and nobody knows then that it will not come
back. So the agents of other objects look after them, rarely. An agent touches its own files at each round; what nobody
has touched for a month has no agent.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from device_agent.runtime.settings import Settings
from device_agent.runtime.worker import Worker, WorkerBusyError
from device_agent.store import claim_files as claimstore
from device_agent.store import health_memory as healthmemory
from device_agent.store.node_state import CONFIG, DIRECTORY, HEALTH, MAX_HEALTH_BYTES
from device_agent.table.claims import Claim, ClaimsError
from device_agent.table.holders import Holders

logger = logging.getLogger(__name__)

_UNFINISHED_SECONDS: Final = 86_400.0
"""A file that is half written is replaced in milliseconds; an older one is a killed agent's."""


def sweep(
    device_plugins: Path, *, object_uid: str, boot_id: str, now: float, age: float, holders: Holders | None
) -> list[str]:
    """Removes useless files of other objects, and touches this one's. Returns the names of those that went.

    Useless are files that nobody touched for `age` seconds before `now` (epoch), unless they are claims one of which
    is in use by `holders` (None: unknown); health of another boot than `boot_id`; and what is half written. Health of
    this boot is kept: it may be that of a broken device.

    Raises:
        OSError: the directory cannot be read.
    """
    root, went = device_plugins / DIRECTORY, []
    for path, modified in _files(root):
        if path.name == f"{object_uid}.json":
            with suppress(OSError):
                os.utime(path)
        elif path.name.startswith("."):
            if now - modified >= _UNFINISHED_SECONDS and _remove(path):
                went.append(f"{path.parent.name}/{path.name}")
        elif (
            path.name.endswith(".json")
            and _useless(path, old=now - modified >= age, boot_id=boot_id, holders=holders)
            and _remove(path)
        ):
            went.append(f"{path.parent.name}/{path.name}")
    return went


def _files(root: Path) -> Iterator[tuple[Path, float]]:
    for name in (CONFIG, HEALTH, claimstore.CLAIMS):
        with suppress(FileNotFoundError), os.scandir(root / name) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.is_file(follow_symlinks=False):
                        yield Path(entry.path), entry.stat(follow_symlinks=False).st_mtime


def _useless(path: Path, *, old: bool, boot_id: str, holders: Holders | None) -> bool:
    if path.parent.name == HEALTH:
        return _of_another_boot(path, boot_id)
    if path.parent.name == claimstore.CLAIMS and old:
        try:
            kept = claimstore.read(path)
        except ClaimsError:
            return True
        except OSError:
            return False
        return holders is not None and not any(_in_use(claim, holders) for claim in kept)
    return old


def _in_use(claim: Claim, holders: Holders) -> bool:
    return any(claim.replica(i) is not None for i, who in holders.get(claim.resource, {}).items() if who)


def _of_another_boot(path: Path, boot_id: str) -> bool:
    try:
        with path.open("rb") as file:
            written = healthmemory.boot_of(file.read(MAX_HEALTH_BYTES))
    except (OSError, healthmemory.HealthMemoryError):
        return False
    return bool(boot_id) and written != boot_id


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


class Litter:
    """An hour after the start and once a day. `holders`: the last answer of PodResources, None: unknown."""

    def __init__(
        self,
        device_plugins: Path,
        *,
        object_uid: str,
        boot_id: str,
        settings: Settings,
        holders: Callable[[], Holders | None],
    ) -> None:
        self._directory = device_plugins
        self._uid = object_uid
        self._boot = boot_id
        self._settings = settings
        self._holders = holders
        self._worker = Worker("litter")

    async def run(self) -> None:
        """Sweeps, for ever."""
        await asyncio.sleep(self._settings.litter_first)
        while True:
            await self._sweep()
            await asyncio.sleep(self._settings.litter_interval)

    async def _sweep(self) -> None:
        holders = self._holders()
        try:
            went = await self._worker.call(
                lambda: sweep(
                    self._directory,
                    object_uid=self._uid,
                    boot_id=self._boot,
                    now=time.time(),
                    age=self._settings.litter_age,
                    holders=holders,
                ),
                seconds=self._settings.health_deadline,
            )
        except (OSError, TimeoutError, WorkerBusyError) as error:
            logger.info("other objects' files are not looked after", extra={"error": str(error) or "the disk hangs"})
            return
        if went:
            logger.info("files of objects that are gone removed", extra={"files": ",".join(went)})
