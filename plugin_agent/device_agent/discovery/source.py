"""The protocol of all sources of devices, and where on the node they look."""

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
    """One way to find devices. It exists for one scan. It reads and never changes the hardware's state.

    Its finds have everything that selection must know (`FoundDevice`). It works on each object within the tree's
    `boundary`, so that an unreadable object does not hide the others.
    """

    def scan(self, entry: DeviceEntry, *, owner: str, wanted: frozenset[str]) -> tuple[FoundDevice, ...]:
        """The devices of the entry's source specification (not its include), in kernel-name order.

        `owner`: a text that identifies the entry in the document.
        `wanted`: names of the sysfs file attributes to read (`attr.…`, `pci.attr.…`).
        """
        ...

    def nothing(self, entry: DeviceEntry) -> str:
        """Where it looked, for an entry without finds: the admin may have mistyped a name. '' if there is nothing to
        say.
        """
        ...
