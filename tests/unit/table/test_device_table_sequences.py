"""For any events in any order: no id in use is dropped, no hardware is held twice, no device is lost.

The machine plays the node, the admin and the kubelet around one table. Its kubelet gets a list at any time after it was
made. It allocates ids that are healthy and free as far as it knows, and answers List late and out of order. Its disk has
what each object's agent wrote before it offered anything. The agent may be killed at any moment, and start with another
configuration or for another object.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from device_agent.contract.names import replica_id
from device_agent.runtime.errors import AllocationRefused
from device_agent.select.unit import Unit
from device_agent.table.device_table import DeviceTable
from device_agent.table.holders import Holder
from device_agent.table.snapshot import Advertised, Health
from device_agent.table.usage import UNSEEN_SECONDS
from hypothesis import settings
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

if TYPE_CHECKING:
    from device_agent.table.claims import Claim

HARDWARE = range(2)
TEMPLATE = "example.org/{name}"
ENTRIES = ("example.com/a", "example.com/b", TEMPLATE)


@dataclass(frozen=True)
class Grant:
    """`of`: number of the object whose agent answered."""

    resource: str
    ids: tuple[str, ...]
    units: tuple[Unit, ...]
    of: int


class Node(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.entries = set(ENTRIES)
        self.owner = dict.fromkeys(HARDWARE, ENTRIES[0])
        self.prefix = "p"
        self.replicas = 1
        self.present = set(HARDWARE)
        self.kubelet: dict[str, dict[str, bool]] = {}
        self.writing: dict[str, tuple[Advertised, ...]] = {}
        self.allocating: list[Grant] = []
        self.pods: list[Grant] = []
        self.lists: list[tuple[float, dict[str, dict[str, tuple[Holder, ...]]]]] = []
        self.since: dict[tuple[str, str], tuple[object, ...]] = {}
        self.object = 0
        self.disk: dict[int, tuple[Claim, ...]] = {}

    @initialize()
    def start(self) -> None:
        self.table = DeviceTable(document(*map(resource, ENTRIES)))
        self.told = self.lists_now()
        self.scan()

    # What is true

    @property
    def now(self) -> float:
        """The clock never stands still."""
        self.seconds += 1
        return self.seconds

    def unit_of(self, hardware: int) -> Unit | None:
        entry = self.owner[hardware]
        if hardware not in self.present or entry not in self.entries:
            return None
        name = entry.replace("{name}", f"n{hardware}")
        return unit(
            f"{self.prefix}{hardware}", name=name, entry=entry, hardware=f"devices/{hardware}", replicas=self.replicas
        )

    def units(self) -> list[Unit]:
        return [found for hardware in HARDWARE if (found := self.unit_of(hardware))]

    def grants(self) -> list[Grant]:
        return [*self.pods, *self.allocating]

    def used(self) -> set[tuple[str, str]]:
        return {(grant.resource, i) for grant in self.grants() for i in grant.ids}

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

    # Events

    def scan(self) -> None:
        self.table.claim(self.units(), exclusive=self.entries)
        self.disk[self.object] = self.table.claim_records()
        self.heard(self.table.apply_selection(selection(*self.units()), now=self.now, wall=wall(self.now)))

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
        self.table.told(name, listed, now=self.now)

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

    @rule(hardware=st.sampled_from(HARDWARE))
    def plug_or_unplug(self, hardware: int) -> None:
        self.present ^= {hardware}
        self.scan()

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

    def free(self) -> list[tuple[str, str]]:
        """What the kubelet would give away now."""
        used = self.used()
        return [
            (name, i)
            for name, ids in sorted(self.kubelet.items())
            for i, healthy in sorted(ids.items())
            if healthy and (name, i) not in used
        ]

    @rule(data=st.data(), count=st.integers(1, 3))
    @precondition(lambda self: self.free())
    def allocate(self, data: st.DataObject, count: int) -> None:
        name, first = data.draw(st.sampled_from(self.free()))
        ids = (first, *(i for n, i in self.free() if n == name and i != first))[:count]
        try:
            units = tuple(found for _, found in self.table.units_of(name, ids))
        except AllocationRefused:
            return
        self.table.handed_out(name, ids, now=self.now)
        self.allocating.append(Grant(name, ids, units, self.object))
        self.held_once(self.allocating[-1])

    def held_once(self, grant: Grant) -> None:
        for mine in grant.units:
            uses = [(g.resource, u.id) for g in self.grants() for u in g.units if u.hardware == mine.hardware]
            assert set(uses) == {(grant.resource, mine.id)}, "held under two names"
            assert len(uses) <= mine.replicas, "held more often than it has replicas"

    @rule(data=st.data(), admitted=st.sampled_from([True, True, True, False]))
    @precondition(lambda self: self.allocating)
    def end_allocation(self, data: st.DataObject, *, admitted: bool) -> None:
        """The kubelet may still reject the pod, for another resource or container, and tells nobody."""
        grant = self.allocating.pop(data.draw(st.integers(0, len(self.allocating) - 1)))
        if admitted:
            self.pods.append(grant)

    @rule(data=st.data())
    @precondition(lambda self: self.pods)
    def end_pod(self, data: st.DataObject) -> None:
        self.pods.pop(data.draw(st.integers(0, len(self.pods) - 1)))

    @rule()
    @precondition(lambda self: len(self.lists) < 3)
    def ask_for_a_list(self) -> None:
        answer: dict[str, dict[str, tuple[Holder, ...]]] = {}
        for n, grant in enumerate(self.pods):
            if not self.table.could_serve(grant.resource):
                continue  # the agent does not look at it
            for i in grant.ids:
                answer.setdefault(grant.resource, {})[i] = (Holder("default", f"pod-{n}", "main"),)
        self.lists.append((self.now, answer))

    @rule(data=st.data(), failed=st.sampled_from([False, False, True]))
    @precondition(lambda self: self.lists)
    def answer_a_list(self, data: st.DataObject, *, failed: bool) -> None:
        begun, answer = self.lists.pop(data.draw(st.integers(0, len(self.lists) - 1)))
        holders = None if failed else answer
        self.heard(self.table.apply_holders(holders, begun=begun, now=self.now, wall=wall(self.now)))

    @rule()
    def ask_and_answer(self) -> None:
        self.ask_for_a_list()
        begun, answer = self.lists.pop()
        self.heard(self.table.apply_holders(answer, begun=begun, now=self.now, wall=wall(self.now)))

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

    def start_again(self, *, admitted: bool) -> None:
        if admitted:
            self.pods += self.allocating  # the answers had arrived
        self.allocating = []
        self.table = DeviceTable(document(*map(resource, sorted(self.entries))))
        self.told, self.kubelet, self.writing, self.lists, self.since = {}, {}, {}, [], {}
        others = [claim for number, claims in sorted(self.disk.items()) if number != self.object for claim in claims]
        own = self.disk.get(self.object, ())
        self.heard(self.table.apply_claims(own, others, now=self.now, wall=wall(self.now)))
        self.ask_and_answer()
        self.scan()
        for mine in self.units():
            healthy = {i for i in self.ids_of(mine) if self.told.get(mine.resource, {}).get(i)}
            for grant, used in ((g, u) for g in self.pods for u in g.units if u.hardware == mine.hardware):
                same = (grant.resource, used.id) == (mine.resource, mine.id)
                assert same or not healthy, "offered while it is held under another name"

    def ids_of(self, found: Unit) -> list[str]:
        return [replica_id(found.id, n) for n in range(found.replicas)]

    def teardown(self) -> None:
        """Everybody lets go, the kubelet is told and asked: what is left is what is there, all of it healthy."""
        self.allocating.clear()
        self.pods.clear()
        self.lists.clear()
        self.seconds += UNSEEN_SECONDS
        for _ in range(3):
            self.send()
            self.ask_and_answer()
        expected: dict[str, dict[str, bool]] = {}
        for found in self.units():
            expected.setdefault(found.resource, {}).update(dict.fromkeys(self.ids_of(found), True))
        assert self.lists_now() == expected

    # What always holds

    @invariant()
    def what_is_in_use_is_listed(self) -> None:
        """Names of an object that is gone are nobody's to list, until another object has them."""
        for grant in self.grants():
            if grant.of == self.object or grant.resource in self.told:
                for i in grant.ids:
                    assert i in self.told.get(grant.resource, {}), f"{i} of {grant.resource} was dropped"

    @invariant()
    def ids_are_unique(self) -> None:
        ids = [i for listed in self.told.values() for i in listed]
        assert len(ids) == len(set(ids))

    @invariant()
    def names_are_served_as_long_as_they_have_ids(self) -> None:
        assert self.table.resources() == tuple(sorted(self.told)) if self.told else not self.table.resources()
        assert all(self.told.values())

    @invariant()
    def since_moves_with_health_and_reason_alone(self) -> None:
        now = {}
        for state in self.table.snapshot().resources:
            assert sum(len(d.ids) for d in state.devices) == state.capacity == len(self.told.get(state.name, {}))
            for device in state.devices:
                assert device.message or device.health is Health.HEALTHY
                now[state.name, device.unit.id] = (device.health, device.reason, device.since)
        for key, (health, reason, since) in now.items():
            before = self.since.get(key)
            if before and before[:2] == (health, reason):
                assert before[2] == since
        self.since = now


@pytest.mark.timeout(600)  # a failure is worth being made small
def test_no_sequence_of_events_drops_doubles_or_loses_a_device():
    run_state_machine_as_test(Node, settings=settings(max_examples=300, stateful_step_count=50, deadline=None))
