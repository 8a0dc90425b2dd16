"""Preferred allocation: which of the free ids a container should get.

The kubelet asks with GetPreferredAllocation and takes the answer as a hint (pkg/kubelet/cm/devicemanager/manager.go,
callGetPreferredAllocationIfAvailable and devicesToAllocate). It ignores ids that it did not offer, and adds random ones
if there are too few. But an error rejects the pod, so nothing here fails, whatever the request is. The time is bounded:
a few sorts, and a search with a limit if pair scores are known (`topology`, `search`).
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from device_agent.allocate import search
from device_agent.allocate.topology import Affinity
from device_agent.contract.document import Policy
from device_agent.contract.values import dataclass

_SEARCHED: Final = 10_000
"""The largest question that is searched: requested devices times groups. Beyond it, NUMA nodes decide."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an id is: id of the physical device, its NUMA node if known, index of the replica from 0."""

    device: str
    numa_node: int | None
    replica: int


@dataclasses.dataclass(slots=True)
class _Device:
    """One physical device in one question. `free`: its offered ids by replica. `given`: how many of its ids the
    container has.

    `load`: how many of its ids are listed but not offered, so others use them as far as the kubelet knows.
    """

    id: str
    numa_node: int | None
    free: list[str]
    given: int
    load: int


_Choice = Callable[[list[_Device], int], Iterable[str]]


def preferred(
    available: Sequence[str],
    must_include: Sequence[str],
    size: int,
    *,
    policy: Policy,
    places: Mapping[str, Place],
    affinity: Affinity | None = None,
) -> tuple[str, ...]:
    """Chooses `size` ids: all of `must_include`, then from `available`; fewer if there are fewer.

    `places`: every id listed under the resource. An id that is not in it counts as a device of its own without NUMA
    node. `affinity`: pair scores of the devices; None: only NUMA nodes are known. The answer depends on the sets alone,
    not on their order.

    - Packed: the fewest physical devices; among equals, those already in use
    - Spread: different devices before a second replica of one; the least used first
    - Topology with pair scores: different devices with the highest sum of pair scores. Among equal sets: the least used
      devices, then the set that leaves the most to the remaining free devices, then the first ids. A second replica of
      a device comes only if there is no other device, and then as in Spread
    - Topology without pair scores: the fewest NUMA nodes; a node that just fits before a larger one; within them as in
      Spread
    """
    must = sorted(set(must_include))
    pool = set(available).difference(must)
    need = min(size - len(must), len(pool))
    if need <= 0:
        return tuple(must)
    if need == len(pool):
        return (*must, *sorted(pool))
    devices = _devices(pool, must, places)
    if policy is Policy.TOPOLOGY and affinity is not None:
        return (*must, *_nearest(devices, need, affinity))
    return (*must, *_CHOICES[policy](devices, need))


def _devices(pool: set[str], must: Sequence[str], places: Mapping[str, Place]) -> list[_Device]:
    """All devices of the request, in the order of their ids. One in `must` counts even without a free id: the container
    already has it, so its place matters.
    """
    devices: dict[str, _Device] = {}
    for offered, ids in ((False, must), (True, pool)):
        for i in ids:
            place = places.get(i)
            key, numa_node = (place.device, place.numa_node) if place else (i, None)
            device = devices.get(key)
            if device is None:
                device = devices[key] = _Device(key, numa_node, [], 0, 0)
            if offered:
                device.free.append(i)
            else:
                device.given += 1
    listed = Counter([place.device for place in places.values()])
    for device in devices.values():
        device.load = listed.get(device.id, 1) - device.given - len(device.free)
        if len(device.free) > 1:
            device.free.sort(key=lambda i: (places[i].replica if i in places else 0, i))
    return [devices[key] for key in sorted(devices)]


def _spread(devices: list[_Device], need: int, *, rank: Mapping[int | None, int] | None = None) -> list[str]:
    """First one id of each device, then a second one of each, and so on. `rank`: order of the NUMA nodes."""
    order = rank or {}
    ids = [
        (device.given + n, order.get(device.numa_node, 0), device.load, device.id, i)
        for device in devices
        for n, i in enumerate(device.free)
    ]
    ids.sort()
    return [i[-1] for i in ids[:need]]


def _packed(devices: list[_Device], need: int) -> list[str]:
    """First devices that the container already uses. Then the largest ones, until one device can hold the rest."""
    taken: list[str] = []
    left = [device for device in devices if device.free]
    mine = sorted((d for d in left if d.given), key=lambda d: (-len(d.free), d.id))
    for device in mine:
        taken += device.free[: need - len(taken)]
    others = sorted((d for d in left if not d.given), key=lambda d: (-len(d.free), -d.load, d.id))
    for n, device in enumerate(others):
        rest = need - len(taken)
        if rest <= len(device.free):
            fits = [d for d in others[n:] if len(d.free) >= rest]
            # a device in use first, then the tightest fit: so unused devices stay unused
            best = min(fits, key=lambda d: (d.load == 0, len(d.free), -d.load, d.id))
            return taken + best.free[:rest]
        taken += device.free
    return taken


def _topology(devices: list[_Device], need: int) -> list[str]:
    """One NUMA node if it can hold all. Otherwise the largest ones, and for the rest the one that fits best."""
    nodes: dict[int | None, list[_Device]] = {}
    for device in devices:
        nodes.setdefault(device.numa_node, []).append(device)
    free = {node: sum(len(d.free) for d in of) for node, of in nodes.items()}
    mine = [node for node, of in nodes.items() if any(d.given for d in of)]
    mine.sort(key=lambda node: (node is None, -sum(d.given for d in nodes[node]), node or 0))
    chosen: list[int | None] = []
    rest = need
    for node in mine:
        if rest > 0 and free[node]:
            chosen.append(node)
            rest -= free[node]
    others = [node for node in nodes if node not in mine and free[node]]

    def fit(node: int | None) -> tuple[bool, int, int, int]:
        # known nodes first; then few devices used twice; then the tightest fit
        fresh = sum(1 for d in nodes[node] if d.free and not d.given)
        return node is None, max(0, rest - fresh), free[node], -1 if node is None else node

    while rest > 0:
        fits = [node for node in others if free[node] >= rest]
        best = (
            min(fits, key=fit) if fits else max(others, key=lambda n: (n is not None, free[n], -1 if n is None else -n))
        )
        others.remove(best)
        chosen.append(best)
        rest -= free[best]
    rank = {node: n for n, node in enumerate(chosen)}
    return _spread([d for d in devices if d.numa_node in rank], need, rank=rank)


def _nearest(devices: list[_Device], need: int, affinity: Affinity) -> list[str]:
    """The devices with the best pair scores. Ids without pair scores come last."""
    fresh = [d for d in devices if d.free and not d.given]
    placed = [d for d in fresh if d.id in affinity.group_of]
    if need < len(placed):
        if need * len(affinity.scores) > _SEARCHED:
            return _topology(devices, need)
        chosen = _best(placed, need, affinity, fixed=[d.id for d in devices if d.given])
        return [d.free[0] for d in chosen]
    taken = [d.free[0] for d in placed]
    for device in placed:
        device.given += 1
        device.free = device.free[1:]
    return taken + _spread(devices, need - len(taken))


def _best(devices: list[_Device], need: int, affinity: Affinity, *, fixed: Sequence[str]) -> list[_Device]:
    """Chooses `need` of the devices. The container has none of these yet; it already has those of `fixed`.

    One number ranks a set. It is made of four parts, and each part outweighs all parts after it:
    - the pair scores, within the set and with `fixed`
    - how much others use its devices: less is better
    - the pair scores between the devices that stay free: more is better. A chosen device with a second free id
      stays free
    - the scores with `fixed`
    """
    of = affinity.group_of
    members: dict[int, list[_Device]] = {}
    for device in devices:
        members.setdefault(of[device.id], []).append(device)
    groups = sorted(members)
    scores = [[affinity.scores[g][h] for h in groups] for g in groups]
    near = [sum(affinity.scores[g][of[i]] for i in fixed if i in of) for g in groups]
    lost = [
        sum(score * len(members[h]) for score, h in zip(row, groups, strict=True)) - row[n]
        for n, row in enumerate(scores)
    ]
    loss = 1 + need * need * max(map(max, scores))
    use = loss * (1 + need * max(lost))
    costs = []
    for n, g in enumerate(groups):
        priced = sorted((d.load * use + (0 if len(d.free) > 1 else lost[n] * loss), d.id, d) for d in members[g])
        members[g] = [d for _, _, d in priced]
        costs.append([cost for cost, _, _ in priced])
    score = 1 + need * max(of_group[-1] for of_group in costs)
    # The costs count a pair within the set twice, once for each of its devices, but its score is lost only once. So
    # `pair` gives one `loss` back. It keeps 1: if two sets are equal so far, the one with lower scores within the set
    # wins. Its scores with `fixed` are then the higher ones.
    pair = score + (loss - 1 if all(len(d.free) == 1 for d in devices) else 0)
    counts = search.best_counts(
        [[pair * s for s in row] for row in scores],
        members=[[score * near[n] - cost for cost in of_group] for n, of_group in enumerate(costs)],
        need=need,
    )
    chosen = [d for g, count in zip(groups, counts, strict=True) for d in members[g][:count]]
    return sorted(chosen, key=lambda d: d.id)


_CHOICES: Final[Mapping[Policy, _Choice]] = {
    Policy.PACKED: _packed,
    Policy.SPREAD: _spread,
    Policy.TOPOLOGY: _topology,
}
