"""NVLinks between the GPUs that this process sees, from where each link of each GPU leads. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from device_agent.nvml.model import Gpu
from device_agent.nvml.reading import LINK_TO_GPU, LINK_TO_SWITCH, LinkEnd


def with_links(gpus: Iterable[Gpu], ends: Mapping[str, Iterable[LinkEnd]]) -> tuple[Gpu, ...]:
    """The GPUs with `nvlinks` and `via_switch`; `ends` by UUID. A link to a GPU that is not there leads nowhere."""
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
