"""What the agents of a node must not serve twice, and what follows where another agent serves it. Pure.

The kernel's locks decide (`store.seats`): at most one live agent has the lock of a resource name or of a device. This
module says which locks this agent needs, and has the text for an admin.
"""

from collections.abc import Callable, Mapping
from typing import Final

from device_agent.contract.document import Ownership, Resource
from device_agent.contract.values import dataclass
from device_agent.select.unit import Unit
from device_agent.store.locks import NOTHING, Taken, Wanted
from device_agent.table.device import Device, Key
from device_agent.table.lists import Ids

_AFTER: Final = "offered here when that agent has let it go"
_APART: Final = "if that is not meant, keep the objects apart by exclude, or by their pools"


def wanted(devices: Mapping[Key, Device]) -> Wanted:
    """What the lists have, including ids on their way out. Observed devices need no lock on their hardware."""
    return Wanted(
        names=frozenset(name for name, _ in devices),
        devices={key: device.unit.hardware for key, device in devices.items() if device.exclusive},
    )


def wanted_soon(now: Wanted, units: Mapping[Key, Unit], entries: Mapping[str, Resource]) -> Wanted:
    """With the units that a scan has found. The same value if they need nothing more."""
    more = {key: unit.hardware for key, unit in units.items() if entries[unit.entry].ownership is Ownership.EXCLUSIVE}
    names = now.names.union(name for name, _ in units)
    if names == now.names and more.items() <= now.devices.items():
        return now
    # a unit whose paths have changed needs both: the list has the old ones until it is applied
    both = {key: tuple(dict.fromkeys((*now.devices.get(key, ()), *hardware))) for key, hardware in more.items()}
    return Wanted(names, {**now.devices, **both})


@dataclass(frozen=True, slots=True)
class Contention:
    """What other live agents serve of the names and devices in this agent's lists.

    `before`: names that they served already before the last change. This agent has sent the kubelet no list of these.
    """

    taken: Taken = NOTHING
    before: frozenset[str] = frozenset()

    def of_name(self, name: str) -> str:
        """Why a resource name cannot be registered, or ''."""
        return f"{self._who} serves {name}; {_AFTER}" if name in self.taken.names else ""

    def of_device(self, key: Key) -> str:
        """Why a device cannot be offered, or ''."""
        hardware = f"{self._who} serves the hardware; {_AFTER}; {_APART}" if key in self.taken.devices else ""
        return self.of_name(key[0]) or hardware

    def not_listed(self, ids: Mapping[Key, Ids], must_list: Callable[[str, str], bool]) -> frozenset[Key]:
        """Devices that must not be listed here: another agent lists them, maybe under the same id.

        `must_list`: whether an id must stay listed, because the kubelet has it from here.
        """
        here = (key for key in self.taken.devices if key in ids)
        return frozenset(
            key for key in here if key[0] in self.before or not any(must_list(key[0], i) for i in ids[key].current)
        )

    def without_untold(self, ids: Mapping[Key, Ids], may_be_held: Callable[[str, str], bool]) -> Mapping[Key, Ids]:
        """Drops leaving ids of names that another agent serves: the kubelet never had them from this agent."""
        changed: dict[Key, Ids] = {}
        for key, own in ids.items():
            if own.leaving and key[0] in self.taken.names:
                untold = [i for i in own.leaving if not may_be_held(key[0], i)]
                if untold:
                    changed[key] = own.without(untold)
        return {**ids, **changed} if changed else ids

    def names(self) -> Mapping[str, str]:
        """Each taken name, and why it cannot be registered."""
        return {name: self.of_name(name) for name in sorted(self.taken.names)}

    @property
    def _who(self) -> str:
        by = self.taken.by
        return f"the agent of DevicePluginConfig {' or '.join(by)}" if by else "another agent on this node"
