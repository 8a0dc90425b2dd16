"""What is in use under another name or id, by another object, or through another vendor's plugin. Pure.

Until such hardware is free, it is offered under no other name or id. A note (`allocate.grant`) says which hardware an
id was when a container got it. If an answer has no note, its device nodes, PCI addresses and UUIDs tell which of our
devices the container has.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Final, NamedTuple

from device_agent.allocate.grant import GrantedDevice, granted
from device_agent.contract.values import dataclass
from device_agent.select.unit import Unit
from device_agent.table.device import Device, Key
from device_agent.table.grants import Grant, SeenGrant, words_of
from device_agent.table.hardware import same_hardware
from device_agent.table.kubelet_view import Found, KubeletView
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
    """`hardware`: what is in use elsewhere.

    `nodes`: a node's path on the host, or its number in this boot -> everything that was given with this node. Several
    pods may have been given the same path, because nodes can be numbered anew while pods run.
    """

    hardware: tuple[Holding, ...] = ()
    nodes: Mapping[str, Sequence[NodeHolding]] = field(default_factory=dict)

    def of_node(self, unit: Unit, usage: Usage) -> str:
        """For an admin: a node of this device that a container was given as a node of other hardware, and the pod.

        '' if there is no such container.
        """
        if self.nodes:
            for path, number in unit.own_nodes.items():
                for found in (*self.nodes.get(path, ()), *(self.nodes.get(number, ()) if number else ())):
                    if not same_hardware(found.device.hardware, unit.hardware):
                        resource, device_id = found.key
                        return f"its node {path} is {in_use_text(resource, [device_id], usage)}"
        return ""


def may_be_used(key: Key, ids: Ids, usage: Usage) -> tuple[str, ...]:
    """A device's ids on their way out that are, or may be, in use."""
    return tuple(i for i in ids.leaving if usage.busy(key[0], i))


def former(devices: Mapping[Key, Device], ids: Mapping[Key, Ids], usage: Usage) -> tuple[Holding, ...]:
    """Exclusive devices of this object that are no longer offered under this name and id, and may be in use."""
    found = []
    for key, device in devices.items():
        if not device.present and device.exclusive and (used := may_be_used(key, ids[key], usage)):
            found.append(Holding(device.unit, in_use_text(key[0], used, usage)))
    return tuple(found)


def elsewhere(view: KubeletView, owners: Owners, *, boot: str) -> Holdings:
    """Hardware in use under an id that our lists do not have, or have for other hardware. `boot`: the present one."""
    usage, found = view.usage, _Elsewhere(owners, boot=boot)
    for key, of in usage.given():
        found.add(key, of.device, boot=of.boot)
    for seen in view.seen:
        for device in seen.devices:
            for i in seen.grant.ids[:1]:
                found.add((seen.grant.resource, i), device, boot=seen.boot)
    hardware = (
        Holding(device.unit(resource=name, entry=device.entry), in_use_text(name, ids, usage))
        for (name, _, _), (device, ids) in found.hardware.items()
    )
    return Holdings(tuple(hardware), found.nodes)


class _Elsewhere:
    """Collects `elsewhere`."""

    def __init__(self, owners: Owners, *, boot: str) -> None:
        self.hardware: dict[tuple[str, str, tuple[str, ...]], tuple[GrantedDevice, list[str]]] = {}
        self.nodes: dict[str, list[NodeHolding]] = {}
        self._owners = owners
        self._boot = boot

    def add(self, key: Key, device: GrantedDevice, *, boot: str) -> None:
        """A device that is in use under this id. `boot`: the one in which its node numbers are valid."""
        if not device.exclusive:
            return
        for path, number in device.nodes.items():
            self.nodes.setdefault(path, []).append(NodeHolding(key, device))
            if number and boot == self._boot:
                self.nodes.setdefault(number, []).append(NodeHolding(key, device))
        mine = self._owners(key)
        if mine is None or not same_hardware(mine.hardware, device.hardware):
            self.hardware.setdefault((key[0], device.id, device.hardware), (device, []))[1].append(key[1])


def of_other_plugins(seen: Iterable[SeenGrant], present: Sequence[Unit]) -> Found:
    """Finds our devices in grants without a note, by their nodes and by words in the answer.

    Grants whose devices are known already are left out.

    `present`: the devices that are here and that nobody shares.
    """
    grants = [one.grant for one in seen if one.grant.note is None and not one.devices]
    if not grants:
        return {}
    by_word: dict[str, list[Unit]] = {}
    by_node: dict[str, list[Unit]] = {}
    for unit in present:
        for word in words_of(unit):
            by_word.setdefault(word, []).append(unit)
        for path in unit.own_nodes:
            by_node.setdefault(path, []).append(unit)
    found: dict[tuple[str, str, str], tuple[GrantedDevice, ...]] = {}
    for grant in grants:
        units = [unit for word in grant.words for unit in by_word.get(word, ())]
        for path in grant.nodes:
            at_node = by_node.get(path, [])
            # a node that several devices have does not tell which one is meant
            units += at_node if all(same_hardware(unit.hardware, at_node[0].hardware) for unit in at_node) else ()
        if units:
            once = {unit.hardware: unit for unit in units}.values()
            found[grant.where] = tuple(_as_given(unit, grant) for unit in once)
    return found


def _as_given(unit: Unit, grant: Grant) -> GrantedDevice:
    nodes = {path: number for path, number in unit.own_nodes.items() if path in grant.nodes}
    return replace(granted(unit, exclusive=True), nodes=nodes)


def stale(usage: Usage, present: Iterable[Unit], *, boot: str) -> Mapping[Key, str]:
    """Ids in use whose device nodes are no longer those that their containers were given, and what is there now."""
    at: dict[str, Unit] = {}
    nodes: dict[str, Unit] = {}
    for unit in present:
        at.update(dict.fromkeys(unit.hardware, unit))
        nodes.update(dict.fromkeys(unit.own_nodes, unit))
    found: dict[Key, str] = {}
    for key, of in usage.given():
        if not of.device.exclusive:
            continue
        now = next((at[path] for path in of.device.hardware if path in at), None)
        for path, number in of.device.nodes.items():
            other = nodes.get(path)
            if other is not None and not same_hardware(other.hardware, of.device.hardware):
                found[key] = f"{path}, which its container was given, is now {other.id} of {other.resource}"
            elif now is not None and path not in now.own_nodes:
                found[key] = f"its container was given {path}; the device is now at {', '.join(now.own_nodes) or '-'}"
            elif now is not None and of.boot == boot and _differ(number, now.own_nodes.get(path, "")):
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
