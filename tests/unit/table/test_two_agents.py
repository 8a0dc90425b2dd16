"""Two agents of two objects on one node, with real locks: no hardware is offered by both, and none is lost."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from device_agent.store.locks import Taken, Wanted
from device_agent.store.seats import Seats
from device_agent.table.hardware import same_hardware
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.table.samples import NAME, OTHER, Steps, resource, selection, unit, wall

PARTS = {"x": "bus/x", "x1": "bus/x/1", "x2": "bus/x/2", "y": "bus/y", "z": "bus/y/z"}


class Agent:
    """One object's table and its locks, driven as the shell drives them."""

    def __init__(self, node: Path, uid: str, *names: str) -> None:
        self.steps = Steps(*(resource(name) for name in names), owner=uid)
        self.seats = Seats(node, object_uid=uid)
        self.taken = Taken()
        self.steps.list({})

    def scan(self, found: Iterable[tuple[str, str]]) -> None:
        """A scan has found these (resource name, part)."""
        units = [unit(part, name=name, hardware=PARTS[part]) for name, part in found]
        self.hold(self.steps.table.wanted_with(selection(*units)))
        self.steps.scan(*units)

    def hold(self, wanted: Wanted | None = None) -> None:
        steps = self.steps
        self.taken = self.seats.hold(wanted or steps.table.wanted())
        steps.now += 1
        steps.table.apply_taken(self.taken, now=steps.now, wall=wall(steps.now))

    def rest(self) -> None:
        """The kubelet has got the lists, and shows nothing in use."""
        self.steps.settle({})
        self.steps.settle({})
        self.hold()

    def offered(self) -> dict[tuple[str, str], str]:
        """(resource name, id) -> path of what pods may get."""
        table = self.steps.table
        names = [name for name in table.resources() if not table.taken_name(name)]
        return {(name, one.id): PARTS[one.id] for name in names for one in table.listed(name) if one.healthy}

    def listed(self) -> set[tuple[str, str]]:
        table = self.steps.table
        names = [name for name in table.resources() if not table.taken_name(name)]
        return {(name, one.id) for name in names for one in table.listed(name)}


FOUND = st.frozensets(st.tuples(st.sampled_from([NAME, OTHER]), st.sampled_from(sorted(PARTS))), max_size=4)
ACTS = st.one_of(FOUND, st.sampled_from(["hold", "rest"]))


@settings(deadline=None)
@given(acts=st.lists(st.tuples(st.sampled_from([0, 1]), ACTS), max_size=14))
def test_no_hardware_and_no_name_is_offered_by_two_agents_and_what_is_free_is_offered(
    tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[int, frozenset[tuple[str, str]] | str]]
) -> None:
    node = tmp_path_factory.mktemp("node")
    agents = [Agent(node, "0f6f4a52", NAME, OTHER), Agent(node, "11111111", NAME, OTHER)]
    last: list[frozenset[tuple[str, str]]] = [frozenset(), frozenset()]
    for who, act in acts:
        if isinstance(act, frozenset):
            agents[who].scan(sorted(act))
            last[who] = act
        elif act == "hold":
            agents[who].hold()
        else:
            agents[who].rest()
        one, other = (agent.offered() for agent in agents)
        assert {name for name, _ in one}.isdisjoint(name for name, _ in other)
        assert not any(same_hardware([path], [theirs]) for path in one.values() for theirs in other.values())
        for offered, agent in ((one, agents[1]), (other, agents[0])):
            assert {i for _, i in offered}.isdisjoint(i for _, i in agent.listed())
    agents[0].scan(())
    agents[0].rest()
    agents[1].scan(sorted(last[1]))
    agents[1].rest()
    assert not agents[1].taken
    assert bool(agents[1].offered()) == bool(last[1])
    for agent in agents:
        agent.seats.close()
