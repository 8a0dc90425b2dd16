"""The methods of the kubelet's services as values, and how to serve or call one.

Generated stubs would add a check of grpcio's version, and an untyped class for each service.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from device_agent.contract.values import dataclass
from device_agent.kubelet.proto import deviceplugin_pb2 as dp
from device_agent.kubelet.proto import podresources_pb2 as pr

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

API_VERSION: Final = "v1beta1"
MESSAGE_LIMIT: Final = 4 * 1024 * 1024
"""The longest message that a Go client accepts by default: the limit of a ListAndWatch message to the kubelet."""

LOCAL_AUTHORITY: Final = ("grpc.default_authority", "localhost")
"""Without it gRPC's C core sends the socket's percent-encoded path as :authority, which strict servers refuse."""


@dataclass(frozen=True, slots=True)
class Method(Generic[Q, A]):
    """One RPC: `service` with its package, the request's and the answer's message class."""

    service: str
    name: str
    request: type[Q]
    answer: type[A]

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"


REGISTER: Final = Method("v1beta1.Registration", "Register", dp.RegisterRequest, dp.Empty)

_PLUGIN: Final = "v1beta1.DevicePlugin"
OPTIONS: Final = Method(_PLUGIN, "GetDevicePluginOptions", dp.Empty, dp.DevicePluginOptions)
LIST_AND_WATCH: Final = Method(_PLUGIN, "ListAndWatch", dp.Empty, dp.ListAndWatchResponse)
PREFERRED: Final = Method(
    _PLUGIN, "GetPreferredAllocation", dp.PreferredAllocationRequest, dp.PreferredAllocationResponse
)
ALLOCATE: Final = Method(_PLUGIN, "Allocate", dp.AllocateRequest, dp.AllocateResponse)
PRE_START: Final = Method(_PLUGIN, "PreStartContainer", dp.PreStartContainerRequest, dp.PreStartContainerResponse)

_LISTER: Final = "v1.PodResourcesLister"
LIST: Final = Method(_LISTER, "List", pr.ListPodResourcesRequest, pr.ListPodResourcesResponse)
ALLOCATABLE: Final = Method(
    _LISTER, "GetAllocatableResources", pr.AllocatableResourcesRequest, pr.AllocatableResourcesResponse
)

Handler = tuple[Method[Any, Any], "grpc.RpcMethodHandler[Any, Any]"]


def unary(method: Method[Q, A], behaviour: Callable[[Q, "grpc.aio.ServicerContext[Q, A]"], Awaitable[A]]) -> Handler:
    """Serves `method` with one answer."""
    return method, grpc.unary_unary_rpc_method_handler(
        behaviour,
        request_deserializer=method.request.FromString,
        response_serializer=method.answer.SerializeToString,
    )


def stream(
    method: Method[Q, A], behaviour: Callable[[Q, "grpc.aio.ServicerContext[Q, A]"], Awaitable[None]]
) -> Handler:
    """Serves `method` with a stream: the behaviour writes its answers to the context.

    A generator would notice a stream that breaks during an answer only when it is garbage-collected.
    """
    return method, grpc.unary_stream_rpc_method_handler(
        behaviour,
        request_deserializer=method.request.FromString,
        response_serializer=method.answer.SerializeToString,
    )


def service(*handlers: Handler) -> grpc.GenericRpcHandler:
    """Methods of one service for a server."""
    (name,) = {method.service for method, _ in handlers}
    return grpc.method_handlers_generic_handler(name, {method.name: handler for method, handler in handlers})


def call(channel: grpc.aio.Channel, method: Method[Q, A]) -> "grpc.aio.UnaryUnaryMultiCallable[Q, A]":
    """`method` as a callable on the channel."""
    return channel.unary_unary(
        method.path,
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.answer.FromString,
    )
