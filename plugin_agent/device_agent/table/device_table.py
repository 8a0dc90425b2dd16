"""The device table: the agent's only state. Every list and every report is made from it.

Events go in: a configuration, a selection, news of the devices' health, an answer of PodResources, ids that an Allocate
gave out, a list that was written. Lists for the kubelet and snapshots for reports come out. The table does no I/O and
has no clock: `now` is monotonic seconds, `wall` an aware datetime, and both come with the event.

The table is the only writer. Its state consists of frozen values. Each rule is a function from values to values in a
module beside it:

    presence    a scan             -> devices (`device.Device`) and their ids (`lists.Ids`)
    usage       List, the record   -> what may be in use (`usage.Usage`)
    retention   told, usage        -> ids that may be dropped: never one that may be allocated
    adoption    usage              -> devices for ids that are in use and in no list
    holdings    usage              -> hardware in use under another name or id
    cordons     cordons, devices   -> what admins withhold
    contention  devices            -> what needs a lock; which of it other live agents have
    gone        selection, entries -> why a device is no longer offered
    offering    all of these       -> how each device stands (`device.Standing`)
    lists       devices, standings -> the list of each name (`lists.ResourceList`)

Each event that may change a list ends in `_settle`, which goes through them in this order. Only `lists` and
`granting` know ListAndWatch. Another way of serving would read devices and standings directly.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from operator import is_
from typing import Final

from device_agent.allocate.grant import NoteWriter
from device_agent.allocate.preferred import Place
from device_agent.allocate.topology import Affinity, Links
from device_agent.contract.document import DeviceEntry, Document, Resource, TopologyHints
from device_agent.contract.inventory import InventoryCordon
from device_agent.contract.reasons import DeviceReason
from device_agent.contract.template import parse_template
from device_agent.health import acknowledgement
from device_agent.health.acknowledgement import Reply
from device_agent.health.conditions import Conditions, own
from device_agent.health.news import Fault, FaultRule, Look
from device_agent.health.watchlist import Record
from device_agent.select.unit import Selection, Unit
from device_agent.store.locks import Taken, Wanted
from device_agent.table import contention, granting, holdings, lists, presence, states
from device_agent.table.adoption import Adoption, named
from device_agent.table.contention import Contention
from device_agent.table.cordons import Cordon, CordonIndex, Cordons
from device_agent.table.device import Device, Key, Standing, split_replica
from device_agent.table.gone import Departures
from device_agent.table.grants import SeenGrant
from device_agent.table.hardware import HardwareIndex
from device_agent.table.holders import Holders, Listing
from device_agent.table.holdings import Holding, Holdings
from device_agent.table.kubelet_view import KubeletView, Reading
from device_agent.table.lists import Ids, ListRow, Lists, Told
from device_agent.table.naming import Naming
from device_agent.table.offering import Judgement
from device_agent.table.presence import Scan
from device_agent.table.retention import Retention
from device_agent.table.snapshot import Advertised, TableSnapshot
from device_agent.table.usage import Usage

NO_FAULTS: Final[Mapping[str, FaultRule]] = {}
"""For a node without a driver library."""
_NOTHING_ELSEWHERE: Final = Holdings()
_NOTHING_STALE: Final[Mapping[Key, str]] = {}


class DeviceTable:
    """See the module. Every method that takes an event returns the names whose list changed, came or went.

    `fault_rules`: source -> what its faults mean, for each source that is a driver library.
    """

    def __init__(
        self,
        document: Document,
        *,
        owner: str = "",
        config: str = "",
        boot: str = "",
        fault_rules: Mapping[str, FaultRule] = NO_FAULTS,
    ) -> None:
        self._next = document
        self._to_come = Naming.of(document)
        self._entries: Mapping[str, Resource] = {r.name: r for r in document.resources}
        self._of_name: Mapping[str, Resource] = {}
        self._selection = Selection(units=(), excluded=(), refused={})
        self._cordons = Cordons(config)
        self._resolved_by: tuple[object, ...] = (None,)
        self._scanned = False
        self._remembering = True
        self._devices: Mapping[Key, Device] = {}
        self._ids: Mapping[Key, Ids] = {}
        self._standings: Mapping[Key, Standing] = {}
        self._owner = owner
        self._boot = boot
        self._notes = NoteWriter(owner=owner, boot=boot)
        self._view = KubeletView()
        self._told: Mapping[str, Told] = {}
        self._drivers = frozenset(fault_rules)
        self._conditions = Conditions(fault_rules)
        self._health_turn = 0
        self._elsewhere = _NOTHING_ELSEWHERE
        self._contention = Contention()
        self._wanted: tuple[object, Wanted] = (None, Wanted())
        self._stale = _NOTHING_STALE
        self._looked_by: tuple[object, ...] = (None,)
        self._links: Links = {}
        self._links_of: Mapping[str, Links] = {}
        self._lists: Lists = {}
        self._judged: tuple[object, ...] = (None,)

    # Events

    def configure(self, document: Document) -> None:
        """A new configuration. It takes effect with the next selection, which must have been made with it."""
        self._next = document
        self._to_come = Naming.of(document)

    def apply_selection(self, selection: Selection, *, now: float, wall: datetime) -> frozenset[str]:
        """The selection that follows from one scan of the node."""
        edited = self._take_configuration(now=now, wall=wall)
        units = presence.found_once(selection.units, self._entries)
        rest = replace(selection, units=())  # `_devices` has the units
        self._selection = self._selection if rest == self._selection else rest
        self._scanned = True
        for unit in units.values():
            self._health_moved(self._conditions.scanned(unit, now=now, wall=wall))
        self._of_name = {**self._of_name, **{name: self._entries[u.entry] for (name, _), u in units.items()}}
        scan = Scan(
            units, self._entries, edited=edited, has=lambda u: u.source in self._drivers or selection.has(u), now=now
        )
        before, self._devices = self._devices, scan.devices(self._devices)
        self._ids = scan.ids(self._ids, was=before, now=self._devices)
        return self._settle(now=now, wall=wall)

    def settled(self, *, now: float, wall: datetime) -> frozenset[str]:
        """The kubelet was asked and told everything that can end a doubt (`kubelet.record_watch.Settling`)."""
        self._view = self._view.settled()
        return self._settle(now=now, wall=wall)

    def restore_grants(self, seen: Iterable[SeenGrant], *, now: float, wall: datetime) -> frozenset[str]:
        """What an earlier process of this object has seen in the kubelet's record. It counts until that is read."""
        self._view = self._view.restored(seen)
        return self._settle(now=now, wall=wall)

    def learn_grants(self, others: Iterable[SeenGrant], *, now: float, wall: datetime) -> frozenset[str]:
        """What other objects' agents have found in the grants of other plugins, and the names of pods."""
        self._view = self._view.learnt(others)
        return self._settle(now=now, wall=wall)

    def apply_record(self, reading: Reading, *, now: float, wall: datetime) -> frozenset[str]:
        """One look at the kubelet's record."""
        self._view = self._view.read(reading)
        return self._settle(now=now, wall=wall)

    def apply_taken(self, taken: Taken, *, now: float, wall: datetime) -> frozenset[str]:
        """What other live agents of the node have of what this one wants."""
        self._contention = Contention(taken)
        return self._settle(now=now, wall=wall)

    def apply_health(self, news: Look | Fault, *, now: float, wall: datetime) -> frozenset[str]:
        """News of physical devices from a driver: one look at them, or one event."""
        if isinstance(news, Look):
            self._health_moved(self._conditions.look(news, now=now, wall=wall))
        else:
            self._health_moved(self._conditions.fault(news, wall=wall))
        return self._settle(now=now, wall=wall)

    def inherit(self, records: Iterable[Record], *, now: float, wall: datetime) -> frozenset[str]:
        """What other objects' agents, or an earlier process of this one, knew of the health of physical devices."""
        before = self._conditions.revision
        self._conditions.inherit(records)
        self._health_moved(self._conditions.revision != before)
        return self._settle(now=now, wall=wall)

    def acknowledge(self, text: str, *, now: float, wall: datetime) -> tuple[frozenset[str], tuple[Reply, ...]]:
        """An admin's `<device id>=<since>[,...]`: ends the failures that these devices had by that time.

        Returns what every event returns, and a reply to each item.
        """
        units = [device.unit for device in self._devices.values()]
        replies = acknowledgement.take(text, units, self._conditions, wall=wall)
        self._health_moved(any(reply.parts for reply in replies))
        return self._settle(now=now, wall=wall), replies

    def apply_cordons(self, cordoned: Iterable[InventoryCordon], *, now: float, wall: datetime) -> frozenset[str]:
        """`spec.cordoned` of the inventory, as it was read last."""
        self._cordons = self._cordons.ordered(cordoned)
        return self._settle(now=now, wall=wall)

    def restore_cordons(self, kept: Iterable[Cordon], *, now: float, wall: datetime) -> frozenset[str]:
        """What an earlier process of this object kept. It counts until the inventory is read."""
        self._cordons = self._cordons.restored(kept)
        return self._settle(now=now, wall=wall)

    def learn_cordons(self, others: Iterable[Cordon], *, now: float, wall: datetime) -> frozenset[str]:
        """What other objects' agents keep now."""
        self._cordons = self._cordons.learnt(others)
        return self._settle(now=now, wall=wall)

    def drop_cordons(self, deleted: frozenset[str], *, now: float, wall: datetime) -> frozenset[str]:
        """Other objects that were deleted, all of them: nobody could take their cordons away."""
        self._cordons = self._cordons.without(deleted)
        return self._settle(now=now, wall=wall)

    def apply_listing(self, listing: Listing | None, *, begun: float, now: float, wall: datetime) -> frozenset[str]:
        """One answer of PodResources List, asked for at `begun`; it is eventually consistent. None: no answer, no id is
        dropped.
        """
        self._view = self._view.listed(listing, begun=begun)
        return self._settle(now=now, wall=wall)

    def apply_links(self, links: Links, *, source: str) -> None:
        """The links between the devices of one source. No list depends on them."""
        if links != self._links_of.get(source, {}):
            self._links_of = {**self._links_of, source: links}
            self._links = {pair: count for of in self._links_of.values() for pair, count in of.items()}
            self._lists = lists.with_links(self._lists, self._links)

    def handed_out(self, resource: str, ids: Sequence[str], *, now: float) -> None:
        """An Allocate gave out these ids; its answer is being sent."""
        owners = self._lists[resource].owners
        given = (((resource, i), owners[i].granted(i, boot=self._boot)) for i in ids)
        self._view = self._view.handed_out(given, now=now)

    def told(self, resource: str, listed: Sequence[Advertised], *, now: float) -> None:
        """This list was written on the resource's stream: its Unhealthy ids may soon be dropped."""
        found, before = self._lists.get(resource), self._told.get(resource, {})
        if found is not None:
            self._told = {**self._told, resource: lists.unhealthy_since(before, listed, found, now=now)}

    # What is kept on the node for the next process

    @property
    def health_revision(self) -> int:
        """Grows with each change of `health_records`."""
        return self._conditions.revision

    def health_records(self) -> tuple[Record, ...]:
        """What is known of the devices' health, in a fixed order."""
        return self._conditions.records()

    def restore_health(self, records: Iterable[Record]) -> None:
        """Health that an earlier process of this object knew. Call it before any other event."""
        self._conditions.restore(records)

    @property
    def nameless(self) -> bool:
        """Whether the record has grants of pods whose names are not known. A look at it after a List tells them."""
        return any(not one.name for one in self._view.seen)

    def seen_grants(self) -> tuple[SeenGrant, ...]:
        """What the kubelet's record had last, with the names of the pods. The same object while nothing changes."""
        return self._view.seen

    @property
    def cordons(self) -> Cordons:
        """What admins withhold. The same object while nothing changes."""
        return self._cordons

    def unknown_cordons(self) -> str:
        """Which cordons of the inventory name no device here, for an admin, or ''."""
        return self._cordons.unknown(self._devices)

    def hardware(self) -> frozenset[str]:
        """The hardware of all listed devices."""
        return frozenset(path for device in self._devices.values() for path in device.unit.hardware)

    @property
    def broken(self) -> bool:
        """Whether anything is wrong with a physical device."""
        return self._conditions.broken

    # Locks beside the other agents of the node

    def wanted(self) -> Wanted:
        """What needs a lock: all that is in a list. The same object while nothing changes."""
        devices, value = self._wanted
        if devices is not self._devices:
            value = contention.wanted(self._devices)
            self._wanted = self._devices, value
        return value

    def wanted_with(self, selection: Selection) -> Wanted:
        """What needs a lock once this selection is applied."""
        entries = {r.name: r for r in self._next.resources}
        return contention.wanted_soon(self.wanted(), presence.found_once(selection.units, entries), entries)

    def taken_name(self, resource: str) -> str:
        """Why the name cannot be registered: another live agent serves it. Or ''."""
        return self._contention.of_name(resource)

    # Answers

    def resources(self) -> tuple[str, ...]:
        """The names served now, sorted. A name stays while it has listed ids."""
        return tuple(name for name, one in self._lists.items() if one.advertised)

    def listed(self, resource: str) -> tuple[Advertised, ...]:
        """The list for ListAndWatch, by device and replica. Empty for a name that is not served."""
        return lists.advertised(self._lists, resource)

    def units_of(self, resource: str, ids: Sequence[str]) -> tuple[tuple[str, Unit], ...]:
        """The units behind the ids of an Allocate.

        An unhealthy device that is present is given out. Health may change between the kubelet's choice and the call,
        and a refusal rejects the pod for good.

        Raises:
            UnknownDevice: not an id of the resource.
            UnavailableDevice: the device is gone, or not offered under this id.
        """
        found = self._lists.get(resource)
        return granting.units_of(resource, ids, found.owners if found is not None else {}, self._usage)

    def entry(self, resource: str) -> Resource:
        """The entry of a name as of the selection in force. A name that is gone has its last entry. Raises KeyError for
        other names.
        """
        entry = self._of_name.get(resource)
        return entry if entry is not None else self._entries[resource]

    def note(self, resource: str, ids: Sequence[str]) -> tuple[str, str]:
        """(name, value) of the annotation that says which hardware these ids are. They are listed ids."""
        return self._lists[resource].note(ids, self._notes)

    def stale(self, resource: str, ids: Iterable[str]) -> str:
        """Why containers with these ids would start with other hardware than they were given; '' if they would not."""
        return next((text for i in ids if (text := self._stale.get((resource, i)))), "")

    def ours(self, resource: str) -> bool:
        """Whether the name is served now, or is in the configuration without a placeholder."""
        return resource in self._lists or (resource in self._entries and not parse_template(resource).names)

    def places(self, resource: str) -> Mapping[str, Place]:
        """The place of each listed id of the resource, for `allocate.preferred`."""
        found = self._lists.get(resource)
        return found.places if found is not None else {}

    def offered(self, resource: str, ids: Sequence[str], *, at_least: int) -> Sequence[str]:
        """Those of the ids that can be given out now, as the kubelet may not know yet. All if too few can."""
        found = self._lists.get(resource)
        if found is None:
            return ids
        spent = granting.spent(resource, ids, found.owners, self._usage)
        if not found.unhealthy and not spent:
            return ids
        well = [i for i in ids if i not in found.unhealthy and i not in spent]
        return well if len(well) >= at_least else ids

    def affinity(self, resource: str) -> Affinity | None:
        """How close its devices are to each other, for `allocate.preferred`; None where only NUMA nodes are known."""
        found = self._lists.get(resource)
        return found.affinity if found is not None else None

    def holders(self) -> Holders | None:
        """The last answer of PodResources. None: the last question had no answer."""
        return self._usage.holders if self._usage.known else None

    def doubtful(self) -> frozenset[Key]:
        """Ids of which another look at List and record would tell more: whether they are in use at all."""
        return self._usage.left_over.union(self._usage.doubts)

    def held_ids(self) -> frozenset[str]:
        """Ids that are or may be in use, and the ids of their devices. `maxDevices` must keep these."""
        used = self._usage.used()
        names = {name for name, _ in used}
        names = {name for name in names if self.ours(name) or self._to_come.may_give(name) or name in self._given_names}
        ids: set[str] = set()
        for resource, i in used:
            if resource in names:
                found = self._lists.get(resource)
                row = found.owners.get(i) if found is not None else None
                ids.update((i, row.device.unit.id if row else split_replica(i)[0]))
        return frozenset(ids)

    def snapshot(self) -> TableSnapshot:
        """Everything that reports and metrics need."""
        idle = [name for name in self._entries if name not in self._lists and self.ours(name)]
        shown = states.snapshot(
            self._lists,
            idle=idle,
            selection=self._selection,
            usage=self._usage,
            about=states.OfIds(self._stale, self._view.kept),
        )
        taken = self._contention.names()
        return replace(shown, taken=taken) if taken else shown

    # Within

    def _health_moved(self, moved: bool) -> None:  # noqa: FBT001
        if moved:
            self._health_turn += 1

    def _publishes_hints(self, resource: str) -> bool:
        return self.entry(resource).allocation.topology_hints is TopologyHints.PUBLISH

    def _take_configuration(self, *, now: float, wall: datetime) -> Mapping[str, Sequence[DeviceEntry]]:
        """Takes the new configuration. Returns the entries whose sources were edited, with their sources before."""
        self._cordons = self._cordons.ruled_by(self._next.cordon)
        entries = {r.name: r for r in self._next.resources}
        if entries == self._entries and self._scanned:
            return {}
        before, self._entries = self._entries, entries
        self._conditions.configure(self._next.resources, now=now, wall=wall)
        self._of_name = {name: entries.get(entry.name, entry) for name, entry in self._of_name.items()}
        self._devices = presence.owned_as(entries, self._devices)
        was = {name: before[name].devices if name in before else () for name in entries}
        return {name: was[name] for name, entry in entries.items() if was[name] != entry.devices}

    def _settle(self, *, now: float, wall: datetime) -> frozenset[str]:
        """Applies all rules after an event, in the order that the module gives. Returns the names whose list
        changed.
        """
        self._let_go(now=now)
        if self._scanned:
            self._adopt(now=now)
            if self._usage.known:
                self._forget_strangers()
        self._look_elsewhere()
        self._resolve_cordons()
        if all(map(is_, self._judged_by(), self._judged)):
            return frozenset()
        elsewhere = self._contention.not_listed(self._ids, self._must_list)
        self._ids, leaving = lists.share_out(self._ids, elsewhere=elsewhere)
        self._judge(leaving, wall=wall)
        rows = (ListRow(device, self._ids[key], self._standings[key]) for key, device in self._devices.items())
        before = self._lists
        self._lists = lists.make(before, rows, hints=self._publishes_hints, links=self._links)
        self._told = lists.still_unhealthy(self._told, before, self._lists)
        self._judged = self._judged_by()
        return lists.changed(before, self._lists)

    def _judged_by(self) -> tuple[object, ...]:
        """The values from which standings and lists are computed. While they are the same objects as before, the result
        is too.

        Judging and listing 20,000 devices takes 0.15 s, in which no pod is admitted. Most events change nothing; then
        this comparison takes 2 ms. It compares by identity, because a value that stays equal is never replaced.
        """
        usage = self._usage if any(own.leaving for own in self._ids.values()) else None  # matters to these alone
        lost = self._usage.lost
        values = (self._devices, self._ids, self._selection, self._entries, self._elsewhere, self._stale, lost, usage)
        return (*values, self._contention, self._cordons, self._health_turn)

    def _let_go(self, *, now: float) -> None:
        retention = Retention(self._usage, told=self._told, entries=self._entries, now=now)
        self._ids, gone = retention.let_go(self._devices, self._ids, self._standings)
        if gone:
            for key in gone:
                self._conditions.forget(self._devices[key].unit)
            self._devices = {key: device for key, device in self._devices.items() if key in self._ids}

    def _adopt(self, *, now: float) -> None:
        """Adds held ids of our names (served, configured, or offered before) that no list has. The kubelet must not
        lose them.
        """
        self._devices = named(self._devices, self._ids, self._usage.grants)
        held = [key for key in self._usage.held_keys() if not self._lists_id(*key)]
        if not held:
            return
        given = self._usage.grants.given_by(self._owner)
        # a name is served whole: its list has the ids that other objects' agents gave under it, too
        names = {name for name, _ in (*self._devices, *given.intersection(held))}
        names.update(name for name in {name for name, _ in held} if self.ours(name))
        ours = [key for key in held if key[0] in names]
        adoption = Adoption(self._usage.grants, of_name=self._of_name, entries=self._entries, now=now)
        adopted = adoption.adopt(ours, self._devices, self._ids)
        self._devices, self._ids = adopted.devices, adopted.ids
        self._of_name = {**adopted.entries, **self._of_name}

    def _resolve_cordons(self) -> None:
        if not all(map(is_, (self._cordons, self._devices), self._resolved_by)):
            self._cordons = self._cordons.resolved(self._devices)
            self._resolved_by = (self._cordons, self._devices)

    def _look_elsewhere(self) -> None:
        """What is in use under other names, ids and numbers than we list it. It takes long only when something has
        changed.
        """
        if all(map(is_, self._looks_at(), self._looked_by)):
            return
        usage = self._usage
        if not (self._view.seen or usage.grants.all or usage.lost.all or usage.doubts):
            self._elsewhere, self._stale = _NOTHING_ELSEWHERE, _NOTHING_STALE
            self._looked_by = self._looks_at()
            return
        present = tuple(device.unit for device in self._devices.values() if device.present and device.exclusive)
        self._view = self._view.found(holdings.of_other_plugins(self._view.seen, present), boot=self._boot)
        owners = {(key[0], i): self._devices[key].unit for key, own in self._ids.items() for i, _ in own.listed()}
        found = holdings.elsewhere(self._view, owners.get, boot=self._boot)
        self._elsewhere = self._elsewhere if found == self._elsewhere else found
        stale = holdings.stale(self._usage, present, boot=self._boot)
        self._stale = self._stale if stale == self._stale else stale
        self._looked_by = self._looks_at()

    def _looks_at(self) -> tuple[object, ...]:
        usage = self._usage
        grants = (usage.grants, usage.past, usage.lost, self._view.seen)
        return *grants, usage.listing, usage.doubts, self._devices, self._ids

    @property
    def _usage(self) -> Usage:
        return self._view.usage

    @property
    def _given_names(self) -> frozenset[str]:
        """Names under which containers have devices that agents of this object gave them."""
        return frozenset(name for name, _ in self._usage.grants.given_by(self._owner))

    def _lists_id(self, name: str, device_id: str) -> bool:
        found = self._lists.get(name)
        return found is not None and device_id in found.owners

    def _must_list(self, name: str, device_id: str) -> bool:
        """Whether the kubelet has the id from this agent, or gave it to a pod under this name."""
        usage, key = self._usage, (name, device_id)
        return self._lists_id(name, device_id) or usage.shown(key) or key in usage.doubts or key in usage.lost.by_key

    def _forget_strangers(self) -> None:
        """Once after a start: forgets what an earlier process knew of devices that are neither found nor held."""
        if self._remembering:
            self._remembering = False
            self._conditions.forget_others({own(device.unit) for device in self._devices.values()})

    def _judge(self, leaving: Mapping[str, str], *, wall: datetime) -> None:
        causes = Departures(self._selection, self._entries, self._usage, self._drivers).causes(self._devices, self._ids)
        blocking = HardwareIndex[Holding]()
        for holding in (*holdings.former(self._devices, self._ids, self._usage), *self._elsewhere.hardware):
            blocking.add(holding.unit, holding)
        missing = {
            key: self._conditions.vanished(self._devices[key].unit, wall=wall)
            for key, cause in causes.items()
            if cause.reason is DeviceReason.MISSING
        }
        judgement = Judgement(
            self._usage,
            blocking=blocking,
            elsewhere=self._elsewhere,
            gone=causes,
            missing=missing,
            leaving=leaving,
            cordons=CordonIndex(self._cordons),
            conditions=self._conditions,
            wall=wall,
            contention=self._contention,
        )
        before = self._standings
        self._standings = {
            key: judgement.standing(key, device, self._ids[key], before.get(key))
            for key, device in self._devices.items()
        }
