"""Which ids may be in use. The kubelet tells an agent two things: Allocate, and PodResources List. Pure.

The device plugin API has no release call, so "free" is a conclusion. An id is in use after an Allocate of this
agent, or of an earlier agent: these appear in the first List. It is free when a List begun later does not show it.

List is eventually consistent, and plain init containers never appear in it (pkg/kubelet/apis/podresources). So an id
that was handed out counts as used until a List shows it. If none does, it counts as used until a List begun an hour
later. Time alone never makes an id free.
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
    """The last List, and the hand-outs that no List has shown yet. Times are monotonic.

    `known`: the last question to PodResources was answered. `begun`: when the List whose answer counts was begun.
    `unseen`: ids that no List has shown yet -> when they were handed out.
    Nothing happens to the table while an Allocate is answered.
    """

    known: bool = False
    begun: float | None = None
    holders: Holders = field(default_factory=dict)
    unseen: Mapping[Key, float] = field(default_factory=dict)

    # Events

    def listed(self, holders: Holders | None, *, begun: float) -> "Usage":
        """The usage after one answer of List. None: no answer. An answer that was begun before the last one says
        nothing new.
        """
        if holders is None:
            return replace(self, known=False)
        if self.begun is not None and begun < self.begun:
            return self
        after = replace(self, known=True, begun=begun, holders=holders)
        # a List begun before the hand-out may still show the previous holder of the id
        unseen = {
            key: handed_out
            for key, handed_out in self.unseen.items()
            if begun - handed_out < UNSEEN_SECONDS and not (handed_out <= begun and after.holders_of(*key))
        }
        return replace(after, unseen=unseen)

    def handed_out(self, resource: str, ids: Iterable[str], *, now: float) -> "Usage":
        """The usage after an Allocate gave out these ids."""
        unseen = {**self.unseen, **dict.fromkeys([(resource, i) for i in ids], now)}
        # a pod waits: `replace` takes five times as long
        return Usage(known=self.known, begun=self.begun, holders=self.holders, unseen=unseen)

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
        return self.begun is None or key in self.unseen or bool(self.holders_of(*key))

    def in_use(self, resource: str, device_id: str) -> bool:
        """Whether the last List shows the id in use, or it was handed out after that List was begun."""
        key = (resource, device_id)
        handed_out = self.unseen.get(key)
        fresh = handed_out is not None and (self.begun is None or handed_out > self.begun)
        return fresh or bool(self.holders_of(*key))

    def used(self) -> frozenset[Key]:
        """All ids that are in use by the last List, or that no List has shown yet."""
        return frozenset(self.held_keys()).union(self.unseen)
