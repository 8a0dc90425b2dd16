"""Who owns which device, what one allocatable device is, and why the rest is left out. Pure.

The first entry whose source finds a device and whose include and exclude let it pass owns it, whatever becomes
of it there: a device that the entry keeps for the host (maxDevices) or cannot use is not passed on to the next.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from device_agent import grants
from device_agent.contract import names
from device_agent.contract.attributes import NVML
from device_agent.contract.check import UNIT_NODE
from device_agent.contract.document import Document, Match, Ownership, OwnNodes, Resource
from device_agent.contract.template import parse_template
from device_agent.discovery.found import Findings, FoundDevice
from device_agent.discovery.kernelnames import matcher, natural
from device_agent.grants import MISSING_ATTRIBUTE, UNSAFE_VALUE, UnusableDeviceError
from device_agent.hardware import Group, Owner, claimed_nodes, on_vfio, passthrough_group
from device_agent.hardware import Ownership as HardwareOwnership
from device_agent.identity import Ids, better_unit, identity
from device_agent.units import Excluded, Selection, Unit

NOTHING_FOUND: Final = "NothingFound"
NOT_INCLUDED: Final = "NotIncluded"
EXCLUDED: Final = "Excluded"
OWNED: Final = "OwnedByEarlierEntry"
GROUP_NOT_VIABLE: Final = "GroupNotViable"
DUPLICATE: Final = "DuplicateIdentity"
MAX_DEVICES: Final = "MaxDevices"
TOO_MANY_NAMES: Final = "TooManyNames"
TOO_MANY_IDS: Final = "TooManyIds"
NAME_TAKEN: Final = "NameTaken"


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
        refused=node.refused,
        notes={document.resources[i].name: reason for i, reason in findings.reasons.items()},
    )


@dataclass(slots=True)
class _Node:
    """What the entries before have taken: hardware, ids, resource names."""

    groups: dict[str, Group]
    hardware: HardwareOwnership = field(default_factory=HardwareOwnership)
    ids: Ids = field(default_factory=Ids)
    names: dict[str, str] = field(default_factory=dict)
    excluded: list[Excluded] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Selected:
    find: FoundDevice
    entry: int
    label: str
    group: str | None


@dataclass(frozen=True, slots=True)
class _Draft:
    """A unit in the making. `attribute`: what its value was read from."""

    attribute: str
    value: str
    members: tuple[_Selected, ...]


@dataclass(frozen=True, slots=True)
class _Made:
    draft: _Draft
    unit: Unit


def label(find: FoundDevice) -> str:
    """What people call a find: the path they named, the PCI address, the kernel name."""
    return find.attributes.get("path", find.name) if find.source == "files" else find.name


def unmet(match: Match, find: FoundDevice) -> str | None:
    """How a find fails a match, None when it matches."""
    value = find.attributes.get(match.attribute)
    if value is None:
        return f"{match.attribute} is absent"
    return None if matcher(match.values)(value) else f"{match.attribute} is {value!r}, not {' or '.join(match.values)}"


def parts_of(find: FoundDevice) -> tuple[str, ...]:
    """What its driver speaks of when it tells of failures: the GPU, and of a partition its instances as well."""
    attributes = find.attributes
    if find.source != NVML or "uuid" not in attributes:
        return ()
    if "parentUuid" not in attributes:
        return (attributes["uuid"],)
    gpu, gi, ci = attributes["parentUuid"], attributes.get("gi", ""), attributes.get("ci", "")
    return (gpu, f"{gpu}/{gi}", f"{gpu}/{gi}/{ci}")


class _Entry:
    """One resource entry at work on its finds."""

    def __init__(self, resource: Resource, node: _Node, *, exists: Callable[[str], bool], held: frozenset[str]) -> None:
        self._resource = resource
        self._node = node
        self._exists = exists
        self._held = held
        self._exclusive = resource.ownership is Ownership.EXCLUSIVE

    def units(self, found: Sequence[Sequence[FoundDevice]]) -> tuple[Unit, ...]:
        selected = list(self._viable(self._selected(found)))
        made = list(self._made(self._drafts(selected)))
        made = self._within_max(self._unique(made))
        made = self._within_ids(self._within_names(made))
        for one in made:
            self._node.ids.add(one.unit)
        return tuple(one.unit for one in made)

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

    def _exclude(self, members: Iterable[_Selected], reason: str, message: str) -> None:
        self._node.excluded += [
            Excluded(
                id=m.label,
                source=m.find.source,
                entry=self._resource.name,
                reason=reason,
                message=message,
                hardware=m.find.sysfs_path or f"{m.find.source}:{m.label}",
            )
            for m in members
        ]

    # Which finds

    def _selected(self, found: Sequence[Sequence[FoundDevice]]) -> tuple[_Selected, ...]:
        chosen: dict[str, _Selected] = {}
        left_out: dict[str, tuple[_Selected, str, str]] = {}
        for number, finds in enumerate(found):
            for find in sorted(finds, key=lambda f: (natural(label(f)), f.name)):
                group = passthrough_group(find, self._node.groups)
                one = _Selected(find=find, entry=number, label=label(find), group=group)
                key = find.sysfs_path or f"{find.source}:{one.label}"
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
            if why := unmet(match, find):
                return NOT_INCLUDED, f"devices[{number}].include[{i}]: {why}"
        for i, match in enumerate(self._resource.exclude):
            if unmet(match, find) is None:
                return EXCLUDED, f"exclude[{i}]: {match.attribute} is {find.attributes[match.attribute]!r}"
        return None

    def _taken(self, selected: _Selected) -> Owner | None:
        """Takes the hardware, or names who has it."""
        find = selected.find
        paths = {find.sysfs_path} if find.sysfs_path else set()
        if selected.group is not None and selected.group in self._node.groups:
            paths |= set(self._node.groups[selected.group].paths)
        owner = Owner(self._resource.name, entry=selected.entry, label=selected.label, group=selected.group)
        claim = {"paths": sorted(paths), "nodes": claimed_nodes(find)}
        earlier = self._node.hardware.conflict(owner, **claim)
        if earlier is None:
            self._node.hardware.take(owner, **claim)
        return earlier

    def _viable(self, selected: Sequence[_Selected]) -> Iterator[_Selected]:
        """Without the functions whose IOMMU group cannot be given away, or not as a whole."""
        values: dict[str, dict[str, list[str]]] = {}
        for one in selected:
            if one.group is not None:
                attribute = self._unit_attribute(one)
                value = one.find.attributes.get(attribute, attribute)
                values.setdefault(one.group, {}).setdefault(value, []).append(one.label)
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

    # What one device is

    def _unit_attribute(self, selected: _Selected) -> str:
        if self._resource.unit:
            return self._resource.unit
        if selected.find.source == "pci":
            return "iommuGroup" if selected.group is not None or on_vfio(selected.find) else "pci.address"
        if selected.find.source == "nvml":
            return "uuid"
        return "path" if selected.find.source == "files" else "name"

    def _drafts(self, selected: Sequence[_Selected]) -> Iterator[_Draft]:
        grouped: dict[tuple[str, str], list[_Selected]] = {}
        for one in selected:
            attribute = self._unit_attribute(one)
            value = self._resource.name if attribute == UNIT_NODE else one.find.attributes.get(attribute)
            if value is None:
                self._exclude([one], MISSING_ATTRIBUTE, _no_unit_message(attribute, one.find))
                continue
            members = grouped.setdefault((attribute, value), [])
            if members and (other := self._twin(attribute, members[0], one)):
                message = f"{attribute} is {value!r}, as of {members[0].label}: use unit: {other}"
                self._exclude([one], DUPLICATE, message)
            else:
                members.append(one)
        for (attribute, value), members in grouped.items():
            yield _Draft(attribute=attribute, value=value, members=tuple(members))

    def _twin(self, attribute: str, first: _Selected, second: _Selected) -> str | None:
        """The unit that tells two devices apart which their value does not and should; None when grouping is meant."""
        if attribute == "usb.serial":
            same = first.find.attributes.get("usb.port") == second.find.attributes.get("usb.port")
            return None if same else "usb.port"
        if self._resource.unit or attribute == "iommuGroup":
            return None
        return better_unit(second.find)

    def _made(self, drafts: Iterable[_Draft]) -> Iterator[_Made]:
        for draft in drafts:
            try:
                yield _Made(draft, self._unit(draft))
            except UnusableDeviceError as error:
                self._exclude(draft.members, error.reason, str(error))

    def _unit(self, draft: _Draft) -> Unit:
        finds = [m.find for m in draft.members]
        resource = self._resource
        granted, problem = grants.render(resource.inject, finds, exists=self._exists)
        ours = next((_told(m, alone=len(finds) == 1) for m in draft.members if self._troubles(m.find)), None)
        numa = {f.numa_node for f in finds if f.numa_node is not None}
        return Unit(
            entry=resource.name,
            resource=self._name(finds),
            id=names.device_id(draft.value, entry=None if self._exclusive else resource.name),
            value=draft.value,
            identity=identity(draft.attribute, finds),
            source=finds[0].source,
            attributes=finds[0].attributes if len(finds) == 1 else _joined(finds),
            nodes=tuple(sorted({node for f in finds for node in f.nodes})),
            grants=granted,
            hardware=self._hardware(draft),
            numa_node=numa.pop() if len(numa) == 1 else None,
            replicas=self._replicas(finds),
            problem=ours or problem,
            unfit=self._unfit(draft),
            parts=tuple(sorted({part for f in finds for part in parts_of(f)})),
        )

    def _unfit(self, draft: _Draft) -> str:
        """What of unhealthyWhen the first bad member matches: one bad member makes the unit unhealthy."""
        for member in draft.members:
            for i, match in enumerate(self._resource.health.unhealthy_when):
                if unmet(match, member.find) is None:
                    who = "" if len(draft.members) == 1 else f"{member.label}: "
                    value = member.find.attributes[match.attribute]
                    return f"{who}{match.attribute} is {value!r} (health.unhealthyWhen[{i}])"
        return ""

    def _troubles(self, find: FoundDevice) -> bool:
        """Whether the find's problem is one for this entry: with CDI a GPU's nodes are not the agent's affair."""
        if find.problem is None:
            return False
        unasked = find.source == NVML and self._resource.inject.own_nodes is OwnNodes.NONE
        return not (unasked and find.problem[0] == grants.NODE_MISSING)

    def _name(self, finds: Sequence[FoundDevice]) -> str:
        template = parse_template(self._resource.name)
        if not template.names:
            return self._resource.name
        first, *_ = grants.each(finds, template.render, where="name")
        try:
            return names.resource_name_from(first)
        except ValueError as error:
            raise UnusableDeviceError(UNSAFE_VALUE, f"name: {error}") from error

    def _hardware(self, draft: _Draft) -> tuple[str, ...]:
        found = {m.find.sysfs_path or f"{m.find.source}:{m.label}" for m in draft.members}
        groups = {m.group for m in draft.members if m.group is not None} & self._node.groups.keys()
        return tuple(sorted(found.union(*(self._node.groups[group].paths for group in groups))))

    def _replicas(self, finds: Sequence[FoundDevice]) -> int:
        for per in self._resource.sharing.per_device:
            if any(unmet(per.match, find) is None for find in finds):
                return per.replicas
        return self._resource.sharing.replicas

    # How many of them

    def _unique(self, made: Iterable[_Made]) -> list[_Made]:
        kept: list[_Made] = []
        ours = Ids()
        for one in sorted(made, key=lambda m: (m.unit.id, m.draft.attribute)):
            if other := self._node.ids.holder(one.unit) or ours.holder(one.unit):
                unit = better_unit(one.draft.members[0].find)
                message = (
                    f"the id {one.unit.id} is that of a device of {other}: give one of the two a unit such as {unit}"
                )
                self._exclude(one.draft.members, DUPLICATE, message)
            else:
                ours.add(one.unit)
                kept.append(one)
        return kept

    def _within_max(self, made: list[_Made]) -> list[_Made]:
        most = self._resource.max_devices
        if not most or len(made) <= most:
            return made
        kept = {one.unit.id for one in made if self._is_held(one.unit)}
        kept |= {one.unit.id for one in [m for m in made if m.unit.id not in kept][: max(0, most - len(kept))]}
        for one in made:
            if one.unit.id not in kept:
                message = f"maxDevices: {most} of {len(made)} are offered, the first in the order of their ids"
                self._exclude(one.draft.members, MAX_DEVICES, message)
        return [one for one in made if one.unit.id in kept]

    def _is_held(self, unit: Unit) -> bool:
        return bool(self._held) and any(names.replica_id(unit.id, n) in self._held for n in range(unit.replicas))

    def _within_names(self, made: list[_Made]) -> list[_Made]:
        left_out: dict[str, tuple[str, str]] = {}
        told: list[str] = []
        free: list[str] = []
        rendered = sorted({one.unit.resource for one in made})
        most = names.MAX_NAMES_PER_ENTRY
        too_many = f"{len(rendered)} resource names, at most {most} per entry and node"
        for name in rendered:
            if other := self._node.names.get(name):
                told.append(f"{name} is already a resource of the entry {other}")
                left_out[name] = NAME_TAKEN, told[-1]
            elif len(free) == most:
                left_out[name] = TOO_MANY_NAMES, f"{too_many}: {name} is not among them"
            else:
                free.append(name)
        self._node.names |= dict.fromkeys(free, self._resource.name)
        if beyond := [name for name in left_out if left_out[name][0] == TOO_MANY_NAMES]:
            told.insert(0, f"{too_many}: left out are {beyond[0]} and {len(beyond) - 1} more")
        if told:
            more = f"; and {len(told) - 4} more" if len(told) > 4 else ""
            self._node.refused[self._resource.name] = "; ".join(told[:4]) + more
        return self._without(made, left_out)

    def _within_ids(self, made: list[_Made]) -> list[_Made]:
        replicas: dict[str, list[int]] = {}
        for one in made:
            replicas.setdefault(one.unit.resource, []).append(one.unit.replicas)
        left_out = {
            name: (TOO_MANY_IDS, _arithmetic(counts))
            for name, counts in replicas.items()
            if sum(counts) > names.MAX_IDS
        }
        self._node.refused |= {name: message for name, (_, message) in left_out.items()}
        return self._without(made, left_out)

    def _without(self, made: list[_Made], left_out: Mapping[str, tuple[str, str]]) -> list[_Made]:
        for one in made:
            if one.unit.resource in left_out:
                self._exclude(one.draft.members, *left_out[one.unit.resource])
        return [one for one in made if one.unit.resource not in left_out]


def _owned_message(selected: _Selected, earlier: Owner, resource: str) -> str:
    by = f"devices[{earlier.entry}] of this entry" if earlier.resource == resource else f"the entry {earlier.resource}"
    what = "" if earlier.label == selected.label else f", which selects the same hardware as {earlier.label}"
    return f"it belongs to {by}{what}"


def _no_unit_message(attribute: str, find: FoundDevice) -> str:
    if attribute == "iommuGroup" and on_vfio(find):
        return "it is bound to vfio and has no IOMMU group: switch the IOMMU on in firmware and kernel"
    return f"unit: it has no {attribute}; use a unit that it has, such as {better_unit(find)}"


def _told(member: _Selected, *, alone: bool) -> tuple[str, str]:
    assert member.find.problem is not None
    reason, message = member.find.problem
    return reason, message if alone else f"{member.label}: {message}"


def _joined(finds: Sequence[FoundDevice]) -> dict[str, str]:
    """The members' attributes, differing values joined by commas."""
    values: dict[str, dict[str, None]] = {}
    for find in finds:
        for attribute, value in find.attributes.items():
            values.setdefault(attribute, {})[value] = None
    return {attribute: ",".join(each) for attribute, each in values.items()}


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
