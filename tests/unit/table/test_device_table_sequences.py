"""Whatever happens in whatever order: no id in use is dropped, nothing is in two hands, nothing is lost.

The machine plays the node, the admin, the kubelet and another vendor's plugin around one table. Its kubelet hears of a
list at any time after it was made, allocates what it takes to be healthy and free, answers List late and out of order,
and keeps a record as the real one does (`agent/checkpoint.py` has the rules). Devices are numbered anew by hot-plug and
by reboots. The agent may be killed at any moment, and start with another configuration, or as that of another object.

What no agent can see is left out: an older copy of the record that stays in the file while the agent is killed; a pod
that no List had named before the kubelet lost its record; another plugin's pod with hardware that no entry selected.
"""

import os
from dataclasses import dataclass, field

import pytest
from device_agent.allocate.grant import read_note
from device_agent.contract.inventory import InventoryCordon
from device_agent.contract.names import replica_id
from device_agent.runtime.errors import AllocationRefused
from device_agent.select.unit import Grants as GivenNodes
from device_agent.select.unit import NodeGrant, Unit
from device_agent.table.device_table import DeviceTable
from device_agent.table.grants import Grant, SeenGrant
from device_agent.table.holders import Holder, Listing
from device_agent.table.kubelet_view import Reading
from device_agent.table.snapshot import Advertised, Health
from device_agent.table.usage import SETTLE_SECONDS
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from unit.table.samples import document, resource, selection, unit, wall

HARDWARE = range(2)
TEMPLATE = "example.org/{name}"
ENTRIES = ("example.com/a", "example.com/b", TEMPLATE)
ADDRESSES = ("0000:01:00.0", "0000:02:00.0")
FOREIGN = "vendor.com/thing"
QUICK = {"phases": [Phase.generate], "report_multiple_bugs": False} if os.environ.get("QUICK") else {}
SEQUENCES = int(os.environ.get("TABLE_SEQUENCES", "300"))


@dataclass
class Given:
    """What one container has. `hardware` and `nodes`: what it was really given; `of`: the object whose agent answered,
    None: another plugin. `init`: a plain init container, which List leaves out.
    """

    pod: str
    resource: str
    ids: tuple[str, ...]
    hardware: frozenset[int]
    nodes: frozenset[str]
    of: int | None
    grant: Grant
    init: bool = False
    named: bool = field(default=False)


class Node(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.entries = set(ENTRIES)
        self.owner = dict.fromkeys(HARDWARE, ENTRIES[0])
        self.prefix = "p"
        self.replicas = 1
        self.present = set(HARDWARE)
        self.at = {hardware: f"/dev/n{hardware}" for hardware in HARDWARE}
        self.boot, self.life, self.made = 1, 1, 0
        self.started = self.incomplete_until = 0.0
        self.kubelet: dict[str, dict[str, bool]] = {}
        self.writing: dict[str, tuple[Advertised, ...]] = {}
        self.allocating: list[Given] = []
        self.pods: list[Given] = []
        self.memory: list[Given] = []
        self.record: tuple[Given, ...] | None = ()
        self.resent: float | None = None
        self.lists: list[tuple[float, Listing]] = []
        self.since: dict[tuple[str, str], tuple[object, ...]] = {}
        self.object = 0
        self.disk: dict[int, tuple[SeenGrant, ...]] = {}
        self.cordoned: dict[str, int] = {}
        self.cordons: dict[int, tuple[object, ...]] = {}

    @initialize()
    def start(self) -> None:
        self.table = self.new_table()
        self.told = self.lists_now()
        self.read_record()
        self.scan()

    def new_table(self) -> DeviceTable:
        entries = [resource(entry) for entry in ENTRIES if entry in self.entries]
        return DeviceTable(document(*entries), owner=f"object-{self.object}", config="lab", boot=f"boot-{self.boot}")

    # What is true

    @property
    def now(self) -> float:
        """The clock never stands still, and an Allocate takes no seconds."""
        self.seconds += 0.01
        return self.seconds

    def unit_of(self, hardware: int) -> Unit | None:
        entry = self.owner[hardware]
        if hardware not in self.present or entry not in self.entries:
            return None
        name, path = entry.replace("{name}", f"n{hardware}"), self.at[hardware]
        return unit(
            f"{self.prefix}{hardware}",
            name=name,
            entry=entry,
            hardware=f"devices/{hardware}",
            replicas=self.replicas,
            nodes=(path,),
            attributes={"pci.address": ADDRESSES[hardware]},
            own_nodes={path: f"char/240:{path[-1]}"},
            grants=GivenNodes(nodes=(NodeGrant(path, path, "rw"),)),
        )

    def units(self) -> list[Unit]:
        return [found for hardware in HARDWARE if (found := self.unit_of(hardware))]

    def given(self) -> list[Given]:
        return [*self.pods, *self.allocating]

    def used(self) -> set[tuple[str, str]]:
        return {(given.resource, i) for given in (*self.memory, *self.allocating) for i in given.ids}

    def lists_now(self) -> dict[str, dict[str, bool]]:
        return {name: {a.id: a.healthy for a in self.table.listed(name)} for name in self.table.resources()}

    def heard(self, changed: frozenset[str]) -> None:
        """The names that are said to have changed are those that have."""
        now = self.lists_now()
        assert changed == {n for n in now.keys() | self.told.keys() if now.get(n) != self.told.get(n)}
        self.told = now
        for of_name in (self.kubelet, self.writing):
            for name in of_name.keys() - now.keys():
                del of_name[name]  # its server ends, and the kubelet marks all its devices unhealthy
        for name, ids in self.kubelet.items():
            assert not any(ids[i] for i in ids.keys() - now[name].keys()), "dropped before it was told as unhealthy"
        for name, listed in self.writing.items():
            healthy = {a.id for a in listed if a.healthy}
            assert healthy <= now[name].keys(), "dropped while a list with it as healthy was on its way"
        cordoned = set(self.cordoned.values())
        for name, ids in now.items():
            assert not any(ok and int(i[1]) in cordoned for i, ok in ids.items()), f"cordoned and offered: {name}"
        self.cordons[self.object] = self.table.cordons.kept
        self.since_moves_with_health_and_reason_alone()

    # The node and the admin

    def scan(self) -> None:
        self.heard(self.table.apply_selection(selection(*self.units()), now=self.now, wall=wall(self.now)))

    @rule(hardware=st.sampled_from(HARDWARE))
    def plug_or_unplug(self, hardware: int) -> None:
        self.present ^= {hardware}
        self.scan()

    @rule()
    def number_anew(self) -> None:
        """Both are unplugged, and come back in the other order."""
        present, self.present = self.present, set()
        self.scan()
        self.swap()
        self.present = present
        self.scan()

    def swap(self) -> None:
        self.at = dict(zip(self.at, reversed(self.at.values()), strict=True))

    @rule(hardware=st.sampled_from(HARDWARE), entry=st.sampled_from(ENTRIES))
    def edit_entry(self, hardware: int, entry: str) -> None:
        self.owner[hardware] = entry
        self.scan()

    @rule(entry=st.sampled_from(ENTRIES))
    def add_or_remove_entry(self, entry: str) -> None:
        self.entries ^= {entry}
        self.table.configure(document(*map(resource, sorted(self.entries))))
        self.scan()

    @rule()
    def edit_unit(self) -> None:
        self.prefix = "q" if self.prefix == "p" else "p"
        self.scan()

    @rule(replicas=st.integers(1, 3))
    def edit_replicas(self, replicas: int) -> None:
        self.replicas = replicas
        self.scan()

    @rule(data=st.data())
    @precondition(lambda self: self.cordoned or self.units())
    def cordon_or_uncordon(self, data: st.DataObject) -> None:
        """By the id that the device has now. It is of the hardware, whatever ids that has later."""
        ids = {unit.id: int(unit.hardware[0].removeprefix("devices/")) for unit in self.units()}
        chosen = data.draw(st.sampled_from(sorted({*ids, *self.cordoned})))
        if chosen in self.cordoned:
            del self.cordoned[chosen]
        else:
            self.cordoned[chosen] = ids[chosen]
        items = [InventoryCordon(i, "memory errors") for i in self.cordoned]
        self.heard(self.table.apply_cordons(items, now=self.now, wall=wall(self.now)))

    # Lists on their way to the kubelet

    @rule()
    def send(self) -> None:
        for name in self.told:
            self.send_one(name)

    def send_one(self, name: str) -> None:
        if name in self.writing:
            self.end_write(name)
        self.writing[name] = self.table.listed(name)
        self.end_write(name)

    def end_write(self, name: str) -> None:
        listed = self.writing.pop(name)
        self.kubelet[name] = {a.id: a.healthy for a in listed}
        self.resent = self.now
        self.table.told(name, listed, now=self.resent)
        self.record = tuple(self.memory)

    @rule(data=st.data())
    @precondition(lambda self: self.told.keys() - self.writing.keys())
    def begin_to_write(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.told.keys() - self.writing.keys())))
        self.writing[name] = self.table.listed(name)

    @rule(data=st.data())
    @precondition(lambda self: self.writing)
    def write_at_last(self, data: st.DataObject) -> None:
        self.end_write(data.draw(st.sampled_from(sorted(self.writing))))

    @rule(data=st.data())
    @precondition(lambda self: self.told)
    def send_some(self, data: st.DataObject) -> None:
        self.send_one(data.draw(st.sampled_from(sorted(self.told))))

    # Pods

    def free(self) -> list[tuple[str, str]]:
        """What the kubelet would give away now."""
        used = self.used()
        return [
            (name, i)
            for name, ids in sorted(self.kubelet.items())
            for i, healthy in sorted(ids.items())
            if healthy and (name, i) not in used
        ]

    @rule(data=st.data(), count=st.integers(1, 3), init=st.sampled_from([False, False, True]))
    @precondition(lambda self: self.free())
    def allocate(self, data: st.DataObject, count: int, *, init: bool) -> None:
        name, first = data.draw(st.sampled_from(self.free()))
        ids = (first, *(i for n, i in self.free() if n == name and i != first))[:count]
        self.drop_ended()
        try:
            units = tuple(found for _, found in self.table.units_of(name, ids))
        except AllocationRefused:
            return
        note = read_note(self.table.note(name, ids)[1])
        assert note is not None
        self.table.handed_out(name, ids, now=self.now)
        nodes = frozenset(path for found in units for path in found.own_nodes)
        hardware = frozenset(int(found.hardware[0].removeprefix("devices/")) for found in units)
        pod = self.new_pod()
        grant = Grant(pod, "main", name, tuple(sorted(ids)), note, tuple(sorted(nodes)))
        self.allocating.append(Given(pod, name, ids, hardware, nodes, self.object, grant, init))
        self.held_once(self.allocating[-1], units)

    def new_pod(self) -> str:
        self.made += 1
        return f"uid-{self.made}"

    def held_once(self, mine: Given, units: tuple[Unit, ...]) -> None:
        others = [given for given in self.given() if given is not mine]
        for one in others:
            for path in one.nodes & mine.nodes:
                assert one.hardware & mine.hardware, f"{path} in two hands"
            assert one.of is not None or not one.hardware & mine.hardware, "another plugin's pod has it"
        for found in units:
            hardware = int(found.hardware[0].removeprefix("devices/"))
            uses = [(given.resource, i) for given in self.given() if hardware in given.hardware for i in given.ids]
            uses = [(name, i) for name, i in uses if self.hardware_of(name, i, given=self.given()) == hardware]
            assert {name for name, _ in uses} == {mine.resource}, "in use under two names"
            assert len(uses) <= found.replicas, "in use more often than it has replicas"

    def hardware_of(self, name: str, device_id: str, *, given: list[Given]) -> int | None:
        for one in given:
            note = one.grant.note
            if one.resource == name and device_id in one.ids and note is not None:
                return int(note.devices[note.ids[device_id].device].hardware[0].removeprefix("devices/"))
        return None

    @rule(data=st.data(), admitted=st.sampled_from([True, True, True, False]), late=st.booleans())
    @precondition(lambda self: self.allocating)
    def end_allocation(self, data: st.DataObject, *, admitted: bool, late: bool) -> None:
        """The kubelet may still reject the pod, for another resource or container, and tells nobody. `late`: an older
        copy of its state is the last that was written.
        """
        given = self.allocating.pop(data.draw(st.integers(0, len(self.allocating) - 1)))
        before = tuple(self.memory)
        self.memory.append(given)
        if admitted:
            self.pods.append(given)
            self.record = before if late else tuple(self.memory)

    @rule(hardware=st.sampled_from(HARDWARE), by_node=st.booleans())
    def allocate_from_another_plugin(self, hardware: int, *, by_node: bool) -> None:
        """Its pod has what nobody has. The agent hears of it by the record before the kubelet asks for anything else."""
        free = all(hardware not in given.hardware and self.at[hardware] not in given.nodes for given in self.given())
        if not free or self.unit_of(hardware) is None:
            return
        pod, path = self.new_pod(), self.at[hardware]
        nodes, words = ((path,), ()) if by_node else ((), (ADDRESSES[hardware],))
        grant = Grant(pod, "main", FOREIGN, (f"x{hardware}",), None, nodes, words)
        given = Given(pod, FOREIGN, grant.ids, frozenset({hardware}), frozenset(nodes), None, grant)
        self.drop_ended()
        self.memory.append(given)
        self.pods.append(given)
        self.record = tuple(self.memory)
        self.read_record()

    @rule(data=st.data())
    @precondition(lambda self: self.pods)
    def end_pod(self, data: st.DataObject) -> None:
        self.pods.pop(data.draw(st.integers(0, len(self.pods) - 1)))

    def drop_ended(self) -> None:
        """UpdateAllocatedDevices: at List and at Allocate."""
        self.memory = [given for given in self.memory if given in self.pods]

    # What the kubelet tells

    def listing(self) -> Listing:
        self.drop_ended()
        if self.seconds < self.incomplete_until:
            return Listing()  # its own pod alone, which is not of this machine
        answer: dict[str, dict[str, tuple[Holder, ...]]] = {}
        for given in self.memory:
            if not given.init:
                given.named = True
                for i in given.ids:
                    answer.setdefault(given.resource, {})[i] = (Holder("default", given.pod, "main"),)
        return Listing(answer, frozenset(("default", given.pod) for given in self.pods))

    @rule()
    @precondition(lambda self: len(self.lists) < 3)
    def ask_for_a_list(self) -> None:
        self.lists.append((self.now, self.listing()))

    @rule(data=st.data(), failed=st.sampled_from([False, False, True]))
    @precondition(lambda self: self.lists)
    def answer_a_list(self, data: st.DataObject, *, failed: bool) -> None:
        begun, answer = self.lists.pop(data.draw(st.integers(0, len(self.lists) - 1)))
        told = None if failed else answer
        self.heard(self.table.apply_listing(told, begun=begun, now=self.now, wall=wall(self.now)))

    @rule()
    def ask_and_answer(self) -> None:
        begun = self.now
        self.heard(self.table.apply_listing(self.listing(), begun=begun, now=self.now, wall=wall(self.now)))

    @rule()
    def read_record(self) -> None:
        if self.record is None:
            reading = Reading(begun=self.now, life=self.life, started=self.started, problem="torn")
        else:
            grants = tuple(given.grant for given in self.record)
            reading = Reading(grants, begun=self.now, resent=self.resent, life=self.life, started=self.started)
        self.heard(self.table.apply_record(reading, now=self.now, wall=wall(self.now)))
        self.disk[self.object] = self.table.seen_grants()

    @rule()
    def cannot_read_the_record(self) -> None:
        reading = Reading(begun=self.now, life=self.life, started=self.started, problem="EIO")
        self.heard(self.table.apply_record(reading, now=self.now, wall=wall(self.now)))

    def wait(self, seconds: float) -> None:
        """What the kubelet was answered is in its memory by then."""
        for given in self.allocating:
            self.memory.append(given)
            self.pods.append(given)
        self.allocating = []
        self.seconds += seconds

    @rule()
    def settle(self) -> None:
        self.wait(1)
        self.ask_and_answer()
        self.send()
        self.wait(SETTLE_SECONDS)
        self.read_record()

    # Ends and beginnings

    @rule(record=st.sampled_from(["whole", "whole", "torn", "gone"]), slow=st.booleans())
    def restart_kubelet(self, record: str, *, slow: bool) -> None:
        """It begins with its record. The agent looks at that before it registers again. `slow`: it takes some seconds to
        hear of its pods.
        """
        self.name_all()
        self.life += 1
        self.started, self.incomplete_until = self.seconds, self.seconds + 5 * slow
        self.kubelet, self.writing, self.lists = {}, {}, []
        self.allocating = []
        if record == "whole":
            kept = self.record or ()
        else:
            kept, self.record = (), None if record == "torn" else ()
            self.pods = [given for given in self.pods if not given.init]  # they have ended long ago
        self.memory = [given for given in kept if given in self.pods]
        self.read_record()
        self.send()
        if slow:
            self.ask_and_answer()
            self.send()

    def name_all(self) -> None:
        """The List that follows each Allocate by a second, between two looks at the record."""
        self.seconds = max(self.seconds, self.incomplete_until)
        self.record = tuple(self.memory)
        self.read_record()
        self.ask_and_answer()
        self.read_record()

    @rule()
    def reboot(self) -> None:
        """Pods start again with what their record says. Device nodes are numbered anew."""
        self.boot += 1
        self.swap()
        self.start_again(admitted=False, life=True)

    @rule(admitted=st.booleans())
    def kill(self, *, admitted: bool) -> None:
        """The agent alone: what is in use stays so, and a List is answered before the kubelet is told anything."""
        self.start_again(admitted=admitted)

    @rule(
        admitted=st.booleans(),
        entries=st.sets(st.sampled_from(ENTRIES)),
        owners=st.lists(st.sampled_from(ENTRIES), min_size=len(HARDWARE), max_size=len(HARDWARE)),
        prefix=st.sampled_from("pq"),
        replicas=st.integers(1, 3),
        present=st.sets(st.sampled_from(HARDWARE)),
        another=st.sampled_from([False, False, True]),
    )
    def kill_and_change(
        self,
        *,
        admitted: bool,
        entries: set[str],
        owners: list[str],
        prefix: str,
        replicas: int,
        present: set[int],
        another: bool,
    ) -> None:
        """While the agent is down anything may change, the object as well: it is deleted, and there is a new one."""
        self.entries, self.prefix, self.replicas, self.present = entries, prefix, replicas, present
        self.owner = dict(zip(HARDWARE, owners, strict=True))
        self.object += another
        self.start_again(admitted=admitted)

    def start_again(self, *, admitted: bool, life: bool = False) -> None:
        if admitted:
            self.memory += self.allocating  # the answers had arrived
            self.pods += self.allocating
        self.allocating = []
        self.record = tuple(self.memory)
        if life:
            self.life += 1
            self.memory = [given for given in self.memory if given in self.pods]
        self.table = self.new_table()
        self.told, self.kubelet, self.writing, self.lists, self.since = {}, {}, {}, [], {}
        self.resent = None
        others = tuple(seen for number, kept in self.disk.items() if number != self.object for seen in kept)
        self.read_cordons()
        self.heard(self.table.restore_grants(self.disk.get(self.object, ()), now=self.now, wall=wall(self.now)))
        self.heard(self.table.learn_grants(others, now=self.now, wall=wall(self.now)))
        self.read_record()
        self.ask_and_answer()
        self.scan()
        for mine in self.units():
            free = {i for i in self.ids_of(mine) if (mine.resource, i) not in self.used()}
            healthy = {i for i in free if self.told.get(mine.resource, {}).get(i)}
            hardware = int(mine.hardware[0].removeprefix("devices/"))
            for given in self.pods:
                for i in given.ids:
                    if self.hardware_of(given.resource, i, given=[given]) == hardware:
                        same = given.resource == mine.resource and i in self.ids_of(mine)
                        assert same or not healthy or len(healthy) < mine.replicas, (
                            "offered while it is in use elsewhere"
                        )

    def read_cordons(self) -> None:
        """An object that was made anew has the cordons of the one before it."""
        kept = dict(self.cordons)
        own = kept.pop(self.object, ())
        others = tuple(cordon for number in sorted(kept) for cordon in kept[number])
        self.heard(self.table.restore_cordons(own, now=self.now, wall=wall(self.now)))
        self.heard(self.table.learn_cordons(others, now=self.now, wall=wall(self.now)))

    def ids_of(self, found: Unit) -> list[str]:
        return [replica_id(found.id, n) for n in range(found.replicas)]

    def teardown(self) -> None:
        """Everybody lets go, the kubelet is told and asked: what is left is what is there, all of it healthy."""
        if not hasattr(self, "table"):
            return
        self.allocating.clear()
        self.pods.clear()
        self.lists.clear()
        for _ in range(6):
            self.settle()
        expected: dict[str, dict[str, bool]] = {}
        for found in self.units():
            offered = int(found.hardware[0].removeprefix("devices/")) not in self.cordoned.values()
            expected.setdefault(found.resource, {}).update(dict.fromkeys(self.ids_of(found), offered))
        assert self.lists_now() == expected

    # What always holds

    @invariant()
    def ids_in_use_are_listed(self) -> None:
        """Names of an object that is gone are nobody's to list, until another object has them."""
        for given in (*self.memory, *self.allocating):
            if given in self.given() and (given.of == self.object or given.resource in self.told):
                for i in given.ids:
                    assert i in self.told.get(given.resource, {}), f"{i} of {given.resource} was dropped"

    @invariant()
    def ids_are_unique(self) -> None:
        ids = [i for listed in self.told.values() for i in listed]
        assert len(ids) == len(set(ids))

    @invariant()
    def names_are_served_as_long_as_they_have_ids(self) -> None:
        assert self.table.resources() == tuple(sorted(self.told)) if self.told else not self.table.resources()
        assert all(self.told.values())

    def since_moves_with_health_and_reason_alone(self) -> None:
        now = {}
        for state in self.table.snapshot().resources:
            assert sum(len(d.ids) for d in state.devices) == state.capacity == len(self.told.get(state.name, {}))
            for device in state.devices:
                assert device.message or device.health is Health.HEALTHY
                now[state.name, device.unit.id] = (device.health, f"{device.reason} {device.withheld}", device.since)
        for key, (health, reason, since) in now.items():
            before = self.since.get(key)
            if before and before[:2] == (health, reason):
                assert before[2] == since
        self.since = now


@pytest.mark.timeout(600 + SEQUENCES)  # a failure is worth being made small
def test_no_sequence_of_events_drops_doubles_or_loses_a_device():
    run_state_machine_as_test(
        Node, settings=settings(max_examples=SEQUENCES, stateful_step_count=50, deadline=None, **QUICK)
    )
