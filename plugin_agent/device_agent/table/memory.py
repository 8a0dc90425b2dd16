"""What the node store keeps of the device table: health, the grants seen last, cordons. Pure."""

from collections.abc import Callable
from datetime import datetime
from typing import Generic, TypeVar

from device_agent.health.memory import lasting
from device_agent.health.watchlist import Record
from device_agent.table.cordons import Cordon
from device_agent.table.device_table import DeviceTable
from device_agent.table.grants import SeenGrant

T = TypeVar("T")
Changed = Callable[[frozenset[str]], None]
"""Gets the names whose list changed, as every event of the table gives them."""


class HealthMemory:
    """What the table knows of the devices' health."""

    def __init__(self, table: DeviceTable, *, changed: Changed) -> None:
        self._table = table
        self._changed = changed
        self._learnt: frozenset[Record] = frozenset()

    @property
    def revision(self) -> int:
        """Grows with each change of `items`."""
        return self._table.health_revision

    def items(self) -> tuple[Record, ...]:
        """What to keep, in a fixed order."""
        return lasting(self._table.health_records())

    def restore(self, own: tuple[Record, ...], *, late: bool, now: float, wall: datetime) -> None:
        """Health that an earlier process knew. If it comes late, only failures of parts count; everything else has been
        checked anew.
        """
        if late:
            self._changed(self._table.inherit(own, now=now, wall=wall))
        else:
            self._table.restore_health(own)

    def learn(self, others: tuple[Record, ...], *, now: float, wall: datetime) -> None:
        """Health of physical parts that other objects' agents knew. Some of it may come later."""
        new = tuple(record for record in others if record not in self._learnt)
        self._learnt = frozenset(others)
        self._changed(self._table.inherit(new, now=now, wall=wall))


class _Kept(Generic[T]):
    """What the table gives anew after each change: the revision is counted here."""

    def __init__(self, table: DeviceTable, *, changed: Changed) -> None:
        self._table = table
        self._changed = changed
        self._last: tuple[T, ...] = ()
        self._revision = 0

    @property
    def revision(self) -> int:
        """Grows with each change of `items`."""
        items = self.items()
        if items is not self._last and items != self._last:
            self._revision += 1
        self._last = items
        return self._revision

    def items(self) -> tuple[T, ...]:
        """What to keep, in a fixed order."""
        raise NotImplementedError


class GrantMemory(_Kept[SeenGrant]):
    """What the kubelet's record had last: it counts when the record cannot be read, or the kubelet has lost it."""

    def items(self) -> tuple[SeenGrant, ...]:
        """What to keep, in a fixed order."""
        return self._table.seen_grants()

    def restore(self, own: tuple[SeenGrant, ...], *, late: bool, now: float, wall: datetime) -> None:  # noqa: ARG002
        """What an earlier process of this object kept."""
        self._changed(self._table.restore_grants(own, now=now, wall=wall))

    def learn(self, others: tuple[SeenGrant, ...], *, now: float, wall: datetime) -> None:
        """What other objects' agents know about grants: names of pods, and our devices in grants without a note. The
        grants themselves are in the kubelet's record.
        """
        self._changed(self._table.learn_grants(others, now=now, wall=wall))


class CordonMemory(_Kept[Cordon]):
    """What admins withhold: it counts when the API server does not answer, and for the agents of other objects."""

    def items(self) -> tuple[Cordon, ...]:
        """What to keep, in a fixed order."""
        return self._table.cordons.kept

    def restore(self, own: tuple[Cordon, ...], *, late: bool, now: float, wall: datetime) -> None:  # noqa: ARG002
        """What an earlier process of this object kept."""
        self._changed(self._table.restore_cordons(own, now=now, wall=wall))

    def learn(self, others: tuple[Cordon, ...], *, now: float, wall: datetime) -> None:
        """What other objects' agents keep now."""
        self._changed(self._table.learn_cordons(others, now=now, wall=wall))
