"""`kubectl devices hardware`: what is there, and entries that serve exactly that."""

from typing import Any

import pytest
from device_agent.contract import check
from kubectl_devices import tree
from kubectl_devices.model import specs, survey
from unit.discovery.tree import ROOT, HostTreeBuilder


@pytest.fixture
def node(host: HostTreeBuilder) -> HostTreeBuilder:
    """Two network functions, a bridge, a camera with two nodes on a USB port, a serial adapter, a bound group, kvm."""
    host.pci("0000:00:03.0", "1af4:1041", driver="virtio-pci", numa=0)
    host.pci("0000:00:04.0", "1af4:1041", driver="virtio-pci", numa=0)
    host.pci("0000:00:01.0", "8086:7000", pci_class="060100")
    host.pci("0000:00:05.0", "1e52:faca", pci_class="120000", driver="vfio-pci", group=7)
    host.node("vfio/7")
    controller = host.pci("0000:00:06.0", "8086:1e31", pci_class="0c0330", driver="xhci_hcd")
    port = host.usb(f"{controller}/usb1/1-1", vendor="046d", product="0825", serial="A1")
    for number in range(2):
        host.obj(f"{port}/1-1:1.0/video4linux/video{number}", "video4linux", devname=f"video{number}")
    host.obj(f"{ROOT}/0000:00:07.0/tty/ttyS0", "tty", devname="ttyS0")
    host.node("kvm")
    return host


def found(node: HostTreeBuilder) -> dict[str, survey.Kind]:
    return {kind.name: kind for kind in survey.kinds(tree.scan(node.root, survey.document())["devices"])}


def test_the_survey_is_a_document_that_an_agent_takes():
    assert not check.problems(survey.document())


def test_everything_that_pods_ask_for_is_found_and_nothing_else(node: HostTreeBuilder):
    assert {name: len(kind.devices) for name, kind in found(node).items()} == {
        "pci-1af4-1041": 2,
        "pci-1e52-faca": 1,
        "video4linux": 2,
        "kvm": 1,
    }


def test_the_entries_are_accepted_and_select_what_was_found(node: HostTreeBuilder):
    kinds = found(node)
    entries = survey.entries(kinds.values())
    raw: dict[str, Any] = {"metadata": {"name": "lab"}, "spec": {"resources": entries}}
    scan = tree.scan(node.root, specs.wanted(raw).document)
    selected = {(d["entry"].rpartition("/")[2], d["id"]) for d in scan["devices"]}
    assert selected == {
        ("pci-1af4-1041", "0000:00:03.0"),
        ("pci-1af4-1041", "0000:00:04.0"),
        ("pci-1e52-faca", "7"),
        ("video4linux", "1-1"),
        ("kvm", "/dev/kvm"),
    }


def test_an_nvidia_card_gets_a_preset(host: HostTreeBuilder):
    host.pci("0000:01:00.0", "10de:20b0", pci_class="030200", driver="nvidia")
    kinds = found(host)
    assert survey.entries(kinds.values()) == [{"name": "example.com/gpu", "preset": "nvidia-gpu-cdi"}]
    assert "docs/gpu.md" in kinds["gpu"].remark


def test_each_device_is_a_row_with_ids_and_driver(node: HostTreeBuilder):
    rows = survey.hardware_table(found(node).values()).rows
    assert ("pci", "0000:00:03.0", "1af4:1041", "virtio-pci", "0", "") in rows
    assert any(row[:3] == ("video4linux", "video0", "046d:0825") for row in rows)
