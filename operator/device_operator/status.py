"""What an object's status says: spec and observations in, the complete status out. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from device_operator.model import Identity, InventoryView, Notice, Observed
from device_operator.pools import Accepted, Assignment, Rejected
from device_operator.render import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSettings:
    """Durations in seconds. `max_bytes`: of the status as JSON."""

    settle: float = 300.0
    pod_stale: float = 60.0
    heartbeat_stale: float = 1500.0
    max_bytes: int = 384 * 1024


def was_accepted(obj: Mapping[str, Any]) -> bool:
    """Whether the object's present generation has been accepted, by its own status."""
    raise NotImplementedError


def compute(
    identity: Identity,
    *,
    generation: int,
    verdict: Accepted | Rejected,
    observed: Observed,
    previous: Mapping[str, Any],
    assigned: Assignment | None = None,
    manifests: Iterable[Manifest] = (),
    settings: StatusSettings | None = None,
) -> dict[str, Any]:
    """The complete status.

    `assigned` and `manifests`: of the accepted spec (`pools.assignment`, `render.render`); nothing when rejected.
    `previous`: the status as it stands, {} at first.
    """
    raise NotImplementedError


def transitions(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Notice, ...]:
    """Events for the conditions that changed between two statuses."""
    raise NotImplementedError


def health_transitions(old: Iterable[InventoryView], new: Iterable[InventoryView]) -> tuple[Notice, ...]:
    """Events for the devices whose health changed between two observations of an object's inventories."""
    raise NotImplementedError
