"""Which entry owns which find, and why the rest is left out. Pure.

The owner is the first entry whose source finds the device and whose include and exclude accept it. No later entry gets
the device, even if the owner keeps it for the host (maxDevices) or cannot use it. `grouping` makes the owned finds into
units; `limits` decides how many of them the entry gets.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from device_agent.contract.document import Document, Ownership, Resource
from device_agent.contract.reasons import ExclusionReason
from device_agent.select.found import DeviceNodes, Findings, FoundDevice, LeftOut
from device_agent.select.grouping import Grouping, unit_attribute
from device_agent.select.kernel_names import natural
from device_agent.select.limits import Limits, Taken
from device_agent.select.owners import Owner, Owners
from device_agent.select.unit import Excluded, Selection, Unit


def select(
    document: Document,
    findings: Findings,
    *,
    dev: DeviceNodes,
    held: frozenset[str] = frozenset(),
) -> Selection:
    """The units of every entry, and a reason for each find that is in none.

    `dev`: asked about the node's device nodes. `held`: ids in use, which `maxDevices` never exchanges.
    The same findings give the same selection in whatever order the file system listed them.
    """
    dev = DeviceNodes(exists=cache(dev.exists), number=dev.number, missing=cache(dev.missing))
    node = _Node()
    units: list[Unit] = []
    for number, (resource, found) in enumerate(zip(document.resources, findings.by_entry, strict=True)):
        entry = _Entry(resource, node, dev=dev, held=held)
        units += entry.units(found)
        entry.looked(findings.nothing.get(number, ()))
        entry.failed({i: why for (resource_number, i), why in findings.failed.items() if resource_number == number})
    return Selection(
        units=tuple(units),
        excluded=tuple(node.excluded),
        refused=node.taken.refused,
        notes={document.resources[i].name: reason for i, reason in findings.reasons.items()},
        vanished=findings.vanished,
        blind={
            (document.resources[number].name, document.resources[number].devices[i].kind): why
            for (number, i), why in findings.failed.items()
        },
    )


@dataclass(slots=True)
class _Node:
    """What all entries share: what the entries so far have taken and left out."""

    owners: Owners = field(default_factory=Owners)
    excluded: list[Excluded] = field(default_factory=list)
    taken: Taken = field(default_factory=Taken)


class _Entry:
    """One resource entry at work on its finds."""

    def __init__(self, resource: Resource, node: _Node, *, dev: DeviceNodes, held: frozenset[str]) -> None:
        self._resource = resource
        self._node = node
        self._exclusive = resource.ownership is Ownership.EXCLUSIVE
        self._grouping = Grouping(resource, dev=dev, exclude=self._exclude)
        self._limits = Limits(resource, node.taken, held=held, exclude=self._exclude)

    def units(self, found: Sequence[Sequence[FoundDevice]]) -> tuple[Unit, ...]:
        viable = list(self._viable(self._selected(found)))
        return self._limits.within(list(self._grouping.made(viable)))

    def looked(self, places: Sequence[str]) -> None:
        """Notes where the sources of an entry without finds have looked. This is normal: many nodes lack the device."""
        self._of_sources({i: place for i, place in enumerate(places) if place}, ExclusionReason.NOTHING_FOUND)

    def failed(self, why: Mapping[int, str]) -> None:
        """Notes which sources of the entry could not look at all."""
        self._of_sources(why, ExclusionReason.UNREADABLE)

    def _of_sources(self, messages: Mapping[int, str], reason: ExclusionReason) -> None:
        self._node.excluded += [
            Excluded(
                id=f"devices[{i}]",
                source=self._resource.devices[i].kind,
                entry=self._resource.name,
                reason=reason,
                message=f"devices[{i}]: {message}",
            )
            for i, message in messages.items()
        ]

    def _exclude(self, finds: Iterable[FoundDevice], reason: ExclusionReason, message: str) -> None:
        self._node.excluded += [
            Excluded(
                id=find.title,
                source=find.source,
                entry=self._resource.name,
                reason=reason,
                message=message,
                hardware=find.hardware,
            )
            for find in finds
        ]

    def _selected(self, found: Sequence[Sequence[FoundDevice]]) -> tuple[FoundDevice, ...]:
        chosen: dict[str, FoundDevice] = {}
        left_out: dict[str, tuple[FoundDevice, ExclusionReason, str]] = {}
        for number, finds in enumerate(found):
            for find in sorted(finds, key=lambda f: (natural(f.title), f.name)):
                key = find.hardware
                if key in chosen:
                    continue  # another source of this entry has already selected it
                if why := self._left_out(find, number):
                    left_out.setdefault(key, (find, *why))
                elif self._exclusive and (earlier := self._taken(find, number)):
                    left_out.setdefault(
                        key,
                        (
                            find,
                            ExclusionReason.OWNED_BY_EARLIER_ENTRY,
                            _owned_message(find, earlier, self._resource.name),
                        ),
                    )
                else:
                    chosen[key] = find
        for key, (find, reason, message) in left_out.items():
            if key not in chosen:
                self._exclude([find], reason, message)
        return tuple(chosen.values())

    def _left_out(self, find: FoundDevice, number: int) -> LeftOut | None:
        if find.left_out is not None:
            return find.left_out
        for i, match in enumerate(self._resource.devices[number].include):
            if why := find.unmet(match):
                return ExclusionReason.NOT_INCLUDED, f"devices[{number}].include[{i}]: {why}"
        for i, match in enumerate(self._resource.exclude):
            if find.unmet(match) is None:
                return (
                    ExclusionReason.EXCLUDED,
                    f"exclude[{i}]: {match.attribute} is {find.attributes[match.attribute]!r}",
                )
        return None

    def _taken(self, find: FoundDevice, number: int) -> Owner | None:
        """Takes the hardware. Returns its earlier owner if there is one. `number`: of the source within the resource's
        devices.
        """
        group = find.group.name if find.group is not None else None
        return self._node.owners.take(find, Owner(self._resource.name, entry=number, label=find.title, group=group))

    def _viable(self, selected: Sequence[FoundDevice]) -> Iterator[FoundDevice]:
        """The finds, without those whose group cannot be given away as a whole."""
        values: dict[str, set[str]] = {}
        for find in selected:
            if find.group is not None:
                attribute = unit_attribute(self._resource, find)
                values.setdefault(find.group.name, set()).add(find.attributes.get(attribute, attribute))
        for find in selected:
            if find.group is None:
                yield find
            elif find.group.unviable:
                self._exclude([find], ExclusionReason.GROUP_NOT_VIABLE, find.group.unviable)
            elif len(values[find.group.name]) > 1:
                message = (
                    f"unit {self._resource.unit} would split {find.group.name}, "
                    f"which can only be given away whole: use unit: {find.group.unit}"
                )
                self._exclude([find], ExclusionReason.GROUP_NOT_VIABLE, message)
            else:
                yield find


def _owned_message(find: FoundDevice, earlier: Owner, resource: str) -> str:
    same = earlier.resource == resource
    by = f"devices[{earlier.entry}] of this entry" if same else f"the entry {earlier.resource}"
    what = "" if earlier.label == find.title else f", which selects the same hardware as {earlier.label}"
    cure = "" if same else "; to get it, put this entry before that one, or let that one exclude it"
    return f"it belongs to {by}{what}{cure}"
