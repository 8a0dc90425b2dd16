"""The server of one resource: the five methods that the kubelet calls, as views on the device table.

Nothing here waits. The kubelet admits pods one after the other and sets no deadline (kubelet HandlePodAdditions). So an
Allocate or GetPreferredAllocation that hangs stops every new pod of the node.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from device_agent.allocate import answer as injection
from device_agent.allocate import preferred as allocation
from device_agent.contract.document import OnStaleGrant, Policy, Resource
from device_agent.contract.reasons import as_label
from device_agent.kubelet import rpc, sockets
from device_agent.kubelet.proto import deviceplugin_pb2 as dp
from device_agent.runtime.errors import AllocationRefused
from device_agent.runtime.metrics import Metrics
from device_agent.table.device_table import DeviceTable
from device_agent.table.snapshot import Advertised

logger = logging.getLogger(__name__)

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"

_OPTIONS: Final = (
    # the request of GetPreferredAllocation carries every free id
    ("grpc.max_receive_message_length", 4 * rpc.MESSAGE_LIMIT),
    ("grpc.max_send_message_length", 4 * rpc.MESSAGE_LIMIT),
    ("grpc.so_reuseport", 0),
)
_STOP_SECONDS: Final = 0.5
_LOG_AFTER_SECONDS: Final = 0.01
_LOGGED_IDS: Final = 64

_Context = grpc.aio.ServicerContext[Any, Any]
_Devices = tuple[Advertised, ...]


def options(entry: Resource) -> dp.DevicePluginOptions:
    """The answer to GetDevicePluginOptions. It offers a preference if a policy could make a difference.

    If each container gets one exclusive device, any free device is as good as another.
    """
    refuse = entry.on_stale_grant is OnStaleGrant.REFUSE
    matters = entry.sharing.max_per_container != 1 or entry.sharing.shared
    return dp.DevicePluginOptions(pre_start_required=refuse, get_preferred_allocation_available=matters)


def device_list(devices: Sequence[Advertised]) -> dp.ListAndWatchResponse:
    """The full list for the kubelet. Topology is set only if the NUMA node is known: -1 would be wrong."""
    answer = dp.ListAndWatchResponse()
    for device in devices:
        message = answer.devices.add(ID=device.id, health=HEALTHY if device.healthy else UNHEALTHY)
        if device.numa_node is not None:
            message.topology.nodes.add(ID=device.numa_node)
    return answer


def fill(message: dp.ContainerAllocateResponse, response: injection.ContainerResponse) -> None:
    """Writes what one container gets into its message."""
    for name, value in response.envs.items():
        message.envs[name] = value
    for name, value in response.annotations.items():
        message.annotations[name] = value
    for mount in response.mounts:
        message.mounts.add(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)
    for node in response.devices:
        message.devices.add(container_path=node.container_path, host_path=node.host_path, permissions=node.permissions)
    for name in response.cdi_devices:
        message.cdi_devices.add(name=name)


class ResourceServer:
    """Serves one resource on a socket of its own.

    `on_stream`: called when a ListAndWatch begins or ends. `on_allocated`: called after ids were given out.
    """

    def __init__(
        self,
        resource: str,
        *,
        table: DeviceTable,
        metrics: Metrics,
        coalesce_seconds: float,
        on_stream: Callable[[], None],
        on_allocated: Callable[[str, tuple[str, ...]], None],
    ) -> None:
        self.resource = resource
        self.path: Path | None = None
        self.streams = 0
        self.streams_begun = 0
        self.sent: _Devices = ()
        """The list that was sent last, at `sent_at` (monotonic seconds)."""
        self.sent_at = 0.0
        self._table = table
        self._metrics = metrics
        self._coalesce = coalesce_seconds
        self._on_stream = on_stream
        self._on_allocated = on_allocated
        self._loop = asyncio.get_running_loop()
        self._server: grpc.aio.Server | None = None
        self._turn = asyncio.Event()
        self._unlogged: list[tuple[dp.AllocateRequest, float]] = []
        self._ending = False
        self._again = False
        self._quiet = asyncio.Event()

    async def start(self, directory: Path, *, owner: str) -> None:
        """Binds a new socket and answers on it.

        Raises:
            SocketError: the directory's path is too long, or no socket can be bound in it.
        """
        path = sockets.new_path(directory, owner=owner, resource=self.resource)
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers(
            (
                rpc.service(
                    rpc.unary(rpc.OPTIONS, self._options),
                    rpc.stream(rpc.LIST_AND_WATCH, self._list_and_watch),
                    rpc.unary(rpc.PREFERRED, self._preferred),
                    rpc.unary(rpc.ALLOCATE, self._allocate),
                    rpc.unary(rpc.PRE_START, self._pre_start),
                ),
            )
        )
        try:
            with sockets.private():
                server.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:  # gRPC's C core's text names neither directory nor cause
            raise sockets.SocketError(
                f"no socket can be made in {directory}: it must be there and writable for the agent"
            ) from error
        self._ending = False
        self._server, self.path = server, path  # set now, so that a cancelled start can still be stopped
        starting = self._loop.create_task(server.start())
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # cancelling the start itself would end the server's loop with an InvalidStateError
            await asyncio.wait([starting])
            raise

    async def end_streams(self) -> bool:
        """Ends every ListAndWatch from this side. Returns whether there was one.

        A stream must be over before the resource is registered again. Otherwise the kubelet takes its end for the end
        of the new one (devicemanager/plugin/v1beta1/handler.go, up to 1.36).
        """
        if not self.streams:
            return False
        self._quiet.clear()
        self._ending = True
        self._wake()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._quiet.wait()
        except TimeoutError:
            logger.warning("a device stream did not end in time", extra={"resource": self.resource})
        self._ending = False
        return True

    async def stop(self) -> None:
        """Ends the streams, then the server, and leaves no socket behind."""
        server, path = self._server, self.path
        self._server = self.path = None
        if server is None:
            return
        await self.end_streams()
        await server.stop(_STOP_SECONDS)
        self._log_allocations()
        if path is not None:
            path.unlink(missing_ok=True)

    def refresh(self) -> None:
        """Sends the list if it differs from what the kubelet has."""
        self._wake()

    def resend(self) -> bool:
        """Sends the whole list again, even if nothing is new. False: no stream is open."""
        self._again = self.streams > 0
        self._wake()
        return self._again

    def _wake(self) -> None:
        turn, self._turn = self._turn, asyncio.Event()
        turn.set()

    async def _options(self, _: dp.Empty, _context: _Context) -> dp.DevicePluginOptions:
        return options(self._table.entry(self.resource))

    async def _list_and_watch(self, _: dp.Empty, context: _Context) -> None:
        self.streams += 1
        self.streams_begun += 1
        self._on_stream()
        sent: _Devices | None = None
        try:
            while not self._ending:
                turn = self._turn
                # no list is sent once the resource is no longer offered: the server stops soon. Until then the kubelet
                # keeps the last list
                if self._table.ours(self.resource):
                    sent = await self._send(context, sent)
                await turn.wait()
                if not self._ending:
                    await asyncio.sleep(self._coalesce)
        finally:
            self.streams -= 1
            if not self.streams:
                self._quiet.set()
            self._on_stream()

    async def _send(self, context: _Context, sent: _Devices | None) -> _Devices | None:
        """Sends the list unless it equals `sent`. Returns the list that the kubelet has now.

        The table is told only after the write: until the kubelet knows that an id is Unhealthy, it may still give it
        out.
        """
        devices = self._table.listed(self.resource)
        again, self._again = self._again, False
        if devices != sent:
            fitting = self._fitting(devices, sent or ())
            if fitting is None:
                return sent
            devices, answer = fitting
        elif again:
            answer = device_list(devices)
        if devices != sent or again:
            await context.write(answer)
            self.sent, self.sent_at = devices, time.monotonic()
            self._metrics.list_sent(self.resource)
        self._table.told(self.resource, devices, now=self.sent_at)
        return devices

    def _fitting(self, devices: _Devices, sent: _Devices) -> tuple[_Devices, dp.ListAndWatchResponse] | None:
        """The list as a message. If it is too large: only ids that the kubelet already has; None if even that is too
        large.

        With a larger message the kubelet would end the stream with RESOURCE_EXHAUSTED and take all devices away. The
        shorter list still shows which ids become Unhealthy. Once the kubelet knows that, they can be dropped, which
        makes room for new ids.
        """
        answer = device_list(devices)
        if (size := answer.ByteSize()) <= rpc.MESSAGE_LIMIT:
            return devices, answer
        logger.error(
            "the device list exceeds what the kubelet accepts, new devices wait",
            extra={"resource": self.resource, "bytes": size, "limit": rpc.MESSAGE_LIMIT},
        )
        known = {device.id for device in sent}
        devices = tuple(device for device in devices if device.id in known)
        answer = device_list(devices)
        return (devices, answer) if devices and answer.ByteSize() <= rpc.MESSAGE_LIMIT else None

    async def _allocate(self, request: dp.AllocateRequest, context: _Context) -> dp.AllocateResponse:
        begun = time.monotonic()
        answer = dp.AllocateResponse()
        try:
            for container in request.container_requests:
                fill(answer.container_responses.add(), self._one_container(tuple(container.devices_ids)))
        except AllocationRefused as refused:
            seconds, why = time.monotonic() - begun, as_label(refused.reason)
            self._metrics.allocated(self.resource, seconds=seconds, refused=why)
            logger.warning("allocation refused", extra={"resource": self.resource, "error": str(refused)})
            await context.abort(grpc.StatusCode[refused.code], str(refused))
        if not self._unlogged:
            self._loop.call_later(_LOG_AFTER_SECONDS, self._log_allocations)
        self._unlogged.append((request, time.monotonic() - begun))
        return answer

    def _one_container(self, ids: Sequence[str]) -> injection.ContainerResponse:
        units = self._table.units_of(self.resource, ids)
        response = injection.respond(self._table.entry(self.resource), units)
        name, note = self._table.note(self.resource, ids)
        response.annotations[name] = note
        self._table.handed_out(self.resource, ids, now=time.monotonic())
        return response

    def _log_allocations(self) -> None:
        """Writes log and metrics, and asks for holders, after the answer: the pod waits for the answer, but not for
        these.
        """
        unlogged, self._unlogged = self._unlogged, []
        for request, seconds in unlogged:
            self._metrics.allocated(self.resource, seconds=seconds)
            for container in request.container_requests:
                ids = tuple(container.devices_ids)
                self._on_allocated(self.resource, ids)
                more = {"more": len(ids) - _LOGGED_IDS} if len(ids) > _LOGGED_IDS else {}
                logger.info("allocated", extra={"resource": self.resource, "ids": ",".join(ids[:_LOGGED_IDS]), **more})

    async def _preferred(
        self, request: dp.PreferredAllocationRequest, _context: _Context
    ) -> dp.PreferredAllocationResponse:
        answer = dp.PreferredAllocationResponse()
        for container in request.container_requests:
            available, must = tuple(container.available_deviceIDs), tuple(container.must_include_deviceIDs)
            try:
                policy = self._table.entry(self.resource).allocation.policy
                size = container.allocation_size
                ids = allocation.preferred(
                    self._table.offered(self.resource, available, at_least=size),
                    must,
                    size,
                    policy=policy,
                    places=self._table.places(self.resource),
                    affinity=self._table.affinity(self.resource) if policy is Policy.TOPOLOGY else None,
                )
            except Exception:
                # an error would reject the pod; an empty answer leaves the choice to the kubelet
                logger.exception("no preference", extra={"resource": self.resource})
                ids = ()
            answer.container_responses.add(deviceIDs=ids)
        return answer

    async def _pre_start(self, request: dp.PreStartContainerRequest, context: _Context) -> dp.PreStartContainerResponse:
        """Before every start of a container. An error keeps it waiting; the kubelet tries again."""
        stale = self._table.stale(self.resource, tuple(request.devices_ids))
        if stale and self._table.entry(self.resource).on_stale_grant is OnStaleGrant.REFUSE:
            logger.warning("container not started", extra={"resource": self.resource, "error": stale})
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{stale}; delete the pod")
        return dp.PreStartContainerResponse()
