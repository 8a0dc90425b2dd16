"""When an id may leave a list. Pure: told by the devices and the ledger, done to the table's devices.

Dropping an id that may be allocated is what must never happen: kubelets from 1.34 on dereference the missing entry
(pkg/kubelet/cm/devicemanager: manager.go after Allocate, topology_hints.go after a restart). So an id leaves in two
steps. First it is listed Unhealthy; it is gone when a List that was begun after the kubelet had been sent that list
shows it free, no Allocate of it is in flight, and it was not handed out within the last hour without ever appearing
in a List. A resource whose entry left the configuration goes as a whole once none of its ids is in use: the kubelet
keeps the entries of a plugin that disconnects. A device that vanished stays listed for its entry's removal grace at
least, free or not: one that returns in time was never gone.
"""

from collections.abc import Collection, MutableMapping

from device_agent.contract.document import Resource
from device_agent.table.device import Device
from device_agent.table.offering import MISSING
from device_agent.table.usage import Ledger

Key = tuple[str, str]
"""(resource name, device id)."""


def kept_until(entry: Resource | None, *, edited: Collection[str], now: float) -> float:
    """Until when a device that is gone stays listed at least; one that the configuration took away is not kept.

    `entry`: of the device, None when it left the configuration; `edited`: entries whose sources are others than before.
    """
    if entry is None or entry.name in edited:
        return now
    return now + entry.health.removal_grace_seconds


def let_go(
    devices: MutableMapping[Key, Device], *, ledger: Ledger, entries: Collection[str], now: float
) -> tuple[bool, tuple[Device, ...]]:
    """Take away the ids that may go, and devices that have none left; no id while PodResources does not answer.

    `entries`: names of those in force. Returns whether anything went, and the devices that did.
    """
    stale = [(key, device) for key, device in devices.items() if device.leaving or not device.present]
    for _, device in stale:
        for leaving in device.leaving.values():
            if leaving.shown and leaving.shown_by is None:
                leaving.shown_by = now
    went = False
    begun = ledger.begun
    if ledger.known and begun is not None:
        remaining = _remaining(devices, ledger, entries)
        for (name, _), device in stale:
            for i, leaving in list(device.leaving.items()):
                shown = leaving.shown_by is not None and leaving.shown_by <= begun
                kept = device.kept_until > now and device.reason == MISSING
                if ((shown and not kept) or name not in remaining) and not ledger.busy(name, i):
                    del device.leaving[i]
                    went = True
    gone = [(key, device) for key, device in stale if not device.present and not device.leaving]
    for key, _ in gone:
        del devices[key]
    return went or bool(gone), tuple(device for _, device in gone)


def _remaining(devices: MutableMapping[Key, Device], ledger: Ledger, entries: Collection[str]) -> frozenset[str]:
    """Names that are in the configuration or have an id in use: their lists lose ids one by one."""
    return frozenset(
        name
        for (name, _), device in devices.items()
        if device.present or device.unit.entry in entries or any(ledger.busy(name, i) for i in device.leaving)
    )
