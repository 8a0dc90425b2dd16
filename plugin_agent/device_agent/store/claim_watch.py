"""Claims for the process: read before anything is offered, looked at with each scan, kept before new ids are offered.

The disk may be slow, full or gone. It is waited for within a deadline, and then the devices are served without a
memory: the write goes on in its thread, or is tried again with the next scan. Nothing that serves a pod waits for it.
"""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from device_agent.contract.document import Document, Ownership
from device_agent.runtime.settings import Settings
from device_agent.runtime.worker import Worker, WorkerBusyError
from device_agent.select.unit import Selection
from device_agent.store.claim_files import ClaimStore
from device_agent.table.device_table import DeviceTable

logger = logging.getLogger(__name__)

_HANGS: Final = "the disk hangs"
_NOT: Final = -1
"""No revision: what is on the disk is not what is known."""


class ClaimWatch:
    """`changed` gets the names whose list changed; `ask` has PodResources asked soon, for new names."""

    def __init__(
        self,
        table: DeviceTable,
        store: ClaimStore,
        *,
        settings: Settings,
        changed: Callable[[frozenset[str]], None],
        ask: Callable[[], None],
    ) -> None:
        self._table = table
        self._store = store
        self._settings = settings
        self._changed = changed
        self._ask = ask
        self._worker = Worker("claims")
        self._own: object = ()
        self._others: object = ()
        """What the last look had."""
        self._kept = self._table.claims_revision
        self._told: set[str] = set()

    async def recall(self) -> None:
        """What is kept on the node, before PodResources is first asked and anything is offered."""
        await self._look(seconds=self._settings.claims_deadline)

    async def before(self, document: Document, selection: Selection) -> None:
        """Called before a scan's devices are offered: they are on the disk when this returns, or it is too slow."""
        end = time.monotonic() + self._settings.claims_deadline
        known = self._table.claimed_names
        read = await self._look(seconds=self._settings.claims_deadline)
        if not known.issuperset(self._table.claimed_names):
            self._ask()
        exclusive = {r.name for r in document.resources if r.ownership is Ownership.EXCLUSIVE}
        self._table.claim(selection.units, exclusive=exclusive)
        if read and self._table.claims_revision != self._kept:  # what could not be read is not written over
            await self._keep(seconds=max(end - time.monotonic(), 0))

    async def _look(self, *, seconds: float) -> bool:
        """Whether the disk has answered."""
        try:
            look = await self._worker.call(self._store.look, seconds=seconds)
        except (TimeoutError, WorkerBusyError):
            self._tell(_HANGS)
            return False
        self._tell(*look.problems)
        own = look.own if look.own is not None and look.own is not self._own else ()
        if own or look.others is not self._others:
            self._changed(self._table.apply_claims(own, look.others, now=time.monotonic(), wall=datetime.now(tz=UTC)))
        self._others = look.others
        if look.own is not None and look.own is not self._own:
            self._own = look.own
            if self._table.claim_records() != look.own:
                self._kept = _NOT  # another process of this object has written over what this one offers
        if not look.written and self._table.claim_records():
            self._kept = _NOT
        return True

    async def _keep(self, *, seconds: float) -> None:
        revision, records = self._table.claims_revision, self._table.claim_records()
        try:
            problem = await self._worker.call(lambda: self._store.keep(records), seconds=seconds)
        except (TimeoutError, WorkerBusyError):
            problem = _HANGS
        if not problem:
            self._kept = revision
        self._tell(problem)

    def _tell(self, *problems: str) -> None:
        """Once, until it is another problem."""
        for problem in problems:
            if problem and problem not in self._told:
                logger.warning("claims of devices in use may be unknown after a restart", extra={"error": problem})
                self._told.add(problem)
