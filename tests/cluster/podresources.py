"""The kubelet's own list of who holds what: tests ask it, not the agent under test."""

import tempfile
from pathlib import Path

import grpc
from device_agent.kubelet.proto import podresources_pb2


def list_pods(socket: Path) -> set[str]:
    """Names of all pods that the kubelet has heard of and that have not ended, with devices or without."""
    return {pod.name for pod in _list(socket).pod_resources}


def list_held(socket: Path, *, resource: str) -> dict[str, list[str]]:
    """pod name -> ids of the resource, sorted, over all its containers."""
    held: dict[str, list[str]] = {}
    for pod in _list(socket).pod_resources:
        for container in pod.containers:
            for device in container.devices:
                if device.resource_name == resource:
                    held.setdefault(pod.name, []).extend(device.device_ids)
    return {name: sorted(ids) for name, ids in held.items()}


def _list(socket: Path) -> podresources_pb2.ListPodResourcesResponse:
    with tempfile.TemporaryDirectory(prefix="pr-") as short:  # a unix socket's path has at most 107 bytes
        link = Path(short) / "s"
        link.symlink_to(socket)
        with grpc.insecure_channel(f"unix:{link}", options=[("grpc.default_authority", "localhost")]) as channel:
            ask = channel.unary_unary(
                "/v1.PodResourcesLister/List",
                request_serializer=podresources_pb2.ListPodResourcesRequest.SerializeToString,
                response_deserializer=podresources_pb2.ListPodResourcesResponse.FromString,
            )
            return ask(podresources_pb2.ListPodResourcesRequest(), timeout=10)
