"""Facts about the node's NVIDIA GPUs as node labels, by way of node-feature-discovery.

Its worker reads every file in one directory of the node and makes labels of the lines (its customization guide, "Local
feature source"). Names and values are those of NVIDIA's gpu-feature-discovery, so that the node selectors of existing
workloads go on working (k8s-device-plugin, docs/gpu-feature-discovery).

A file that stays behind lies: the agent's pod may be deleted and never return. So each file names its expiry, and the
agent renews it long before. It stays over a restart, and while the driver does not answer: a driver that hangs for a
minute has the same GPUs as before. It goes when there is an answer and no GPU in it.

An agent that ends leaves it, too: it cannot know whether the next one is seconds away, as in every rollout, and
DaemonSets that select by labels which go and come would lose their pods meanwhile. What nobody renews is over within
the hour.
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
"""After the last renewal the labels are not made any more."""
RENEWAL: Final = timedelta(minutes=15)

_GPU: Final = "nvidia.com/gpu"
_SHARED: Final = ".shared"
"""A resource named like this says itself that it is shared, and the product's name need not."""
_FAMILIES: Final = {1: "tesla", 2: "fermi", 3: "kepler", 5: "maxwell", 6: "pascal", 9: "hopper", 10: "blackwell",
                    11: "blackwell", 12: "blackwell"}  # fmt: skip
_CAPABILITY = re.compile(r"\d+\.\d+")
_SLICES = re.compile(r"(?:(?P<ci>\d+)c\.)?(?P<gi>\d+)g\.")


def labels(view: NvmlView, snapshot: TableSnapshot, *, machine: str = "") -> dict[str, str]:
    """Label name -> value, both valid; empty where there is no GPU.

    `machine`: the node's product name, as firmware tells it. Of unequal GPUs the model that there is most of is the
    one described, of equally many the one with the lowest index; `gpu.count` counts that model. What is offered, and
    so replicas and MIG strategy, are the snapshot's; all else is the view's, offered or not.
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
    """`text` as a label value: other characters become '-', cut at 63."""
    return cut(re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._"), limit=63)


def family(gpu: Gpu) -> str:
    """The architecture as the vendor's labels name it, from the compute capability, `major.minor`."""
    major, minor = map(int, _version(gpu.compute_capability))
    if major == 7:
        return "volta" if minor < 5 else "turing"
    if major == 8:
        return "ampere" if minor < 9 else "ada-lovelace"
    return _FAMILIES.get(major) or gpu.architecture.lower() or "undefined"


def _driver(view: NvmlView) -> Iterator[tuple[str, str]]:
    """The newer names and the older ones, which most selectors have."""
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
    model = max(count, key=count.__getitem__)  # of equally many the first: a Counter keeps the order
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
    """Of MIG devices that are offered: in place of the GPU's when they have its name, else by profile."""
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
        return found  # one name for unequal devices: no label can describe them
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
    """The feature file."""
    lines = [f"{name}={value}" for name, value in sorted(found.items())]
    return "\n".join((f"# +expiry-time={expiry:%Y-%m-%dT%H:%M:%SZ}", *lines, ""))


class FeatureFile:
    """One agent's file in the directory that node-feature-discovery reads. Blocks on the disk."""

    def __init__(self, directory: Path, *, config: str) -> None:
        self.path = directory / f"device-operator-{config}"
        self._written: dict[str, str] | None = None
        self._renewed: datetime | None = None

    def keep(self, found: Mapping[str, str], *, now: datetime) -> bool:
        """Make the file say `found`, or remove it where that is empty; whether anything was to be done.

        Raises:
            OSError: the directory is not there, or not writable.
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
        """A reader sees the old content or the new one; it does not read dot files."""
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
    """The node's product name as firmware tells it, '' where it does not. `sys`: the sysfs root."""
    try:
        text = (sys / "class/dmi/id/product_name").read_text(errors="replace")
    except OSError:
        return ""
    return text.strip()[:128]
