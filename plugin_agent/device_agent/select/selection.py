"""Which entry owns which find, and why the rest is left out. Pure.

The first entry whose source finds a device and whose include and exclude let it pass owns it, whatever becomes
of it there: a device that the entry keeps for the host (maxDevices) or cannot use is not passed on to the next.
What it owns is made into units by `grouping`, as many as `limits` lets it have.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from device_agent.contract.document import Document, Ownership, Resource
from device_agent.select.found import Findings, FoundDevice
from device_agent.select.grouping import Grouping, Member, unit_attribute
from device_agent.select.kernel_names import natural
from device_agent.select.limits import Limits, Taken
from device_agent.select.ownership import Group, Owner, claimed_nodes, passthrough_group
from device_agent.select.ownership import Ownership as HardwareOwnership
from device_agent.select.unit import Excluded, Selection, Unit

NOTHING_FOUND: Final = "NothingFound"
NOT_INCLUDED: Final = "NotIncluded"
EXCLUDED: Final = "Excluded"
OWNED: Final = "OwnedByEarlierEntry"
GROUP_NOT_VIABLE: Final = "GroupNotViable"


def select(
    document: Document,
    findings: Findings,
    *,
    exists: Callable[[str], bool],
    held: frozenset[str] = frozenset(),
) -> Selection:
    """The units of every entry, and a reason for each find that is in none.

    `exists`: whether a companion's host path is there. `held`: ids in use, which `maxDevices` never exchanges.
    The same findings give the same selection in whatever order the file system listed them.
    """
    exists = cache(exists)
    node = _Node(groups={group: Group.of(members) for group, members in findings.iommu_groups.items()})
    units: list[Unit] = []
    for number, (resource, found) in enumerate(zip(document.resources, findings.by_entry, strict=True)):
        entry = _Entry(resource, node, exists=exists, held=held)
        units += entry.units(found)
        entry.looked(findings.nothing.get(number, ()))
    return Selection(
        units=tuple(units),
        excluded=tuple(node.excluded),
        refused=node.taken.refused,
        notes={document.resources[i].name: reason for i, reason in findings.reasons.items()},
    )


@dataclass(slots=True)
class _Node:
    """What all entries have in common: the node's groups, and what the entries so far have taken and left out."""

    groups: dict[str, Group]
    hardware: HardwareOwnership = field(default_factory=HardwareOwnership)
    excluded: list[Excluded] = field(default_factory=list)
    taken: Taken = field(default_factory=Taken)


class _Entry:
    """One resource entry at work on its finds."""

    def __init__(self, resource: Resource, node: _Node, *, exists: Callable[[str], bool], held: frozenset[str]) -> None:
        self._resource = resource
        self._node = node
        self._exclusive = resource.ownership is Ownership.EXCLUSIVE
        self._grouping = Grouping(resource, groups=node.groups, exists=exists, exclude=self._exclude)
        self._limits = Limits(resource, node.taken, held=held, exclude=self._exclude)

    def units(self, found: Sequence[Sequence[FoundDevice]]) -> tuple[Unit, ...]:
        viable = list(self._viable(self._selected(found)))
        return self._limits.within(list(self._grouping.made(viable)))

    def looked(self, places: Sequence[str]) -> None:
        """Where the sources of an entry that finds nothing have looked; most nodes of a pool may lack the device."""
        self._node.excluded += [
            Excluded(
                id=f"devices[{i}]",
                source=self._resource.devices[i].kind,
                entry=self._resource.name,
                reason=NOTHING_FOUND,
                message=f"devices[{i}]: {place}",
            )
            for i, place in enumerate(places)
            if place
        ]

    def _exclude(self, members: Iterable[Member], reason: str, message: str) -> None:
        self._node.excluded += [
            Excluded(
                id=m.find.label,
                source=m.find.source,
                entry=self._resource.name,
                reason=reason,
                message=message,
                hardware=m.find.hardware,
            )
            for m in members
        ]

    def _selected(self, found: Sequence[Sequence[FoundDevice]]) -> tuple[Member, ...]:
        chosen: dict[str, Member] = {}
        left_out: dict[str, tuple[Member, str, str]] = {}
        for number, finds in enumerate(found):
            for find in sorted(finds, key=lambda f: (natural(f.label), f.name)):
                group = passthrough_group(find, self._node.groups)
                one = Member(find=find, entry=number, group=group)
                key = find.hardware
                if key in chosen:
                    continue  # two sources of this entry found it: the first that lets it pass selects it
                if why := self._left_out(find, number):
                    left_out.setdefault(key, (one, *why))
                elif self._exclusive and (earlier := self._taken(one)):
                    left_out.setdefault(key, (one, OWNED, _owned_message(one, earlier, self._resource.name)))
                else:
                    chosen[key] = one
        for key, (one, reason, message) in left_out.items():
            if key not in chosen:
                self._exclude([one], reason, message)
        return tuple(chosen.values())

    def _left_out(self, find: FoundDevice, number: int) -> tuple[str, str] | None:
        if find.left_out is not None:
            return find.left_out
        for i, match in enumerate(self._resource.devices[number].include):
            if why := find.unmet(match):
                return NOT_INCLUDED, f"devices[{number}].include[{i}]: {why}"
        for i, match in enumerate(self._resource.exclude):
            if find.unmet(match) is None:
                return EXCLUDED, f"exclude[{i}]: {match.attribute} is {find.attributes[match.attribute]!r}"
        return None

    def _taken(self, selected: Member) -> Owner | None:
        """Takes the hardware, or names who has it."""
        find = selected.find
        paths = {find.sysfs_path} if find.sysfs_path else set()
        if selected.group is not None and selected.group in self._node.groups:
            paths |= set(self._node.groups[selected.group].paths)
        owner = Owner(self._resource.name, entry=selected.entry, label=find.label, group=selected.group)
        claim = {"paths": sorted(paths), "nodes": claimed_nodes(find)}
        earlier = self._node.hardware.conflict(owner, **claim)
        if earlier is None:
            self._node.hardware.take(owner, **claim)
        return earlier

    def _viable(self, selected: Sequence[Member]) -> Iterator[Member]:
        """Without the functions whose IOMMU group cannot be given away, or not as a whole."""
        values: dict[str, dict[str, list[str]]] = {}
        for one in selected:
            if one.group is not None:
                attribute = unit_attribute(self._resource, one)
                value = one.find.attributes.get(attribute, attribute)
                values.setdefault(one.group, {}).setdefault(value, []).append(one.find.label)
        for one in selected:
            if one.group is None:
                yield one
                continue
            group = self._node.groups.get(one.group)
            if group and group.blockers:
                who = ", ".join(f"{address} (driver {driver})" for address, driver in group.blockers)
                message = f"IOMMU group {one.group} also holds {who}: bind all of the group to vfio-pci, or none"
                self._exclude([one], GROUP_NOT_VIABLE, message)
            elif len(values[one.group]) > 1:
                message = (
                    f"unit {self._resource.unit} would split IOMMU group {one.group}, "
                    "which can only be given away whole: use unit: iommuGroup"
                )
                self._exclude([one], GROUP_NOT_VIABLE, message)
            else:
                yield one


def _owned_message(selected: Member, earlier: Owner, resource: str) -> str:
    by = f"devices[{earlier.entry}] of this entry" if earlier.resource == resource else f"the entry {earlier.resource}"
    what = "" if earlier.label == selected.find.label else f", which selects the same hardware as {earlier.label}"
    return f"it belongs to {by}{what}"
