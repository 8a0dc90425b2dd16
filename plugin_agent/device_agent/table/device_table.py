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

Each event that may change a list ends in `_settle`, which goes through them in this order.

These parts depend on how ListAndWatch works: `lists`, `granting`, the event `told`, and the rules that use `lists.Ids`.
Those rules are presence, retention, adoption, holdings, contention, gone and offering. Another way of serving would
read devices and standings directly. It needs its own rule for retention: while its entry is in the configuration, a
device leaves the table only after `told`. Only `kubelet.plugin` calls `told`.

CONTRIBUTING.md has a glossary: object, find, unit, part, List, record, note, grant, holder, told, settled and others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from operator import is_

from device_agent.allocate.topology import Links
from device_agent.contract.document import DeviceEntry, Document, TopologyHints
from device_agent.contract.inventory import InventoryCordon
from device_agent.contract.reasons import DeviceReason
from device_agent.health import acknowledgement
from device_agent.health.acknowledgement import Reply
from device_agent.health.conditions import own
from device_agent.health.news import Fault, Look
from device_agent.health.watchlist import Record
from device_agent.select.unit import Selection
from device_agent.store.locks import Taken
from device_agent.table import holdings, lists, presence
from device_agent.table.adoption import Adoption, named
from device_agent.table.answers import NOTHING_ELSEWHERE, NOTHING_STALE, TableAnswers
from device_agent.table.contention import Contention
from device_agent.table.cordons import Cordon, CordonIndex
from device_agent.table.gone import Departures
from device_agent.table.grants import SeenGrant
from device_agent.table.hardware import HardwareIndex
from device_agent.table.holders import Listing
from device_agent.table.holdings import Holding
from device_agent.table.kubelet_view import Reading
from device_agent.table.lists import ListRow
from device_agent.table.naming import Naming
from device_agent.table.offering import Judgement
from device_agent.table.presence import Scan
from device_agent.table.retention import Retention
from device_agent.table.snapshot import Advertised


class DeviceTable(TableAnswers):
    """See the module. Every method that takes an event returns the names whose list changed, came or went."""

    # Events

    def configure(self, document: Document) -> None:
        """A new configuration. It takes effect with the next selection, which must have been made with it."""
        self._next = document
        self._to_come = Naming.of(document)

    def apply_selection(self, selection: Selection, *, now: float, wall: datetime) -> frozenset[str]:
        """The selection that follows from one scan of the node."""
        edited = self._take_configuration(now=now, wall=wall)
        found = presence.found_once(selection.units, self._entries)
        unread = presence.unread(self._devices, found, selection, entries=self._entries)
        units = presence.with_unread(found, unread, self._entries)
        rest = replace(selection, units=())  # `_devices` has the units
        self._selection = self._selection if rest == self._selection else rest
        self._scanned = True
        for key, unit in units.items():
            if key in unread:
                moved = self._conditions.unread(unit, unread[key].why, wall=wall)
            else:
                moved = self._conditions.scanned(unit, now=now, wall=wall)
            self._health_moved(moved)
        self._of_name = {**self._of_name, **{name: self._entries[u.entry] for (name, _), u in units.items()}}
        scan = Scan(
            units, self._entries, edited=edited, has=lambda u: u.source in self._libraries or selection.has(u), now=now
        )
        before, self._devices = self._devices, scan.devices(self._devices)
        self._ids = self._contention.without_untold(
            scan.ids(self._ids, was=before, now=self._devices), self._usage.may_be_held
        )
        return self._settle(now=now, wall=wall)

    def settled(self, *, now: float, wall: datetime) -> frozenset[str]:
        """The kubelet was asked and told everything that can end a doubt (`kubelet.record_watch.Settling`)."""
        self._view = self._view.settled()
        return self._settle(now=now, wall=wall)

    def restore_grants(self, seen: Iterable[SeenGrant], *, now: float, wall: datetime) -> frozenset[str]:
        """Grants that an earlier process of this object saw in the kubelet's record. They count until that is read."""
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
        """Which of the wanted locks other live agents hold."""
        self._contention = Contention(taken, before=self._contention.taken.names)
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
        self._cordons = self._cordons.as_read(cordoned)
        return self._settle(now=now, wall=wall)

    def restore_cordons(self, kept: Iterable[Cordon], *, now: float, wall: datetime) -> frozenset[str]:
        """Cordons that an earlier process of this object kept. They count until the inventory is read."""
        self._cordons = self._cordons.restored(kept)
        return self._settle(now=now, wall=wall)

    def learn_cordons(self, others: Iterable[Cordon], *, now: float, wall: datetime) -> frozenset[str]:
        """The cordons that other objects' agents keep now."""
        self._cordons = self._cordons.learnt(others)
        return self._settle(now=now, wall=wall)

    def drop_cordons(self, deleted: frozenset[str], *, now: float, wall: datetime) -> frozenset[str]:
        """`deleted`: all other objects that were deleted. Their cordons end, because nobody else can take them away."""
        self._cordons = self._cordons.without(deleted)
        return self._settle(now=now, wall=wall)

    def apply_listing(self, listing: Listing | None, *, begun: float, now: float, wall: datetime) -> frozenset[str]:
        """One answer of PodResources List, asked for at `begun`. It may be a little older than what the kubelet knows.

        None: there was no answer. Then no id is dropped.
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
        found = self._lists[resource]
        given = (((resource, i), found.granted(i, boot=self._boot)) for i in ids)
        self._view = self._view.handed_out(given, now=now)

    def told(self, resource: str, listed: Sequence[Advertised], *, now: float) -> None:
        """This list was written on the resource's stream: its Unhealthy ids may soon be dropped."""
        found, before = self._lists.get(resource), self._told.get(resource, {})
        if found is not None:
            self._told = {**self._told, resource: lists.unhealthy_since(before, listed, found, now=now)}

    def restore_health(self, records: Iterable[Record]) -> None:
        """Health that an earlier process of this object knew. Call it before any other event."""
        self._conditions.restore(records)

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
        """Adds a device for each held id of our names that no list has: the kubelet must not lose the id.

        Our names are those that are served, configured, or were offered before.
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
        """Finds hardware that is in use under another name, id or device number than the one in our lists.

        This takes long only when something has changed.
        """
        if all(map(is_, self._elsewhere_judged_by(), self._elsewhere_judged)):
            return
        usage = self._usage
        if not (self._view.seen or usage.grants.all or usage.lost.all or usage.doubts):
            self._elsewhere, self._stale = NOTHING_ELSEWHERE, NOTHING_STALE
            self._elsewhere_judged = self._elsewhere_judged_by()
            return
        present = tuple(device.unit for device in self._devices.values() if device.present and device.exclusive)
        self._view = self._view.found(holdings.of_other_plugins(self._view.seen, present), boot=self._boot)
        owners = {(key[0], i): self._devices[key].unit for key, own in self._ids.items() for i, _ in own.listed()}
        found = holdings.elsewhere(self._view, owners.get, boot=self._boot)
        self._elsewhere = self._elsewhere if found == self._elsewhere else found
        stale = holdings.stale(self._usage, present, boot=self._boot)
        self._stale = self._stale if stale == self._stale else stale
        self._elsewhere_judged = self._elsewhere_judged_by()

    def _elsewhere_judged_by(self) -> tuple[object, ...]:
        """The values from which `_elsewhere` and `_stale` are computed, as `_judged_by` for the lists."""
        usage = self._usage
        grants = (usage.grants, usage.past, usage.lost, self._view.seen)
        return *grants, usage.listing, usage.doubts, self._devices, self._ids

    def _lists_id(self, name: str, device_id: str) -> bool:
        found = self._lists.get(name)
        return found is not None and device_id in found.owners

    def _must_list(self, name: str, device_id: str) -> bool:
        """Whether the kubelet has the id from this agent, or gave it to a pod under this name."""
        return self._lists_id(name, device_id) or self._usage.may_be_held(name, device_id)

    def _forget_strangers(self) -> None:
        """Once after a start: forgets what an earlier process knew of devices that are neither found nor held."""
        if self._remembering:
            self._remembering = False
            self._conditions.forget_others({own(device.unit) for device in self._devices.values()})

    def _judge(self, leaving: Mapping[str, str], *, wall: datetime) -> None:
        departures = Departures(self._selection, self._entries, self._usage, self._libraries)
        causes = departures.causes(self._devices, self._ids)
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
