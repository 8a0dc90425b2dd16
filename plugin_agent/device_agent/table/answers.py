"""What can be asked of the device table. Pure.

Lists for the kubelet, what the node store keeps, what needs a lock, and a snapshot for reports. Nothing here changes
the state: the events of `device_table` do.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from device_agent.allocate.grant import NoteWriter
from device_agent.allocate.preferred import Place
from device_agent.allocate.topology import Affinity, Links
from device_agent.contract.document import Document, Resource
from device_agent.contract.template import parse_template
from device_agent.health.conditions import Conditions
from device_agent.health.news import FaultRule
from device_agent.health.watchlist import Record
from device_agent.select.unit import Selection, Unit
from device_agent.store.locks import Wanted
from device_agent.table import contention, granting, lists, presence, states
from device_agent.table.contention import Contention
from device_agent.table.cordons import Cordons
from device_agent.table.device import Device, Key, Standing, split_replica
from device_agent.table.grants import SeenGrant
from device_agent.table.holders import Holders
from device_agent.table.holdings import Holdings
from device_agent.table.kubelet_view import KubeletView
from device_agent.table.naming import Naming
from device_agent.table.snapshot import Advertised, TableSnapshot
from device_agent.table.usage import Usage

if TYPE_CHECKING:
    from device_agent.table.lists import Ids, Lists, Told

NO_FAULTS: Final[Mapping[str, FaultRule]] = {}
"""For a node without a driver library."""
NOTHING_ELSEWHERE: Final = Holdings()
NOTHING_STALE: Final[Mapping[Key, str]] = {}


class TableAnswers:
    """The state, and the questions.

    `fault_rules`: source -> what its faults mean, for each source whose devices have health of their own. `libraries`:
    sources that are driver libraries; None: all sources with fault rules. The scan cannot tell whether the hardware of
    such a source is still there.
    """

    def __init__(
        self,
        document: Document,
        *,
        owner: str = "",
        config: str = "",
        boot: str = "",
        fault_rules: Mapping[str, FaultRule] = NO_FAULTS,
        libraries: Collection[str] | None = None,
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
        self._libraries = frozenset(fault_rules if libraries is None else libraries)
        self._conditions = Conditions(fault_rules)
        self._health_turn = 0
        self._elsewhere = NOTHING_ELSEWHERE
        self._contention = Contention()
        self._wanted: tuple[object, Wanted] = (None, Wanted())
        self._stale = NOTHING_STALE
        self._elsewhere_judged: tuple[object, ...] = (None,)
        self._links: Links = {}
        self._links_of: Mapping[str, Links] = {}
        self._lists: Lists = {}
        self._judged: tuple[object, ...] = (None,)

    # What is kept on the node for the next process

    @property
    def health_revision(self) -> int:
        """Grows with each change of `health_records`."""
        return self._conditions.revision

    def health_records(self) -> tuple[Record, ...]:
        """What is known of the devices' health, in a fixed order."""
        return self._conditions.records()

    @property
    def nameless(self) -> bool:
        """Whether the record has grants of pods whose names are not known. Reading it again after a List gives them."""
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
        """The ids that can be given out now. The kubelet may not know it yet. All ids if fewer than `at_least` can."""
        found = self._lists.get(resource)
        if found is None:
            return ids
        refused = granting.refusable(ids, found.owners, self._usage)
        if not found.unhealthy and not refused:
            return ids
        well = [i for i in ids if i not in found.unhealthy and i not in refused]
        return well if len(well) >= at_least else ids

    def affinity(self, resource: str) -> Affinity | None:
        """How close its devices are to each other, for `allocate.preferred`; None where only NUMA nodes are known."""
        found = self._lists.get(resource)
        return found.affinity if found is not None else None

    def holders(self) -> Holders | None:
        """The last answer of PodResources. None: the last question had no answer."""
        return self._usage.holders if self._usage.known else None

    def doubtful(self) -> frozenset[Key]:
        """Ids that may be in use or not. Another List, and another look at the record, may decide it."""
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

    @property
    def _usage(self) -> Usage:
        return self._view.usage

    @property
    def _given_names(self) -> frozenset[str]:
        """Names under which containers have devices that agents of this object gave them."""
        return frozenset(name for name, _ in self._usage.grants.given_by(self._owner))
