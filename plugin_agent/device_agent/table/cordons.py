"""What admins withhold from new pods, as Node.spec.unschedulable does for a node. Pure.

A cordon names a device of this node (`spec.cordoned` of the inventory) or an attribute (`spec.cordon` of the
DevicePluginConfig). It applies to the hardware: all units that share the hardware are withheld, under every name and
of every object. So a cordon keeps the sysfs paths of the device that its id meant. These paths still count when the id
changes. The agents of other objects read them in the node store.

The id of a Stable device follows its hardware, so its paths are looked up anew. A Volatile id may move to another
device. So its first paths count as long as the node has one of them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from device_agent.contract.document import CordonRule
from device_agent.contract.inventory import ALL_DEVICES, Identity, InventoryCordon
from device_agent.contract.values import dataclass
from device_agent.select.kernel_names import matcher
from device_agent.select.places import Places
from device_agent.select.unit import Unit
from device_agent.store.section import Section
from device_agent.table.device import Device, Key, split_replica

MAX_PATHS: Final = 64
"""Paths that one cordon of a Volatile id keeps."""
_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Cordon:
    """One cordon, as the node store keeps it.

    `config`: name of the DevicePluginConfig through which it was set. `id`: as in the inventory's spec, or `cordon[2]`
    for a rule of the configuration. `hardware`: the sysfs paths that it means. The first item of a file has no id. It
    marks the start of a newer file: items of older files of the same object name no longer count.
    """

    config: str
    id: str
    reason: str = ""
    hardware: tuple[str, ...] = ()
    by_rule: bool = False


CORDONS: Final = Section(
    name="cordons",
    item=Cordon,
    version=1,
    what="cordons of devices",
    forgotten="cordoned devices may be offered until the API server answers",
    others_at_start=True,
)


@dataclass(frozen=True, slots=True)
class Cordons:
    """All cordons that count on this node.

    `own`: of this object's inventory. `rules`: of its configuration; `ruled`: what these match. `others`: what other
    objects' agents keep. `kept_before`: a file of this object, or of an earlier one of its name, has been read.
    `told`: this process has read the inventory, so what an earlier process kept no longer counts.
    `deleted`: other objects that have no inventory of this node any more; their cordons no longer count.
    """

    config: str = ""
    own: tuple[Cordon, ...] = ()
    rules: tuple[CordonRule, ...] = ()
    ruled: tuple[Cordon, ...] = ()
    others: tuple[Cordon, ...] = ()
    kept_before: bool = False
    told: bool = False
    deleted: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.own or self.ruled or self.others)

    @property
    def kept(self) -> tuple[Cordon, ...]:
        """What the node store keeps."""
        return (Cordon(self.config, ""), *self.own, *self.ruled)

    @property
    def spec(self) -> tuple[InventoryCordon, ...]:
        """As `spec.cordoned` of an inventory that is created anew."""
        return tuple(InventoryCordon(cordon.id, cordon.reason) for cordon in self.own)

    def as_read(self, items: Iterable[InventoryCordon]) -> "Cordons":
        """The cordons after the inventory was read. The paths of those that stay are kept."""
        known = {cordon.id: cordon.hardware for cordon in self.own}
        own = tuple(Cordon(self.config, i.id, i.reason, known.get(i.id, ())) for i in items)
        return self if self.told and own == self.own else replace(self, own=own, told=True)

    def restored(self, kept: Iterable[Cordon]) -> "Cordons":
        """The cordons that an earlier process of this object kept. They count until the inventory is read."""
        kept = tuple(kept)
        own = tuple(replace(cordon, config=self.config) for cordon in kept if cordon.id and not cordon.by_rule)
        return self if self.told or not kept else replace(self, own=own, kept_before=True)

    def learnt(self, others: Iterable[Cordon]) -> "Cordons":
        """With the cordons that other objects' agents keep; those of the file written last come last.

        The object may have been deleted and created again. Then it takes over the cordons of the earlier object of its
        name, once, if the inventory has not been read yet.
        """
        others = _latest(others)
        theirs = tuple(cordon for cordon in others if cordon.config != self.config)
        after = self if self.kept_before else self.restored(c for c in others if c.config == self.config)
        return after if theirs == self.others else replace(after, others=theirs)

    @property
    def objects(self) -> tuple[str, ...]:
        """The other DevicePluginConfigs that have cordons on this node."""
        return tuple(sorted({cordon.config for cordon in self.others}))

    def without(self, deleted: frozenset[str]) -> "Cordons":
        """With those of `objects` that were deleted. Their cordons no longer count."""
        return self if deleted == self.deleted else replace(self, deleted=deleted)

    def ruled_by(self, rules: tuple[CordonRule, ...]) -> "Cordons":
        """With the rules of a new configuration."""
        return self if rules == self.rules else replace(self, rules=rules)

    def resolved(self, devices: Mapping[Key, Device]) -> "Cordons":
        """With the hardware that the ids and rules mean, as the devices listed now show it."""
        if not (self.own or self.rules or self.ruled):
            return self
        units = [device.unit for device in devices.values()]
        own, ruled = self.own, tuple(self._of_rule(i, rule, units) for i, rule in enumerate(self.rules))
        if own:
            names = _Names(units)
            own = tuple(replace(cordon, hardware=names.hardware(cordon)) for cordon in own)
        after = replace(self, own=own, ruled=ruled)
        return self if after == self else after

    def unknown(self, devices: Mapping[Key, Device]) -> str:
        """Which items of the inventory's spec name no device of this node, for an admin; '' if all do."""
        if not self.own:
            return ""
        names = _Names(device.unit for device in devices.values())
        words = [_unknown(c) for c in self.own if c.id != ALL_DEVICES and not names.of(c.id)]
        more = [f"and {len(words) - _SHOWN} more"] if len(words) > _SHOWN else []
        return "; ".join([*words[:_SHOWN], *more])

    def _of_rule(self, index: int, rule: CordonRule, units: Iterable[Unit]) -> Cordon:
        fits = matcher(rule.match.values)
        name = rule.match.attribute
        paths = {p for u in units if (value := u.attributes.get(name)) is not None and fits(value) for p in u.hardware}
        return Cordon(self.config, f"cordon[{index}]", rule.reason, tuple(sorted(paths)), by_rule=True)


class CordonIndex:
    """Finds the cordon of a unit."""

    def __init__(self, cordons: Cordons) -> None:
        self._places: Places[str, str] = Places()
        self._all = ""
        for cordon in (*cordons.own, *cordons.ruled):
            text = _text(cordon)
            if cordon.id == ALL_DEVICES and not cordon.by_rule:
                self._all = text
            self._add(cordon, text)
        for cordon in (c for c in cordons.others if c.config not in cordons.deleted):
            self._add(cordon, _text(cordon, through=cordon.config))

    def __bool__(self) -> bool:
        return bool(self._all or self._places)

    def of(self, unit: Unit) -> str:
        """Why the unit is cordoned, for an admin; '' if it is not."""
        for path in unit.hardware:
            if (text := self._places.at(path)) is not None:
                return text
            for _, text in self._places.related(path):
                return text
        return self._all

    def _add(self, cordon: Cordon, text: str) -> None:
        for path in cordon.hardware:
            self._places.add(path, text, kind="")


class _Names:
    """The units by every name that an admin may use."""

    def __init__(self, units: Iterable[Unit]) -> None:
        self.by_name: dict[str, list[Unit]] = {}
        self.paths: set[str] = set()
        for unit in units:
            self.paths.update(unit.hardware)
            for name in {unit.id, unit.value}:
                self.by_name.setdefault(name, []).append(unit)

    def of(self, device_id: str) -> list[Unit]:
        return self.by_name.get(device_id) or self.by_name.get(split_replica(device_id)[0], [])

    def hardware(self, cordon: Cordon) -> tuple[str, ...]:
        """The paths that a cordon means now."""
        if cordon.id == ALL_DEVICES:
            return tuple(sorted(self.paths))
        found = self.of(cordon.id)
        paths = {path for unit in found for path in unit.hardware}
        if not paths:
            return cordon.hardware
        if cordon.hardware and any(unit.identity is Identity.VOLATILE for unit in found):
            if not self.paths.isdisjoint(cordon.hardware):
                return cordon.hardware
            return tuple(sorted(paths.union(cordon.hardware)))[:MAX_PATHS]
        return tuple(sorted(paths))


def _latest(cordons: Iterable[Cordon]) -> tuple[Cordon, ...]:
    """The cordons of the newest file of each object name. An item without an id begins a file."""
    found: dict[str, list[Cordon]] = {}
    for cordon in cordons:
        if cordon.id:
            found.setdefault(cordon.config, []).append(cordon)
        else:
            found[cordon.config] = []
    return tuple(cordon for of_one in found.values() for cordon in of_one)


def _text(cordon: Cordon, *, through: str = "") -> str:
    by = f" by spec.{cordon.id}" if cordon.by_rule else ""
    of = f" of the DevicePluginConfig {through}" if through else ""
    where = f"{by}{of}" if by else f" through{of.removeprefix(' of')}" if of else ""
    return f"cordoned{where}: {cordon.reason}" if cordon.reason else f"cordoned{where}"


def _unknown(cordon: Cordon) -> str:
    if cordon.hardware:
        return f"{cordon.id}: no device has this id now; the hardware that had it stays cordoned"
    return f"{cordon.id}: no device of this node has this id; it is cordoned when it appears"
