"""What all sources of devices have in common, and where on the node they look."""

from pathlib import Path
from typing import Protocol

from device_agent.contract.document import DeviceEntry
from device_agent.contract.values import dataclass
from device_agent.select.found import FoundDevice


@dataclass(frozen=True, slots=True)
class Roots:
    """Where the node's file systems are: /host/sys in a pod, /sys on the node, a captured tree in a test."""

    sys: Path
    dev: Path
    proc: Path

    @classmethod
    def below(cls, root: Path) -> "Roots":
        return cls(sys=root / "sys", dev=root / "dev", proc=root / "proc")


class Source(Protocol):
    """One way to find devices. It lives for one scan. It reads and never changes the hardware's state.

    What it finds carries everything that selection must know of it (`FoundDevice`). It works on each object within the
    tree's `boundary`, so that one that cannot be read does not hide the others.
    """

    def scan(self, entry: DeviceEntry, *, owner: str, wanted: frozenset[str]) -> tuple[FoundDevice, ...]:
        """The devices of the entry's source specification (not its include), in kernel-name order.

        `owner`: what tells the entry from all others of the document.
        `wanted`: names of the sysfs file attributes to read (`attr.…`, `pci.attr.…`).
        """
        ...

    def nothing(self, entry: DeviceEntry) -> str:
        """Where it looked for an entry without finds, in case the admin mistyped something; '' if there is nothing to
        say.
        """
        ...
