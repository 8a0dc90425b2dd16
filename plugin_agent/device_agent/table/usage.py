"""Which ids may be in use. The kubelet shows it in three ways: Allocate, PodResources List, and its own record. Pure.

The device plugin API has no release call, so the agent has to conclude that an id is free. An id may be in use in three
cases: the record has it (`table.grants`); List shows it; or Allocate handed it out and neither has shown it since. None
of the three sources is complete:

- List leaves out plain init containers (pkg/kubelet/apis/podresources). Their pod keeps the ids that no other container
  of it uses again.
- The record has ids of ended pods until List was asked and then any plugin sent a device list. Even then the record may
  have an older state for a moment: the kubelet copies its state before it takes the lock for writing
  (devicemanager/manager.go, writeCheckpoint).
- If a pod is rejected because of another resource, only the kubelet's memory has its ids.

So an id is free when a List lacks it, and the record, read at least SETTLE_SECONDS later, lacks it too. For an id that
has never appeared, one of our lists must have been sent in between: the kubelet writes its record after each list. The
wait has a second reason. After a forced deletion, List and record can lack an id while its process still runs for a
second or two.

If there is no record, an id that has appeared is free when two Lists, SETTLE_SECONDS apart, lack it. An id that never
appeared stays in use until there is a record again. Time alone never makes an id free.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Final, NamedTuple

from device_agent.contract.values import dataclass
from device_agent.table.device import Key
from device_agent.table.grants import Grant, Granted, Grants
from device_agent.table.holders import Holder, Holders, Listing

NOT_READ: Final = "it has not been read yet"

SETTLE_SECONDS: Final = 2.0
"""Between the List that shows an id free and the look that confirms it."""

_NOBODY: Final[tuple[Holder, ...]] = ()
_NONE: Final[Mapping[str, tuple[Holder, ...]]] = {}
_NO_LISTING: Final = Listing()
_NO_GRANTS: Final = Grants()


class Doubt(NamedTuple):
    """An id that neither List nor record shows, and that may still be in use. Times are monotonic seconds.

    `last`: when it was handed out, or last shown. `shown`: it has been in List or record. `granted`: its device, if
    this process handed it out. `lacking`: start of the first List after `last` that does not show the id.
    """

    last: float
    shown: bool
    granted: Granted | None = None
    lacking: float | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What the kubelet has shown. Times are monotonic seconds. No event comes while an Allocate is answered.

    `known`: the last question to PodResources was answered.
    `listing`: the newest answer of List. `begun`: when it was asked for.
    `grants`: of the last record that could be read. `recorded`: when this content was first read.
    `problem`: why the record cannot be read now, or ''.
    `doubts`: ids that may be in use although neither List nor the record shows them.
    `lost`: what running pods have although the kubelet has forgotten it (`forgotten`).
    `names`: uid of a pod -> its namespace and name, if a List has shown them.
    `past`: grants that the record no longer has, of ids that are not free yet.
    """

    known: bool = False
    begun: float | None = None
    listing: Listing = _NO_LISTING
    grants: Grants = _NO_GRANTS
    recorded: float | None = None
    problem: str = NOT_READ
    doubts: Mapping[Key, Doubt] = field(default_factory=dict)
    lost: Grants = _NO_GRANTS
    names: Mapping[str, str] = field(default_factory=dict)
    past: Grants = _NO_GRANTS

    # Events

    def listed(self, listing: Listing | None, *, begun: float) -> "Usage":
        """After one answer of List, asked for at `begun`. None: no answer. An answer that is older than the last one
        says nothing new.
        """
        if listing is None:
            return replace(self, known=False)
        if self.begun is not None and begun < self.begun:
            return self
        listing = self.listing if listing == self.listing else listing
        after = replace(self, known=True, begun=begun, listing=listing)
        last = max(self.begun or 0.0, self.recorded or 0.0)
        gone = (key for key in self.listed_keys() if not after.shown(key))
        doubts = {**{key: Doubt(last, shown=True) for key in gone}, **self.doubts}
        return after.with_doubts(doubts, read=None, resent=None).keeping(())

    def read(self, grants: Grants, *, at: float, resent: float | None) -> "Usage":
        """After the record was read. `at`: when the reading began. `resent`: when one of our lists was last sent."""
        grants = self.grants if grants == self.grants else grants
        # the same content, read again, says nothing new
        same = grants is self.grants and self.recorded is not None and not self.problem
        after = replace(self, grants=grants, recorded=self.recorded if same else at, problem="")
        gone = (key for key in self.grants.by_key if not after.shown(key)) if grants is not self.grants else ()
        doubts = {**{key: Doubt(self.recorded or at, shown=True) for key in gone}, **self.doubts}
        before = self.grants.all if grants is not self.grants else ()
        return after.with_doubts(doubts, read=at, resent=resent).keeping(before)

    def unreadable(self, problem: str) -> "Usage":
        """The record is there and cannot be used. What it said last counts until it can be read again."""
        return replace(self, problem=problem) if problem != self.problem else self

    def restored(self, grants: Grants) -> "Usage":
        """With the grants that an earlier process of this agent knew. They count until the record has been read."""
        return replace(self, grants=grants) if self.recorded is None else self

    def handed_out(self, given: Iterable[tuple[Key, Granted]], *, now: float) -> "Usage":
        """After an Allocate gave out these ids."""
        doubts = {**self.doubts, **{key: Doubt(now, shown=False, granted=granted) for key, granted in given}}
        # a pod waits: `replace` takes five times as long
        return Usage(
            self.known,
            self.begun,
            self.listing,
            self.grants,
            self.recorded,
            self.problem,
            doubts,
            self.lost,
            self.names,
            self.past,
        )

    def with_doubts(self, doubts: Mapping[Key, Doubt], *, read: float | None, resent: float | None) -> "Usage":
        """With those of the doubts that are still open. `read`: when the record was read, None: it was not."""
        left: dict[Key, Doubt] = {}
        for key, doubt in doubts.items():
            if not self._settled_as_used(key, doubt):
                after = self._lacking(key, doubt)
                if not self._free(key, after, read=read, resent=resent):
                    left[key] = after
        return self if left == self.doubts else replace(self, doubts=left)

    def keeping(self, before: tuple[Grant, ...]) -> "Usage":
        """With `past` set: grants that left the record, of ids that are not free yet. `before`: the record's grants
        before this reading.
        """
        there, left = self.grants.by_key, (*self.past.all, *before)
        kept = tuple(
            grant
            for grant in left
            if any(key not in there and (key in self.doubts or self._in_list(key)) for key in grant.keys)
        )
        return self if kept == self.past.all else replace(self, past=Grants(kept))

    def _lacking(self, key: Key, doubt: Doubt) -> Doubt:
        new = doubt.lacking is None and self.begun is not None and self.begun > doubt.last and not self._in_list(key)
        return doubt._replace(lacking=self.begun) if new else doubt

    def _settled_as_used(self, key: Key, doubt: Doubt) -> bool:
        """Whether the kubelet has shown the id since."""
        listed = self._in_list(key) and self.begun is not None and self.begun >= doubt.last
        return listed or (key in self.grants.by_key and self.recorded is not None and self.recorded >= doubt.last)

    def _free(self, key: Key, doubt: Doubt, *, read: float | None, resent: float | None) -> bool:
        if doubt.lacking is None or self.shown(key):
            return False
        if not self.problem:
            sent = doubt.lacking if doubt.shown else resent
            return read is not None and sent is not None and doubt.lacking <= sent <= read - SETTLE_SECONDS
        return doubt.shown and self.begun is not None and self.begun >= doubt.lacking + SETTLE_SECONDS

    # Answers

    @property
    def holders(self) -> Holders:
        """Of the last List."""
        return self.listing.holders

    def listed_keys(self) -> Iterator[Key]:
        """Everything in the last List."""
        for resource, held in self.holders.items():
            for i, who in held.items():
                if who:
                    yield resource, i

    def held_keys(self) -> Iterator[Key]:
        """Everything that the last List or the record shows, each once."""
        yield from dict.fromkeys((*self.listed_keys(), *self.grants.by_key))

    def held(self, resource: str) -> Mapping[str, tuple[Holder, ...]]:
        """Id -> its holders in the last List."""
        return self.holders.get(resource, _NONE)

    def holders_of(self, resource: str, device_id: str) -> tuple[Holder, ...]:
        """Holders of one id in the last List."""
        return self.holders.get(resource, _NONE).get(device_id, _NOBODY)

    def who(self, resource: str, device_id: str) -> tuple[str, ...]:
        """For an admin: the pods that have the id, by name if List has shown it."""
        if named := self.holders_of(resource, device_id):
            return tuple(str(holder) for holder in named)
        key = (resource, device_id)
        return self._pods(self.grants.by_key.get(key) or self.past.by_key.get(key) or self.lost.by_key.get(key, ()))

    def forgotten_holders(self, resource: str, device_id: str) -> tuple[str, ...]:
        """For an admin: the pods that have the id without the kubelet's knowledge."""
        return self._pods(self.lost.by_key.get((resource, device_id), ()))

    def shown(self, key: Key) -> bool:
        """Whether the last List or the record has the id."""
        return self._in_list(key) or key in self.grants.by_key

    def busy(self, resource: str, device_id: str) -> bool:
        """Whether the id may be in use. Before the first List every id may be."""
        return self.begun is None or self.may_be_held(resource, device_id)

    def may_be_held(self, resource: str, device_id: str) -> bool:
        """Whether the kubelet, an Allocate, or a grant that the kubelet forgot shows the id in use."""
        key = (resource, device_id)
        return key in self.doubts or key in self.lost.by_key or self.shown(key)

    def in_use(self, resource: str, device_id: str) -> bool:
        """Whether the kubelet shows the id in use, or it was handed out after the last List was begun."""
        key = (resource, device_id)
        doubt = self.doubts.get(key)
        fresh = doubt is not None and not doubt.shown and (self.begun is None or doubt.last > self.begun)
        return fresh or self.shown(key)

    def used(self) -> frozenset[Key]:
        """All ids that are or may be in use, of those that List, the record or an Allocate has named."""
        return frozenset(self.held_keys()).union(self.doubts, self.lost.by_key)

    def granted(self, key: Key) -> Granted | None:
        """Which device an id was when it was given away."""
        doubt = self.doubts.get(key)
        return (doubt.granted if doubt else None) or self.grants.of(key) or self.past.of(key) or self.lost.of(key)

    def given(self) -> Iterator[tuple[Key, Granted]]:
        """What is known of the ids that are or may be in use, in the order of the ids."""
        for key in sorted(self.used()):
            granted = self.granted(key)
            if granted is not None:
                yield key, granted

    @property
    def looked(self) -> bool:
        """Whether the record was read, or could not be."""
        return self.problem != NOT_READ

    @property
    def left_over(self) -> frozenset[Key]:
        """Ids in the record that the last List lacks: of ended pods until the next write, or of init containers."""
        return frozenset(key for key in self.grants.by_key if not self._in_list(key))

    def _pods(self, grants: Iterable[Grant]) -> tuple[str, ...]:
        names = (self.names.get(grant.pod, f"the pod with uid {grant.pod}") for grant in grants)
        return tuple(dict.fromkeys(names))

    def _in_list(self, key: Key) -> bool:
        return bool(self.holders_of(*key))
