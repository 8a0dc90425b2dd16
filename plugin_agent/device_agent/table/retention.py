"""When an id may leave a list. Pure.

An id that may be allocated must never be dropped. Otherwise kubelets from 1.34 on dereference the missing entry, and
crash (pkg/kubelet/cm/devicemanager: manager.go after Allocate, topology_hints.go after a restart). So an id leaves in
two steps. First the kubelet is told that the id is Unhealthy. Later both a new List and the kubelet's record must show
that the id is free (`usage`). Then it is dropped.

If the entry of a resource left the configuration, the resource goes as a whole when none of its ids is in use. This is
safe, because the kubelet keeps the entries of a plugin that disconnects. A device that vanished may return. So it stays
listed at least for its entry's removal grace, even if it is free.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from device_agent.contract.document import Resource
from device_agent.contract.reasons import DeviceReason
from device_agent.contract.values import dataclass
from device_agent.table.device import Device, Key, Standing
from device_agent.table.lists import Ids, Told
from device_agent.table.usage import Usage

HEARD_SECONDS: Final = 1.0
"""Seconds that the kubelet may take to process a list. Until then it may still choose by the list before."""


def kept_until(entry: Resource | None, *, edited: Collection[str], now: float) -> float:
    """The earliest time at which a device that is gone may leave its list. A device that the configuration removed has
    no grace.

    `entry`: of the device, None when it left the configuration. `edited`: names of entries whose sources were edited.
    """
    if entry is None or entry.name in edited:
        return now
    return now + entry.health.removal_grace_seconds


@dataclass(frozen=True, slots=True)
class Retention:
    """The input. `told`: by resource name, what the kubelet was told.

    `entries`: names of those in force. `now`: monotonic seconds.
    """

    usage: Usage
    told: Mapping[str, Told]
    entries: Collection[str]
    now: float

    def let_go(
        self, devices: Mapping[Key, Device], ids: Mapping[Key, Ids], standings: Mapping[Key, Standing]
    ) -> tuple[Mapping[Key, Ids], tuple[Key, ...]]:
        """The ids that stay, and the devices without ids. While PodResources does not answer, no id goes."""
        stale = [key for key, own in ids.items() if own.leaving or not devices[key].present]
        if not stale:
            return ids, ()
        stay: dict[Key, Ids] = {}
        if self.usage.known and self.usage.begun is not None:
            remaining = self._remaining(devices, ids)
            for key in stale:
                kept = self._kept(devices[key], standings.get(key))
                free = {
                    i
                    for i in ids[key].leaving
                    if self._may_go(key[0], i, ids[key], kept=kept, whole=key[0] not in remaining)
                }
                if free:
                    stay[key] = ids[key].without(free)
        after = {**ids, **stay} if stay else ids
        gone = dict.fromkeys(key for key in stale if not devices[key].present and not after[key].leaving)
        return {key: own for key, own in after.items() if key not in gone} if gone else after, tuple(gone)

    def _may_go(self, name: str, device_id: str, ids: Ids, *, kept: bool, whole: bool) -> bool:
        """`kept`: its device may come back in time; `whole`: the name goes with all that it has."""
        if self.usage.busy(name, device_id):
            return False
        return whole or (not kept and self._heard(name, device_id, ids))

    def _heard(self, name: str, device_id: str, ids: Ids) -> bool:
        """Whether the last List was asked for after the kubelet knew that the id is no longer offered."""
        begun = self.usage.begun
        if begun is None or ids.leaving[device_id].since > begun:
            return False
        if device_id in ids.unlisted:
            return True  # the kubelet has it under another name
        told = self.told.get(name, {}).get(device_id)
        return told is not None and told + HEARD_SECONDS <= begun

    def _kept(self, device: Device, standing: Standing | None) -> bool:
        return device.kept_until > self.now and standing is not None and standing.reason == DeviceReason.MISSING

    def _remaining(self, devices: Mapping[Key, Device], ids: Mapping[Key, Ids]) -> frozenset[str]:
        """Names that are in the configuration or have an id in use. Their lists lose ids one by one; other names go as
        a whole.
        """
        return frozenset(
            key[0]
            for key, device in devices.items()
            if device.present or device.unit.entry in self.entries or self._any_busy(key[0], ids[key].leaving)
        )

    def _any_busy(self, name: str, ids: Iterable[str]) -> bool:
        return any(self.usage.busy(name, i) for i in ids)
