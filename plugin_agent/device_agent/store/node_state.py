"""What outlives the agent's process: one directory beside the kubelet's plugin sockets, readable for root alone.

Sub-directories survive the kubelet's cleaning at start, which takes sockets (and in old versions every plain file)
at the top level only (pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go). Each concern has a sub-directory of
its own: `config/<object uid>.json` is the last document that the agent accepted, byte for byte,
`health/<object uid>.json` what is known of the devices' health in this boot of the node. What was offered under which
name is beside them (`claimstore`).

Calls block on the disk for some milliseconds. None of them raises for what is on it or for a full disk: the agent
serves without its memory, and says what is wrong with it.
"""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from device_agent.contract.check import problems
from device_agent.contract.document import ContractError, Document, parse
from device_agent.contract.names import MAX_DOCUMENT_BYTES
from device_agent.contract.values import dataclass
from device_agent.health.watchlist import Kind, Record
from device_agent.store import health_memory as healthmemory
from device_agent.store.files import private, write_whole

DIRECTORY: Final = "device-operator"
"""Below the device-plugins directory."""
CONFIG: Final = "config"
HEALTH: Final = "health"
"""Below that, with a file for each object."""

MAX_HEALTH_BYTES: Final = 32 * 1024 * 1024
"""20,000 ids of 32 resources would be less; anything beyond is not ours."""

_MAX_OTHERS: Final = 256
"""Other objects whose files are read at a start."""
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")


@dataclass(frozen=True, slots=True)
class Remembered:
    """A document found on disk. `raw`: its bytes; `sha256`: their hash in hex, the observedConfigHash."""

    document: Document
    raw: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.raw).hexdigest()


class ObjectUidError(ValueError):
    """What should be an object's uid cannot be a file's name."""


class NodeState:
    """The directory of one node, seen by the agent of one object.

    `device_plugins`: the kubelet's plugin directory; `object_uid`: the DevicePluginConfig's uid.
    """

    def __init__(self, device_plugins: Path, *, object_uid: str) -> None:
        if not _UID.fullmatch(object_uid):
            raise ObjectUidError(f"{object_uid!r} is no object uid")
        self.directory = device_plugins / DIRECTORY
        self._config = self.directory / CONFIG / f"{object_uid}.json"
        self._health = self.directory / HEALTH / f"{object_uid}.json"

    def remember(self, raw: bytes) -> str | None:
        """Keep the document in force. Returns why that failed, or None."""
        try:
            private(self.directory, self._config.parent)
            write_whole(self._config, raw)
        except OSError as error:
            # without the name of the temporary file, which is another one each time
            return f"the configuration could not be kept in {self.directory}: {error.strerror or error}"
        return None

    def remember_health(self, records: Iterable[Record], *, boot_id: str) -> str:
        """Keep what is known of the devices' health. Returns why that failed, or ''."""
        try:
            private(self.directory, self._health.parent)
            write_whole(self._health, healthmemory.dump(records, boot_id=boot_id))
        except OSError as error:
            return f"the devices' health could not be kept on the node: {error.strerror or error}"  # as in `remember`
        return ""

    def recall_health(self, *, boot_id: str) -> tuple[tuple[Record, ...], str]:
        """What was known of it in this boot, and '' or why that cannot be told."""
        records, why = _recall_health(self._health, boot_id=boot_id)
        return records, why and f"the devices' health kept on the node {why}"

    def recall_others(self, *, boot_id: str) -> tuple[tuple[Record, ...], str]:
        """What other objects' agents knew of physical parts in this boot, and '' or why not all of it can be told."""
        paths = [path for path in self._health.parent.glob("[!.]*.json") if path != self._health]
        paths.sort(key=_written, reverse=True)
        problem = ""
        if len(paths) > _MAX_OTHERS:
            problem = f"there are more than {_MAX_OTHERS} other objects' files of health: the oldest are not read"
        found: list[Record] = []
        for path in paths[:_MAX_OTHERS]:
            records, why = _recall_health(path, boot_id=boot_id, only=Kind.PART)
            found += records
            problem = (why and f"what the agent of object {path.stem} kept of the devices' health {why}") or problem
        return tuple(found), problem

    def recall(self) -> tuple[Remembered | None, str]:
        """The document last kept, and '' or why there is none; both empty-handed when none was ever kept."""
        raw, why = _bytes(self._config, limit=MAX_DOCUMENT_BYTES)
        if raw is None:
            return None, why and f"the configuration kept on the node {why}"
        try:
            document = parse(raw)
        except ContractError as error:
            return None, f"the configuration kept on the node cannot be used: {error}"
        if wrong := problems(document):
            return None, f"the configuration kept on the node cannot be used: {wrong[0]}"
        return Remembered(document=document, raw=raw), ""


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0  # gone meanwhile


def _bytes(path: Path, *, limit: int) -> tuple[bytes | None, str]:
    """What is in a file, or None and why; '' where there is no such file."""
    try:
        with path.open("rb") as file:
            raw = file.read(limit + 1)
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"cannot be read: {error}"
    if len(raw) > limit:
        return None, f"is longer than {limit:,} bytes"
    return raw, ""


def _recall_health(path: Path, *, boot_id: str, only: Kind | None = None) -> tuple[tuple[Record, ...], str]:
    raw, why = _bytes(path, limit=MAX_HEALTH_BYTES)
    if raw is None:
        return (), why
    try:
        return healthmemory.parse(raw, boot_id=boot_id, only=only), ""
    except healthmemory.HealthMemoryError as error:
        return (), f"cannot be used: {error}"
