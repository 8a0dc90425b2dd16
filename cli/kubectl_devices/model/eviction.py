"""What a drain does with each pod that holds a device. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

_MIRROR: Final = "kubernetes.io/config.mirror"


class Verdict(StrEnum):
    """EVICT: by the eviction API. GONE: nothing to do. STATIC, UNMANAGED: the user has to decide."""

    EVICT = "evict"
    GONE = "gone"
    STATIC = "static"
    UNMANAGED = "unmanaged"


@dataclass(frozen=True, slots=True)
class HolderPod:
    namespace: str
    name: str
    verdict: Verdict

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"


def judged(namespace: str, name: str, pod: Mapping[str, Any] | None) -> HolderPod:
    """`pod`: None if there is none any more. A pod without a controller does not come back after its eviction."""
    if pod is None or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return HolderPod(namespace, name, Verdict.GONE)
    meta = pod["metadata"]
    if _MIRROR in meta.get("annotations", {}):
        return HolderPod(namespace, name, Verdict.STATIC)
    if not any(owner.get("controller") for owner in meta.get("ownerReferences") or ()):
        return HolderPod(namespace, name, Verdict.UNMANAGED)
    return HolderPod(namespace, name, Verdict.EVICT)


def objections(pods: Iterable[HolderPod], *, force: bool) -> tuple[str, ...]:
    """Why the drain does not begin, one line for each pod."""
    found = []
    for pod in pods:
        if pod.verdict is Verdict.STATIC:
            found.append(f"{pod.title} is a static pod: remove its file on the node")
        elif pod.verdict is Verdict.UNMANAGED and not force:
            found.append(f"{pod.title} has no controller and would not come back: use --force to end it all the same")
    return tuple(found)
