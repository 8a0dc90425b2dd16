"""Hardware that is or may be in use under a name or id that no longer offers it. Pure.

Until it is free it is offered under no other name or id. It does not matter who listed it: this object before an edit,
an earlier process of its agent, or another object's agent.
"""

from collections.abc import Collection, Mapping, Sequence

from device_agent.contract.values import dataclass
from device_agent.select.unit import Unit
from device_agent.table.claims import Claims
from device_agent.table.device import Device, Key
from device_agent.table.lists import Ids
from device_agent.table.usage import Usage


@dataclass(frozen=True, slots=True)
class Holding:
    """`unit`: as it was offered; `text`: under which id and name it is in use, and by whom."""

    unit: Unit
    text: str


def may_be_used(key: Key, ids: Ids, usage: Usage) -> tuple[str, ...]:
    """A device's ids on their way out that are, or may be, in use."""
    return tuple(i for i in ids.leaving if usage.busy(key[0], i))


def former(devices: Mapping[Key, Device], ids: Mapping[Key, Ids], usage: Usage) -> tuple[Holding, ...]:
    """Exclusive devices of this object that are no longer offered under this name and id, and may be in use."""
    found = []
    for key, device in devices.items():
        if not device.present and device.exclusive and (used := may_be_used(key, ids[key], usage)):
            found.append(Holding(device.unit, _text(key[0], used, usage)))
    return tuple(found)


def elsewhere(held: Collection[Key], claims: Claims, usage: Usage) -> tuple[Holding, ...]:
    """Hardware held under names of other objects, or of no object. `held`: all ids of such names.

    Claims say which hardware an id is. Without a claim the hardware is unknown.
    """
    ids: dict[Key, list[str]] = {}
    units: dict[Key, Unit] = {}
    for name, i in sorted(held):
        found = claims.find(name, i)
        if found is not None and found.claim.exclusive:
            ids.setdefault(found.claim.key, []).append(i)
            units.setdefault(found.claim.key, found.claim.unit(entry=found.claim.entry))
    return tuple(Holding(unit, _text(key[0], ids[key], usage)) for key, unit in units.items())


def _text(name: str, ids: Sequence[str], usage: Usage) -> str:
    who = sorted({str(holder) for i in ids for holder in usage.holders_of(name, i)})
    by = f" by {', '.join(who[:3])}" if who else ""
    return f"in use as {ids[0]} of {name}{by}"
