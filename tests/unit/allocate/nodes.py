"""Nodes with GPUs as their makers build them: the spots of the GPUs and the NVLinks between them."""

from itertools import combinations

from device_agent.allocate.topology import Affinity, Spot, affinity

CUBE_MESH = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2,
    (2, 6): 1, (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
}  # fmt: skip
"""The NVLinks of a DGX-1 with eight V100: two meshes of four, each GPU with its counterpart in the other; six each."""


def gpu(number: int) -> str:
    return f"gpu{number}"


def below_switches(count: int, *, per_switch: int, per_node: int) -> dict[str, Spot]:
    """GPUs below PCIe switches with a root port each, the switches of a socket below one host bridge."""
    spots = {}
    for n in range(count):
        node, switch, port = n // per_node, n // per_switch, n % per_switch
        chain = (
            f"pci0000:{node:x}0",
            f"0000:{node:x}0:{switch:02x}.0",
            f"0000:4{switch:x}:00.0",
            f"0000:5{switch:x}:{port:02x}.0",
            f"0000:6{n:x}:00.0",
        )
        spots[gpu(n)] = Spot(chain=chain, numa_node=node, device=gpu(n))
    return spots


def named(links: dict[tuple[int, int], int]) -> dict[tuple[str, str], int]:
    return {(gpu(a), gpu(b)): count for (a, b), count in links.items()}


def known(found: Affinity | None) -> Affinity:
    assert found is not None
    return found


def cube_mesh() -> Affinity:
    """DGX-1: two GPUs at each PCIe switch, two switches at each socket."""
    return known(affinity(below_switches(8, per_switch=2, per_node=4), named(CUBE_MESH)))


def all_to_all(count: int = 8, links: int = 12) -> Affinity:
    """DGX A100: six NVSwitches connect each GPU with each other alike."""
    spots = below_switches(count, per_switch=2, per_node=count // 2)
    return known(affinity(spots, named(dict.fromkeys(combinations(range(count), 2), links))))


def pcie_pairs() -> Affinity:
    """Four cards without NVLink: two switches at one socket, two cards at each."""
    return known(affinity(below_switches(4, per_switch=2, per_node=4), {}))


def two_sockets() -> Affinity:
    """Two cards at each of two sockets, each at a root port of its own."""
    spots = {
        gpu(n): Spot(
            chain=(f"pci0000:{n // 2}0", f"0000:{n // 2}0:0{n % 2}.0", f"0000:{n}a:00.0"),
            numa_node=n // 2,
            device=gpu(n),
        )
        for n in range(4)
    }
    return known(affinity(spots, {}))
