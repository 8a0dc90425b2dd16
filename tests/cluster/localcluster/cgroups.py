"""The nodes' cgroups. The kubelet needs its root cgroup in every hierarchy before it starts, and does not remove it.

On cgroup v1 that is one tree per controller, plus `unified`, where runc makes folders too; on v2 it is one tree.
"""

import contextlib
import os
from pathlib import Path

from localcluster.processes import wait_until

_ROOT = Path("/sys/fs/cgroup")


def hierarchies() -> list[Path]:
    if _is_v2():
        return [_ROOT]
    return sorted(each for each in _ROOT.iterdir() if each.is_dir() and not each.is_symlink())


def make(cgroup: str) -> None:
    """Makes a cgroup, such as `cluster/node-1`, and its parents in every hierarchy."""
    for hierarchy in hierarchies():
        current = hierarchy
        _delegate(current)
        for part in Path(cgroup).parts:
            current = current / part
            current.mkdir(exist_ok=True)
            if not _is_v2() and (hierarchy / "cpuset.cpus").exists():
                for setting in ("cpuset.cpus", "cpuset.mems"):  # v1 starts with none, and no process may enter
                    (current / setting).write_text((hierarchy / setting).read_text())
            _delegate(current)


def remove(cgroup: str) -> None:
    """Removes a cgroup with all below it; the kernel lets go of the last members some time after their end."""

    def is_gone() -> bool:
        for top in left(cgroup):
            for folder, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()
        return not left(cgroup)

    wait_until(is_gone, seconds=20, what=f"the end of the cgroups {', '.join(map(str, left(cgroup)))}")


def left(cgroup: str) -> list[Path]:
    return [hierarchy / cgroup for hierarchy in hierarchies() if (hierarchy / cgroup).exists()]


def _is_v2() -> bool:
    return (_ROOT / "cgroup.controllers").exists()


def _delegate(folder: Path) -> None:
    if _is_v2():
        for controller in (folder / "cgroup.controllers").read_text().split():
            with contextlib.suppress(OSError):
                (folder / "cgroup.subtree_control").write_text(f"+{controller}")
