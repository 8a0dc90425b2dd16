"""Another vendor's device plugin, as small as one can be: one resource, each device one node.

It runs in a pod from the agent's image, for its gRPC and its messages, and uses nothing else of the product.
"""

import inspect
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kube import Kube, wait_for

RESOURCE = "vendor.com/disk"


def serve(resource: str, devices: Mapping[str, str]) -> None:
    """`devices`: id -> device node. The program of the pod."""
    import threading
    from concurrent import futures
    from pathlib import Path

    import grpc
    from device_agent.kubelet import rpc
    from device_agent.kubelet.proto import deviceplugin_pb2 as dp

    folder = Path("/var/lib/kubelet/device-plugins")
    socket = folder / "vendor.sock"
    socket.unlink(missing_ok=True)

    def options(_request: Any, _context: Any) -> dp.DevicePluginOptions:
        return dp.DevicePluginOptions()

    def watch(_request: Any, _context: Any) -> Any:
        yield dp.ListAndWatchResponse(devices=[dp.Device(ID=i, health="Healthy") for i in devices])
        threading.Event().wait()

    def allocate(request: Any, _context: Any) -> dp.AllocateResponse:
        answer = dp.AllocateResponse()
        for container in request.container_requests:
            given = answer.container_responses.add()
            for i in container.devices_ids:
                given.devices.add(host_path=devices[i], container_path=devices[i], permissions="rw")
        return answer

    def unary(method: Any, work: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(
            work, request_deserializer=method.request.FromString, response_serializer=method.answer.SerializeToString
        )

    stream = grpc.unary_stream_rpc_method_handler(
        watch,
        request_deserializer=rpc.LIST_AND_WATCH.request.FromString,
        response_serializer=rpc.LIST_AND_WATCH.answer.SerializeToString,
    )
    handlers = {
        rpc.OPTIONS.name: unary(rpc.OPTIONS, options),
        rpc.LIST_AND_WATCH.name: stream,
        rpc.ALLOCATE.name: unary(rpc.ALLOCATE, allocate),
    }
    server = grpc.server(futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(rpc.ALLOCATE.service, handlers),))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    channel = grpc.insecure_channel(f"unix:{folder}/kubelet.sock", options=(rpc.LOCAL_AUTHORITY,))
    register = channel.unary_unary(
        rpc.REGISTER.path,
        request_serializer=rpc.REGISTER.request.SerializeToString,
        response_deserializer=rpc.REGISTER.answer.FromString,
    )
    register(dp.RegisterRequest(version="v1beta1", endpoint=socket.name, resource_name=resource))
    server.wait_for_termination()


@contextmanager
def plugin(kube: Kube, image: str, devices: Mapping[str, str]) -> Iterator[None]:
    """The plugin on node-1 while the block runs, its devices offered."""
    program = f"from typing import Any, Mapping\n{textwrap.dedent(inspect.getsource(serve))}\nserve({RESOURCE!r}, {dict(devices)!r})"
    name = "vendor-plugin"
    kube.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": "node-1"},
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": False,
                "volumes": [{"name": "plugins", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}],
                "containers": [
                    {
                        "name": "plugin",
                        "image": image,
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["/opt/venv/bin/python", "-c", program],
                        "securityContext": {"runAsUser": 0},
                        "volumeMounts": [{"name": "plugins", "mountPath": "/var/lib/kubelet/device-plugins"}],
                    }
                ],
            },
        }
    )
    try:
        wait_for("the vendor's devices", lambda: kube.node_has("node-1", RESOURCE)[0] == len(devices), seconds=60)
        yield
    finally:
        kube("delete", "pod", name, "--ignore-not-found", "--grace-period=0", "--force", "--wait=true")
