"""Preferred allocation: what each policy prefers, and that there is always an answer."""

from itertools import combinations

import pytest
from device_agent.allocate.preferred import Place, preferred
from device_agent.contract.document import Policy
from hypothesis import given, settings
from hypothesis import strategies as st

PACKED, SPREAD, TOPOLOGY = Policy.PACKED, Policy.SPREAD, Policy.TOPOLOGY


def places(*devices: tuple[str, int | None, int]) -> dict[str, Place]:
    """(device, NUMA node, replicas) each; ids are `device/replica`."""
    return {f"{d}/{n}": Place(device=d, numa_node=numa, replica=n) for d, numa, count in devices for n in range(count)}


def devices_of(ids: tuple[str, ...]) -> list[str]:
    return [i.partition("/")[0] for i in ids]


SHARED = places(("a", None, 4), ("b", None, 4), ("c", None, 4))
EIGHT = places(*((f"d{n}", n // 4, 1) for n in range(8)))


def without(of: dict[str, Place], *used: str) -> list[str]:
    return [i for i in of if i not in used]


@pytest.mark.parametrize(
    ("policy", "of", "used", "asked", "expected"),
    [
        (PACKED, SHARED, (), ((), 2), ["a/0", "a/1"]),
        (PACKED, SHARED, ("b/0",), ((), 1), ["b/1"]),  # in use already
        (PACKED, SHARED, ("a/0", "b/0", "b/1"), ((), 2), ["b/2", "b/3"]),  # the fuller one
        (PACKED, SHARED, ("b/0", "b/1", "b/2"), ((), 2), ["a/0", "a/1"]),  # one device rather than two
        (PACKED, SHARED, (), (("c/0",), 3), ["c/0", "c/1", "c/2"]),  # where the container is already
        (PACKED, SHARED, ("b/0",), ((), 5), ["a/0", "a/1", "a/2", "a/3", "b/1"]),
        (SPREAD, SHARED, (), ((), 2), ["a/0", "b/0"]),
        (SPREAD, SHARED, ("a/0", "b/0"), ((), 1), ["c/0"]),  # the least used
        (SPREAD, SHARED, ("a/0",), ((), 4), ["b/0", "c/0", "a/1", "b/1"]),  # distinct ones before a second replica
        (SPREAD, SHARED, (), (("a/0",), 3), ["a/0", "b/0", "c/0"]),
        (TOPOLOGY, EIGHT, (), ((), 4), ["d0/0", "d1/0", "d2/0", "d3/0"]),
        (TOPOLOGY, EIGHT, ("d0/0",), ((), 4), ["d4/0", "d5/0", "d6/0", "d7/0"]),  # one node that holds all
        (TOPOLOGY, EIGHT, ("d0/0", "d1/0"), ((), 2), ["d2/0", "d3/0"]),  # the larger remainder stays whole
        (TOPOLOGY, EIGHT, (), (("d5/0",), 2), ["d5/0", "d4/0"]),  # where the container is already
        (TOPOLOGY, EIGHT, (), (("d5/0",), 6), ["d5/0", "d4/0", "d6/0", "d7/0", "d0/0", "d1/0"]),
        (TOPOLOGY, places(("a", 0, 2), ("b", 1, 1), ("c", 1, 1)), (), ((), 2), ["b/0", "c/0"]),  # distinct devices
        (TOPOLOGY, places(("a", 0, 4), ("b", 1, 1), ("c", 1, 1)), (), ((), 3), ["a/0", "a/1", "a/2"]),  # one node first
        (TOPOLOGY, places(("a", None, 1), ("b", None, 1), ("c", 0, 1), ("d", 0, 1)), (), ((), 2), ["c/0", "d/0"]),
        (TOPOLOGY, places(("a", None, 1), ("b", None, 1), ("c", 0, 1), ("d", 1, 1)), (), ((), 2), ["a/0", "b/0"]),
        (TOPOLOGY, SHARED, ("a/0",), ((), 2), ["b/0", "c/0"]),  # without NUMA nodes it is Spread
    ],
)
def test_each_policy_chooses_these_ids(policy, of, used, asked, expected):
    """`used` is not available; `asked`: what the answer must include, and its size."""
    must, size = asked
    assert list(preferred(without(of, *used), must, size, policy=policy, places=of)) == expected


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize(
    ("available", "must", "size", "expected"),
    [
        ((), (), 3, set()),
        (("d0/0",), (), 0, set()),
        (("d0/0",), (), -1, set()),
        (("d0/0",), ("d0/0",), 0, {"d0/0"}),
        (("d0/0", "d1/0"), (), 9, {"d0/0", "d1/0"}),
        (("d0/0", "d0/0"), (), 2, {"d0/0"}),
        (("d0/0",), ("not available",), 2, {"not available", "d0/0"}),
        (("strange", "stranger"), (), 1, {"strange"}),
        (("d0/0",), ("d1/0", "d2/0", "d3/0"), 2, {"d1/0", "d2/0", "d3/0"}),
    ],
)
def test_odd_questions_get_the_best_answer_there_is(policy, available, must, size, expected):
    assert set(preferred(available, must, size, policy=policy, places=EIGHT)) == expected


def test_unknown_ids_are_taken_when_nothing_else_is_left():
    assert preferred(["a/0", "x", "y"], (), 2, policy=TOPOLOGY, places=EIGHT | places(("a", 0, 1))) == ("x", "y")
    assert preferred(["d0/0", "x"], (), 1, policy=TOPOLOGY, places=EIGHT) == ("d0/0",)


@st.composite
def questions(draw):
    shape = draw(st.lists(st.tuples(st.sampled_from([None, 0, 1, 2]), st.integers(1, 3)), min_size=1, max_size=4))
    of = places(*((f"d{n}", numa, count) for n, (numa, count) in enumerate(shape)))
    names = [*of, *draw(st.sampled_from([(), ("x",), ("x", "y")]))]
    available = draw(st.lists(st.sampled_from(names), unique=True))
    must = draw(st.lists(st.sampled_from(available), unique=True, max_size=2)) if available else []
    return of, available, must, draw(st.integers(0, len(names) + 1))


@settings(deadline=None)
@given(questions(), st.sampled_from(Policy), st.randoms(use_true_random=False))
def test_every_answer_is_a_choice_of_the_right_size_whatever_the_order(question, policy, random):
    of, available, must, size = question
    answer = preferred(available, must, size, policy=policy, places=of)
    assert len(set(answer)) == len(answer) == max(len(must), min(size, len(available)))
    assert set(must) <= set(answer) <= set(available)
    assert set(answer[: len(must)]) == set(must)
    shuffled, turned = random.sample(available, len(available)), must[::-1]
    assert preferred(shuffled, turned, size, policy=policy, places=of) == answer


def choices(question):
    """All answers of the right size, by brute force."""
    _, available, must, size = question
    rest = [i for i in available if i not in must]
    need = max(0, min(size - len(must), len(rest)))
    return [(*must, *more) for more in combinations(rest, need)]


@settings(deadline=None)
@given(questions())
def test_packed_uses_the_fewest_devices_also_with_must_include(question):
    of, available, must, size = question
    answer = preferred(available, must, size, policy=PACKED, places=of)
    assert len(set(devices_of(answer))) == min(len(set(devices_of(c))) for c in choices(question))


@settings(deadline=None)
@given(questions())
def test_spread_uses_the_most_devices(question):
    of, available, must, size = question
    answer = preferred(available, must, size, policy=SPREAD, places=of)
    assert len(set(devices_of(answer))) == max(len(set(devices_of(c))) for c in choices(question))


@settings(deadline=None)
@given(questions())
def test_topology_spans_the_fewest_numa_nodes(question):
    of, available, must, size = question

    def nodes(ids) -> int:
        # ids of unknown place count as one more node: they may be anywhere
        return len({of[i].numa_node if i in of else None for i in ids})

    answer = preferred(available, must, size, policy=TOPOLOGY, places=of)
    assert nodes(answer) == min(nodes(c) for c in choices(question))
