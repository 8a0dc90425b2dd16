"""Node labels about the node's NVIDIA GPUs, through a feature file for node-feature-discovery (NFD).

NFD's worker reads all files of one directory on the node and turns their lines into labels (its customization guide,
"Local feature source"). Names and values are those of NVIDIA's gpu-feature-discovery, so that existing node selectors
still work (k8s-device-plugin, docs/gpu-feature-discovery).

The agent's pod may be deleted for good. So each file has an expiry time, one hour ahead, and the agent renews it every
15 minutes. While the driver does not answer, the agent leaves the file as it is and does not renew it. So the labels
outlast a short failure of the driver and end after a long one. If the driver answers and has no GPU, the agent removes
the file.

An agent that ends keeps the file too, because in a rollout the next agent starts within seconds. Without the labels,
DaemonSets that select nodes by them would lose their pods.
"""

import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from device_agent.contract.names import cut, resource_name_from
from device_agent.nvml.model import Gpu, Mig, NvmlView
from device_agent.select.unit import Unit
from device_agent.table.snapshot import TableSnapshot

EXPIRY: Final = timedelta(hours=1)
"""How long the labels stay after the last renewal."""
RENEWAL: Final = timedelta(minutes=15)

_GPU: Final = "nvidia.com/gpu"
_SHARED: Final = ".shared"
"""The end of a resource name that already says "shared": then the product label needs no -SHARED."""
_FAMILIES: Final = {1: "tesla", 2: "fermi", 3: "kepler", 5: "maxwell", 6: "pascal", 9: "hopper", 10: "blackwell",
                    11: "blackwell", 12: "blackwell"}  # fmt: skip
_CAPABILITY = re.compile(r"\d+\.\d+")
_SLICES = re.compile(r"(?:(?P<ci>\d+)c\.)?(?P<gi>\d+)g\.")


def labels(view: NvmlView, snapshot: TableSnapshot, *, machine: str = "") -> dict[str, str]:
    """Label name -> value, both valid; empty if there is no GPU.

    `machine`: the node's product name from the firmware. If the node has several models, the labels and `gpu.count`
    describe the most frequent one; if two are equally frequent, the one with the lowest index.
    Replicas and MIG strategy come from the snapshot. All other labels come from the view, also for GPUs that are not
    offered.
    """
    if not view.gpus:
        return {}
    units = [d.unit for r in snapshot.resources for d in r.devices if d.unit.source == "nvml"]
    found = dict(_driver(view))
    found["nvidia.com/mig.capable"] = str(any(gpu.mig_mode is not None for gpu in view.gpus)).lower()
    if machine:
        found[f"{_GPU}.machine"] = machine
    gpus = _described(view.gpus)
    found |= _whole(gpus, units)
    found |= _partitions(view.gpus, units)
    return {name: label_value(value) for name, value in sorted(found.items())}


def label_value(text: str) -> str:
    """`text` as a valid label value: characters that are not allowed become '-'; at most 63 characters."""
    return cut(re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._"), limit=63)


def family(gpu: Gpu) -> str:
    """The architecture's name in NVIDIA's labels, from the compute capability `major.minor`."""
    major, minor = map(int, _version(gpu.compute_capability))
    if major == 7:
        return "volta" if minor < 5 else "turing"
    if major == 8:
        return "ampere" if minor < 9 else "ada-lovelace"
    return _FAMILIES.get(major) or gpu.architecture.lower() or "undefined"


def _driver(view: NvmlView) -> Iterator[tuple[str, str]]:
    """The driver's labels under their newer names, and under the older names that most selectors use."""
    if view.driver_version:
        major, minor, revision = (*view.driver_version.split("."), "", "")[:3]
        for name, values in (
            ("driver", {"major": major, "minor": minor, "rev": revision}),
            ("driver-version", {"major": major, "minor": minor, "revision": revision, "full": view.driver_version}),
        ):
            yield from ((f"nvidia.com/cuda.{name}.{part}", value) for part, value in values.items())
    if view.cuda_version:
        major, minor = _version(view.cuda_version)
        for name in ("runtime", "runtime-version"):
            yield f"nvidia.com/cuda.{name}.major", major
            yield f"nvidia.com/cuda.{name}.minor", minor
        yield "nvidia.com/cuda.runtime-version.full", f"{major}.{minor}"


def _described(gpus: Sequence[Gpu]) -> list[Gpu]:
    """The GPUs of the most frequent model, by index."""
    by_index = sorted(gpus, key=lambda g: g.index)
    count = Counter(gpu.model for gpu in by_index)
    model = max(count, key=count.__getitem__)  # max gives the first of equals, and a Counter keeps the order
    return [gpu for gpu in by_index if gpu.model == model]


def _whole(gpus: Sequence[Gpu], units: Sequence[Unit]) -> dict[str, str]:
    first = gpus[0]
    uuids = {gpu.uuid for gpu in gpus}
    offered = [u for u in units if u.attributes.get("uuid") in uuids]
    found = {f"{_GPU}.count": str(len(gpus)), f"{_GPU}.replicas": str(min((u.replicas for u in offered), default=0))}
    if first.model:
        found[f"{_GPU}.product"] = _product(first.model, offered)
    if first.memory_mib:
        found[f"{_GPU}.memory"] = str(first.memory_mib)
    if _CAPABILITY.fullmatch(first.compute_capability):
        found[f"{_GPU}.family"] = family(first)
        found[f"{_GPU}.compute.major"], found[f"{_GPU}.compute.minor"] = _version(first.compute_capability)
    modes = {"0300": "graphics", "0302": "compute"}
    if mode := modes.get(next((u.attributes["pci.class"][:4] for u in offered if "pci.class" in u.attributes), "")):
        found[f"{_GPU}.mode"] = mode
    return found


def _partitions(gpus: Sequence[Gpu], units: Sequence[Unit]) -> dict[str, str]:
    """Labels of the MIG devices on offer: under nvidia.com/gpu if that is their resource, else by profile."""
    offered = {u.attributes["uuid"]: u for u in units if "profile" in u.attributes and "uuid" in u.attributes}
    by_profile: dict[str, list[tuple[Gpu, Mig]]] = {}
    for gpu in gpus:
        for mig in gpu.migs:
            if mig.uuid in offered:
                by_profile.setdefault(mig.profile, []).append((gpu, mig))
    if not by_profile:
        return {}
    single = {offered[m.uuid].resource for of in by_profile.values() for _, m in of} == {_GPU}
    found = {"nvidia.com/mig.strategy": "single" if single else "mixed"}
    if single and len(by_profile) > 1:
        return found  # one resource with different profiles: no label can describe it
    for profile, of in by_profile.items():
        name = _GPU if single else resource_name_from(f"nvidia.com/mig-{profile}")
        gpu, mig = of[0]
        members = [offered[m.uuid] for _, m in of]
        found[f"{name}.product"] = _product(f"{gpu.model}-MIG-{profile}", members)
        found[f"{name}.count"] = str(len(of))
        found[f"{name}.replicas"] = str(min(u.replicas for u in members))
        if mig.memory_mib:
            found[f"{name}.memory"] = str(mig.memory_mib)
        if slices := _SLICES.match(profile):
            found[f"{name}.slices.gi"] = slices["gi"]
            found[f"{name}.slices.ci"] = slices["ci"] or slices["gi"]
    return found


def _product(model: str, offered: Sequence[Unit]) -> str:
    shared = any(u.replicas > 1 and not u.resource.endswith(_SHARED) for u in offered)
    return f"{cut(label_value(model), limit=56)}-SHARED" if shared else model


def _version(text: str) -> tuple[str, str]:
    major, _, minor = text.partition(".")
    return major, minor.partition(".")[0]


def content(found: Mapping[str, str], *, expiry: datetime) -> str:
    """The text of the feature file."""
    lines = [f"{name}={value}" for name, value in sorted(found.items())]
    return "\n".join((f"# +expiry-time={expiry:%Y-%m-%dT%H:%M:%SZ}", *lines, ""))


class FeatureFile:
    """The agent's feature file in NFD's directory. Its methods block on the disk."""

    def __init__(self, directory: Path, *, config: str) -> None:
        self.path = directory / f"device-operator-{config}"
        self._written: dict[str, str] | None = None
        self._renewed: datetime | None = None

    def keep(self, found: Mapping[str, str], *, now: datetime) -> bool:
        """Writes `found` into the file, or removes the file if `found` is empty. Returns whether it changed anything.

        Raises:
            OSError: the directory does not exist or is not writable.
        """
        if not found:
            self._renewed = None
            if self._written == {}:
                return False
            self.path.unlink(missing_ok=True)
            self._written = {}
            return True
        if self._written == found and self._renewed is not None and now - self._renewed < RENEWAL:
            return False
        self._replace(content(found, expiry=now + EXPIRY).encode())
        self._written, self._renewed = dict(found), now
        return True

    def _replace(self, raw: bytes) -> None:
        """Replaces the file in one step, so that a reader never sees half of it. NFD skips the temporary dot file."""
        handle, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(raw)
            Path(name).chmod(0o644)
            Path(name).replace(self.path)
        except BaseException:
            with suppress(FileNotFoundError):
                Path(name).unlink()
            raise


def machine(sys: Path) -> str:
    """The node's product name from the firmware, '' if there is none. `sys`: the sysfs root."""
    try:
        text = (sys / "class/dmi/id/product_name").read_text(errors="replace")
    except OSError:
        return ""
    return text.strip()[:128]
