"""What one allocatable device is: an entry's finds that agree on its `unit` are one, made ready for Allocate. Pure.

Grouping is a step of its own because identity hangs on it: the value that finds agree on becomes the id which pods are
bound to. Finds that agree and should not are duplicates, and a device that cannot be made as the entry asks is left out
with the reason, whatever becomes of the others.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from device_agent.contract import names
from device_agent.contract.attributes import NVML
from device_agent.contract.check import UNIT_NODE
from device_agent.contract.document import Ownership, OwnNodes, Resource
from device_agent.contract.template import parse_template
from device_agent.contract.values import dataclass
from device_agent.select import grants
from device_agent.select.found import FoundDevice
from device_agent.select.grants import MISSING_ATTRIBUTE, UNSAFE_VALUE, UnusableDeviceError
from device_agent.select.identity import better_unit, identity
from device_agent.select.ownership import Group, on_vfio
from device_agent.select.unit import Unit

DUPLICATE: Final = "DuplicateIdentity"


@dataclass(frozen=True, slots=True)
class Member:
    """A find that an entry has selected. `entry`: the number of its source within the resource's devices.

    `group`: the IOMMU group that it can only be given away with, None when it is not passed through.
    """

    find: FoundDevice
    entry: int
    group: str | None


@dataclass(frozen=True, slots=True)
class Draft:
    """A unit in the making. `attribute`: what its value was read from."""

    attribute: str
    value: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Made:
    draft: Draft
    unit: Unit


Exclude = Callable[[Iterable[Member], str, str], None]
"""(members, reason, message): these finds are in no unit."""


def parts_of(find: FoundDevice) -> tuple[str, ...]:
    """What its driver speaks of when it tells of failures: the GPU, and of a partition its instances as well."""
    attributes = find.attributes
    if find.source != NVML or "uuid" not in attributes:
        return ()
    if "parentUuid" not in attributes:
        return (attributes["uuid"],)
    gpu, gi, ci = attributes["parentUuid"], attributes.get("gi", ""), attributes.get("ci", "")
    return (gpu, f"{gpu}/{gi}", f"{gpu}/{gi}/{ci}")


def unit_attribute(resource: Resource, member: Member) -> str:
    """The attribute whose value makes one device of the entry: its `unit`, or the default of the find's source."""
    if resource.unit:
        return resource.unit
    if member.find.source == "pci":
        return "iommuGroup" if member.group is not None or on_vfio(member.find) else "pci.address"
    if member.find.source == "nvml":
        return "uuid"
    return "path" if member.find.source == "files" else "name"


class Grouping:
    """Of one entry. `groups`: all IOMMU groups; `exists`: whether a companion's host path is there."""

    def __init__(
        self, resource: Resource, *, groups: Mapping[str, Group], exists: Callable[[str], bool], exclude: Exclude
    ) -> None:
        self._resource = resource
        self._groups = groups
        self._exists = exists
        self._exclude = exclude
        self._exclusive = resource.ownership is Ownership.EXCLUSIVE

    def made(self, selected: Iterable[Member]) -> Iterator[Made]:
        """The entry's devices."""
        for draft in self._drafts(selected):
            try:
                yield Made(draft, self._unit(draft))
            except UnusableDeviceError as error:
                self._exclude(draft.members, error.reason, str(error))

    def _drafts(self, selected: Iterable[Member]) -> Iterator[Draft]:
        grouped: dict[tuple[str, str], list[Member]] = {}
        for one in selected:
            attribute = unit_attribute(self._resource, one)
            value = self._resource.name if attribute == UNIT_NODE else one.find.attributes.get(attribute)
            if value is None:
                self._exclude([one], MISSING_ATTRIBUTE, _no_unit_message(attribute, one.find))
                continue
            members = grouped.setdefault((attribute, value), [])
            if members and (other := self._twin(attribute, members[0], one)):
                message = f"{attribute} is {value!r}, as of {members[0].find.label}: use unit: {other}"
                self._exclude([one], DUPLICATE, message)
            else:
                members.append(one)
        for (attribute, value), members in grouped.items():
            yield Draft(attribute=attribute, value=value, members=tuple(members))

    def _twin(self, attribute: str, first: Member, second: Member) -> str | None:
        """The unit that tells two devices apart which their value does not and should; None when grouping is meant."""
        if attribute == "usb.serial":
            same = first.find.attributes.get("usb.port") == second.find.attributes.get("usb.port")
            return None if same else "usb.port"
        if self._resource.unit or attribute == "iommuGroup":
            return None
        return better_unit(second.find)

    def _unit(self, draft: Draft) -> Unit:
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

    def _unfit(self, draft: Draft) -> str:
        """What of unhealthyWhen the first bad member matches: one bad member makes the unit unhealthy."""
        for member in draft.members:
            for i, match in enumerate(self._resource.health.unhealthy_when):
                if member.find.unmet(match) is None:
                    who = "" if len(draft.members) == 1 else f"{member.find.label}: "
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

    def _hardware(self, draft: Draft) -> tuple[str, ...]:
        found = {m.find.hardware for m in draft.members}
        groups = {m.group for m in draft.members if m.group is not None} & self._groups.keys()
        return tuple(sorted(found.union(*(self._groups[group].paths for group in groups))))

    def _replicas(self, finds: Sequence[FoundDevice]) -> int:
        for per in self._resource.sharing.per_device:
            if any(find.unmet(per.match) is None for find in finds):
                return per.replicas
        return self._resource.sharing.replicas


def _no_unit_message(attribute: str, find: FoundDevice) -> str:
    if attribute == "iommuGroup" and on_vfio(find):
        return "it is bound to vfio and has no IOMMU group: switch the IOMMU on in firmware and kernel"
    return f"unit: it has no {attribute}; use a unit that it has, such as {better_unit(find)}"


def _told(member: Member, *, alone: bool) -> tuple[str, str]:
    assert member.find.problem is not None
    reason, message = member.find.problem
    return reason, message if alone else f"{member.find.label}: {message}"


def _joined(finds: Sequence[FoundDevice]) -> dict[str, str]:
    """The members' attributes, differing values joined by commas."""
    values: dict[str, dict[str, None]] = {}
    for find in finds:
        for attribute, value in find.attributes.items():
            values.setdefault(attribute, {})[value] = None
    return {attribute: ",".join(each) for attribute, each in values.items()}
