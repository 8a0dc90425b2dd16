"""Claims: under which names and ids hardware was offered, kept on the node for later agents. Pure.

A pod holds hardware under the name and id that were valid when it was admitted. PodResources tells only these two.
After an edit and a restart these two no longer identify the hardware. So each agent writes a claim before it offers a
device. At its start it reads its own claims and those of other objects' agents. A claim alone blocks nothing: it counts
only while PodResources lists one of its ids.
"""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import Final, NamedTuple, TypeVar

from device_agent.contract.inventory import Identity
from device_agent.contract.names import MAX_ID, MAX_IDS, replica_id
from device_agent.contract.values import dataclass
from device_agent.select.unit import Grants, Unit
from device_agent.store.section import Others, Section
from device_agent.table.device import Key, split_replica
from device_agent.table.usage import UNSEEN_SECONDS, Usage

FORGET_SECONDS: Final = UNSEEN_SECONDS
"""A claim that is no longer offered is kept at least this long. Then the next List that shows it free ends it."""
CROWD: Final = 20_000
"""With more claims than this, those no longer offered are forgotten without the wait: each plug may bring new names.
"""

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Claim:
    """Hardware that was offered as a device of a resource. The fields are those of `select.unit.Unit`.

    `replicas`: the most that it ever had; their ids follow from `id`. `exclusive`: while it is in use, the hardware is
    not offered under another name or id.
    """

    resource: str
    id: str
    entry: str
    value: str
    identity: Identity
    source: str
    hardware: tuple[str, ...]
    exclusive: bool
    replicas: int
    parts: tuple[str, ...] = ()
    numa_node: int | None = None

    @classmethod
    def of(cls, unit: Unit, *, exclusive: bool) -> "Claim":
        return cls(
            resource=unit.resource,
            id=unit.id,
            entry=unit.entry,
            value=unit.value,
            identity=unit.identity,
            source=unit.source,
            hardware=unit.hardware,
            exclusive=exclusive,
            replicas=unit.replicas,
            parts=unit.parts,
            numa_node=unit.numa_node,
        )

    @property
    def key(self) -> Key:
        return self.resource, self.id

    def tells(self, unit: Unit, *, exclusive: bool) -> bool:
        """Whether the claim already describes this unit."""
        return (
            self.hardware == unit.hardware
            and self.replicas >= unit.replicas
            and self.exclusive == exclusive
            and (self.entry, self.value, self.identity, self.source, self.parts, self.numa_node)
            == (unit.entry, unit.value, unit.identity, unit.source, unit.parts, unit.numa_node)
        )

    def with_replicas_of(self, other: "Claim | None") -> "Claim":
        """The claim with the higher number of replicas of the two: pods may hold ids of both."""
        more = other is not None and other.replicas > self.replicas
        return replace(self, replicas=other.replicas) if other and more else self

    def unit(self, *, entry: str) -> Unit:
        """The claim as a unit that cannot be given to anybody."""
        return Unit(
            entry=entry,
            resource=self.resource,
            id=self.id,
            value=self.value,
            identity=self.identity,
            source=self.source,
            attributes={},
            nodes=(),
            grants=Grants(),
            hardware=self.hardware,
            numa_node=self.numa_node,
            parts=self.parts,
        )

    def replica(self, device_id: str) -> int | None:
        """The index of the replica with this id. None: no replica has it, or the id was cut and does not show it."""
        if device_id == self.id:
            return 0
        device, index = split_replica(device_id)
        return index if device == self.id and 0 < index < self.replicas and device_id == f"{device}::{index}" else None

    def cut_ids(self) -> Iterator[tuple[str, int]]:
        """(id, index) of its replicas whose id was cut for length, so that it does not show the device."""
        if len(f"{self.id}::{self.replicas}") > MAX_ID:
            for index in range(1, min(self.replicas, MAX_IDS)):
                if len(f"{self.id}::{index}") > MAX_ID:
                    yield replica_id(self.id, index), index


CLAIMS: Final = Section(
    name="claims",
    item=Claim,
    version=2,
    what="which hardware was offered under which ids",
    forgotten="hardware that a pod holds under a former name may be offered again",
    others=Others.ALWAYS,
    max_others=10_000,
)


class Found(NamedTuple):
    """The claim that has an id, and which of its replicas that is."""

    claim: Claim
    replica: int


@dataclasses.dataclass(frozen=True)
class Claims:
    """Claims of this object (`own`) and of other objects' agents on the node (`others`).

    `past`: since when an own claim is no longer offered, in monotonic seconds. `revision`: grows with each change of
    what is to be kept.
    """

    own: Mapping[Key, Claim] = field(default_factory=dict)
    others: Mapping[Key, Claim] = field(default_factory=dict)
    past: Mapping[Key, float] = field(default_factory=dict)
    revision: int = 0

    # What comes in

    def restore(self, claims: Iterable[Claim], *, now: float) -> "Claims":
        """Adds what an earlier process of this object kept. What is already known is newer and stays."""
        new = {claim.key: claim for claim in claims if claim.key not in self.own}
        return replace(self, own={**self.own, **new}, past={**self.past, **dict.fromkeys(new, now)}) if new else self

    def learn(self, others: Iterable[Claim]) -> "Claims":
        """Takes the claims of other objects. If two claim one device, the later counts, with the larger `replicas`."""
        found: dict[Key, Claim] = {}
        for claim in others:
            found[claim.key] = claim.with_replicas_of(found.get(claim.key))
        return replace(self, others=found) if found != self.others else self

    def take(self, claims: Iterable[Claim]) -> "Claims":
        """Takes over claims of another object, because this object lists their devices from now on."""
        new = {claim.key: claim for claim in claims if claim.key not in self.own}
        return replace(self, own={**self.own, **new}, revision=self.revision + 1) if new else self

    def offer(self, units: Iterable[Unit], *, exclusive: Collection[str]) -> "Claims":
        """Claims these devices; they are written to the disk before they are offered. `exclusive`: names of entries
        with exclusive devices.
        """
        new: dict[Key, Claim] = {}
        back: set[Key] = set()
        for unit in units:
            key = (unit.resource, unit.id)
            known, other = new.get(key) or self.own.get(key), self.others.get(key)
            if key in self.past:
                back.add(key)
            if known is not None and other is None and known.tells(unit, exclusive=unit.entry in exclusive):
                continue  # each scan comes here with all devices
            claim = Claim.of(unit, exclusive=unit.entry in exclusive).with_replicas_of(known).with_replicas_of(other)
            if claim != known:
                new[key] = claim
        if not new and not back:
            return self
        past = {key: since for key, since in self.past.items() if key not in back}
        own = {**self.own, **new} if new else self.own
        return replace(self, own=own, past=past, revision=self.revision + bool(new))

    def listed(self, keys: Collection[Key], *, now: float) -> "Claims":
        """Notes which devices are listed now. All other claims become past ones."""
        past = {key: self.past.get(key, now) for key in self.own if key not in keys}
        return replace(self, past=past) if past != self.past else self

    def forget(self, usage: Usage) -> "Claims":
        """Forgets past claims that the last List shows free."""
        if not self.past or not usage.known or usage.begun is None:
            return self
        crowd = len(self.past) > CROWD
        old = {key for key, since in self.past.items() if crowd or usage.begun - since >= FORGET_SECONDS}
        for name in {name for name, _ in old}:
            for i in usage.held(name):
                old.difference_update(found.claim.key for found in _matches(self.own, self._own_cut, name, i))
        if not old:
            return self
        return replace(self, own=_without(self.own, old), past=_without(self.past, old), revision=self.revision + 1)

    # Answers

    @cached_property
    def names(self) -> frozenset[str]:
        """Resource names that have a claim of any object."""
        return self.own_names.union(name for name, _ in self.others)

    @cached_property
    def own_names(self) -> frozenset[str]:
        """Resource names that this object has offered."""
        return frozenset(name for name, _ in self.own)

    def records(self) -> tuple[Claim, ...]:
        """The claims to keep on the node, in a fixed order."""
        return tuple(self.own[key] for key in sorted(self.own))

    def has_offered(self, resource: str, device_id: str) -> bool:
        """Whether this object has offered the id."""
        return any(_matches(self.own, self._own_cut, resource, device_id))

    def find(self, resource: str, device_id: str) -> Found | None:
        """The claim that says which hardware an id is, or None. Claims of this object come first."""
        if resource not in self.names:
            return None
        own = _matches(self.own, self._own_cut, resource, device_id)
        return next(own, None) or next(_matches(self.others, self._others_cut, resource, device_id), None)

    @cached_property
    def _own_cut(self) -> "_CutIds":
        return _cut_ids(self.own)

    @cached_property
    def _others_cut(self) -> "_CutIds":
        return _cut_ids(self.others)


_CutIds = Mapping[Key, Found]
"""Index of ids that were cut and do not show their device: (resource name, id) -> claim."""


def _cut_ids(claims: Mapping[Key, Claim]) -> _CutIds:
    found: dict[Key, Found] = {}
    for claim in claims.values():
        for i, index in claim.cut_ids():
            found.setdefault((claim.resource, i), Found(claim, index))
    return found


def _matches(claims: Mapping[Key, Claim], cut: _CutIds, resource: str, device_id: str) -> Iterator[Found]:
    """Every claim that has the id, the likeliest first."""
    for likely in dict.fromkeys((device_id, split_replica(device_id)[0])):
        claim = claims.get((resource, likely))
        index = claim.replica(device_id) if claim is not None else None
        if claim is not None and index is not None:
            yield Found(claim, index)
    if (resource, device_id) in cut:
        yield cut[resource, device_id]


def _without(entries: Mapping[Key, _Value], keys: Collection[Key]) -> dict[Key, _Value]:
    return {key: value for key, value in entries.items() if key not in keys}
