"""Which ids may be in use, from the two things the kubelet lets an agent know. Pure.

The device plugin API has no release call, so "free" is a conclusion: an id becomes used only by an Allocate that
this agent answers (or that an earlier agent answered, which the first List tells), and it is free again once a
PodResources List begun later does not show it. List is eventually consistent, and plain init containers are never
in it (pkg/kubelet/apis/podresources, contract 3): an id that was handed out counts as used until a List has shown
it, or one that was begun an hour later has not. So nothing is ever free because time went by alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Final

from device_agent.contract.values import dataclass
from device_agent.table.device import Key
from device_agent.table.holders import Holder, Holders

UNSEEN_SECONDS: Final = 3600.0
"""How long an id that was handed out and never appeared in a List counts as used."""

_NOBODY: Final[tuple[Holder, ...]] = ()
_NONE: Final[Mapping[str, tuple[Holder, ...]]] = {}


@dataclass(frozen=True, slots=True)
class Usage:
    """The last List, the Allocates in flight, and the hand-outs that no List has shown yet. Times are monotonic.

    `known`: the last question to PodResources was answered. `begun`: when the List whose answer counts was begun.
    `in_flight`: ticket -> what that Allocate asks for; there is seldom more than one. `unseen`: when it was handed out.
    """

    known: bool = False
    begun: float | None = None
    holders: Holders = field(default_factory=dict)
    last_ticket: int = 0
    in_flight: Mapping[int, frozenset[Key]] = field(default_factory=dict)
    unseen: Mapping[Key, float] = field(default_factory=dict)

    # Events

    def listed(self, holders: Holders | None, *, begun: float) -> "Usage":
        """After one answer of List, or None for no answer. One begun before the last answer says nothing new."""
        if holders is None:
            return replace(self, known=False)
        if self.begun is not None and begun < self.begun:
            return self
        after = replace(self, known=True, begun=begun, holders=holders)
        # a List begun before the hand-out may show the holder before this one
        unseen = {
            key: handed_out
            for key, handed_out in self.unseen.items()
            if begun - handed_out < UNSEEN_SECONDS and not (handed_out <= begun and after.holders_of(*key))
        }
        return replace(after, unseen=unseen)

    def begin(self, resource: str, ids: Iterable[str]) -> "Usage":
        """An Allocate is being answered; its ticket is `last_ticket` of the result."""
        ticket = self.last_ticket + 1
        asked = frozenset((resource, i) for i in ids)
        return replace(self, last_ticket=ticket, in_flight={**self.in_flight, ticket: asked})

    def end(self, ticket: int, *, now: float, handed_out: bool) -> "Usage":
        """That Allocate is answered; a ticket that is not open any more changes nothing."""
        asked = self.in_flight.get(ticket)
        if asked is None:
            return self
        in_flight = {other: keys for other, keys in self.in_flight.items() if other != ticket}
        unseen = {**self.unseen, **dict.fromkeys(asked, now)} if handed_out else self.unseen
        return replace(self, in_flight=in_flight, unseen=unseen)

    # Answers

    def held_keys(self) -> Iterator[Key]:
        """Everything in the last List."""
        for resource, held in self.holders.items():
            for i, who in held.items():
                if who:
                    yield resource, i

    def held(self, resource: str) -> Mapping[str, tuple[Holder, ...]]:
        """Id -> its holders in the last List."""
        return self.holders.get(resource, _NONE)

    def holders_of(self, resource: str, device_id: str) -> tuple[Holder, ...]:
        """Holders of one id in the last List."""
        return self.holders.get(resource, _NONE).get(device_id, _NOBODY)

    def busy(self, resource: str, device_id: str) -> bool:
        """Whether the id may be in use. Before the first List every id may be."""
        key = (resource, device_id)
        return self.begun is None or key in self.unseen or bool(self.holders_of(*key)) or self._flies(key)

    def in_use(self, resource: str, device_id: str) -> bool:
        """Whether the id is in use by the last List, or was on its way there when that was begun."""
        key = (resource, device_id)
        handed_out = self.unseen.get(key)
        fresh = handed_out is not None and (self.begun is None or handed_out > self.begun)
        return fresh or bool(self.holders_of(*key)) or self._flies(key)

    def used(self) -> frozenset[Key]:
        """Everything that is known to be in use or on its way there."""
        return frozenset(self.held_keys()).union(self.unseen, *self.in_flight.values())

    def _flies(self, key: Key) -> bool:
        return any(key in asked for asked in self.in_flight.values())
