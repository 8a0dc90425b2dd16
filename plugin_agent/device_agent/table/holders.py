"""Who holds which device, by one answer of the kubelet's PodResources service. Only values."""

import dataclasses
from collections.abc import Mapping
from dataclasses import field

from device_agent.contract.values import dataclass


@dataclasses.dataclass(frozen=True, slots=True, order=True)  # the one of contract.values has no order
class Holder:
    """One container that has a device. PodResources gives no pod uid: a pod of the same name may be another one."""

    namespace: str
    pod: str
    container: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}"


Holders = Mapping[str, Mapping[str, tuple[Holder, ...]]]
"""Resource name -> device id -> the containers that have it. Plain init containers never appear in it."""


@dataclass(frozen=True, slots=True)
class Listing:
    """One answer. `pods`: (namespace, name) of every pod that the kubelet runs, with devices or without."""

    holders: Holders = field(default_factory=dict)
    pods: frozenset[tuple[str, str]] = frozenset()
