"""Decides whether an Allocate may have its ids: ids to units, or a refusal. Pure."""

from collections.abc import Collection, Mapping, Sequence

from device_agent.contract.reasons import DeviceReason, Withheld
from device_agent.runtime.errors import UnavailableDevice, UnknownDevice
from device_agent.select.unit import Unit
from device_agent.table.lists import ListRow
from device_agent.table.usage import Usage


def units_of(
    resource: str, ids: Sequence[str], owners: Mapping[str, ListRow], usage: Usage
) -> tuple[tuple[str, Unit], ...]:
    """The units behind the ids. `owners`: every listed id of the resource -> its device.

    Raises:
        UnknownDevice: not an id of the resource.
        UnavailableDevice: the device is gone, or not offered under this id.
    """
    units = []
    asked: dict[str, list[str]] = {}
    for i in ids:
        row = owners.get(i)
        if row is None:
            raise UnknownDevice(resource, i)
        unit = row.device.unit
        units.append((i, unit))
        asked.setdefault(unit.id, []).append(i)
    for of_one in asked.values():
        _refuse(resource, of_one, owners[of_one[0]], usage)
    return tuple(units)


def _refuse(resource: str, ids: Sequence[str], row: ListRow, usage: Usage) -> None:
    standing, hold = row.standing, row.standing.hold
    if hold is not None and (not row.device.present or hold.word is Withheld.HELD_AS):
        raise UnavailableDevice(resource, ids[0], reason=hold.word, message=hold.message)
    if not row.device.present or standing.reason == DeviceReason.KUBELET_FORGOT:
        raise UnavailableDevice(resource, ids[0], reason=standing.reason, message=standing.message)
    for i in ids:
        if (resource, i) in usage.lost.by_key:
            text = "a pod has it, and the kubelet has forgotten that"
            raise UnavailableDevice(resource, i, reason=DeviceReason.KUBELET_FORGOT, message=text)
    leaving = row.ids.leaving
    if leaving and (not leaving.keys().isdisjoint(ids) or _overused(row, ids, usage)):
        text = "more replicas are in use than it has now"
        raise UnavailableDevice(resource, ids[0], reason=Withheld.HELD_AS, message=text)


def _overused(row: ListRow, ids: Collection[str], usage: Usage) -> bool:
    """Whether this grant would put the device in use more often than it has replicas now.

    An id that stayed Healthy because a pod held it may be free now, and the kubelet may choose it again.
    """
    return len(_used(row, usage).union(ids)) > len(row.ids.current)


def _used(row: ListRow, usage: Usage) -> set[str]:
    """The device's ids, those on their way out too, that may be in use."""
    name = row.device.unit.resource
    return {i for i in (*row.ids.current, *row.ids.leaving) if usage.busy(name, i)}


def would_refuse(ids: Sequence[str], owners: Mapping[str, ListRow], usage: Usage) -> frozenset[str]:
    """Those of the ids that would be refused, because former replicas of their devices are in use.

    `ids`: free ones, as the kubelet sees it. We may learn later than the kubelet that an id is free.
    """
    free = frozenset(ids)
    by_device: dict[str, tuple[ListRow, list[str]]] = {}
    for i in ids:
        row = owners.get(i)
        if row is not None and row.ids.leaving:
            by_device.setdefault(row.device.unit.id, (row, []))[1].append(i)
    refused: set[str] = set()
    for row, of_one in by_device.values():
        used = _used(row, usage) - free
        refused.update(sorted(of_one)[max(0, len(row.ids.current) - len(used)) :])
    return frozenset(refused)
