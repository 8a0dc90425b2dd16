"""A stand-in for the kubelet that is as strict as the real one, and notes how an agent breaks the contract.

It does what kubelet pkg/kubelet/cm/devicemanager does. At its start it wipes the sockets. During Register it checks the
request, dials the plugin, asks for the options and opens one device stream. It keeps a checkpoint of ids.
`violations` has what an agent must never do, but the kubelet does not report.
"""

import contextlib
import random
import stat
import threading
import time
from collections.abc import Callable, Mapping
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from agent import rules
from agent.checkpoint import Checkpoint
from device_agent.kubelet import rpc
from device_agent.kubelet.proto import deviceplugin_pb2 as dp
from device_agent.kubelet.proto import podresources_pb2 as pr

GO_MESSAGE_LIMIT = 4 * 1024 * 1024
DIAL_SECONDS = 10


def until(condition: Callable[[], object], *, seconds: float = 10.0, what: str = "") -> object:
    """The condition's first true value, or a failure after `seconds`."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {seconds} s: {what or condition}"
        time.sleep(0.005)
    return value


class PodRejectedError(Exception):
    """UnexpectedAdmissionError: the pod is lost for good. The text is what its status shows."""


@dataclass
class Client:
    """One registered plugin, as the kubelet keeps it: by resource name."""

    endpoint: str
    options: dp.DevicePluginOptions
    channel: grpc.Channel
    life: int
    stream: "grpc._channel._MultiThreadedRendezvous | None" = None
    listed: bool = False
    ended: threading.Event = field(default_factory=threading.Event)


class Kubelet:
    """`directory`: device-plugins; `pod_resources`: the socket's path, served unless None."""

    def __init__(self, directory: Path, *, pod_resources: Path | None = None) -> None:
        self.directory = directory
        self.socket = directory / "kubelet.sock"
        self.pod_resources = pod_resources
        self.violations: list[str] = []
        self.registrations: list[tuple[str, float]] = []
        self.clients: dict[str, Client] = {}
        self.devices: dict[str, Mapping[str, tuple[str, tuple[int, ...]]]] = {}
        self.lists: dict[str, list[tuple[float, dict[str, str]]]] = {}
        self.checkpoint = Checkpoint(directory / "kubelet_internal_checkpoint")
        self.in_flight: set[str] = set()
        self.fail_register: str | None = None
        self.hang_register: threading.Event | None = None
        self.fail_list: grpc.StatusCode | None = None
        self.list_calls = 0
        self.hang_allocatable: threading.Event | None = None
        self.allocatable_calls = 0
        self.authorities: set[str] = set()
        self._lock = threading.RLock()
        self._servers: list[grpc.Server] = []
        self._alive = False
        self._life = 0

    # Life

    def start(self) -> "Kubelet":
        self.directory.mkdir(parents=True, exist_ok=True)
        for path in self.directory.iterdir():
            if stat.S_ISSOCK(path.lstat().st_mode):
                path.unlink()
        self.checkpoint.load()
        self._alive = True
        self._life += 1
        self._serve(self.socket, (rpc.REGISTER, self._register))
        if self.pod_resources is not None:
            self.serve_pod_resources(self.pod_resources)
        return self

    def serve_pod_resources(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._serve(path, (rpc.LIST, self._list), (rpc.ALLOCATABLE, self._allocatable))

    def _serve(self, path: Path, *methods: tuple[rpc.Method, Callable]) -> None:
        server = grpc.server(futures.ThreadPoolExecutor(8))
        for method, behaviour in methods:
            handler = grpc.unary_unary_rpc_method_handler(
                behaviour,
                request_deserializer=method.request.FromString,
                response_serializer=method.answer.SerializeToString,
            )
            handlers = grpc.method_handlers_generic_handler(method.service, {method.name: handler})
            server.add_generic_rpc_handlers((handlers,))
        server.add_insecure_port(f"unix:{path}")
        server.start()
        self._servers.append(server)

    def stop(self) -> None:
        """As if killed: all connections break at once, devices are forgotten, the checkpoint stays."""
        self._alive = False
        stopping = [server.stop(0) for server in self._servers]
        with self._lock:
            clients, self.clients, self.devices = self.clients, {}, {}
        for client in clients.values():
            if client.stream is not None:
                client.stream.cancel()
            client.channel.close()
        for client in clients.values():
            client.ended.wait(5)
        for stopped in stopping:
            stopped.wait()
        self._servers = []

    def restart(self) -> None:
        self.stop()
        self.start()

    def replace_socket(self) -> None:
        """Makes another kubelet.sock of the same name. The plugins' sockets and streams stay."""
        self._servers[0].stop(0).wait()
        self.socket.unlink(missing_ok=True)
        self._servers.pop(0)
        self._serve(self.socket, (rpc.REGISTER, self._register))
        self._servers.insert(0, self._servers.pop())

    # Registration

    def _register(self, request: dp.RegisterRequest, context: grpc.ServicerContext) -> dp.Empty:
        if self.hang_register is not None:
            self.hang_register.wait(30)
        name = request.resource_name
        if not self._alive:
            context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
        if self.fail_register is not None:
            return self._refuse(context, self.fail_register)
        if why := rules.refusal(request):
            return self._refuse(context, why)
        if "/" in request.endpoint:
            self._tell(f"{name}: endpoint {request.endpoint} is no base name")
        path = self.directory / request.endpoint
        with contextlib.suppress(OSError):
            if path.lstat().st_mode & 0o077:
                self._tell(f"{request.endpoint} is open to others than root")
        channel = grpc.insecure_channel(f"unix:{path}", options=(rpc.LOCAL_AUTHORITY,))
        try:
            grpc.channel_ready_future(channel).result(timeout=DIAL_SECONDS)
        except grpc.FutureTimeoutError:
            channel.close()
            return self._refuse(context, "failed to dial device plugin: context deadline exceeded")
        try:
            options = _call(channel, rpc.OPTIONS)(dp.Empty(), timeout=DIAL_SECONDS)
        except grpc.RpcError as error:
            channel.close()
            return self._refuse(context, f"failed to get device plugin options: {error.code()}")
        client = Client(endpoint=request.endpoint, options=options, channel=channel, life=self._life)
        with self._lock:
            if not self._alive:
                context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
            old = self.clients.get(name)
            if old is not None and not old.ended.is_set():
                self._tell(f"{name}: registered while the stream of {old.endpoint} is open")
            self.clients[name] = client
            self.registrations.append((name, time.monotonic()))
        threading.Thread(target=self._watch, args=(name, client), daemon=True).start()
        return dp.Empty()

    def _refuse(self, context: grpc.ServicerContext, text: str) -> dp.Empty:
        context.set_code(grpc.StatusCode.UNKNOWN)  # a plain Go error
        context.set_details(text)
        return dp.Empty()

    # Devices

    def _watch(self, name: str, client: Client) -> None:
        watch = client.channel.unary_stream(
            rpc.LIST_AND_WATCH.path,
            request_serializer=dp.Empty.SerializeToString,
            response_deserializer=bytes,
        )
        try:
            client.stream = watch(dp.Empty())
            for raw in client.stream:
                if len(raw) > GO_MESSAGE_LIMIT:
                    self._tell(f"{name}: a list of {len(raw)} bytes")
                    client.stream.cancel()
                    break
                self._listed(name, client, dp.ListAndWatchResponse.FromString(raw))
        except (grpc.RpcError, ValueError):
            pass  # ValueError: the channel was closed before the stream began
        finally:
            with self._lock:
                # it removes the client of that name, even if a newer one has the name: handler.go up to 1.36 (#127803)
                if client.life == self._life and self.clients.pop(name, None) is not None:
                    self.devices[name] = {i: ("Unhealthy", n) for i, (_, n) in self.devices.get(name, {}).items()}
            client.ended.set()
            client.channel.close()

    def _listed(self, name: str, client: Client, answer: dp.ListAndWatchResponse) -> None:
        for violation in rules.list_violations(name, answer):
            self._tell(violation)
        found = rules.devices(answer)
        with self._lock:
            if client.life != self._life or not self._alive:
                return  # a thread of a kubelet that has died
            if self.clients.get(name) is not client:
                self._tell(f"{name}: a list on the stream of an older registration")
            for other, devices in self.devices.items():
                peer = self.clients.get(other)  # None: that plugin is gone, and its devices stay as unhealthy
                # an id that is unhealthy there and that nobody holds may be in both lists: the streams may cross
                usable = {i for i, (health, _) in devices.items() if health == "Healthy"} | self.held(other)
                if other != name and peer and peer.listed and (both := usable & devices.keys() & found.keys()):
                    self._tell(f"{sorted(both)} in {name} and {other}")
            # the kubelet would read a field of the missing entry, from 1.34 on
            known = self.devices.get(name, {}).keys()
            if client.listed and (untold := self.healthy(name) - found.keys()):
                self._tell(f"{name}: {sorted(untold)} dropped before they were told as Unhealthy")
            if missing := ((self.held(name) | self.in_flight) & known) - found.keys():
                self._tell(f"{name}: {sorted(missing)} dropped while allocated")
            history = self.lists.setdefault(name, [])
            health = {i: h for i, (h, _) in found.items()}
            client.listed = True
            self.devices[name] = found
            history.append((time.monotonic(), health))
            self.checkpoint.write()

    def _tell(self, violation: str) -> None:
        with self._lock:
            self.violations.append(violation)

    def health(self, name: str) -> dict[str, str]:
        with self._lock:
            return {i: h for i, (h, _) in self.devices.get(name, {}).items()}

    def healthy(self, name: str) -> set[str]:
        return {i for i, h in self.health(name).items() if h == "Healthy"}

    def registered(self, name: str) -> int:
        """How often the resource was registered, in all lives."""
        with self._lock:
            return sum(n == name for n, _ in self.registrations)

    def wait_for(self, name: str, count: int, *, seconds: float = 10.0) -> set[str]:
        """The ids of the resource once `count` of them are healthy."""
        until(lambda: len(self.healthy(name)) == count, seconds=seconds, what=f"{count} healthy {name}")
        return self.healthy(name)

    # Pods

    def held(self, name: str) -> set[str]:
        with self._lock:
            return self.checkpoint.held(name)

    def admit(
        self, pod: str, resource: str, count: int, *, container: str = "main", init: bool = False
    ) -> dp.ContainerAllocateResponse:
        """What the container gets. `init`: it is a plain init container.

        Raises:
            PodRejectedError: with the text that the pod's status would show.
        """
        with self._lock:
            client = self.clients.get(resource)
            self.checkpoint.drop_ended()
            free = sorted(self.healthy(resource) - self.held(resource))
        if client is None:
            raise PodRejectedError(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if len(free) < count:
            raise PodRejectedError(
                f"requested number of devices unavailable for {resource}. Requested: {count}, Available: {len(free)}"
            )
        try:
            ids = self._preferred(client, free, count)
            with self._lock:
                self.in_flight |= set(ids)
            try:
                answer = _call(client.channel, rpc.ALLOCATE)(
                    dp.AllocateRequest(container_requests=[dp.ContainerAllocateRequest(devices_ids=ids)])
                )
            finally:
                with self._lock:
                    self.in_flight -= set(ids)
        except grpc.RpcError as error:
            raise PodRejectedError(f"rpc error: code = {error.code().name} desc = {error.details()}") from error
        if not answer.container_responses:
            raise PodRejectedError("no containers return in allocation response")
        with self._lock:
            given = answer.container_responses[0].SerializeToString()
            self.checkpoint.assign(("default", pod), container, resource, ids, answer=given, init=init)
        return answer.container_responses[0]

    def start_container(self, pod: str, resource: str, *, container: str = "main") -> None:
        """PreStartContainer, as before every start of a container.

        Raises:
            PodRejectedError: with the text of the event; the kubelet would try again.
        """
        client = self.clients[resource]
        if client.options.pre_start_required:
            try:
                _call(client.channel, rpc.PRE_START)(
                    dp.PreStartContainerRequest(devices_ids=self.ids_of(pod, resource, container=container))
                )
            except grpc.RpcError as error:
                raise PodRejectedError(f"PreStartContainer: {error.details()}") from error

    def _preferred(self, client: Client, free: list[str], count: int) -> list[str]:
        chosen: list[str] = []
        if client.options.get_preferred_allocation_available:
            answer = _call(client.channel, rpc.PREFERRED)(
                dp.PreferredAllocationRequest(
                    container_requests=[
                        dp.ContainerPreferredAllocationRequest(available_deviceIDs=free, allocation_size=count)
                    ]
                )
            )
            if answer.container_responses:
                chosen = [i for i in answer.container_responses[0].deviceIDs if i in free][:count]
        others = [i for i in free if i not in chosen]
        return chosen + random.sample(others, count - len(chosen))

    def ids_of(self, pod: str, resource: str, *, container: str = "main") -> list[str]:
        with self._lock:
            uid = self.checkpoint.begin(("default", pod))
            entries = [e for e in self.checkpoint.of(uid) if (e.container, e.resource) == (container, resource)]
            return [i for entry in entries for i in entry.ids]

    def delete(self, pod: str) -> None:
        with self._lock:
            self.checkpoint.end(pod)

    def _list(self, _: pr.ListPodResourcesRequest, context: grpc.ServicerContext) -> pr.ListPodResourcesResponse:
        self.list_calls += 1
        if self.fail_list is not None:
            context.abort(self.fail_list, "rejected by rate limit")
        with self._lock:
            return self.checkpoint.pod_resources()

    def _allocatable(
        self, _: pr.AllocatableResourcesRequest, context: grpc.ServicerContext
    ) -> pr.AllocatableResourcesResponse:
        """Healthy devices of all resources, whoever holds them."""
        self.allocatable_calls += 1
        if self.hang_allocatable is not None:
            self.hang_allocatable.wait(30)
        if self.fail_list is not None:
            context.abort(self.fail_list, "rejected by rate limit")
        answer = pr.AllocatableResourcesResponse()
        with self._lock:
            for resource, devices in self.devices.items():
                for i, (health, _) in devices.items():
                    if health == "Healthy":
                        answer.devices.add(resource_name=resource, device_ids=[i])
        return answer

    # Other plugins

    def take_over(self, name: str, *ids: str) -> None:
        """Another plugin registers under the name. It gets the endpoint; the plugin before is not told."""
        channel = grpc.insecure_channel(f"unix:{self.directory}/foreign.sock")
        client = Client(endpoint="foreign.sock", options=dp.DevicePluginOptions(), channel=channel, life=self._life)
        client.ended.set()
        with self._lock:
            self.clients[name] = client
            self.devices[name] = dict.fromkeys(ids, ("Healthy", ()))

    def leave(self, name: str) -> None:
        """The plugin of the name goes. Its devices become unhealthy; no other plugin is asked."""
        with self._lock:
            client = self.clients.pop(name)
            self.devices[name] = {i: ("Unhealthy", n) for i, (_, n) in self.devices[name].items()}
        client.channel.close()


def _call(channel: grpc.Channel, method: rpc.Method) -> Callable:
    return channel.unary_unary(
        method.path,
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.answer.FromString,
    )
