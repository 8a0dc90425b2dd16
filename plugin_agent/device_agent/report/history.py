"""What happened to devices in the last days: a bounded ring of transitions, which the node store keeps. Pure.

The ring survives restarts of the agent and of the node. Its newest items stay: of one device, of planned ones, and in
all. A device that flaps, or is taken by one pod after the other, so pushes out neither other devices nor failures.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from device_agent.contract.inventory import HistoryState, InventoryTransition
from device_agent.contract.times import since_text
from device_agent.report.transitions import Key, Seen, Transition
from device_agent.store.section import Section

MAX_ITEMS: Final = 512
MAX_PLANNED: Final = 256
MAX_OF_DEVICE: Final = 16
MAX_PLANNED_OF_DEVICE: Final = 8
AGE: Final = timedelta(days=7)

MAX_ID: Final = 63
MAX_RESOURCE: Final = 320
MAX_REASON: Final = 128
"""Characters, as the CRD has them."""

_PLAN: Final = frozenset({HistoryState.HEALTHY, HistoryState.WITHHELD, None})

HISTORY: Final = Section(
    name="history",
    item=InventoryTransition,
    version=1,
    what="the devices' history",
    forgotten="it begins anew",
    max_bytes=2 * 1024 * 1024,
)


def bounded(items: Iterable[InventoryTransition], *, now: datetime) -> tuple[InventoryTransition, ...]:
    """The newest items, in their order: at most `MAX_ITEMS`, `MAX_OF_DEVICE` of each device, and none older than
    `AGE`. Of those, planned ones are at most `MAX_PLANNED` and `MAX_PLANNED_OF_DEVICE`.
    """
    oldest = since_text(now - AGE)
    of_device: Counter[Key] = Counter()
    planned_of_device: Counter[Key] = Counter()
    planned_items = 0
    taken: list[InventoryTransition] = []
    for item in reversed(tuple(items)):
        key = (item.resource, item.id)
        planned = item.from_ in _PLAN and item.to in _PLAN
        if planned and (planned_items >= MAX_PLANNED or planned_of_device[key] >= MAX_PLANNED_OF_DEVICE):
            continue
        if item.time < oldest or of_device[key] >= MAX_OF_DEVICE or len(taken) >= MAX_ITEMS:
            continue
        of_device[key] += 1
        planned_of_device[key] += planned
        planned_items += planned
        taken.append(item)
    return tuple(reversed(taken))


def joined(kept: Iterable[InventoryTransition], own: Iterable[InventoryTransition]) -> tuple[InventoryTransition, ...]:
    """What an earlier process kept, and what this one has found before it could read that.

    What this process found at its start without knowing more is no news if the earlier one left the device so.
    """
    kept = tuple(kept)
    last = {(item.resource, item.id): (item.to, item.reason) for item in kept}
    known = set(kept)
    new = (
        item
        for item in own
        if item not in known
        and not (item.from_ is None and last.get((item.resource, item.id)) == (item.to, item.reason))
    )
    return (*kept, *new)


class History:
    """The ring, as the node store's `Memory` and as the inventory shows it.

    `pace`: the shortest time, in seconds, between two writes to the disk. `clock`: monotonic seconds.
    """

    def __init__(self, *, pace: float, clock: Callable[[], float]) -> None:
        self._pace = pace
        self._clock = clock
        self._items: tuple[InventoryTransition, ...] = ()
        self._last: dict[Key, tuple[Seen, datetime]] = {}
        self._changes = 0
        self._revision = 0
        self._next = 0.0
        """When the keeper may hear of further changes."""

    @property
    def revision(self) -> int:
        """Grows with changes of `items`, at most once in `pace`: a device that flaps must not wear out the disk."""
        if self._revision != self._changes and self._clock() >= self._next:
            self._next = self._clock() + self._pace
            self._revision = self._changes
        return self._revision

    @property
    def last(self) -> Mapping[Key, tuple[Seen, datetime]]:
        """The last known state of each device in the ring, and since when."""
        return self._last

    def items(self) -> tuple[InventoryTransition, ...]:
        """What to keep, the newest at the end."""
        return self._items

    def recent(self, now: datetime) -> tuple[InventoryTransition, ...]:
        """What to show."""
        return bounded(self._items, now=now)

    def add(self, transitions: Iterable[Transition], *, now: datetime) -> None:
        """Takes the real ones."""
        new = [_item(t) for t in transitions if t.real]
        if new:
            self._replace((*self._items, *sorted(new, key=lambda item: item.time)), now=now)

    def release(self) -> None:
        """The process ends: everything is to be kept now."""
        self._next = 0.0

    def restore(self, own: tuple[InventoryTransition, ...], *, late: bool, now: float, wall: datetime) -> None:  # noqa: ARG002
        """What an earlier process of this object kept."""
        self._replace(joined(filter(_valid, own), self._items), now=wall)

    def learn(self, others: tuple[InventoryTransition, ...], *, now: float, wall: datetime) -> None:
        """Other objects' agents keep their own."""

    def _replace(self, items: tuple[InventoryTransition, ...], *, now: datetime) -> None:
        items = bounded(items, now=now)
        if items == self._items:
            return
        self._items = items
        self._changes += 1
        self._last = {(i.resource, i.id): (Seen(i.to, i.reason), datetime.fromisoformat(i.time)) for i in items}


def _item(transition: Transition) -> InventoryTransition:
    return InventoryTransition(
        time=since_text(transition.time),
        resource=transition.resource,
        id=transition.id,
        from_=transition.before.state if transition.before is not None else None,
        to=transition.after.state,
        reason=transition.after.reason,
    )


def _valid(item: InventoryTransition) -> bool:
    """Whether the API server takes it. It would refuse the whole inventory for a file that somebody has edited."""
    try:
        time = since_text(datetime.fromisoformat(item.time).astimezone(UTC))
    except (ValueError, OverflowError):
        return False
    return (
        time == item.time
        and 0 < len(item.id) <= MAX_ID
        and 0 < len(item.resource) <= MAX_RESOURCE
        and len(item.reason) <= MAX_REASON
    )
