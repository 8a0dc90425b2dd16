"""What clusters change on the machine itself, undone when the last of them is down.

The kubelet sets a few kernel settings for the whole machine, and nodes need empty folders to mount over. All
clusters share one record: the settings as they were, the folders that were made, and the clusters that run.
"""

import contextlib
import json
from pathlib import Path
from typing import Any

from localcluster import places
from localcluster.processes import tagged

_SETTINGS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")
_FOLDERS = (
    "/var/lib/kubelet",
    "/var/lib/cni",
    "/var/log/pods",
    "/var/log/containers",
    "/etc/cdi",
    "/etc/kubernetes",
)


class Machine:
    def __init__(self) -> None:
        self._file = places.cache() / "clusters" / ".machine.json"
        self._lock = self._file.with_suffix(".lock")

    def claim(self, state: Path) -> None:
        """Before a cluster's first node: keeps how the machine is, unless another cluster runs."""
        with places.locked(self._lock, what="preparing the machine"):
            record = self._read()
            if not record["clusters"]:  # one that ended without a `down` stays listed, and its originals stay kept
                record["settings"] = {name: _setting(name).read_text().strip() for name in _SETTINGS}
                record["folders"] = []
            made = [name for name in _FOLDERS if not Path(name).exists()]
            for name in made:
                Path(name).mkdir(parents=True)
            record["folders"] += made
            record["clusters"] = sorted({*record["clusters"], str(state)})
            self._write(record)

    def release(self, state: Path) -> None:
        """After a cluster's last node: puts the machine back as it was, unless another cluster runs."""
        with places.locked(self._lock, what="putting the machine back"):
            record = self._read()
            if not record["clusters"]:
                return
            others = [name for name in record["clusters"] if name != str(state) and any(tagged(Path(name)))]
            if not others:
                for name, value in record["settings"].items():
                    _setting(name).write_text(value)
                for name in record["folders"]:
                    with contextlib.suppress(OSError):
                        Path(name).rmdir()
            record["clusters"] = others
            self._write(record)

    def changed(self) -> list[str]:
        """What differs from how the machine was before the first cluster; nothing while one runs."""
        record = self._read()
        if record["clusters"]:
            return []
        settings = record["settings"].items()
        changed = [
            f"kernel setting {name} is {now}, was {before}"
            for name, before in settings
            if (now := _setting(name).read_text().strip()) != before
        ]
        return changed + [f"folder {name}" for name in record["folders"] if Path(name).exists()]

    def _read(self) -> dict[str, Any]:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        with contextlib.suppress(OSError, ValueError):
            record: dict[str, Any] = json.loads(self._file.read_text())
            if record.get("boot") == boot:
                return record
        return {"boot": boot, "settings": {}, "folders": [], "clusters": []}

    def _write(self, record: dict[str, Any]) -> None:
        unfinished = self._file.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(record, indent=1))
        unfinished.rename(self._file)


def _setting(name: str) -> Path:
    return Path("/proc/sys") / name
