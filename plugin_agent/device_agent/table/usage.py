"""Which ids may be in use, from the two things the kubelet lets an agent know.

The device plugin API has no release call, so "free" is a conclusion: an id becomes used only by an Allocate that
this agent answers (or that an earlier agent answered, which the first List tells), and it is free again once a
PodResources List begun later does not show it. List is eventually consistent, and plain init containers are never
in it (pkg/kubelet/apis/podresources, contract 3): an id that was handed out counts as used until a List has shown
it, or one that was begun an hour later has not. So nothing is ever free because time went by alone.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from device_agent.table.holders import Holder, Holders

UNSEEN_SECONDS: Final = 3600.0
"""How long an id that was handed out and never appeared in a List counts as used."""

_NOBODY: Final[tuple[Holder, ...]] = ()
_NONE: Final[Mapping[str, tuple[Holder, ...]]] = {}


class Ledger:
    """The last List, the Allocates in flight, and the hand-outs that no List has shown yet. Times are monotonic."""

    def __init__(self) -> None:
        self.known = False
        """Whether the last question to PodResources was answered."""
        self.begun: float | None = None
        """When the List whose answer counts was begun."""
        self._holders: Holders = {}
        self._tickets: dict[int, tuple[str, tuple[str, ...]]] = {}
        self._last_ticket = 0
        self._in_flight: Counter[tuple[str, str]] = Counter()
        self._unseen: dict[tuple[str, str], float] = {}

    def listed(self, holders: Holders | None, *, begun: float) -> None:
        """One answer of List, or None for no answer. One that was begun before the last answer says nothing new."""
        if holders is None:
            self.known = False
            return
        if self.begun is not None and begun < self.begun:
            return
        self.known, self.begun, self._holders = True, begun, holders
        for key, handed_out in list(self._unseen.items()):
            # a List begun before the hand-out may show the holder before this one
            seen = handed_out <= begun and self.holders_of(*key)
            if seen or begun - handed_out >= UNSEEN_SECONDS:
                del self._unseen[key]

    def begin(self, resource: str, ids: Iterable[str]) -> int:
        self._last_ticket += 1
        keys = tuple(dict.fromkeys(ids))
        self._tickets[self._last_ticket] = (resource, keys)
        self._in_flight.update((resource, i) for i in keys)
        return self._last_ticket

    def end(self, ticket: int, *, now: float, handed_out: bool) -> None:
        """Ends an Allocate; a ticket that is not open any more is left alone."""
        resource, ids = self._tickets.pop(ticket, ("", ()))
        for i in ids:
            key = (resource, i)
            self._in_flight[key] -= 1
            if self._in_flight[key] <= 0:
                del self._in_flight[key]
            if handed_out:
                self._unseen[key] = now

    def holders(self) -> Iterator[tuple[str, str]]:
        """(resource, id) of everything in the last List."""
        for resource, held in self._holders.items():
            for i, who in held.items():
                if who:
                    yield resource, i

    @property
    def answer(self) -> Holders:
        """The last List."""
        return self._holders

    def held(self, resource: str) -> Mapping[str, tuple[Holder, ...]]:
        return self._holders.get(resource, _NONE)

    def holders_of(self, resource: str, device_id: str) -> tuple[Holder, ...]:
        return self._holders.get(resource, _NONE).get(device_id, _NOBODY)

    def busy(self, resource: str, device_id: str) -> bool:
        """Whether the id may be in use. Before the first List every id may be."""
        key = (resource, device_id)
        return self.begun is None or key in self._in_flight or key in self._unseen or bool(self.holders_of(*key))

    def in_use(self, resource: str, device_id: str) -> bool:
        """Whether the id is in use by the last List, or was on its way there when that was begun."""
        key = (resource, device_id)
        handed_out = self._unseen.get(key)
        fresh = handed_out is not None and (self.begun is None or handed_out > self.begun)
        return fresh or key in self._in_flight or bool(self.holders_of(*key))

    def used(self) -> frozenset[tuple[str, str]]:
        """Every (resource, id) that is known to be in use or on its way there."""
        return frozenset(self.holders()) | frozenset(self._in_flight) | frozenset(self._unseen)
