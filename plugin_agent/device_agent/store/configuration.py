"""Which configuration is in force: the mounted one if it is usable, else the last usable one, kept on the node.

A ConfigMap is mounted as a directory whose `..data` link is swapped, so the change shows in the file's directory. A
configuration that is unusable changes only the error that the inventory shows.
"""

import hashlib
import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

from device_agent.contract.check import problems
from device_agent.contract.document import ContractError, Document, parse
from device_agent.contract.names import MAX_DOCUMENT_BYTES
from device_agent.contract.values import dataclass
from device_agent.runtime.worker import Worker, WorkerBusyError
from device_agent.store.section import Section

logger = logging.getLogger(__name__)

_MAX_PROBLEMS: Final = 3


@dataclass(frozen=True, slots=True)
class KeptDocument:
    """`text`: the document as it was mounted, so that its hash stays the same."""

    text: str


CONFIG: Final = Section(
    name="config",
    item=KeptDocument,
    version=1,
    what="the last configuration that worked",
    forgotten="an agent that starts with an unusable configuration serves nothing",
    max_bytes=2 * MAX_DOCUMENT_BYTES + 1024,  # each quote and line end is two bytes in JSON
)


@dataclass(frozen=True, slots=True)
class CheckedDocument:
    """A document that passed all checks. `text`: as it was mounted; `sha256`: of its bytes, in hex."""

    document: Document
    text: str
    sha256: str


def checked_document(raw: bytes) -> CheckedDocument:
    """Parses and checks a document.

    Raises:
        ContractError: the document is invalid; the message is one line.
    """
    if len(raw) > MAX_DOCUMENT_BYTES:
        raise ContractError(f"the configuration is longer than {MAX_DOCUMENT_BYTES:,} bytes")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise ContractError(f"the configuration is not valid JSON: {error}") from error
    document = parse(text)
    if wrong := problems(document):
        more = f" (and {len(wrong) - _MAX_PROBLEMS} more)" if len(wrong) > _MAX_PROBLEMS else ""
        raise ContractError("; ".join(wrong[:_MAX_PROBLEMS]) + more)
    return CheckedDocument(document=document, text=text, sha256=hashlib.sha256(raw).hexdigest())


class MountedConfiguration:
    """The mounted file and its state. `wanted`: the document to serve from the next scan on; None: none yet.

    It is also the memory of the section CONFIG. `changed` is called when the kept document changes `wanted` or `error`.
    `seconds`: after this time the disk of the mounted file counts as hanging.
    """

    def __init__(self, path: Path, *, seconds: float, changed: Callable[[], None]) -> None:
        self.path = path
        self.wanted: CheckedDocument | None = None
        self.revision = 0
        self._seconds = seconds
        self._changed = changed
        self._worker = Worker("configuration")
        self._error = "the configuration has not been read yet"
        self._refused = False
        self._seen: bytes | None = None
        self._kept: tuple[KeptDocument, ...] = ()
        self._kept_problem = ""

    @property
    def error(self) -> str:
        """Why the mounted configuration is not `wanted`, or ''. If `wanted` is None, also why the kept one fails."""
        kept = self._error and self.wanted is None and self._kept_problem
        return f"{self._error}; {kept}" if kept else self._error

    async def read(self) -> bool:
        """Reads the file. Returns whether `wanted` or `error` changed."""
        before = (self.wanted, self.error)
        try:
            raw = await self._worker.call(self._bytes, seconds=self._seconds)
        except (OSError, WorkerBusyError) as error:
            why = getattr(error, "strerror", None) or "the disk hangs"
            self._refuse(f"the configuration cannot be read: {why}: {self.path}")
        else:
            if raw == self._seen:
                return False
            self._seen = raw
            try:
                self.wanted, self._error, self._refused = checked_document(raw), "", False
            except ContractError as error:
                self._refuse(str(error), seen=raw)
        if (self.wanted, self.error) == before:
            return False
        if self.error:
            logger.error("the configuration cannot be used", extra={"error": self.error})
        elif self.wanted is not None:
            logger.info("configuration read", extra={"sha256": self.wanted.sha256})
        return True

    def _bytes(self) -> bytes:
        with self.path.open("rb") as file:
            return file.read(MAX_DOCUMENT_BYTES + 1)

    def _refuse(self, why: str, *, seen: bytes | None = None) -> None:
        self._error, self._refused, self._seen = why, True, seen
        self._fall_back()

    @property
    def _lacking(self) -> bool:
        """The mounted configuration is unusable, and there is no other one."""
        return self._refused and self.wanted is None

    def _fall_back(self) -> None:
        if not self._lacking or not self._kept:
            return
        try:
            self.wanted = checked_document(self._kept[0].text.encode())
        except ContractError as error:
            self._kept_problem = f"the configuration kept on the node cannot be used: {error}"
        else:
            logger.warning("starting with the last accepted configuration", extra={"sha256": self.wanted.sha256})

    # What is kept

    def keep(self, document: CheckedDocument) -> None:
        """Keeps the document that is in force. A later start uses it if the mounted one is unusable."""
        if not self._kept or self._kept[0].text != document.text:
            self._kept = (KeptDocument(document.text),)
            self.revision += 1

    def items(self) -> tuple[KeptDocument, ...]:
        """For the node store."""
        return self._kept

    def restore(self, own: tuple[KeptDocument, ...], *, late: bool, now: float, wall: datetime) -> None:  # noqa: ARG002
        """Takes what an earlier process kept, unless a newer document is in force."""
        if not self._kept:
            lacking, self._kept = self._lacking, own
            self._fall_back()
            if lacking:
                self._changed()

    def learn(self, others: tuple[KeptDocument, ...], *, now: float, wall: datetime) -> None:
        """Ignores other objects' configurations."""

    def kept_badly(self, problem: str) -> None:
        """Takes the reason why the kept configuration is unknown, or ''."""
        self._kept_problem = problem
        if self._lacking:
            self._changed()
