"""How close two devices of a node are, as numbers that preferred allocation can add up. Pure.

Two facts decide: the links between physical devices, which a driver library lists, and the PCI path. A sysfs path
names the bridges and switches above a device. Both are facts about pairs, not attributes of one device. So the device
table keeps the links beside the units. It makes one `Affinity` per resource, and again when devices or links change.

A pair's score is `LINK` for each NVLink plus its PCIe `Level`. Devices with equal scores form one group: the virtual
functions of a card, the partitions of a device, the devices at one switch. So the table and the search stay small,
however many devices there are.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

from device_agent.contract.values import dataclass
from device_agent.select.unit import Unit

LINK: Final = 2000
"""Score of one link. Links decide before PCIe: in a set of 20 devices the levels of all 190 pairs differ by at most
190 x 6 (from `UNKNOWN` to `FUNCTION`).
"""
MAX_GROUPS: Final = 32
"""The most groups of one resource. With more, only NUMA nodes count: a search over them would delay other pods."""

Links = Mapping[tuple[str, str], int]
"""Two physical devices (names of their parts, the smaller first) -> number of links between them, including links
through switches."""

_FUNCTION = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")


class Level(IntEnum):
    """How near two devices are by PCIe and NUMA node. A higher value is nearer."""

    UNKNOWN = 0
    SYSTEM = 1
    """Different NUMA nodes: the link between the sockets."""
    NODE = 2
    """Same NUMA node, different host bridges."""
    HOST_BRIDGE = 3
    SWITCHES = 4
    """Several PCIe switches lie between them, and no host bridge."""
    SWITCH = 5
    """One PCIe switch lies between them."""
    FUNCTION = 6
    """Same physical device, same PCI function, or same card."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a device is. `chain`: host bridge, bridges, and last its own PCI function; empty if unknown.

    `device`: name of the physical device that it is, or is a part of. '' if no driver library names it.
    """

    chain: tuple[str, ...] = ()
    numa_node: int | None = None
    device: str = ""


@dataclass(frozen=True, slots=True)
class Affinity:
    """Pair scores of one resource's devices. `group_of`: device id -> its group; groups are in the order of ids.

    `scores[g][h]`: score of one device of g and one of h. `scores[g][g]`: score of two devices of g, 0 if it has one.
    """

    group_of: Mapping[str, int]
    scores: tuple[tuple[int, ...], ...]

    def between(self, one: str, other: str) -> int:
        """The score of two devices by id."""
        return self.scores[self.group_of[one]][self.group_of[other]]


def spot_of(unit: Unit) -> Spot:
    """Where a unit is. A unit of several members is below the bridges that all of them share."""
    chains = [chain for path in unit.hardware if (chain := pci_chain(path))]
    chain = chains[0] if chains else ()
    for other in chains[1:]:
        chain = chain[: _common(chain, other)]
    devices = {part.partition("/")[0] for part in unit.parts}
    return Spot(chain=chain, numa_node=unit.numa_node, device=devices.pop() if len(devices) == 1 else "")


def pci_chain(sysfs_path: str) -> tuple[str, ...]:
    """The host bridge and the PCI functions in a sysfs path; empty if it has none.

    `devices/pci0000:00/0000:00:02.0/0000:03:00.0/drm/card0` -> pci0000:00, 0000:00:02.0, 0000:03:00.0.
    """
    if "/pci" not in sysfs_path:
        return ()
    parts = sysfs_path.split("/")
    for n, part in enumerate(parts):
        if _HOST_BRIDGE.fullmatch(part):
            functions = [p for p in parts[n + 1 :] if _FUNCTION.fullmatch(p)]
            return (part, *functions) if functions else ()
    return ()


def level(one: Spot, other: Spot) -> Level:
    """How near two devices are by PCIe and NUMA node."""
    if one.device and one.device == other.device:
        return Level.FUNCTION
    common = _common(one.chain, other.chain)
    if common > 1:  # same root port, so only switches can lie between them
        below = max(len(one.chain), len(other.chain)) - common
        if below <= 1:
            return Level.FUNCTION  # one bus: a PCIe link ends at one device, so both are on one card
        return Level.SWITCH if below == 2 else Level.SWITCHES  # below == 2: two ports of one switch
    nodes = {one.numa_node, other.numa_node}
    if None not in nodes and len(nodes) == 2:
        return Level.SYSTEM
    if common:
        return Level.HOST_BRIDGE
    return Level.UNKNOWN if None in nodes else Level.NODE


def affinity(spots: Mapping[str, Spot], links: Links) -> Affinity | None:
    """The scores of all pairs. None: they say no more than NUMA nodes do, or there are too many groups.

    `spots`: device id -> where it is.
    """
    linked = {device for pair in links for device in pair}
    groups = list(_alike(spots, linked).values())
    if len(groups) > MAX_GROUPS:
        return None

    def score(one: Spot, other: Spot) -> int:
        count = links.get(pair(one.device, other.device), 0) if one.device and other.device else 0
        return LINK * count + level(one, other)

    scores = [[0] * len(groups) for _ in groups]
    for g, group in enumerate(groups):
        if len(group) > 1:
            scores[g][g] = score(spots[group[0]], spots[group[1]])
        for h, other in enumerate(groups[:g]):
            scores[g][h] = scores[h][g] = score(spots[group[0]], spots[other[0]])
    if all(value <= Level.NODE for row in scores for value in row):
        return None
    return _merged(groups, scores)


def _alike(spots: Mapping[str, Spot], linked: set[str]) -> dict[object, list[str]]:
    """Groups ids with equal scores by their place alone, in the order of the first ids. Linear in their number."""
    shared = Counter((spot.chain, spot.device) for spot in spots.values())
    through = _through(spots)
    groups: dict[object, list[str]] = {}
    for i in sorted(spots):
        spot = spots[i]
        if spot.device in linked or shared[spot.chain, spot.device] > 1:
            key: object = spot
        else:
            fork = spot.chain
            while fork and through[fork] == 1:
                fork = fork[:-1]
            # `fork`: the lowest bridge that is above other devices too. Devices with one fork are equally far from all
            # others. The bridges below the fork count only if a root port is above it (`level`).
            key = (fork, len(spot.chain) if len(fork) > 1 else 0, spot.numa_node)
        groups.setdefault(key, []).append(i)
    return groups


def _through(spots: Mapping[str, Spot]) -> Mapping[tuple[str, ...], int]:
    """The beginning of a chain -> number of devices whose chain begins with it."""
    through = Counter(spot.chain for spot in spots.values() if spot.chain)
    for bus, count in Counter(spot.chain[:-1] for spot in spots.values() if spot.chain).items():
        for length in range(len(bus) + 1):
            through[bus[:length]] += count
    return through


def _merged(groups: Sequence[Sequence[str]], scores: Sequence[Sequence[int]]) -> Affinity:
    """Joins two groups if their scores with all others are equal, and equal to the score between the two."""
    heads: list[int] = []
    inner: dict[int, int | None] = {}
    into: list[int] = []
    for g, group in enumerate(groups):
        own = scores[g][g] if len(group) > 1 else None
        for n, head in enumerate(heads):
            between = scores[g][head]
            if own in (None, between) and inner[head] in (None, between) and _twins(scores, g, head):
                inner[head] = between
                into.append(n)
                break
        else:
            into.append(len(heads))
            heads.append(g)
            inner[g] = own
    return Affinity(
        group_of={i: into[g] for g, group in enumerate(groups) for i in group},
        scores=tuple(tuple(scores[g][h] if g != h else inner[g] or 0 for h in heads) for g in heads),
    )


def _twins(scores: Sequence[Sequence[int]], one: int, other: int) -> bool:
    return all(a == b for n, (a, b) in enumerate(zip(scores[one], scores[other], strict=True)) if n not in (one, other))


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of the common beginning."""
    for n, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return n
    return min(len(one), len(other))


def pair(one: str, other: str) -> tuple[str, str]:
    """Two devices as a key of `Links`."""
    return (one, other) if one < other else (other, one)
