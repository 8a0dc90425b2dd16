"""Devices and their standing, as values. Only the table (`device_table`) replaces them."""

from datetime import datetime

from device_agent.contract.document import Resource
from device_agent.contract.inventory import Identity
from device_agent.contract.values import dataclass
from device_agent.select.unit import Grants, Unit
from device_agent.table.snapshot import Health, Hold

Key = tuple[str, str]
"""(resource name, device id)."""


@dataclass(frozen=True, slots=True)
class Device:
    """One unit under one resource name. `present`: the last selection has it. `exclusive`: nobody else may have its
    hardware. `kept_until`: monotonic seconds; a device that vanished stays listed at least until then. `removed_by`:
    the edit by which its entry no longer selects it, for an admin, or ''.
    """

    unit: Unit
    present: bool = True
    exclusive: bool = True
    kept_until: float = 0.0
    removed_by: str = ""

    @property
    def never_found(self) -> bool:
        """No scan of this process has found it.

        List or the kubelet's record shows its id in use. The note in the record may say which hardware it is.
        """
        return not self.present and not self.kept_until

    @property
    def ghost(self) -> bool:
        """Only its id is known: the kubelet shows it in use, without a note, and no scan has found it."""
        return not self.unit.source


@dataclass(frozen=True, slots=True)
class Standing:
    """How a device is, and whether it is offered. These are two things: a device may be Healthy and withheld.

    `reason`, `message`: why it is not Healthy. `since`: when its health, reason or hold began, UTC. `unanswered`: why
    its last check gave no answer, or ''. `hold`: why it is withheld, None if it is not. `kept_back`: ids of an offered
    device that are not offered now.
    """

    health: Health
    since: datetime
    reason: str = ""
    message: str = ""
    unanswered: str = ""
    hold: Hold | None = None
    kept_back: frozenset[str] = frozenset()

    @property
    def offered(self) -> bool:
        """The one bit that the kubelet knows."""
        return self.health is Health.HEALTHY and self.hold is None


def ghost(entry: Resource, resource: str, device_id: str) -> Unit:
    """The unit of a device that List or the record shows in use and no scan has found. Only its id is known."""
    return Unit(
        entry=entry.name,
        resource=resource,
        id=device_id,
        value=device_id,
        identity=Identity.VOLATILE,
        source="",
        attributes={},
        nodes=(),
        grants=Grants(),
        hardware=(),
    )


def split_replica(device_id: str) -> tuple[str, int]:
    """(device id, index of the replica): undoes `names.replica_id`. Index 0 if the id shows no replica."""
    device, separator, index = device_id.rpartition("::")
    if separator and device and index.isascii() and index.isdecimal():
        return device, int(index)
    return device_id, 0
