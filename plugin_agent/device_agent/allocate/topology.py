"""How close two devices of a node are, as numbers that preferred allocation can add up. Pure.

Two things tell: links between physical devices, which a driver library lists, and the PCI functions in a device's
sysfs path, which are the bridges and switches above it. Neither is an attribute: they are facts about pairs. So the
device table keeps the links beside the units, and makes one `Affinity` per resource, once per change of its devices
or of the links.

A pair's score is `LINK` for each NVLink plus its PCIe `Level`. Devices that no score tells apart are one group: the
virtual functions of a card, the partitions of a device, the devices at one switch. That keeps the table and the search
over it small, whatever the number of devices.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

from device_agent.contract.values import dataclass
from device_agent.select.unit import Unit

LINK: Final = 1000
"""Of one link: links decide before PCIe does, whose levels in a set of 20 devices differ by at most 190 pairs x 5."""
MAX_GROUPS: Final = 32
"""Of one resource: with more that differ only NUMA nodes count, as a search over them would keep others waiting."""

Links = Mapping[tuple[str, str], int]
"""Two physical devices, by their parts' names and the smaller first -> links between them, the ones through switches
included."""

_FUNCTION = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")


class Level(IntEnum):
    """What two devices have in common on the way between them; the more, the nearer."""

    UNKNOWN = 0
    SYSTEM = 1
    """Different NUMA nodes: the link between the sockets."""
    NODE = 2
    """The NUMA node, but not the host bridge."""
    HOST_BRIDGE = 3
    SWITCHES = 4
    """Several PCIe switches, and no host bridge."""
    SWITCH = 5
    """One PCIe switch."""
    FUNCTION = 6
    """The physical device, the PCI function, or at least the card."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a device is. `chain`: host bridge, bridges, and last its own PCI function; empty where unknown.

    `device`: name of the physical device that it is or is a part of, where a driver library tells, or ''.
    """

    chain: tuple[str, ...] = ()
    numa_node: int | None = None
    device: str = ""


@dataclass(frozen=True, slots=True)
class Affinity:
    """Pair scores of one resource's devices. `group_of`: device id -> its group; groups are in the order of ids.

    `scores[g][h]`: of a device of g and one of h; `scores[g][g]`: of two of g, 0 where it has only one.
    """

    group_of: Mapping[str, int]
    scores: tuple[tuple[int, ...], ...]

    def between(self, one: str, other: str) -> int:
        """The score of two devices by id."""
        return self.scores[self.group_of[one]][self.group_of[other]]


def spot_of(unit: Unit) -> Spot:
    """A unit of several members is where all of them are: below the bridges that they have in common."""
    chains = [chain for path in unit.hardware if (chain := pci_chain(path))]
    chain = chains[0] if chains else ()
    for other in chains[1:]:
        chain = chain[: _common(chain, other)]
    devices = {part.partition("/")[0] for part in unit.parts}
    return Spot(chain=chain, numa_node=unit.numa_node, device=devices.pop() if len(devices) == 1 else "")


def pci_chain(sysfs_path: str) -> tuple[str, ...]:
    """The host bridge and the PCI functions that a sysfs path leads through; empty when it leads through none.

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
    if common > 1:  # a root port: what lies between them is below it
        below = max(len(one.chain), len(other.chain)) - common
        if below <= 1:
            return Level.FUNCTION  # one bus: functions of one card, as a PCIe link has no second device
        return Level.SWITCH if below == 2 else Level.SWITCHES  # a switch is two bridges: its upstream port is common
    nodes = {one.numa_node, other.numa_node}
    if None not in nodes and len(nodes) == 2:
        return Level.SYSTEM
    if common:
        return Level.HOST_BRIDGE
    return Level.UNKNOWN if None in nodes else Level.NODE


def affinity(spots: Mapping[str, Spot], links: Links) -> Affinity | None:
    """The scores of all pairs; None where they say no more than NUMA nodes do, or too many differ.

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
    """Ids that no pair score can tell apart because of where they are, in the order of the first ids."""
    shared = Counter((spot.chain, spot.device) for spot in spots.values())
    groups: dict[object, list[str]] = {}
    for i in sorted(spots):
        spot = spots[i]
        if spot.device in linked or shared[spot.chain, spot.device] > 1:
            key: object = spot
        else:
            # siblings on one bus: all others are equally far from each of them
            key = (spot.chain[:-1], spot.numa_node)
        groups.setdefault(key, []).append(i)
    return groups


def _merged(groups: Sequence[Sequence[str]], scores: Sequence[Sequence[int]]) -> Affinity:
    """Groups whose scores with all others are equal, and equal to that between the two, become one."""
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
    """The length of the beginning that both have."""
    for n, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return n
    return min(len(one), len(other))


def pair(one: str, other: str) -> tuple[str, str]:
    """Two devices as a key of `Links`."""
    return (one, other) if one < other else (other, one)
