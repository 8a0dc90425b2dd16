"""What happened to devices: the transitions of all inventories, filtered and in the order of time. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from device_agent.contract.inventory import InventoryTransition

from kubectl_devices.model.filters import fits, named
from kubectl_devices.model.fleet import Inventory
from kubectl_devices.model.soundness.finding import age
from kubectl_devices.model.table import Table, table


@dataclass(frozen=True, slots=True)
class Happening:
    """One change of a device on a node."""

    node: str
    config: str
    facts: InventoryTransition

    @property
    def time(self) -> datetime:
        """When, on the node's clock."""
        return datetime.fromisoformat(self.facts.time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Empty or None: all. Texts are globs, except `device`, which is a name as `list` takes it. `since`: a time."""

    device: str = ""
    node: str = ""
    config: str = ""
    resource: str = ""
    since: datetime | None = None


def happenings(inventories: Iterable[Inventory], wanted: Wanted) -> tuple[Happening, ...]:
    """The newest last. Changes of one device keep the order in which its agent saw them, if its clock did not jump."""
    found: list[Happening] = []
    for inventory in sorted(inventories, key=lambda i: (i.node, i.config)):
        if inventory.status is None or not (
            fits(wanted.node, inventory.node) and fits(wanted.config, inventory.config)
        ):
            continue
        ids = {wanted.device, *(d.id for d in named(inventory.devices, wanted.device))}
        found += (
            Happening(inventory.node, inventory.config, change)
            for change in inventory.status.history
            if (not wanted.device or change.id in ids) and fits(wanted.resource, change.resource)
        )
    return tuple(sorted((h for h in found if wanted.since is None or h.time >= wanted.since), key=lambda h: h.time))


def is_known(inventories: Iterable[Inventory], name: str) -> bool:
    """Whether any node has a device of this name, or had one in its history."""
    return any(
        bool(named(i.devices, name)) or (i.status is not None and any(c.id == name for c in i.status.history))
        for i in inventories
    )


def remarks(inventories: Iterable[Inventory]) -> tuple[str, ...]:
    """What is missing, one line each."""
    return tuple(
        f"{i.name} leaves out {i.status.history_omitted} older changes, which did not fit"
        for i in inventories
        if i.status is not None and i.status.history_omitted
    )


def history_table(found: Iterable[Happening], *, wide: bool, now: datetime) -> Table:
    """Times are local. `wide`: also their age and the configuration."""
    headings = "TIME NODE RESOURCE DEVICE FROM TO REASON"
    if not wide:
        return table(headings, map(_row, found))
    rows = ((*_row(h), age(now - h.time), h.config) for h in found)
    return table(f"{headings} AGE CONFIG", rows)


def _row(happening: Happening) -> tuple[str, ...]:
    change = happening.facts
    return (
        happening.time.astimezone().isoformat(timespec="seconds"),
        happening.node,
        change.resource,
        change.id,
        change.from_ or "",
        change.to,
        change.reason,
    )
