"""Containers get devices that are near to each other, on a node whose PCI tree is known."""

from pathlib import Path

from agent.harness import Node, Start, document
from agent.standin import Kubelet
from unit.discovery.tree import HostTreeBuilder

CARD = "example.com/card"


def cards_at_two_switches_in_turns(root: Path) -> None:
    """0a and 0c are at one switch, 0b and 0d at the other, so the order of ids does not help."""
    tree = HostTreeBuilder(root)
    for n, bus in enumerate(("0a", "0b", "0c", "0d")):
        switch = f"0000:00:0{1 + n % 2}.0/0000:1{n % 2}:00.0/0000:2{n % 2}:0{n // 2}.0"
        tree.pci(f"0000:{bus}:00.0", "1234:5678", below=f"devices/pci0000:00/{switch}")


def test_two_cards_for_a_container_are_those_of_one_switch(
    node: Node, kubelet: Kubelet, start: Start, tmp_path: Path
) -> None:
    cards_at_two_switches_in_turns(tmp_path / "tree")
    node.configure(document({"name": CARD, "devices": [{"pci": {"ids": ["1234:5678"]}}]}))
    start(f"--host-root={tmp_path / 'tree'}")
    kubelet.wait_for(CARD, 4)
    for pod in ("a", "b"):
        kubelet.admit(pod, CARD, 2)
    assert [sorted(kubelet.ids_of(pod, CARD)) for pod in ("a", "b")] == [
        ["0000:0a:00.0", "0000:0c:00.0"],
        ["0000:0b:00.0", "0000:0d:00.0"],
    ]
