"""What the kernel shows of the driver: its module, its PCI functions, its device nodes."""

import os
import re
from pathlib import Path

from device_agent.contract.values import dataclass
from device_agent.discovery.source import Roots

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NODE = re.compile(r"nvidia\d+")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the kernel shows at one moment. The library counts GPUs only at its start, so it is restarted on a change.

    `load`: the inode number of the module's directory, a new one for each load; '' if the module is not loaded.
    `functions`: PCI addresses bound to the driver. `nodes`: names of the GPUs' nodes in /dev.
    """

    load: str
    functions: frozenset[str]
    nodes: frozenset[str]


def surroundings(roots: Roots) -> Surroundings:
    """Reads them from sysfs and /dev."""
    try:
        load = str((roots.sys / "module/nvidia").stat().st_ino)
    except OSError:
        load = ""
    return Surroundings(
        load=load,
        functions=_names(roots.sys / "bus/pci/drivers/nvidia", _ADDRESS),
        nodes=_names(roots.dev, _NODE),
    )


def numa_node(roots: Roots, address: str) -> int | None:
    """The NUMA node of a PCI function, None if the firmware does not tell (-1)."""
    text = _text(roots.sys / "bus/pci/devices" / address / "numa_node").strip()
    return int(text) if text.isdecimal() else None


def mig_minors(roots: Roots) -> str:
    """The text of mig-minors. A pod has no /host/proc, but its own procfs shows the driver's part too."""
    return _text(roots.proc / "driver/nvidia-caps/mig-minors") or _text(Path("/proc/driver/nvidia-caps/mig-minors"))


def _names(directory: Path, pattern: re.Pattern[str]) -> frozenset[str]:
    try:
        return frozenset(name for name in os.listdir(directory) if pattern.fullmatch(name))  # noqa: PTH208 /dev is long
    except OSError:
        return frozenset()


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
