"""Under which names and ids hardware has been offered: what is kept on the node for later agents. Pure.

A pod holds hardware under the name and id of the day on which it was admitted, and PodResources says no more of it than
these two. After an edit and a restart nobody else would know which hardware that is. So the agent of an object writes
down what it is about to offer, and reads what it wrote before, and what the agents of other objects of the node did. A
claim by itself keeps nothing from anybody: it counts while PodResources lists one of its ids.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from device_agent.contract.codec import ShapeError, decode, encode
from device_agent.contract.names import replica_id
from device_agent.select.unit import Grants, Identity, Unit
from device_agent.table.device import split_replica
from device_agent.table.usage import UNSEEN_SECONDS, Ledger

VERSION: Final = 1
FORGET_SECONDS: Final = UNSEEN_SECONDS
"""A claim that is no longer offered is forgotten when a List that was begun this much later shows it free."""
CROWD: Final = 20_000
"""So many that are no longer offered are not waited for: names and ids may come and go with every plug."""

Key = tuple[str, str]
"""(resource name, device id)."""


class ClaimsError(ValueError):
    """What is kept cannot be read. The message is one line."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Hardware that was offered as a device of a resource; the fields are the unit's (`units.Unit`).

    `replicas`: the most that it had; their ids follow from `id`. `exclusive`: nobody else may have it meanwhile.
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
        """Whether it says of the unit what there is to say."""
        return (
            self.hardware == unit.hardware
            and self.replicas >= unit.replicas
            and self.exclusive == exclusive
            and (self.entry, self.value, self.identity, self.source, self.parts, self.numa_node)
            == (unit.entry, unit.value, unit.identity, unit.source, unit.parts, unit.numa_node)
        )

    def with_replicas_of(self, other: "Claim | None") -> "Claim":
        """It with the most that either had: pods may hold the ids of both."""
        more = other is not None and other.replicas > self.replicas
        return replace(self, replicas=other.replicas) if other and more else self

    def unit(self, *, entry: str) -> Unit:
        """It as a device of an entry that nobody can be given."""
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
        """Which of its replicas has the id, None when none has it."""
        return next((n for n in range(self.replicas) if replica_id(self.id, n) == device_id), None)


class Claims:
    """Those of this object, and those of others on the node. `revision` moves when what is to be kept does."""

    def __init__(self) -> None:
        self.revision = 0
        self.names: Collection[str] = frozenset()
        """Resource names that have any, whoever's."""
        self._own: dict[Key, Claim] = {}
        self._others: Mapping[Key, Claim] = {}
        self._past: dict[Key, float] = {}

    # What comes in

    def restore(self, claims: Iterable[Claim], *, now: float) -> None:
        """What an earlier process of this object kept; what is known already is newer."""
        for claim in claims:
            if claim.key not in self._own:
                self._own[claim.key] = claim
                self._past[claim.key] = now
        self._rename()

    def learn(self, others: Iterable[Claim]) -> None:
        """What other objects' agents keep now; of two for one device the later counts, with the replicas of both."""
        self._others = found = dict[Key, Claim]()
        for claim in others:
            found[claim.key] = claim.with_replicas_of(found.get(claim.key))
        self._rename()

    def take(self, claim: Claim) -> None:
        """A device of another object is listed by this one from now on, as its name is."""
        if claim.key not in self._own:
            self._own[claim.key] = claim
            self.revision += 1

    def offer(self, units: Iterable[Unit], *, exclusive: Collection[str]) -> None:
        """These devices are about to be offered, and are to be kept first. `exclusive`: names of such entries."""
        before = self.revision
        for unit in units:
            key = (unit.resource, unit.id)
            known, other = self._own.get(key), self._others.get(key)
            self._past.pop(key, None)
            if known is not None and other is None and known.tells(unit, exclusive=unit.entry in exclusive):
                continue  # each scan comes here with all devices
            claim = Claim.of(unit, exclusive=unit.entry in exclusive).with_replicas_of(known).with_replicas_of(other)
            if claim != known:
                self._own[key] = claim
                self.revision += 1
        if self.revision != before:
            self._rename()

    def listed(self, keys: Collection[Key], *, now: float) -> None:
        """The devices that are listed now; the others are of the past."""
        self._past = {key: self._past.get(key, now) for key in self._own if key not in keys}

    def forget(self, ledger: Ledger) -> None:
        """Those of the past which the last List shows free."""
        if not self._past or not ledger.known or ledger.begun is None:
            return
        before = self.revision
        crowd = len(self._past) > CROWD
        for key, since in list(self._past.items()):
            claim = self._own[key]
            if (crowd or ledger.begun - since >= FORGET_SECONDS) and not any(
                claim.replica(i) is not None for i in ledger.held(claim.resource)
            ):
                del self._own[key], self._past[key]
                self.revision += 1
        if self.revision != before:
            self._rename()

    # Answers

    def records(self) -> tuple[Claim, ...]:
        """What is to be kept."""
        return tuple(self._own[key] for key in sorted(self._own))

    def own(self, resource: str, device_id: str) -> bool:
        """Whether this object has offered the id."""
        return _find(self._own, resource, device_id) is not None

    def of_object(self, resource: str) -> bool:
        """Whether this object has offered the name."""
        return any(name == resource for name, _ in self._own)

    def find(self, resource: str, device_id: str) -> Claim | None:
        """Which hardware an id is, as far as anybody has told; this object's word comes first."""
        if resource not in self.names:
            return None
        return _find(self._own, resource, device_id) or _find(self._others, resource, device_id)

    def _rename(self) -> None:
        self.names = frozenset(name for name, _ in (*self._own, *self._others))


def _find(claims: Mapping[Key, Claim], resource: str, device_id: str) -> Claim | None:
    for likely in (device_id, split_replica(device_id)[0]):
        claim = claims.get((resource, likely))
        if claim is not None and claim.replica(device_id) is not None:
            return claim
    of_name = (claim for (name, _), claim in claims.items() if name == resource)
    return next((claim for claim in of_name if claim.replica(device_id) is not None), None)  # long ids are cut


@dataclass(frozen=True, slots=True)
class _Kept:
    version: int
    claims: tuple[Claim, ...]


def dump(claims: tuple[Claim, ...]) -> bytes:
    """Equal claims give equal bytes."""
    kept = encode(_Kept(version=VERSION, claims=claims))
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def parse(raw: bytes) -> tuple[Claim, ...]:
    """What `dump` was given.

    Raises:
        ClaimsError: it is not what `dump` writes.
    """
    try:
        data: Any = json.loads(raw)
        if not isinstance(data, dict) or data.get("version") != VERSION:
            raise ClaimsError("it is of another version")
        return decode(_Kept, data, path="").claims
    except (ShapeError, ValueError, RecursionError) as error:
        raise ClaimsError(str(error)) from error
