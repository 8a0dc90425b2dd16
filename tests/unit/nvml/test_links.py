"""NVLinks as pairs of GPUs, computed from the links of each GPU."""

from dataclasses import replace

import pytest
from device_agent.nvml.links import links_of
from device_agent.nvml.model import Gpu, NvmlView


def gpus(*gpu: Gpu) -> NvmlView:
    return NvmlView(gpus=gpu)


A, B, C = (Gpu(uuid=u, index=n, minor=n, pci_address=f"0000:0{n}:00.0") for n, u in enumerate("abc"))


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (gpus(A, B), {}),
        (gpus(replace(A, nvlinks={"b": 2}), replace(B, nvlinks={"a": 2})), {("a", "b"): 2}),
        (gpus(replace(A, nvlinks={"b": 4}), replace(B, nvlinks={})), {("a", "b"): 4}),  # b did not answer
        (gpus(replace(A, nvlinks={"b": 0, "a": 1}), B), {}),
        (
            gpus(replace(A, via_switch=12), replace(B, via_switch=10), replace(C, via_switch=12)),
            {("a", "b"): 10, ("a", "c"): 12, ("b", "c"): 10},  # b has lost two of its links
        ),
        (gpus(replace(A, via_switch=12), B), {}),
    ],
)
def test_links_are_counted_by_pair(view, expected):
    assert links_of(view) == expected
