"""What the kubelet demands of a plugin's messages: what it refuses, and what it accepts although it does harm.

These rules are apart from the stand-in because they belong to the contract, not to a kubelet's state. Each looks at one
message alone.
"""

import re
from collections.abc import Iterator, Mapping

from device_agent.kubelet.proto import deviceplugin_pb2 as dp

_NAME_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def refusal(request: dp.RegisterRequest) -> str:
    """The text with which Register refuses the request, or ''."""
    if request.version != "v1beta1":
        return (
            f'requested API version "{request.version}" is not supported by kubelet. Supported version is ["v1beta1"]'
        )
    if not extended_resource(request.resource_name):
        return f'the ResourceName "{request.resource_name}" is invalid'
    return ""


def extended_resource(name: str) -> bool:
    """IsExtendedResourceName of kubernetes pkg/apis/core/v1/helper."""
    domain, slash, part = name.partition("/")
    return bool(
        slash
        and "kubernetes.io/" not in name
        and not name.startswith("requests.")
        and len(domain) <= 253 - len("requests.")
        and _DOMAIN.fullmatch(domain)
        and _NAME_PART.fullmatch(part)
    )


def devices(answer: dp.ListAndWatchResponse) -> Mapping[str, tuple[str, tuple[int, ...]]]:
    """Id -> (health, NUMA nodes), as the kubelet reads a list."""
    return {d.ID: (d.health, tuple(node.ID for node in d.topology.nodes)) for d in answer.devices}


def list_violations(name: str, answer: dp.ListAndWatchResponse) -> Iterator[str]:
    """Errors of a list by itself that the kubelet does not report."""
    seen: set[str] = set()
    for device in answer.devices:
        if device.ID in seen:
            yield f"{name}: id {device.ID} twice in one list"
        seen.add(device.ID)
        if len(device.ID) > 63:
            yield f"{name}: id {device.ID} is longer than 63 characters"
        if device.health not in ("Healthy", "Unhealthy"):
            yield f"{name}: health {device.health!r}"
        if any(node.ID < 0 for node in device.topology.nodes):
            yield f"{name}: {device.ID} is on NUMA node -1"
