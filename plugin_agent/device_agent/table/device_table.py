"""The device table: the one state of the agent, from which everything it tells anybody is read.

Events go in (a selection, news of the devices' health, an answer of PodResources, the begin and end of an Allocate,
a configuration), lists for the kubelet and snapshots for reports come out. No I/O and no clock: `now` is monotonic
seconds, `wall` an aware datetime, and both come with the event.

What the table must never do is drop an id that may be allocated (`retention`). A device that is in use under a name
or an id it no longer has is offered under no other until then (`offering`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from device_agent.allocate.preferred import Place
from device_agent.allocate.topology import Affinity, Links
from device_agent.contract.document import Document, Ownership, Resource, TopologyHints
from device_agent.contract.names import replica_id
from device_agent.contract.template import parse_template
from device_agent.health import acknowledgement
from device_agent.health.acknowledgement import Answer
from device_agent.health.conditions import Conditions, Record, own
from device_agent.health.state_machine import Fault, Look
from device_agent.nvml import xids
from device_agent.runtime.errors import UnavailableDevice, UnknownDevice
from device_agent.select.unit import Selection, Unit
from device_agent.table import offering
from device_agent.table.adoption import Elsewhere, adopted, entry_of
from device_agent.table.claims import Claim, Claims
from device_agent.table.device import Device, Leaving, split_replica
from device_agent.table.holders import Holders
from device_agent.table.lists import Advertisement
from device_agent.table.offering import HELD_AS
from device_agent.table.retention import Key, kept_until, let_go
from device_agent.table.snapshot import Advertised, Health, ResourceState, TableSnapshot
from device_agent.table.usage import Ledger


class DeviceTable:
    """See the module. Every method that takes an event returns the names whose list changed, came or went."""

    def __init__(self, document: Document) -> None:
        self._next = document
        self._names_to_come = _names_of(document)
        self._entries = {r.name: r for r in document.resources}
        self._of_name: dict[str, Resource] = {}
        self._selection = Selection(units=(), excluded=(), refused={})
        self._scanned = False
        self._stirred = False
        self._remembering = True
        self._devices: dict[Key, Device] = {}
        self._ledger = Ledger()
        self._conditions = Conditions(rule=xids.rule)
        self._claims = Claims()
        self._elsewhere = Elsewhere()
        self._advertisement = Advertisement(hints=self._publishes_hints)

    # Events

    def configure(self, document: Document) -> None:
        """A new configuration; it counts from the next selection on, which must have been made with it."""
        self._next = document
        self._names_to_come = _names_of(document)

    def apply_selection(self, selection: Selection, *, now: float, wall: datetime) -> frozenset[str]:
        """What one scan of the node gives."""
        edited = self._take_configuration(now=now, wall=wall)
        self._selection = selection
        self._scanned = True
        seen: set[Key] = set()
        for unit in selection.units:
            key = (unit.resource, unit.id)
            if key not in seen and unit.entry in self._entries:
                seen.add(key)
                self._of_name[unit.resource] = self._entries[unit.entry]
                self._found(key, unit, wall=wall)
                self._stirred |= self._conditions.scanned(unit, now=now, wall=wall)
        self._recognise()
        for key, device in self._devices.items():
            if key not in seen and device.present:
                self._stirred = True
                device.leave(device.ids)
                device.ids, device.present = (), False
                device.kept_until = kept_until(self._entries.get(device.unit.entry), edited=edited, now=now)
        changed = self._settle(now=now, wall=wall)
        self._claims.listed(self._devices.keys(), now=now)
        return changed

    def apply_claims(
        self, own: Iterable[Claim], others: Iterable[Claim], *, now: float, wall: datetime
    ) -> frozenset[str]:
        """What an earlier process of this object kept on the node, and what other objects' agents keep there now."""
        self._claims.restore(own, now=now)
        self._claims.learn(others)
        for (name, device_id), device in self._devices.items():
            claim = self._claims.find(name, device_id) if device.ghost else None
            if claim is not None and claim.id == device_id:
                device.unit, self._stirred = claim.unit(entry=device.unit.entry), True
        return self._settle(now=now, wall=wall)

    def apply_health(self, news: Look | Fault, *, now: float, wall: datetime) -> frozenset[str]:
        """What a driver tells of physical devices: one look at them, or an event."""
        if isinstance(news, Look):
            self._stirred |= self._conditions.look(news, now=now, wall=wall)
        else:
            self._stirred |= self._conditions.fault(news, wall=wall)
        return self._settle(now=now, wall=wall)

    def inherit(self, records: Iterable[Record], *, now: float, wall: datetime) -> frozenset[str]:
        """What others knew of the health of physical devices, or we did before: `Conditions.inherit`."""
        before = self._conditions.revision
        self._conditions.inherit(records)
        self._stirred |= self._conditions.revision != before
        return self._settle(now=now, wall=wall)

    def acknowledge(self, text: str, *, now: float, wall: datetime) -> tuple[frozenset[str], tuple[Answer, ...]]:
        """An admin's `<device id>=<since>[,...]`: what these devices have failed with by then is over.

        Returns what every event returns, and an answer to each item.
        """
        answers = acknowledgement.take(text, [d.unit for d in self._devices.values()], self._conditions, wall=wall)
        self._stirred |= any(answer.parts for answer in answers)
        return self._settle(now=now, wall=wall), answers

    def apply_holders(self, holders: Holders | None, *, begun: float, now: float, wall: datetime) -> frozenset[str]:
        """One answer of PodResources List that was asked for at `begun`; None: no answer, so nothing is dropped."""
        self._ledger.listed(holders, begun=begun)
        self._claims.forget(self._ledger)
        return self._settle(now=now, wall=wall)

    def apply_links(self, links: Links) -> None:
        """The NVLinks between the node's GPUs; no list depends on them."""
        self._advertisement.links(links)

    def allocation_begun(self, resource: str, ids: Sequence[str], *, now: float) -> int:  # noqa: ARG002
        """An Allocate or GetPreferredAllocation is being answered; the ticket is for `allocation_ended`."""
        return self._ledger.begin(resource, ids)

    def allocation_ended(self, ticket: int, *, now: float, handed_out: bool) -> None:
        """The answer is on its way. `handed_out`: the ids were granted."""
        self._ledger.end(ticket, now=now, handed_out=handed_out)

    # What is kept on the node for the next process

    @property
    def health_revision(self) -> int:
        """Grows with each change of `health_records`."""
        return self._conditions.revision

    def health_records(self) -> tuple[Record, ...]:
        """What is known of the devices' health, in a fixed order."""
        return self._conditions.records()

    def restore_health(self, records: Iterable[Record]) -> None:
        """What an earlier process of this object knew; to be called before any other event."""
        self._conditions.restore(records)

    @property
    def claims_revision(self) -> int:
        """Grows with each change of `claim_records`."""
        return self._claims.revision

    def claim_records(self) -> tuple[Claim, ...]:
        """Which hardware this object has offered under which ids."""
        return self._claims.records()

    @property
    def claimed_names(self) -> frozenset[str]:
        """Resource names that any object of this node has offered."""
        return frozenset(self._claims.names)

    def claim(self, units: Iterable[Unit], *, exclusive: Collection[str]) -> None:
        """These devices are about to be offered. `exclusive`: names of the entries whose devices nobody shares."""
        self._claims.offer(units, exclusive=exclusive)

    @property
    def broken(self) -> bool:
        """Whether anything is wrong with a physical device."""
        return self._conditions.broken

    # Answers

    def resources(self) -> tuple[str, ...]:
        """The names served now, sorted; a name stays while it has listed ids."""
        return self._advertisement.names()

    def advertised(self, resource: str) -> tuple[Advertised, ...]:
        """The list for ListAndWatch, by device and replica; empty for a name that is not served.

        To be asked for that message only: an id may be dropped once this has returned it as unhealthy.
        """
        for device in self._advertisement.devices(resource):
            for leaving in device.leaving.values():
                leaving.shown = True
        return self._advertisement.list(resource)

    def listed(self, resource: str) -> tuple[Advertised, ...]:
        """The same for whoever only looks: nothing is taken as told to the kubelet."""
        return self._advertisement.list(resource)

    def units_of(self, resource: str, ids: Sequence[str]) -> tuple[tuple[str, Unit], ...]:
        """The units behind the ids of an Allocate.

        An unhealthy device that is there is given out: health may change between the kubelet's choice and the
        call, and a refusal rejects the pod for good.

        Raises:
            UnknownDevice: not an id of the resource.
            UnavailableDevice: the device is gone, or not offered under this id.
        """
        known = self._advertisement.ids(resource)
        asked: dict[str, list[str]] = {}
        for i in ids:
            if i not in known:
                raise UnknownDevice(resource, i)
            asked.setdefault(known[i].unit.id, []).append(i)
        for i, *more in asked.values():
            device = known[i]
            if not device.present or device.reason == HELD_AS:
                raise UnavailableDevice(resource, i, reason=device.reason, message=device.message)
            if not device.leaving.keys().isdisjoint((i, *more)) or offering.overused(device, (i, *more), self._ledger):
                raise UnavailableDevice(resource, i, reason=HELD_AS, message="more replicas are in use than it has now")
        return tuple((i, known[i].unit) for i in ids)

    def entry(self, resource: str) -> Resource:
        """The configuration entry behind a name, as of the selection in force; of a name that is gone the last one.

        Raises:
            KeyError: the name was never served and is in no entry.
        """
        entry = self._of_name.get(resource)
        return entry if entry is not None else self._entries[resource]

    def ours(self, resource: str) -> bool:
        """Whether the name is served now, or stands in the configuration without a placeholder."""
        return self._advertisement.has(resource) or (resource in self._entries and not parse_template(resource).names)

    def could_serve(self, resource: str) -> bool:
        """Whether the name is served, or the configuration may come to give it, or anybody has offered it on this node.

        Holders of its ids have to be known: the first list of a name must have the ids of it that are held, and is made
        before the next List is asked for; and what they hold is to be offered under no other name.
        """
        return self._may_give(resource) or resource in self._claims.names

    def _may_give(self, resource: str) -> bool:
        fixed, domains = self._names_to_come
        return self.ours(resource) or resource in fixed or resource.partition("/")[0] in domains

    def places(self, resource: str) -> Mapping[str, Place]:
        """Where each listed id of the resource is, for `allocation.preferred`."""
        return self._advertisement.places(resource)

    def offered(self, resource: str, ids: Sequence[str], *, at_least: int) -> Sequence[str]:
        """Those of the ids that are healthy now: the kubelet may not have heard yet. All of them when too few are."""
        return self._advertisement.offered(resource, ids, at_least=at_least)

    def affinity(self, resource: str) -> Affinity | None:
        """How close its devices are to each other, for `allocation.preferred`; None where only NUMA nodes are known."""
        return self._advertisement.affinity(resource)

    def holders(self) -> Holders | None:
        """The last answer of PodResources, as far as `could_serve` wanted it; None when it gave none the last time."""
        return self._ledger.answer if self._ledger.known else None

    def held_ids(self) -> frozenset[str]:
        """Ids in use or on their way there, and the devices they are of: what `maxDevices` must not exchange."""
        used = self._ledger.used()
        names = {name for name, _ in used}
        names = {name for name in names if self._may_give(name) or self._claims.of_object(name)}
        used = frozenset((name, i) for name, i in used if name in names)
        ids = {i for _, i in used}
        for resource, i in used:
            device = self._advertisement.ids(resource).get(i)
            ids.add(device.unit.id if device else split_replica(i)[0])
        return frozenset(ids)

    def snapshot(self) -> TableSnapshot:
        """Everything that reports and metrics need."""
        served = self._advertisement.groups()
        idle = [name for name in self._entries if name not in served and self.ours(name)]
        found = {device.unit.entry for device in self._devices.values()}  # their resources have the note
        notes = {entry: note for entry, note in self._selection.notes.items() if entry not in found}
        return TableSnapshot(
            resources=tuple(self._state(name) for name in sorted((*idle, *served))),
            excluded=self._selection.excluded,
            refused={**notes, **self._selection.refused},
            holders_known=self._ledger.known,
        )

    def _state(self, name: str) -> ResourceState:
        held = self._ledger.held(name)
        devices = tuple(device.state(held) for device in self._advertisement.devices(name))
        entry = devices[0].unit.entry if devices else name
        return ResourceState(
            name=name,
            entry=entry,
            devices=devices,
            capacity=sum(len(d.ids) for d in devices),
            allocated=sum(len(d.holders) for d in devices),
            healthy=sum(d.health is Health.HEALTHY for d in devices),
            message=self._selection.refused.get(name) or self._selection.notes.get(entry, ""),
        )

    # Within

    def _publishes_hints(self, resource: str) -> bool:
        return self.entry(resource).allocation.topology_hints is TopologyHints.PUBLISH

    def _found(self, key: Key, unit: Unit, *, wall: datetime) -> None:
        device = self._devices.get(key)
        if device is not None and device.present and device.unit == unit:
            device.unit = unit
            return
        self._stirred = True
        self._advertisement.moved(unit.resource)
        if device is None:
            device = self._devices[key] = Device(unit=unit, since=wall)
        device.unit, device.present = unit, True
        device.exclusive = self._entries[unit.entry].ownership is Ownership.EXCLUSIVE
        if len(device.ids) != unit.replicas:
            before, device.ids = device.ids, tuple(replica_id(unit.id, n) for n in range(unit.replicas))
            device.leave(before[unit.replicas :], first=unit.replicas)
        if device.leaving:
            for i in device.ids:
                device.leaving.pop(i, None)

    def _take_configuration(self, *, now: float, wall: datetime) -> frozenset[str]:
        """The names of the entries whose sources were edited."""
        entries = {r.name: r for r in self._next.resources}
        if entries == self._entries and self._scanned:
            return frozenset()
        self._stirred = True
        before, self._entries = self._entries, entries
        edited = frozenset(n for n, r in entries.items() if n not in before or before[n].devices != r.devices)
        self._conditions.configure(self._next.resources, now=now, wall=wall)
        self._of_name = {name: entries.get(entry.name, entry) for name, entry in self._of_name.items()}
        for device in self._devices.values():
            if entry := entries.get(device.unit.entry):
                device.exclusive = entry.ownership is Ownership.EXCLUSIVE
        return edited

    def _settle(self, *, now: float, wall: datetime) -> frozenset[str]:
        went, gone = let_go(self._devices, ledger=self._ledger, entries=self._entries, now=now)
        self._stirred |= went
        for device in gone:
            self._conditions.forget(device.unit)
        if self._scanned and self._ledger.known:
            self._adopt(wall=wall)
            self._forget_strangers()
        if not self._stirred and not any(device.leaving for device in self._devices.values()):
            return frozenset()  # nothing moved, and holders matter to ids on their way out alone
        self._stirred = False
        offering.judge(
            self._devices.values(),
            elsewhere=self._elsewhere.devices,
            ledger=self._ledger,
            selection=self._selection,
            entries=self._entries,
            conditions=self._conditions,
            wall=wall,
        )
        return self._advertisement.make((name, device) for (name, _), device in self._devices.items())

    def _adopt(self, *, wall: datetime) -> None:
        """List ids that PodResources says are held under our names and nobody knows: they must not be missing.

        Ours: names that are served, or that the configuration gives, and what this object has offered before.
        """
        held = [(name, i) for name, i in self._ledger.holders() if i not in self._advertisement.ids(name)]
        names = {name for name, _ in self._devices} if held else set()
        names.update(name for name, i in held if self.ours(name) or self._claims.own(name, i))
        ours = [(name, i) for name, i in held if name in names]
        known = self._ids_of(name for name, _ in ours)
        for name, i in ours:
            if i in known[name]:
                continue
            claim = self._claims.find(name, i)
            of, index = (claim.id, claim.replica(i) or 0) if claim else split_replica(i)
            device = self._devices.get((name, of))
            if device is None:
                entry = entry_of(name, claim, former=self._of_name.get(name), entries=self._entries)
                self._of_name.setdefault(name, entry)
                device = self._devices[name, of] = adopted(name, of, claim, entry=entry, wall=wall)
            device.leaving[i] = Leaving(index=index)
            if claim:
                self._claims.take(claim)
            self._stirred = True
        strange = set(held).difference(ours)
        self._stirred |= self._elsewhere.look(strange, claims=self._claims, ledger=self._ledger, wall=wall)

    def _forget_strangers(self) -> None:
        """Once after a start: what an earlier process knew of devices that are neither found nor held."""
        if not self._remembering:
            return
        self._remembering = False
        self._conditions.forget_others({own(device.unit) for device in self._devices.values()})

    def _recognise(self) -> None:
        """Ghosts' ids that a scan has found now: they are that device's."""
        ghosts = [(name, device) for (name, _), device in self._devices.items() if device.ghost]
        known = self._ids_of((name for name, _ in ghosts), leaving=False)
        for name, device in ghosts:
            for i in known[name].intersection(device.leaving):
                del device.leaving[i]

    def _ids_of(self, names: Iterable[str], *, leaving: bool = True) -> dict[str, set[str]]:
        """All ids of devices under each of the names."""
        ids: dict[str, set[str]] = {name: set() for name in names}
        if ids:
            for (name, _), device in self._devices.items():
                if name in ids:
                    ids[name].update(device.ids)
                    if leaving:
                        ids[name].update(device.leaving)
        return ids


def _names_of(document: Document) -> tuple[frozenset[str], frozenset[str]]:
    """The names that the entries give, and the domains of those with placeholders, which stand after the slash."""
    rendered = [r.name for r in document.resources if parse_template(r.name).names]
    fixed = frozenset(r.name for r in document.resources).difference(rendered)
    return fixed, frozenset(name.partition("/")[0] for name in rendered)
