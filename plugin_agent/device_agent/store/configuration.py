"""Which configuration is in force: the mounted one when it can be used, else the last one that could, which is kept.

A ConfigMap is mounted as a directory whose `..data` link is swapped: the file's directory is what changes.
A configuration that cannot be used changes nothing but the error that the inventory shows.
"""

import hashlib
import logging
from pathlib import Path

from device_agent.contract.check import problems
from device_agent.contract.document import ContractError, Document, parse
from device_agent.contract.names import MAX_DOCUMENT_BYTES
from device_agent.contract.values import dataclass
from device_agent.runtime.worker import Worker, WorkerBusyError
from device_agent.store.node_state import NodeState

logger = logging.getLogger(__name__)

_MAX_PROBLEMS = 3


@dataclass(frozen=True, slots=True)
class Accepted:
    """A document that can be served. `raw`: its bytes, `sha256`: their hash in hex."""

    document: Document
    raw: bytes
    sha256: str


def judge(raw: bytes) -> Accepted:
    """The document, checked.

    Raises:
        ContractError: it cannot be served; the message is one line.
    """
    if len(raw) > MAX_DOCUMENT_BYTES:
        raise ContractError(f"the configuration is longer than {MAX_DOCUMENT_BYTES:,} bytes")
    document = parse(raw)
    if wrong := problems(document):
        more = f" (and {len(wrong) - _MAX_PROBLEMS} more)" if len(wrong) > _MAX_PROBLEMS else ""
        raise ContractError("; ".join(wrong[:_MAX_PROBLEMS]) + more)
    return Accepted(document=document, raw=raw, sha256=hashlib.sha256(raw).hexdigest())


class Configuration:
    """The mounted file and what came of it. `wanted`: to be served from the next scan on; `error`: why not, or ''."""

    def __init__(self, path: Path, *, state: NodeState) -> None:
        self.path = path
        self.wanted: Accepted | None = None
        self.error = "the configuration has not been read yet"
        self._state = state
        self._seen: bytes | None = None

    def read(self) -> bool:
        """Looks at the file; whether `wanted` or `error` changed."""
        before = (self.wanted, self.error)
        try:
            with self.path.open("rb") as file:
                raw = file.read(MAX_DOCUMENT_BYTES + 1)
        except OSError as error:
            self._seen = None
            self._refused(f"the configuration cannot be read: {error.strerror}: {self.path}")
        else:
            if raw == self._seen:
                return False
            self._seen = raw
            try:
                self.wanted, self.error = judge(raw), ""
            except ContractError as error:
                self._refused(str(error))
        if (self.wanted, self.error) == before:
            return False
        if self.error:
            logger.error("the configuration cannot be used", extra={"error": self.error})
        elif self.wanted is not None:
            logger.info("configuration read", extra={"sha256": self.wanted.sha256})
        return True

    def _refused(self, why: str) -> None:
        self.error = why
        if self.wanted is None:
            kept, problem = self._state.recall()
            if kept is not None:
                self.wanted = Accepted(document=kept.document, raw=kept.raw, sha256=kept.sha256)
                logger.warning("starting with the last accepted configuration", extra={"sha256": kept.sha256})
            elif problem:
                self.error = f"{why}; {problem}"


class Keeper:
    """Keeps the configuration in force on the node: a later start begins with it if the mounted one is unusable.

    `seconds`: after which the disk is said to hang. The write goes on in its thread, and nothing waits for it.
    """

    def __init__(self, state: NodeState, *, seconds: float) -> None:
        self._state = state
        self._seconds = seconds
        self._worker = Worker("state")
        self._kept: Accepted | None = None
        self._writing = False
        self._told = ""

    async def keep(self, accepted: Accepted) -> None:
        """To be called after each scan, as the directory may come with the kubelet; what is kept costs nothing."""
        if accepted is self._kept or self._writing:
            return
        self._writing = True
        try:
            problem = await self._worker.call(lambda: self._state.remember(accepted.raw) or "", seconds=self._seconds)
        except (TimeoutError, WorkerBusyError):
            problem = "the disk hangs"
        finally:
            self._writing = False
        if not problem:
            self._kept = accepted
        elif problem != self._told:
            logger.warning("the configuration is not kept on the node", extra={"error": problem})
        self._told = problem
