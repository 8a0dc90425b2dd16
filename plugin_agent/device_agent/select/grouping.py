"""Makes an entry's finds into allocatable devices: finds with the same value of `unit` are one device. Pure.

This is a step of its own because identity depends on it: the common value becomes the id that pods are bound to. Finds
that share a value by mistake are duplicates. A device that cannot be made as the entry asks is left out with a reason;
the others are not affected.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from device_agent.contract import attributes, names
from device_agent.contract.check import UNIT_NODE
from device_agent.contract.document import Ownership, OwnNodes, Resource
from device_agent.contract.reasons import ExclusionReason
from device_agent.contract.template import parse_template
from device_agent.contract.values import dataclass
from device_agent.select import grants
from device_agent.select.found import DeviceNodes, FoundDevice, Problem
from device_agent.select.grants import UnusableDeviceError
from device_agent.select.identity import better_unit, identity
from device_agent.select.unit import Unit

Finds = tuple[FoundDevice, ...]


@dataclass(frozen=True, slots=True)
class Made:
    """A unit with the finds that it was made of."""

    unit: Unit
    finds: Finds


Exclude = Callable[[Iterable[FoundDevice], ExclusionReason, str], None]
"""(finds, reason, message): these finds are in no unit."""


def unit_attribute(resource: Resource, find: FoundDevice) -> str:
    """The attribute whose value makes one device of the entry: its `unit`, or the find's default."""
    return resource.unit or find.unit


class Grouping:
    """Groups the finds of one entry. `dev`: asked about the node's device nodes."""

    def __init__(self, resource: Resource, *, dev: DeviceNodes, exclude: Exclude) -> None:
        self._resource = resource
        self._dev = dev
        self._exclude = exclude
        self._exclusive = resource.ownership is Ownership.EXCLUSIVE

    def made(self, selected: Iterable[FoundDevice]) -> Iterator[Made]:
        """The entry's devices."""
        for attribute, value, finds in self._groups(selected):
            try:
                yield Made(self._unit(attribute, value, finds), finds)
            except UnusableDeviceError as error:
                self._exclude(finds, error.reason, str(error))

    def _groups(self, selected: Iterable[FoundDevice]) -> Iterator[tuple[str, str, Finds]]:
        """(attribute, value, the finds that agree on it)."""
        grouped: dict[tuple[str, str], list[FoundDevice]] = {}
        for find in selected:
            attribute = unit_attribute(self._resource, find)
            value = self._resource.name if attribute == UNIT_NODE else find.attributes.get(attribute)
            if value is None:
                self._exclude([find], ExclusionReason.MISSING_ATTRIBUTE, _no_unit_message(attribute, find))
                continue
            finds = grouped.setdefault((attribute, value), [])
            if finds and (other := self._twin(attribute, finds[0], find)):
                message = f"{attribute} is {value!r}, the same as of {finds[0].title}: use unit: {other}"
                self._exclude([find], ExclusionReason.DUPLICATE_IDENTITY, message)
            else:
                finds.append(find)
        for (attribute, value), finds in grouped.items():
            yield attribute, value, tuple(finds)

    def _twin(self, attribute: str, first: FoundDevice, second: FoundDevice) -> str | None:
        """The unit that would tell two devices apart if they share a value by mistake. None: they are grouped on
        purpose.
        """
        if apart := attributes.apart(attribute):
            same = first.attributes.get(apart) == second.attributes.get(apart)
            return None if same else apart
        if self._resource.unit or second.group is not None:
            return None
        return better_unit(second)

    def _unit(self, attribute: str, value: str, finds: Finds) -> Unit:
        resource = self._resource
        granted, problem = grants.render(resource.inject, finds, dev=self._dev)
        nodes = tuple(sorted({node for f in finds for node in f.nodes}))
        needed = resource.needs.own_nodes if resource.needs else ()
        numa = {f.numa_node for f in finds if f.numa_node is not None}
        return Unit(
            entry=resource.name,
            resource=self._name(finds),
            id=names.device_id(value, entry=None if self._exclusive else resource.name),
            value=value,
            identity=identity(attribute, finds),
            source=finds[0].source,
            attributes=finds[0].attributes if len(finds) == 1 else _joined(finds),
            nodes=nodes,
            grants=granted,
            hardware=_hardware(finds),
            numa_node=numa.pop() if len(numa) == 1 else None,
            replicas=self._replicas(finds),
            problem=self._problem(finds) or grants.lacking(needed, nodes) or problem,
            unfit=self._unfit(finds),
            parts=tuple(sorted({part for f in finds for part in f.parts})),
            own_nodes={node: self._dev.number(node) for f in finds for node in f.own_nodes},
        )

    def _problem(self, finds: Finds) -> Problem | None:
        """The problem of the first member that concerns the entry. A missing node is no problem if the entry gives out
        no nodes.
        """
        gives_nodes = self._resource.inject.own_nodes is not OwnNodes.NONE
        for find in finds:
            if problem := find.problem or (find.node_problem if gives_nodes else None):
                reason, message = problem
                return reason, message if len(finds) == 1 else f"{find.title}: {message}"
        return None

    def _unfit(self, finds: Finds) -> str:
        """The match of unhealthyWhen for the first bad member. One bad member makes the unit unhealthy."""
        for find in finds:
            for i, match in enumerate(self._resource.health.unhealthy_when):
                if find.unmet(match) is None:
                    who = "" if len(finds) == 1 else f"{find.title}: "
                    value = find.attributes[match.attribute]
                    return f"{who}{match.attribute} is {value!r} (health.unhealthyWhen[{i}])"
        return ""

    def _name(self, finds: Finds) -> str:
        template = parse_template(self._resource.name)
        if not template.names:
            return self._resource.name
        first, *_ = grants.each(finds, template.render, where="name")
        try:
            return names.resource_name_from(first)
        except ValueError as error:
            raise UnusableDeviceError(ExclusionReason.UNSAFE_VALUE, f"name: {error}") from error

    def _replicas(self, finds: Finds) -> int:
        for per in self._resource.sharing.per_device:
            if any(find.unmet(per.match) is None for find in finds):
                return per.replicas
        return self._resource.sharing.replicas


def _hardware(finds: Finds) -> tuple[str, ...]:
    """The hardware of the finds, with everything that can only be given away with them."""
    groups = {find.group.name: find.group.paths for find in finds if find.group is not None}
    return tuple(sorted({find.hardware for find in finds}.union(*groups.values())))


def _no_unit_message(attribute: str, find: FoundDevice) -> str:
    if why := find.absent.get(attribute):
        return why
    return f"unit: it has no {attribute}; use a unit that it has, such as {better_unit(find)}"


def _joined(finds: Sequence[FoundDevice]) -> dict[str, str]:
    """The finds' attributes, differing values joined by commas."""
    values: dict[str, dict[str, None]] = {}
    for find in finds:
        for attribute, value in find.attributes.items():
            values.setdefault(attribute, {})[value] = None
    return {attribute: ",".join(each) for attribute, each in values.items()}
