"""Keeps each resource registered with the kubelet that runs now.

The kubelet never asks for a registration. So each look checks four facts: our socket exists; the kubelet's socket is
the one that we registered with; one device stream is open; the kubelet has our devices (asked at intervals). If a fact
is missing, the resource is registered again. The kubelet sets the order. We serve first, because it dials back inside
Register. We end the old stream before we register again.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from device_agent.contract.node_reasons import NodeReason
from device_agent.contract.values import dataclass
from device_agent.kubelet import plugin, rpc, sockets
from device_agent.kubelet.allocatable import Ids, Question, foreign_message
from device_agent.kubelet.proto import deviceplugin_pb2 as dp
from device_agent.runtime.directory_watch import DirectoryWatch
from device_agent.runtime.metrics import Metrics
from device_agent.runtime.settings import Settings
from device_agent.table.device_table import DeviceTable

logger = logging.getLogger(__name__)

# Register answers every failure with a plain Go error: the code is always UNKNOWN, only the text tells them apart
# (kubelet pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go).
_TEXTS: Final = (
    ("is not supported by kubelet", "this kubelet does not speak the device plugin API v1beta1"),
    ("is invalid", "the kubelet refuses the resource's name"),
    ("failed to dial device plugin", "the kubelet could not connect to the agent's socket"),
    ("failed to get device plugin options", "the kubelet could not ask the agent for its options"),
)


_LOOKS: Final = 2
"""After so many answers in a row without our devices, the name is registered again.

A single answer may come while the kubelet is between two states.
"""


class RegistrationCause(StrEnum):
    """Why a resource has to be registered: for the log and device_agent_registrations_total."""

    START = "Start"
    KUBELET_RESTARTED = "KubeletRestarted"
    SOCKET_REMOVED = "SocketRemoved"
    STREAM_ENDED = "StreamEnded"
    NO_STREAM = "NoStream"
    LOST = "Lost"
    OPTIONS_CHANGED = "OptionsChanged"


_WITHOUT_STREAM: Final = frozenset(
    {
        RegistrationCause.START,
        RegistrationCause.KUBELET_RESTARTED,
        RegistrationCause.STREAM_ENDED,
        RegistrationCause.NO_STREAM,
        RegistrationCause.LOST,
    }
)
"""Causes after which another plugin may have the resource. After the others the kubelet still has our own list."""


class RegistrationError(Exception):
    """The kubelet did not register the resource. The message is one line for an admin, with the kubelet's own text.

    `late`: the kubelet may still register it, because the call was given up before its answer.
    """

    def __init__(self, message: str, *, late: bool = False) -> None:
        super().__init__(message)
        self.late = late


@dataclass(frozen=True, slots=True)
class RegistrationState:
    """`registered`: with the kubelet that runs now. `since`: epoch seconds of the last success, or None.

    `message`: why it is not registered, or ''. `reason`: the same as a code, only valid with a message.
    """

    registered: bool
    since: float | None
    message: str
    reason: NodeReason = NodeReason.NOT_REGISTERED


async def register(
    directory: Path, *, resource: str, endpoint: str, options: dp.DevicePluginOptions, seconds: float
) -> None:
    """One Register call, on a new channel: a used one may wait for its reconnect delay.

    Raises:
        RegistrationError: refused, or no answer within `seconds`.
    """
    request = dp.RegisterRequest(version=rpc.API_VERSION, endpoint=endpoint, resource_name=resource, options=options)
    target = f"unix:{directory / sockets.KUBELET_SOCKET}"
    async with grpc.aio.insecure_channel(target, options=(rpc.LOCAL_AUTHORITY,)) as channel:
        try:
            await rpc.call(channel, rpc.REGISTER)(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            raise RegistrationError(_explained(error), late=late) from error


def _explained(error: grpc.aio.AioRpcError) -> str:
    text = " ".join((error.details() or "").split())
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return "the kubelet does not answer on its socket"
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "the kubelet did not answer Register in time"
    for sign, meaning in _TEXTS:
        if sign in text:
            return f"{meaning}: {text}"
    return f"the kubelet refused the registration: {text or error.code().name}"


class KubeletDirectory:
    """The device-plugins directory: which life of the kubelet it shows, and which sockets are there."""

    def __init__(self, path: Path, *, poll_seconds: float) -> None:
        self.path = path
        self.life = sockets.life(path)
        self._poll = poll_seconds
        self._listeners: dict[object, Callable[[], None]] = {}

    @property
    def problem(self) -> str:
        """Why no resource can be registered now, or ''."""
        if self.life is not None:
            return ""
        if not self.path.is_dir():
            return f"there is no directory {self.path}: is this the kubelet's device-plugins directory?"
        return "the kubelet's socket is not there: the kubelet is starting or down"

    @property
    def started(self) -> float:
        """When this life of the kubelet began, in monotonic seconds. The present time if no kubelet runs."""
        if self.life is None:
            return time.monotonic()
        return time.monotonic() - max(0.0, time.time() - self.life[1] / 1e9)

    def listen(self, key: object, listener: Callable[[], None] | None) -> None:
        """Calls `listener` after every change in the directory and at each poll. None ends it."""
        if listener is None:
            self._listeners.pop(key, None)
        else:
            self._listeners[key] = listener

    async def watch(self) -> None:
        """Looks after each change and at every poll, until cancelled."""
        watch = DirectoryWatch(self.path)
        try:
            while True:
                self.look()
                await watch.wait(seconds=self._poll)
        finally:
            watch.close()

    def look(self) -> None:
        self.life = sockets.life(self.path)
        for listener in tuple(self._listeners.values()):
            listener()


class Registration:
    """One resource's server and its registration, for as long as the resource is offered."""

    def __init__(
        self,
        resource: str,
        *,
        table: DeviceTable,
        directory: KubeletDirectory,
        owner: str,
        settings: Settings,
        metrics: Metrics,
        allocatable: Question,
        recorded: Callable[[], Awaitable[None]],
        allocated: Callable[[str, tuple[str, ...]], None],
        changed: Callable[[], None],
    ) -> None:
        self.resource = resource
        self._allocatable = allocatable
        self._recorded = recorded
        self._server = plugin.ResourceServer(
            resource,
            table=table,
            metrics=metrics,
            coalesce_seconds=settings.list_coalesce,
            on_stream=self.look,
            on_allocated=allocated,
        )
        self._table = table
        self._directory = directory
        self._owner = owner
        self._settings = settings
        self._metrics = metrics
        self._changed = changed
        self._wake = asyncio.Event()
        self._life: tuple[int, int] | None = None
        self._told: dp.DevicePluginOptions | None = None
        self._streams_before = 0
        self._registered_at = 0.0
        self._since: float | None = None
        self._message = ""
        self._attempts = 0
        self._retry_at = self._tried_at = 0.0
        self._tried_life: tuple[int, int] | None = None
        self._without = 0
        self._foreign = ""

    @property
    def state(self) -> RegistrationState:
        here = self._life is not None and self._life == self._directory.life
        message = self._foreign or ("" if here else self._message)
        foreign = self._foreign and not self._directory.problem
        return RegistrationState(
            registered=here and not self._foreign,
            since=self._since,
            message=self._directory.problem or message,
            reason=NodeReason.FOREIGN_PLUGIN if foreign else NodeReason.NOT_REGISTERED,
        )

    def look(self) -> None:
        """Wakes the registration: something may have changed here or in the directory."""
        self._wake.set()

    def refresh(self) -> None:
        """The table changed: sends the kubelet what is new."""
        self._server.refresh()
        self._wake.set()

    def resend(self) -> bool:
        """Sends the whole list again, even if nothing is new. False: no stream is open."""
        return self._server.resend()

    @property
    def sent_at(self) -> float:
        """When its list was last sent, monotonic seconds; 0: never."""
        return self._server.sent_at

    def compare(self, kubelet: Ids, *, begun: float) -> None:
        """Compares what the kubelet has with our list. If another plugin serves the name, that plugin keeps it. If
        nobody serves the name, it is registered again.
        """
        server = self._server
        told = server.streams > 0 and self._life == self._directory.life
        if not told or max(self._registered_at, server.sent_at) >= begun:
            self._without = 0
            return
        has = kubelet.get(self.resource, frozenset())
        healthy = {device.id for device in server.sent if device.healthy}
        if not healthy or not healthy.isdisjoint(has):
            self._without = 0
            self._found_foreign(frozenset())
            return
        self._without += 1
        if self._without >= _LOOKS:
            self._found_foreign(has - {device.id for device in server.sent})
            self._wake.set()

    def _found_foreign(self, ids: frozenset[str]) -> None:
        message = foreign_message(self.resource, ids) if ids else ""
        if message != self._foreign:
            if message and not self._foreign:
                logger.warning("another plugin has the resource", extra={"resource": self.resource, "error": message})
            self._foreign = message
            self._changed()

    async def run(self) -> None:
        """Serves and registers until cancelled; leaves no socket behind."""
        self._directory.listen(self, self.look)
        try:
            while True:
                self._wake.clear()
                cause = self._cause()
                delay = self._delay(cause)
                if cause is not None and delay == 0:
                    await self._attempt(cause)
                else:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(delay):
                            await self._wake.wait()
        finally:
            self._directory.listen(self, None)
            await self._server.stop()

    def _cause(self) -> RegistrationCause | None:
        """Why the resource has to be registered now, or None."""
        server = self._server
        if self._life is None:
            return RegistrationCause.START
        if self._directory.life != self._life:
            return RegistrationCause.KUBELET_RESTARTED
        if server.path is None or not sockets.exists(server.path):
            return RegistrationCause.SOCKET_REMOVED
        if not server.streams and server.streams_begun > self._streams_before:
            return RegistrationCause.STREAM_ENDED
        if not server.streams and self._stream_due() <= 0:
            return RegistrationCause.NO_STREAM
        if self._foreign:
            return None
        if self._without >= _LOOKS:
            return RegistrationCause.LOST
        if self._told != plugin.options(self._table.entry(self.resource)):
            return RegistrationCause.OPTIONS_CHANGED
        return None

    def _stream_due(self) -> float:
        """Seconds until the kubelet must have opened a stream; 0 or less: it is overdue."""
        return self._registered_at + self._settings.stream_wait - time.monotonic()

    def _delay(self, cause: RegistrationCause | None) -> float | None:
        """Seconds until the next attempt or look, 0 for now, None until woken."""
        if cause is None:
            return None if self._server.streams else max(self._stream_due(), 0.001)
        if self._directory.life is None:
            return None
        if self._directory.life != self._tried_life:
            return 0
        return max(self._retry_at - time.monotonic(), 0)

    async def _attempt(self, cause: RegistrationCause) -> None:
        now = time.monotonic()
        life = self._directory.life
        if life != self._tried_life or now - self._tried_at > 2 * self._settings.retry_max:
            self._attempts = 0
        self._tried_at = now
        # counted even after a success: a kubelet that accepts us and drops us must not get a storm of calls
        self._retry_at = now + min(self._settings.retry_first * 2**self._attempts, self._settings.retry_max)
        self._attempts = min(self._attempts + 1, 30)
        self._tried_life = life
        try:
            if cause in _WITHOUT_STREAM:
                await self._hold_back()
            await self._register(life)
        except (RegistrationError, sockets.SocketError, OSError) as error:
            self._failed(cause, error)
            if isinstance(error, RegistrationError) and error.late:
                # a late dial would open a second stream beside that of the next attempt
                await self._server.stop()
        else:
            self._metrics.registered(self.resource, cause=cause)
            logger.info("registered", extra={"resource": self.resource, "cause": cause})
        self._changed()

    async def _hold_back(self) -> None:
        """Checks who serves the name now. Ids of an earlier agent of ours are in our list; unknown ids belong to
        another plugin, which keeps the name.

        Raises:
            RegistrationError: another plugin serves the resource.
        """
        # a kubelet that starts may have forgotten what pods have: these ids must not be Healthy in the first list
        await self._recorded()
        has = await self._allocatable() or {}
        foreign = has.get(self.resource, frozenset()) - {device.id for device in self._table.listed(self.resource)}
        self._found_foreign(foreign)
        if foreign:
            raise RegistrationError(self._foreign)

    async def _register(self, life: tuple[int, int] | None) -> None:
        server, directory = self._server, self._directory.path
        if await server.end_streams():
            await asyncio.sleep(self._settings.stream_settle)
        if server.path is None or not sockets.exists(server.path):
            await server.stop()
            await server.start(directory, owner=self._owner)
        assert server.path is not None
        told = plugin.options(self._table.entry(self.resource))
        self._streams_before = server.streams_begun
        await register(
            directory,
            resource=self.resource,
            endpoint=server.path.name,
            options=told,
            seconds=self._settings.register_deadline,
        )
        self._life, self._told, self._message = life, told, ""
        self._registered_at, self._since = time.monotonic(), time.time()
        self._without, self._foreign = 0, ""

    def _failed(self, cause: RegistrationCause, error: Exception) -> None:
        message = str(error)
        self._metrics.registration_failed(self.resource)
        # a kubelet that is down is normal, so it is logged once
        log = logger.debug if message == self._message else logger.warning
        log("not registered", extra={"resource": self.resource, "cause": cause, "error": message})
        self._message = message
