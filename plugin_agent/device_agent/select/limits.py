"""Limits an entry's devices: each id once, `maxDevices`, no more names and ids than a kubelet can handle. Pure.

These limits belong to the node, not to one device. What they leave out depends on the other devices and on earlier
entries. They are applied in a fixed order, so the same finds always give the same devices. A device that a container
holds is never replaced by another one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from device_agent.contract import names
from device_agent.contract.document import Resource
from device_agent.contract.reasons import ExclusionReason
from device_agent.select.found import LeftOut
from device_agent.select.grouping import Exclude, Made
from device_agent.select.identity import TakenIds, better_unit, held_numbers
from device_agent.select.unit import Unit


@dataclass(slots=True)
class Taken:
    """What earlier entries have taken. `names`: resource name -> entry. `refused`: name or entry -> why."""

    ids: TakenIds = field(default_factory=TakenIds)
    names: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


class Limits:
    """The limits of one entry. `held`: ids in use; `maxDevices` never replaces their devices."""

    def __init__(self, resource: Resource, taken: Taken, *, held: frozenset[str], exclude: Exclude) -> None:
        self._resource = resource
        self._taken = taken
        self._held = held
        self._exclude = exclude
        self._held_numbers = held_numbers(held) if resource.max_devices else {}

    def within(self, made: Iterable[Made]) -> tuple[Unit, ...]:
        """The units within the limits, in the order of their ids. They count as taken from now on."""
        kept = self._within_max(self._unique(made))
        kept = self._within_ids(self._within_names(kept))
        for one in kept:
            self._taken.ids.add(one.unit)
        return tuple(one.unit for one in kept)

    def _unique(self, made: Iterable[Made]) -> list[Made]:
        kept: list[Made] = []
        ours = TakenIds()
        for one in sorted(made, key=lambda m: m.unit.id):
            if other := self._taken.ids.holder(one.unit) or ours.holder(one.unit):
                unit = better_unit(one.finds[0])
                message = (
                    f"{other} already has a device with the id {one.unit.id}: give one of the two a unit such as {unit}"
                )
                self._exclude(one.finds, ExclusionReason.DUPLICATE_IDENTITY, message)
            else:
                ours.add(one.unit)
                kept.append(one)
        return kept

    def _within_max(self, made: list[Made]) -> list[Made]:
        most = self._resource.max_devices
        if not most or len(made) <= most:
            return made
        kept = {one.unit.id for one in made if self._is_held(one.unit)}
        kept |= {one.unit.id for one in [m for m in made if m.unit.id not in kept][: max(0, most - len(kept))]}
        for one in made:
            if one.unit.id not in kept:
                message = (
                    f"maxDevices: only {most} of {len(made)} devices are offered, those in use and then the first ids"
                )
                self._exclude(one.finds, ExclusionReason.MAX_DEVICES, message)
        return [one for one in made if one.unit.id in kept]

    def _is_held(self, unit: Unit) -> bool:
        number = self._held_numbers.get(unit.id)
        if number is not None and number < unit.replicas:
            return True
        if len(names.replica_id(unit.id, unit.replicas - 1)) < names.MAX_ID:
            return False
        # long ids are cut and end with a hash, so a held id does not show its unit: compare all ids
        return bool(self._held) and any(names.replica_id(unit.id, n) in self._held for n in range(unit.replicas))

    def _within_names(self, made: list[Made]) -> list[Made]:
        left_out: dict[str, LeftOut] = {}
        told: list[str] = []
        free: list[str] = []
        rendered = sorted({one.unit.resource for one in made})
        most = names.MAX_NAMES_PER_ENTRY
        too_many = f"{len(rendered)} resource names, at most {most} per entry and node"
        for name in rendered:
            if other := self._taken.names.get(name):
                told.append(f"{name} is already a resource of the entry {other}")
                left_out[name] = ExclusionReason.NAME_TAKEN, told[-1]
            elif len(free) == most:
                left_out[name] = ExclusionReason.TOO_MANY_NAMES, f"{too_many}: {name} is not among them"
            else:
                free.append(name)
        self._taken.names |= dict.fromkeys(free, self._resource.name)
        if beyond := [name for name in left_out if left_out[name][0] == ExclusionReason.TOO_MANY_NAMES]:
            told.insert(0, f"{too_many}: {beyond[0]} and {len(beyond) - 1} more are left out")
        if told:
            more = f"; and {len(told) - 4} more" if len(told) > 4 else ""
            self._taken.refused[self._resource.name] = "; ".join(told[:4]) + more
        return self._without(made, left_out)

    def _within_ids(self, made: list[Made]) -> list[Made]:
        replicas: dict[str, list[int]] = {}
        for one in made:
            replicas.setdefault(one.unit.resource, []).append(one.unit.replicas)
        left_out = {
            name: (ExclusionReason.TOO_MANY_IDS, _arithmetic(counts))
            for name, counts in replicas.items()
            if sum(counts) > names.MAX_IDS
        }
        self._taken.refused |= {name: message for name, (_, message) in left_out.items()}
        return self._without(made, left_out)

    def _without(self, made: list[Made], left_out: Mapping[str, LeftOut]) -> list[Made]:
        for one in made:
            if one.unit.resource in left_out:
                self._exclude(one.finds, *left_out[one.unit.resource])
        return [one for one in made if one.unit.resource not in left_out]


def _arithmetic(replicas: Sequence[int]) -> str:
    total = sum(replicas)
    product = (
        f"{len(replicas):,} devices x {replicas[0]:,} replicas"
        if len(set(replicas)) == 1
        else (f"the replicas of {len(replicas):,} devices")
    )
    return (
        f"{product} = {total:,} ids, a node can offer at most {names.MAX_IDS:,} of one resource; "
        "lower replicas, or set maxDevices"
    )
