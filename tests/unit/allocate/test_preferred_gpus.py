"""Which GPUs a container gets: on nodes of known makers, and compared with every other choice."""

from collections import Counter
from itertools import combinations

import pytest
from device_agent.allocate import search
from device_agent.allocate.preferred import Place, preferred
from device_agent.allocate.topology import Affinity, Spot, affinity
from device_agent.contract.document import Policy
from hypothesis import given
from hypothesis import strategies as st
from unit.allocate.nodes import CUBE_MESH, all_to_all, below_switches, cube_mesh, gpu, named, pcie_pairs, two_sockets


def choose(of: Affinity, size: int, *, used: tuple[int, ...] = (), must: tuple[int, ...] = ()) -> tuple[int, ...]:
    places = {i: Place(device=i, numa_node=None, replica=0) for i in of.group_of}
    free = [i for i in places if i not in {gpu(n) for n in used}]
    asked = [gpu(n) for n in must]
    answer = preferred(free, asked, size, policy=Policy.TOPOLOGY, places=places, affinity=of)
    return tuple(sorted(int(i.removeprefix("gpu")) for i in answer))


@pytest.mark.parametrize(
    ("node", "used", "must", "size", "expected"),
    [
        # All links alike: PCIe decides, and what is taken leaves whole switches and sockets.
        pytest.param(all_to_all, (), (), 1, (0,), id="nvswitch: all alike, so the first"),
        pytest.param(all_to_all, (), (), 2, (0, 1), id="nvswitch: two at one PCIe switch"),
        pytest.param(all_to_all, (), (), 3, (0, 1, 2), id="nvswitch: three at one socket"),
        pytest.param(all_to_all, (), (), 4, (0, 1, 2, 3), id="nvswitch: a socket's four"),
        pytest.param(all_to_all, (), (), 8, tuple(range(8)), id="nvswitch: all"),
        pytest.param(all_to_all, (2,), (), 1, (3,), id="nvswitch: the one whose neighbour is gone, pairs stay whole"),
        pytest.param(all_to_all, (0, 3), (), 2, (4, 5), id="nvswitch: a pair, rather than two halves"),
        pytest.param(all_to_all, (0,), (), 4, (4, 5, 6, 7), id="nvswitch: the socket that has four"),
        pytest.param(all_to_all, (), (5,), 2, (4, 5), id="nvswitch: beside the one it must have"),
        pytest.param(all_to_all, (), (0, 7), 4, (0, 1, 6, 7), id="nvswitch: beside both that it must have"),
        # Two meshes of four with nine links in each; across there are only those between counterparts.
        pytest.param(cube_mesh, (), (), 1, (0,), id="mesh: each has six links, so the first"),
        pytest.param(cube_mesh, (), (), 2, (2, 3), id="mesh: two links and one PCIe switch"),
        pytest.param(cube_mesh, (2, 6), (), 2, (0, 3), id="mesh: two links at one socket, before two across"),
        pytest.param(cube_mesh, (0, 2, 6, 7), (), 2, (1, 5), id="mesh: two links across, before one at a switch"),
        pytest.param(cube_mesh, (), (), 3, (0, 2, 3), id="mesh: five links, more have no three"),
        pytest.param(cube_mesh, (), (), 4, (0, 1, 2, 3), id="mesh: nine links, one of the meshes"),
        pytest.param(cube_mesh, (1,), (), 4, (4, 5, 6, 7), id="mesh: the one that is whole"),
        pytest.param(
            cube_mesh, (1, 6), (), 4, (0, 2, 3, 4), id="mesh: seven links, as in 0 3 4 7, and three of it at one socket"
        ),
        pytest.param(
            cube_mesh, (), (0, 4, 7), 4, (0, 4, 6, 7), id="mesh: three links as 3 has, but 6 is at a switch with 7"
        ),
        pytest.param(cube_mesh, (), (6,), 2, (6, 7), id="mesh: two links to the one it must have, and at its switch"),
        pytest.param(cube_mesh, (), (1, 2), 3, (1, 2, 3), id="mesh: three links to the two it must have"),
        # Only PCIe: a pair talks below its switch, and a pair that is broken up is lost to others.
        pytest.param(pcie_pairs, (), (), 1, (0,), id="pairs: the first"),
        pytest.param(pcie_pairs, (), (), 2, (0, 1), id="pairs: one switch"),
        pytest.param(pcie_pairs, (1,), (), 1, (0,), id="pairs: the half that is left, so that a pair stays whole"),
        pytest.param(pcie_pairs, (1,), (), 2, (2, 3), id="pairs: the whole pair"),
        pytest.param(pcie_pairs, (), (2,), 2, (2, 3), id="pairs: the other half"),
        pytest.param(pcie_pairs, (1, 2), (), 2, (0, 3), id="pairs: there is no other"),
        # Two sockets: the way between them is the slowest there is.
        pytest.param(two_sockets, (), (), 2, (0, 1), id="sockets: one socket"),
        pytest.param(two_sockets, (0,), (), 1, (1,), id="sockets: the single one, so that a socket stays whole"),
        pytest.param(two_sockets, (0,), (), 2, (2, 3), id="sockets: the socket that has two"),
        pytest.param(two_sockets, (), (3,), 3, (0, 2, 3), id="sockets: its neighbour, then one from afar"),
        pytest.param(two_sockets, (1, 2), (), 2, (0, 3), id="sockets: one of each, when that is all there is"),
    ],
)
def test_each_node_gives_this_set(node, used, must, size, expected):
    assert choose(node(), size, used=used, must=must) == expected


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (all_to_all, [(0, 1), (2, 3), (4, 5), (6, 7)]),
        (cube_mesh, [(2, 3), (6, 7), (0, 4), (1, 5)]),  # two links in each
        (pcie_pairs, [(0, 1), (2, 3)]),
        (two_sockets, [(0, 1), (2, 3)]),
    ],
)
def test_each_job_of_two_leaves_a_good_pair_to_the_next(node, expected):
    of = node()
    got: list[tuple[int, ...]] = []
    while 2 * len(got) < len(of.group_of):
        got.append(choose(of, 2, used=tuple(n for pair in got for n in pair)))
    assert got == expected


REPLICAS = {f"{i}/{n}": Place(device=i, numa_node=None, replica=n) for i in pcie_pairs().group_of for n in range(3)}


@pytest.mark.parametrize(
    ("used", "must", "size", "expected"),
    [
        ((), (), 2, ("gpu0/0", "gpu1/0")),  # never two replicas of one GPU while there is another
        ((), (), 3, ("gpu0/0", "gpu1/0", "gpu2/0")),
        (("gpu0/0", "gpu1/0"), (), 2, ("gpu2/0", "gpu3/0")),  # pairs that are as near: the less used one
        (("gpu0/0",), (), 2, ("gpu2/0", "gpu3/0")),
        (("gpu2/0", "gpu2/1", "gpu2/2", "gpu0/0"), (), 2, ("gpu0/1", "gpu1/0")),  # the nearer pair before the less used
        ((), ("gpu2/1",), 2, ("gpu2/1", "gpu3/0")),
        ((), ("gpu2/1",), 5, ("gpu2/1", "gpu0/0", "gpu1/0", "gpu3/0", "gpu0/1")),
        ((), (), 6, ("gpu0/0", "gpu1/0", "gpu2/0", "gpu3/0", "gpu0/1", "gpu1/1")),
    ],
)
def test_replicas_come_from_distinct_gpus(used, must, size, expected):
    free = [i for i in REPLICAS if i not in used]
    of = pcie_pairs()
    assert preferred(free, must, size, policy=Policy.TOPOLOGY, places=REPLICAS, affinity=of) == expected


def test_with_a_required_device_the_set_that_leaves_more_to_others_wins():
    scores = ((3, 3, 1, 1), (3, 0, 1001, 1), (1, 1001, 0, 3), (1, 1, 3, 3))
    of = Affinity(group_of={gpu(n): g for n, g in enumerate((0, 1, 0, 0, 2, 3, 3))}, scores=scores)
    # 0 1 4 scores the same, and leaves 2 3 and 5 6; this leaves 0 2 3
    assert choose(of, 3, must=(1,)) == (1, 4, 5)


@pytest.mark.parametrize("policy", [Policy.PACKED, Policy.SPREAD])
def test_other_policies_ask_for_no_scores(policy):
    free = [*REPLICAS]
    with_scores = preferred(free, (), 4, policy=policy, places=REPLICAS, affinity=pcie_pairs())
    assert with_scores == preferred(free, (), 4, policy=policy, places=REPLICAS)


def test_ids_without_a_place_in_the_table_come_last():
    of = pcie_pairs()
    places = {i: Place(device=i, numa_node=None, replica=0) for i in of.group_of}
    ask = ["a stranger", "gpu0", "gpu3"]
    assert preferred(ask, (), 2, policy=Policy.TOPOLOGY, places=places, affinity=of) == ("gpu0", "gpu3")
    assert preferred(["x", "y", "gpu3"], (), 2, policy=Policy.TOPOLOGY, places=places, affinity=of) == ("gpu3", "x")
    assert preferred(["gpu2", "gpu1"], ["x"], 2, policy=Policy.TOPOLOGY, places=places, affinity=of) == ("x", "gpu1")


def test_a_question_too_large_for_the_search_is_answered_by_numa_nodes():
    count = 1500
    spots = {
        f"{n:05d}": Spot(chain=(f"pci0000:{n % 16:x}0", f"0000:{n % 16:x}0:00.0", f"0000:9{n % 16:x}:{n // 16:04x}.0"))
        for n in range(count)
    }
    of = affinity(spots, {})
    assert of is not None
    assert len(of.scores) == 16
    places = {i: Place(device=i, numa_node=n % 2, replica=0) for n, i in enumerate(spots)}
    ask = [*spots]
    answer = preferred(ask, (), 700, policy=Policy.TOPOLOGY, places=places, affinity=of)
    assert answer == preferred(ask, (), 700, policy=Policy.TOPOLOGY, places=places)


# Against brute force


@st.composite
def nodes(draw):
    """Up to nine GPUs with some links, at some switches of some sockets, some of them partitioned."""
    count = draw(st.integers(2, 9))
    spots = below_switches(count, per_switch=draw(st.integers(1, 3)), per_node=draw(st.sampled_from([3, 4, 6, 9])))
    pairs = list(combinations(range(count), 2))
    links = draw(st.dictionaries(st.sampled_from(pairs), st.integers(1, 3), max_size=len(pairs)))
    return spots, affinity(spots, named(links))


@st.composite
def questions(draw):
    spots, of = draw(nodes())
    replicas = draw(st.sampled_from([1, 1, 1, 2]))
    places = {
        f"{i}/{n}": Place(device=i, numa_node=spot.numa_node, replica=n)
        for i, spot in spots.items()
        for n in range(replicas)
    }
    free = draw(st.lists(st.sampled_from([*places]), unique=True, min_size=1))
    must = draw(st.lists(st.sampled_from(free), unique=True, max_size=2))
    return of, places, free, must, draw(st.integers(1, len(free)))


def worth(of: Affinity, chosen: set[str], *, free: Counter[str], load: Counter[str]) -> tuple[int, int, int]:
    """The rank of a set: its pair scores, its use by others, and the pair scores that the other free devices keep."""
    inside = sum(of.between(a, b) for a, b in combinations(chosen, 2))
    left = [d for d, ids in free.items() if ids - (d in chosen) > 0]
    return inside, -sum(load[d] for d in chosen), sum(of.between(a, b) for a, b in combinations(left, 2))


@given(questions(), st.randoms(use_true_random=False))
def test_no_other_set_is_better_and_order_does_not_matter(question, random):
    of, places, free, must, size = question
    if of is None:
        return
    answer = preferred(free, must, size, policy=Policy.TOPOLOGY, places=places, affinity=of)
    assert len(set(answer)) == len(answer) == max(size, len(must))
    assert set(must) <= set(answer) <= set(free)
    shuffled = random.sample(free, len(free)), must[::-1]
    assert preferred(*shuffled, size, policy=Policy.TOPOLOGY, places=places, affinity=of) == answer

    fixed = {places[i].device for i in must}
    fresh = sorted({places[i].device for i in free} - fixed)
    need = max(0, size - len(must))
    more = {places[i].device for i in answer} - fixed
    assert len(more) == min(need, len(fresh)), "a second replica although there was another device"
    counts = Counter(places[i].device for i in free if i not in must)
    for d in fixed:
        counts.pop(d, None)
    used = Counter(p.device for p in places.values()) - Counter(places[i].device for i in free)
    values = [worth(of, {*fixed, *c}, free=counts, load=used) for c in combinations(fresh, len(more))]
    shared = any(p.replica for p in places.values())
    ours = worth(of, {*fixed, *more}, free=counts, load=used)
    judged = 2 if shared else 3
    assert ours[:judged] == max(v[:judged] for v in values)


@st.composite
def problems(draw):
    count = draw(st.integers(1, 5))
    cell = st.integers(0, 6)
    upper = {(g, h): draw(cell) for g in range(count) for h in range(g, count)}
    pairs = [[upper[min(g, h), max(g, h)] for h in range(count)] for g in range(count)]
    worth = st.lists(st.integers(-20, 6), min_size=1, max_size=3)
    members = [sorted(draw(worth), reverse=True) for _ in range(count)]
    return pairs, members, draw(st.integers(1, sum(map(len, members))))


def by_brute_force(pairs, members, need):
    def choices(g: int, rest: int):
        if g == len(members):
            if not rest:
                yield ()
            return
        for n in range(min(rest, len(members[g])), -1, -1):
            yield from ((n, *more) for more in choices(g + 1, rest - n))

    def value(counts):
        groups = [g for g, n in enumerate(counts) for _ in range(n)]
        return sum(pairs[g][h] for g, h in combinations(groups, 2)) + sum(
            sum(members[g][:n]) for g, n in enumerate(counts)
        )

    return max(choices(0, need), key=lambda c: (value(c), c))


@given(problems())
def test_the_search_finds_the_best_and_of_equals_the_first(problem):
    pairs, members, need = problem
    assert search.best_counts(pairs, members=members, need=need) == by_brute_force(pairs, members, need)


@given(problems(), st.integers(0, 40))
def test_a_search_that_runs_out_of_work_still_answers_with_a_set_of_the_size(problem, work):
    pairs, members, need = problem
    counts = search.best_counts(pairs, members=members, need=need, work=work)
    assert sum(counts) == need
    assert all(0 <= n <= len(of) for n, of in zip(counts, members, strict=True))
    assert counts == search.best_counts(pairs, members=members, need=need, work=work)


@pytest.mark.parametrize("size", range(1, 16))
def test_sixteen_gpus_of_two_meshes_are_decided_within_the_work_allowed(size):
    links = named({(a + m, b + m): n for m in (0, 8) for (a, b), n in CUBE_MESH.items()})
    of = affinity(below_switches(16, per_switch=2, per_node=8), links)
    assert of is not None
    costs = [sum(row) for row in of.scores]
    pairs = [[s * (1 + size * max(costs)) for s in row] for row in of.scores]
    ask = {"members": [[-cost] for cost in costs], "need": size}
    assert search.best_counts(pairs, **ask) == search.best_counts(pairs, **ask, work=100 * search.WORK)
