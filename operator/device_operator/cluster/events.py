"""Writes core/v1 Events about DevicePluginConfigs, each once, also after a restart.

The name is a hash of the object and of what happened (the key of the notice), so a second write is answered with
AlreadyExists. Events of cluster-scoped objects live in the namespace `default`.
"""

import hashlib
import logging
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final

from device_agent.contract import names

from device_operator.cluster.client import UNREACHABLE, ApiError, ApiResource, Client, Object
from device_operator.spec.model import ConfigRef
from device_operator.status.notices import Notice

logger = logging.getLogger(__name__)

EVENTS: Final = ApiResource("", "v1", "events", "default")
COMPONENT: Final = "device-operator"
_MAX_MESSAGE: Final = 1024
"""Bytes of a message that the API server accepts."""
_MAX_KNOWN: Final = 4096


class EventWriter:
    """At most `burst` Events of one kind and object at once, then one in `refill` seconds.

    The others are dropped: the log has their text, and `dropped(reason)` is called.
    """

    def __init__(
        self,
        client: Client,
        *,
        identity: str,
        burst: int = 25,
        refill: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        dropped: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._instance = identity
        self._burst = burst
        self._refill = refill
        self._clock = clock
        self._now = now
        self._dropped = dropped
        self._tokens: dict[str, dict[str, tuple[float, float]]] = {}
        self._known: dict[str, None] = {}

    async def write(self, ref: ConfigRef, notices: Iterable[Notice]) -> None:
        """An Event that cannot be written is logged only: the pass must go on."""
        for notice in notices:
            name = event_name(ref, notice)
            if name in self._known:
                continue
            if not self._take(ref.uid, notice.kind):
                self._drop(ref, notice, "too many of this kind")
                continue
            try:
                await self._client.create(EVENTS, self._body(ref, notice, name))
            except (ApiError, *UNREACHABLE) as error:
                if not (isinstance(error, ApiError) and error.already_exists):
                    self._drop(ref, notice, str(error) or type(error).__name__)
                    continue
            self._known[name] = None
            if len(self._known) > _MAX_KNOWN:
                del self._known[next(iter(self._known))]

    def forget(self, uid: str) -> None:
        self._tokens.pop(uid, None)

    def _drop(self, ref: ConfigRef, notice: Notice, why: str) -> None:
        self._dropped(notice.reason)
        told = {"config": ref.name, "type": notice.type, "reason": notice.reason, "text": notice.message, "error": why}
        logger.warning("event not written", extra=told)

    def _take(self, uid: str, kind: str) -> bool:
        now, kinds = self._clock(), self._tokens.setdefault(uid, {})
        tokens, at = kinds.get(kind, (float(self._burst), now))
        tokens = min(float(self._burst), tokens + (now - at) / self._refill)
        allowed = tokens >= 1.0
        kinds[kind] = (tokens - 1.0 if allowed else tokens, now)
        return allowed

    def _body(self, ref: ConfigRef, notice: Notice, name: str) -> Object:
        now = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        message = notice.message.encode()
        if len(message) > _MAX_MESSAGE:
            message = message[: _MAX_MESSAGE - 3] + "…".encode()
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": EVENTS.namespace},
            "involvedObject": {
                "apiVersion": names.API_VERSION,
                "kind": "DevicePluginConfig",
                "name": ref.name,
                "uid": ref.uid,
            },
            "type": notice.type,
            "reason": notice.reason,
            "message": message.decode("utf-8", "ignore"),
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": COMPONENT},
            "reportingComponent": f"{names.GROUP}/{COMPONENT}",
            "reportingInstance": self._instance,
        }


def event_name(ref: ConfigRef, notice: Notice) -> str:
    what = f"{ref.uid}\n{notice.type}\n{notice.reason}\n{notice.key}"
    return f"{ref.name}.{hashlib.sha256(what.encode()).hexdigest()[:16]}"
