"""What is in use under another name or id, by another object, or through another vendor's plugin. Pure.

Until they are free they are offered under no other. A note (`allocate.grant`) says which hardware an id was when a
container got it; of an answer without one, its device nodes, PCI addresses and UUIDs tell which of our devices it has.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Final, NamedTuple

from device_agent.allocate.grant import GrantedDevice
from device_agent.contract.values import dataclass
from device_agent.select.unit import Unit
from device_agent.table.device import Device, Key
from device_agent.table.grants import words_of
from device_agent.table.hardware import same_hardware
from device_agent.table.lists import Ids
from device_agent.table.usage import Usage

Owners = Callable[[Key], Unit | None]
"""The device that lists an id now, None: no device does."""
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Holding:
    """`unit`: the hardware in use; `text`: under which id and name, and by whom."""

    unit: Unit
    text: str


class NodeHolding(NamedTuple):
    """A device node that a container has: under which id, and of which device."""

    key: Key
    device: GrantedDevice


@dataclass(frozen=True, slots=True)
class Holdings:
    """`hardware`: in use elsewhere. `nodes`: path on the host, or number in this boot -> what has it."""

    hardware: tuple[Holding, ...] = ()
    nodes: Mapping[str, NodeHolding] = field(default_factory=dict)

    def of_node(self, unit: Unit, usage: Usage) -> str:
        """Which of the device's nodes a container has as that of other hardware, and by whom; '' if none."""
        if self.nodes:
            for path, number in unit.own_nodes.items():
                for name in (path, number):
                    found = self.nodes.get(name) if name else None
                    if found is not None and not same_hardware(found.device.hardware, unit.hardware):
                        resource, device_id = found.key
                        return f"its node {path} is {in_use_text(resource, [device_id], usage)}"
        return ""


def may_be_used(key: Key, ids: Ids, usage: Usage) -> tuple[str, ...]:
    """A device's ids on their way out that are, or may be, in use."""
    return tuple(i for i in ids.leaving if usage.busy(key[0], i))


def former(devices: Mapping[Key, Device], ids: Mapping[Key, Ids], usage: Usage) -> tuple[Holding, ...]:
    """Of this object: devices that are gone, or offered otherwise now. Nobody else may have the exclusive ones."""
    found = []
    for key, device in devices.items():
        if not device.present and device.exclusive and (used := may_be_used(key, ids[key], usage)):
            found.append(Holding(device.unit, in_use_text(key[0], used, usage)))
    return tuple(found)


def elsewhere(usage: Usage, owners: Owners, present: Iterable[Unit], *, boot: str) -> Holdings:
    """What is in use by the kubelet's record, and is not listed by us as the hardware that it is.

    `present`: the devices that are here and that nobody shares; `boot`: this one.
    """
    hardware: dict[tuple[str, str, tuple[str, ...]], tuple[GrantedDevice, list[str]]] = {}
    nodes: dict[str, NodeHolding] = {}
    for key in sorted(usage.used()):
        granted = usage.granted(key)
        if granted is None or not granted.device.exclusive:
            continue
        device, mine = granted.device, owners(key)
        for path, number in device.nodes.items():
            nodes.setdefault(path, NodeHolding(key, device))
            if number and granted.boot == boot:
                nodes.setdefault(number, NodeHolding(key, device))
        if mine is None or not same_hardware(mine.hardware, device.hardware):
            hardware.setdefault((key[0], device.id, device.hardware), (device, []))[1].append(key[1])
    ours = (
        Holding(device.unit(resource=name, entry=device.entry), in_use_text(name, ids, usage))
        for (name, _, _), (device, ids) in hardware.items()
    )
    return Holdings((*ours, *_of_other_plugins(usage, owners, tuple(present))), nodes)


def _of_other_plugins(usage: Usage, owners: Owners, present: tuple[Unit, ...]) -> Iterator[Holding]:
    """Our devices in answers without a note, found by their nodes and by words in the answer."""
    grants = tuple(usage.without_note())
    if not grants:
        return
    by_word: dict[str, list[Unit]] = {}
    by_node: dict[str, list[Unit]] = {}
    for unit in present:
        for word in words_of(unit):
            by_word.setdefault(word, []).append(unit)
        for path in unit.own_nodes:
            by_node.setdefault(path, []).append(unit)
    for grant in grants:
        found = [unit for word in sorted(grant.words) for unit in by_word.get(word, ())]
        for path in grant.nodes:
            units = by_node.get(path, [])
            # a node that several devices have tells nothing
            found += units if all(same_hardware(unit.hardware, units[0].hardware) for unit in units) else ()
        mine = {owner.hardware for i in grant.ids if (owner := owners((grant.resource, i))) is not None}
        for unit in {unit.hardware: unit for unit in found}.values():
            if unit.hardware not in mine:
                yield Holding(unit, in_use_text(grant.resource, grant.ids, usage))


def stale(usage: Usage, present: Iterable[Unit], *, boot: str) -> Mapping[Key, str]:
    """Ids in use whose device nodes are no longer those that their containers were given, and what is there now."""
    at: dict[str, Unit] = {}
    nodes: dict[str, Unit] = {}
    for unit in present:
        at.update(dict.fromkeys(unit.hardware, unit))
        nodes.update(dict.fromkeys(unit.own_nodes, unit))
    found: dict[Key, str] = {}
    for key in usage.used():
        granted = usage.granted(key)
        if granted is None or not granted.device.exclusive:
            continue
        now = next((at[path] for path in granted.device.hardware if path in at), None)
        for path, number in granted.device.nodes.items():
            other = nodes.get(path)
            if other is not None and not same_hardware(other.hardware, granted.device.hardware):
                found[key] = f"{path}, which its container was given, is now {other.id} of {other.resource}"
            elif now is not None and path not in now.own_nodes:
                found[key] = f"its container was given {path}; the device is now at {', '.join(now.own_nodes) or '-'}"
            elif now is not None and granted.boot == boot and _differ(number, now.own_nodes.get(path, "")):
                found[key] = f"its container was given {path} as {number}; the device is now {now.own_nodes[path]}"
    return found


def _differ(one: str, other: str) -> bool:
    return bool(one and other and one != other)


def in_use_text(name: str, ids: Iterable[str], usage: Usage) -> str:
    """For an admin: which id of which name, by whom."""
    first, *_ = ids = tuple(ids)
    who = sorted({who for i in ids for who in usage.who(name, i)})
    by = f" by {', '.join(who[:_SHOWN])}" if who else ""
    return f"in use as {first} of {name}{by}"
