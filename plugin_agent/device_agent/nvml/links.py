"""NVLinks between the GPUs that this process sees: first by GPU, then as pairs of GPUs. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Final

from device_agent.allocate.topology import Links, pair
from device_agent.contract.values import dataclass
from device_agent.nvml.model import Gpu, NvmlView

LINK_TO_GPU: Final = 0
LINK_TO_SWITCH: Final = 2
"""nvmlIntNvLinkDeviceType_t of nvml.h."""


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """The other end of an active NVLink. `address`: a GPU's PCI address, '' for a switch. `kind`: LINK_TO_…."""

    address: str
    kind: int


def with_links(gpus: Iterable[Gpu], ends: Mapping[str, Iterable[LinkEnd]]) -> tuple[Gpu, ...]:
    """The GPUs with `nvlinks` and `via_switch` filled in. `ends`: by UUID. Links to GPUs not in `gpus` are left out."""
    gpus = tuple(gpus)
    by_address = {gpu.pci_address: gpu.uuid for gpu in gpus if gpu.pci_address}
    linked = []
    for gpu in gpus:
        links: dict[str, int] = {}
        switched = 0
        for end in ends.get(gpu.uuid, ()):
            peer = by_address.get(end.address)
            if end.kind == LINK_TO_SWITCH:
                switched += 1
            elif end.kind == LINK_TO_GPU and peer:
                links[peer] = links.get(peer, 0) + 1
        linked.append(replace(gpu, nvlinks=links, via_switch=switched))
    return tuple(linked)


def links_of(view: NvmlView) -> Links:
    """The number of NVLinks of each pair of GPUs.

    Both ends of a link are asked; if one did not answer, the larger count is right. NVSwitches connect all GPUs that
    have links to them. For such a pair the smaller count of the two GPUs is taken.
    """
    links: dict[tuple[str, str], int] = {}
    for gpu in view.gpus:
        for peer, count in gpu.nvlinks.items():
            if peer != gpu.uuid and count > 0:
                key = pair(gpu.uuid, peer)
                links[key] = max(count, links.get(key, 0))
    switched = [gpu for gpu in view.gpus if gpu.via_switch > 0]
    for one, other in combinations(switched, 2):
        key = pair(one.uuid, other.uuid)
        links[key] = links.get(key, 0) + min(one.via_switch, other.via_switch)
    return links
