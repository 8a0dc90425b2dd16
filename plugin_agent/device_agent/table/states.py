"""The table's state of one moment for reports and metrics, as values that need no table. Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from device_agent.select.unit import Selection
from device_agent.table.device import Key
from device_agent.table.holders import Holder
from device_agent.table.lists import ListRow, Lists
from device_agent.table.snapshot import DeviceState, ResourceState, TableSnapshot, counts_of
from device_agent.table.usage import Usage


class OfIds(NamedTuple):
    """What is reported of single ids. `stale`: their containers hold device nodes of other hardware. `kept`: the
    kubelet keeps them for pods that are gone.
    """

    stale: Mapping[Key, str]
    kept: Mapping[Key, str]


def snapshot(lists: Lists, *, idle: Iterable[str], selection: Selection, usage: Usage, about: OfIds) -> TableSnapshot:
    """`idle`: configured names that have no device."""
    found = {row.device.unit.entry for one in lists.values() for row in one.rows}  # their resources have the note
    notes = {entry: note for entry, note in selection.notes.items() if entry not in found}
    return TableSnapshot(
        resources=tuple(_resource(name, lists, selection, usage, about) for name in sorted((*idle, *lists))),
        excluded=selection.excluded,
        refused=selection.refused,
        notes=notes,
        holders_known=usage.known,
        record_problem=usage.problem if usage.looked else "",
    )


def _resource(name: str, lists: Lists, selection: Selection, usage: Usage, about: OfIds) -> ResourceState:
    held = usage.held(name)
    devices = tuple(_device(row, held, about) for row in lists[name].rows) if name in lists else ()
    entry = devices[0].unit.entry if devices else name
    return ResourceState(
        name=name,
        entry=entry,
        devices=devices,
        capacity=sum(len(d.ids) for d in devices),
        allocated=sum(len(d.holders) for d in devices),
        counts=counts_of(devices),
        message=selection.refused.get(name) or selection.notes.get(entry, ""),
    )


def _device(row: ListRow, held: Mapping[str, tuple[Holder, ...]], about: OfIds) -> DeviceState:
    """`held`: id -> its holders, of the resource."""
    ids = tuple(i for i, _ in row.ids.listed())
    standing, name = row.standing, row.device.unit.resource
    return DeviceState(
        unit=row.device.unit,
        health=standing.health,
        reason=standing.reason,
        message=standing.message,
        since=standing.since,
        unanswered=standing.unanswered,
        hold=standing.hold,
        ids=ids,
        holders={i: held[i] for i in ids if held.get(i)},
        stale={i: about.stale[name, i] for i in ids if (name, i) in about.stale},
        kept={i: about.kept[name, i] for i in ids if (name, i) in about.kept},
    )
