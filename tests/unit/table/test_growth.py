"""The time of each step grows at most with the number of ids: a blocked loop admits no pod.

The tests count the instructions that Python executes, not the time, so the result is the same on every machine. The ids
are of a class that compares in Python: comparisons inside sets, tuples and sorts count too. The ids come in order, so a
sort is linear.
"""

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from device_agent.contract.document import Ownership
from device_agent.select.unit import Excluded, Unit
from device_agent.table.grants import Grant, SeenGrant
from unit.health.gpus import gpu_resource, new_table, xid_fault
from unit.table.samples import NAME, OTHER, Steps, held, resource, unit, wall

FEW, MANY = 50, 400
SLACK = 1.2
LONG = "x" * 57


class Counted(str):
    """An id whose comparisons are seen."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)

    def __lt__(self, other: str) -> bool:
        return str.__lt__(self, other)

    __hash__ = str.__hash__


def instructions(step: Callable[[], object]) -> int:
    """How many are executed in the step, and in all that it calls."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        step()
    finally:
        sys.settrace(before)
    return count


def units(count: int, *, name: str = NAME, prefix: str = "", **fields) -> list[Unit]:
    return [
        unit(Counted(f"{prefix}{n:05}"), name=name, hardware=f"devices/{n:05}", parts=(f"GPU-{n}",), **fields)
        for n in range(count)
    ]


def everyday(count: int) -> Iterator[tuple[str, Callable[[], object]]]:
    steps, here, again = Steps(gpu_resource()), units(count), units(count)
    steps.table = new_table(gpu_resource())
    ids = [u.id for u in here]
    fault = xid_fault(79, "GPU-1")
    yield "first scan", lambda: steps.scan(*here)
    yield "write of the list", steps.send
    yield "first List", lambda: steps.list({})
    yield "scan that changes nothing", lambda: steps.scan(*again)
    yield "List with all held", lambda: steps.list(held(*ids))
    yield "Allocate", lambda: (steps.allocate(ids[3]), steps.table.units_of(NAME, ids[3:4]))
    yield "Allocate of all", lambda: (steps.allocate(*ids), steps.table.units_of(NAME, ids))
    yield "fault of one", lambda: steps.table.apply_health(fault, now=steps.now, wall=wall(steps.now))
    yield "unplug of one", lambda: steps.scan(*again[1:])
    yield "List with one on its way out", lambda: steps.list(held(ids[0]))
    yield "plug of one", lambda: steps.scan(*again)
    yield "unplug of all", steps.scan
    yield "held ids", steps.table.held_ids
    yield "snapshot", steps.table.snapshot


def renamed(count: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """The ids stay, and one is held: under the new name each is the double of one that leaves."""
    steps, here = Steps(), units(count)
    steps.scan(*here)
    steps.list(held(here[0].id))
    yield "rename", lambda: steps.edit(resource(OTHER), units=tuple(units(count, name=OTHER)))
    yield "writes after it", lambda: (steps.send(NAME), steps.send(OTHER))
    yield "List that frees all but one", lambda: steps.list(held(here[0].id))
    yield "List after it", lambda: steps.list(held(here[0].id))


def doubles(count: int) -> Iterator[tuple[str, Callable[[], object]]]:
    steps = Steps(resource(), resource(OTHER))
    both = (*units(count), *units(count, name=OTHER))
    yield "scan of two names with the same ids", lambda: steps.scan(*both)


def identified_otherwise(count: int) -> Iterator[tuple[str, Callable[[], object]]]:
    steps, here = Steps(), units(count)
    steps.scan(*here)
    steps.list(held(*(u.id for u in here)))
    yield "other ids while all are held", lambda: steps.scan(*units(count, prefix="q"))


def left_out(count: int) -> Iterator[tuple[str, Callable[[], object]]]:
    steps, here = Steps(), units(count)
    steps.scan(*here)
    steps.list(held(*(u.id for u in here)))
    excluded = tuple(Excluded(u.id, "pci", NAME, "Excluded", hardware=u.hardware[0]) for u in here)
    yield "exclusion of all while all are held", lambda: steps.scan(excluded=excluded)


def crowded(count: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Many ids of one device leave, and many devices are parts of it."""
    steps = Steps(resource(), resource(OTHER))
    whole = unit(Counted("whole"), replicas=count, hardware="devices")
    steps.scan(whole)
    steps.list(held(*(a.id for a in steps.table.listed(NAME))))
    yield "parts of a device whose replicas are all held", lambda: steps.scan(*units(count, name=OTHER))
    yield "fewer replicas", lambda: steps.scan(unit(Counted("whole"), hardware="devices"))


def restarted(count: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """What is held has the hardware of what is found, under other names: this object's and another's."""
    steps, theirs = Steps(resource(OTHER), owner="lab"), "example.net/x"
    grants = [
        *granted(*units(count, prefix="own"), owner="lab"),
        *granted(*units(count, name=theirs, prefix="x"), owner="another"),
    ]
    in_use = held(*(i for grant in grants for i in grant.ids if grant.resource == NAME))
    unknown = held(*(Counted(f"unknown{n}") for n in range(count)))
    yield "grants of an earlier process", lambda: steps.restore(*map(SeenGrant, grants))
    yield "List", lambda: steps.list(in_use)
    yield "first scan", lambda: steps.scan(*units(count, name=OTHER))
    yield "record", lambda: steps.record(*grants)
    yield "record that is the same", lambda: steps.record(*grants)
    yield "List of ids that nobody knows", lambda: steps.list(unknown)
    yield "record of one, of another life", lambda: steps.record(grants[0], life=2)
    yield "List that shows all forgotten", lambda: steps.list({}, pods=[("", "")])
    yield "record that frees all", lambda: steps.settle({}, grants[0], life=2)


def granted(*here: Unit, owner: str) -> list[Grant]:
    """One container for each unit, as the record has them."""
    before = Steps(resource(here[0].resource), owner=owner)
    before.scan(*here)
    return [before.grant(u.id, name=u.resource) for u in here]


def forgotten(count: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """The kubelet starts with nothing while all pods run on."""
    steps, here = Steps(), units(count)
    steps.scan(*here)
    ids = [u.id for u in here]
    grants = [steps.grant(i) for i in ids]
    steps.list(held(*ids))
    pods = [("default", f"pod-{i}") for i in ids]
    yield "record with all", lambda: steps.record(*grants)
    yield "record with nothing", lambda: steps.record(life=2)
    yield "List without any", lambda: steps.list({}, pods=pods)
    yield "stale nodes", lambda: steps.table.stale(NAME, ids)
    yield "List without pods", lambda: steps.list({})


def other_plugins(count: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Answers without a note, each with one of our nodes and words."""
    steps = Steps()
    here = [
        unit(f"{n:05}", hardware=f"devices/0000:{n:04x}:00.0", own_nodes={f"/dev/x{n}": f"char/9:{n}"})
        for n in range(count)
    ]
    theirs = [
        Grant(f"uid{n}", "main", "example.net/x", (f"id{n}",), nodes=(f"/dev/x{n}",), words=(f"0000:{n:02x}:00.0",))
        for n in range(count)
    ]
    yield "first scan", lambda: steps.scan(*here)
    yield "record", lambda: steps.record(*theirs)
    yield "record without them", steps.record


def long_ids(count: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Ids that were cut do not show whose replicas they are."""
    steps = Steps()
    before = Steps()
    before.scan(unit(Counted(LONG), replicas=count))
    ids = [Counted(a.id) for a in before.table.listed(NAME)]
    yield "record", lambda: steps.record(*(before.grant(i) for i in ids))
    steps.list(held(*ids))
    yield "scan", lambda: steps.scan(unit(Counted(LONG)))


def observed(count: int) -> Iterator[tuple[str, Callable[[], object]]]:
    watch = resource(OTHER, ownership=Ownership.NONE)
    steps = Steps(resource(), watch)
    both = (*units(count), *units(count, name=OTHER, prefix="h"))
    yield "scan of devices that are observed as well", lambda: steps.scan(*both)


@pytest.mark.parametrize(
    "story",
    [
        everyday,
        renamed,
        doubles,
        identified_otherwise,
        left_out,
        crowded,
        restarted,
        forgotten,
        other_plugins,
        long_ids,
        observed,
    ],
    ids=lambda story: story.__name__,
)
def test_a_step_of_the_table_grows_no_faster_than_the_number_of_ids(story):
    few = {name: instructions(step) for name, step in story(FEW)}
    most = MANY / FEW * SLACK
    for name, step in story(MANY):
        grown = instructions(step) / few[name]
        assert grown <= most, f"{name}: {MANY / FEW:.0f} times the ids take {grown:.1f} times the work"


def test_an_event_that_changes_nothing_judges_no_device():
    steps = dict(everyday(MANY))
    cost = {name: instructions(step) for name, step in steps.items()}
    for quiet in ("first List", "List with all held"):
        assert cost[quiet] < cost["fault of one"] / 4, quiet
    assert cost["Allocate"] < cost["first List"] / 4
