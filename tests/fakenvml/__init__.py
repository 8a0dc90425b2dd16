"""A node with NVIDIA GPUs that does not exist: the fake driver library, and the scenario that it plays.

    scenario = Scenario(tmp_path, gpus=a100s(8))      # a driver root with the library in it
    scenario.make_nodes(); scenario.make_sysfs(tmp_path / "sys")
    ...                                               # pynvml, or an agent with --driver-root, sees eight GPUs
    scenario.xid(3, 79); scenario.lose(3); scenario.reload_driver(); scenario.hang("nvmlDeviceGetUUID", seconds=30)

The library follows the file within milliseconds, in every process that has it loaded. It opens device nodes
below `dev`, /dev unless told otherwise, as the real one does (see nvml.c): in a container that must hold
/dev/nvidiactl, a character device whose open does no harm, such as 10:229.
"""

import hashlib
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

SOURCE = Path(__file__).with_name("nvml.c")
FLAGS = ("-std=gnu11", "-O1", "-g", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")
LIBRARY = "libnvidia-ml.so.1"
LIBRARY_DIR = "usr/lib/x86_64-linux-gnu"
SCENARIO = "fakenvml.scenario"

UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED = 1, 2, 3, 4, 9
LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 12, 13
GPU_IS_LOST, RESET_REQUIRED, VERSION_MISMATCH, DEPRECATED, UNKNOWN = 15, 16, 18, 26, 999
TYPE_XID, TYPE_DOUBLE_BIT = 8, 2
TO_GPU, TO_SWITCH = 0, 2
NO_INSTANCE = 0xFFFFFFFF

CAP_CONFIG, CAP_MONITOR = 1, 2
_FIRST_CAP, _INSTANCES, _PARTS = 3, 15, 8
"""The driver numbers capability nodes for every instance that a GPU could have, whether there is one or not."""

PROFILES = {
    "1g.5gb": (1, 4864),
    "2g.10gb": (2, 9856),
    "3g.20gb": (3, 19968),
    "4g.20gb": (4, 19968),
    "7g.40gb": (7, 40192),
}
"""Of an A100 with 40 GB: slices, MiB."""


def library() -> Path:
    """The compiled library, built once for each content of the source.

    Raises:
        subprocess.CalledProcessError, FileNotFoundError: no gcc, or it refuses the source.
    """
    key = hashlib.sha256(SOURCE.read_bytes() + "\0".join(FLAGS).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "device-operator" / "fakenvml"
    built = cache / f"{key}.so"
    if not built.exists():
        cache.mkdir(parents=True, exist_ok=True)
        fresh = cache / f"{key}.{os.getpid()}.tmp"
        command = ["gcc", *FLAGS, f"-Wl,-soname,{LIBRARY}", "-o", str(fresh), str(SOURCE), "-ldl", "-pthread"]
        subprocess.run(command, check=True)
        fresh.rename(built)
    return built


@dataclass
class Mig:
    """`caps`: the numbers of the capability nodes of its GPU instance and compute instance."""

    uuid: str
    index: int
    profile: str
    gi: int
    ci: int = 0
    slices: int = 1
    ci_slices: int = 1
    memory_mb: int = 4864
    used_mb: int = 0
    caps: tuple[int, int] = (0, 0)


@dataclass
class Link:
    """One NVLink. `remote`: PCI address of the other end."""

    remote: str
    type: int = TO_GPU
    active: bool = True


@dataclass
class Gpu:
    """A negative number is something that the GPU does not tell. `mig`: None where it has no MIG; `memory` in bytes.

    `brand`, `arch`, `recovery`: NVML's numbers; `recovery` None: the driver has no word for it.
    """

    uuid: str
    pci: str
    minor: int
    name: str = "NVIDIA A100-SXM4-40GB"
    memory: int = 40960 << 20
    used: int = 0
    reserved: int = 600 << 20
    compute: tuple[int, int] = (8, 0)
    arch: int = 7
    brand: int = 14
    numa: int = -1
    mig: bool | None = False
    mig_max: int = 7
    migs: list[Mig] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    lost: bool = False
    resets: int = 0
    ecc_corrected: int = 0
    ecc_uncorrected: int = 0
    retired: int = -1
    remap_pending: int = 0
    remap_failed: int = 0
    sram_exceeded: int = 0
    recovery: int | None = 0
    temperature: int = 35
    power: int = 60_000
    utilisation: int = 0
    sm_clock: int = 210
    memory_clock: int = 1215
    link_errors: int = 0


def uuid(number: int, prefix: str = "GPU") -> str:
    """A UUID as the driver writes them, the same for the same number."""
    digits = hashlib.sha256(f"{prefix}{number}".encode()).hexdigest()
    return f"{prefix}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"


def cap_number(minor: int, gi: int, ci: int | None = None) -> int:
    """The capability node of a GPU instance, or of a compute instance in it."""
    number = _FIRST_CAP + (minor * _INSTANCES + gi) * (1 + _PARTS)
    return number if ci is None else number + 1 + ci


def a100s(count: int, *, numa_nodes: int = 2, **fields: object) -> list[Gpu]:
    """So many of one kind, at 0000:10:00.0, 0000:11:00.0, ..., in `numa_nodes` equal blocks."""
    made = []
    for i in range(count):
        numa = i * numa_nodes // count if numa_nodes else -1
        gpu = Gpu(uuid=uuid(i), pci=f"0000:{0x10 + i:02x}:00.0", minor=i, numa=numa)
        made.append(replace(gpu, migs=[], links=[], **fields))  # type: ignore[arg-type]
    return made


def nvswitched(gpus: list[Gpu], *, links: int = 12) -> list[Gpu]:
    """Every link of every GPU leads to a switch, as in a DGX."""
    for gpu in gpus:
        gpu.links = [Link(remote=f"0000:{0xC0 + n % 6:02x}:00.0", type=TO_SWITCH) for n in range(links)]
    return gpus


def linked(gpus: list[Gpu], pairs: dict[tuple[int, int], int]) -> list[Gpu]:
    """`pairs`: (GPU, GPU) -> links between the two."""
    for (a, b), count in pairs.items():
        gpus[a].links += [Link(remote=gpus[b].pci) for _ in range(count)]
        gpus[b].links += [Link(remote=gpus[a].pci) for _ in range(count)]
    return gpus


class Scenario:
    """A driver root: the library below usr/lib, and what it plays. Each change is in force when the method returns."""

    def __init__(
        self,
        root: Path,
        *,
        gpus: Sequence[Gpu] = (),
        dev: Path | None = None,
        driver: str = "580.95.05",
        node_dev: Path | None = None,
    ) -> None:
        """`dev`: where the library opens the device nodes, /dev when not given.

        `node_dev`: the scenario is written there too, for containers that get the library and nothing beside it.
        """
        self.root = root
        self.node_scenario = (node_dev or root) / SCENARIO
        self.gpus = list(gpus)
        self.dev = dev
        self.driver = driver
        self.cuda = 13000
        self.loaded = True
        self.generation = 1
        self._events: list[str] = []
        self._told = 0
        self._rules: dict[tuple[str, str, int | None], float] = {}
        self._next_mig = 0
        self._sys: Path | None = None
        directory = root / LIBRARY_DIR
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / SCENARIO
        real = directory / f"libnvidia-ml.so.{driver}"
        if not real.exists():
            real.write_bytes(library().read_bytes())
            (directory / LIBRARY).symlink_to(real.name)
            # NVIDIA's container toolkit looks for the driver's libraries where it finds this one
            (directory / f"libcuda.so.{driver}").write_bytes(real.read_bytes())
        self.write()

    @property
    def library(self) -> Path:
        return self.root / LIBRARY_DIR / LIBRARY

    def write(self) -> None:
        """Puts into force what a test has changed in `gpus`."""
        text = "".join(f"{line}\n" for line in self._lines())
        for path in (self.path, self.node_scenario):
            fresh = path.with_suffix(".tmp")
            fresh.write_text(text)
            fresh.rename(path)

    def _lines(self) -> list[str]:
        lines = [
            f"driver {self.driver}",
            f"cuda {self.cuda}",
            f"loaded {int(self.loaded)}",
            f"generation {self.generation}",
        ]
        if self.dev is not None:
            lines.append(f"dev {_quoted(self.dev)}")
        for number, gpu in enumerate(self.gpus):
            lines.append(f"gpu {number} {_pairs(_gpu_values(gpu))}")
            lines += [f"mig {number} {_pairs(_mig_values(gpu, mig))}" for mig in gpu.migs]
            lines += [
                f"link {number} {_pairs({'active': int(k.active), 'type': k.type, 'remote': k.remote})}"
                for k in gpu.links
            ]
        lines += self._events[-200:]
        for (kind, function, number), value in self._rules.items():
            lines.append(f"{kind} {function} {'*' if number is None else number} {value}")
        return lines

    # What happens to it

    def xid(self, gpu: int, xid: int, *, gi: int = NO_INSTANCE, ci: int = NO_INSTANCE, kind: int = TYPE_XID) -> None:
        """The driver announces a critical error."""
        self._told += 1
        values = {"gpu": gpu, "type": kind, "data": xid, "gi": gi, "ci": ci}
        self._events.append(f"event {self._told} {_pairs(values)}")
        self.write()

    def lose(self, gpu: int) -> None:
        """It falls off the bus."""
        self.gpus[gpu].lost = True
        self.write()

    def recover(self, gpu: int) -> None:
        """The GPU was reset. It is good for programs that start the library again."""
        self.gpus[gpu].lost = False
        self.gpus[gpu].resets += 1
        self.write()

    def reload_driver(self) -> None:
        """The driver is unloaded and loaded in one step, so every handle is stale."""
        self.generation += 1
        self.loaded = True
        self._module(present=True)
        self.write()

    def unload_driver(self) -> None:
        self.loaded = False
        self._module(present=False)
        self.write()

    def load_driver(self) -> None:
        self.reload_driver()

    def hang(self, function: str = "*", *, seconds: float, gpu: int | None = None) -> None:
        """New calls of the function (on the GPU) do not return until `seconds` are over; 0 ends the hang."""
        self._rule("hang", function, gpu, time.clock_gettime(time.CLOCK_MONOTONIC) + seconds if seconds else 0)

    def slow(self, function: str = "*", *, seconds: float, gpu: int | None = None) -> None:
        """Each call takes `seconds`; 0 ends that."""
        self._rule("slow", function, gpu, seconds)

    def fail(self, function: str, code: int, *, gpu: int | None = None) -> None:
        """Each call gives this error; 0 ends that."""
        self._rule("fail", function, gpu, code)

    def _module(self, *, present: bool) -> None:
        """/sys/module/nvidia: each load of a module gives the directory another inode number."""
        if self._sys is None:
            return
        module = self._sys / "module/nvidia"
        module.parent.mkdir(parents=True, exist_ok=True)
        if module.exists():
            # renamed, not removed: unlike sysfs, a file system on a disk would use the inode number again
            module.rename(module.with_name(f"gone-{module.stat().st_ino}"))
        if present:
            module.mkdir()

    def _rule(self, kind: str, function: str, gpu: int | None, value: float) -> None:
        if value:
            self._rules[kind, function, gpu] = value
        else:
            self._rules.pop((kind, function, gpu), None)
        self.write()

    def set_mig_mode(self, gpu: int, *, enabled: bool) -> None:
        self.gpus[gpu].mig = enabled
        self.gpus[gpu].migs = []
        self.write()

    def repartition(self, gpu: int, profiles: Sequence[str]) -> list[Mig]:
        """The GPU is in MIG mode with one new MIG device per profile, such as 1g.5gb or 1c.3g.20gb, of new UUIDs."""
        migs = []
        for index, profile in enumerate(profiles):
            compute, _, instance = profile.rpartition("c.")
            slices, memory = PROFILES[(instance or profile).removesuffix("+me")]
            self._next_mig += 1
            cap = cap_number(self.gpus[gpu].minor, index + 1)
            migs.append(
                Mig(
                    uuid=uuid(self._next_mig, "MIG"), index=index, profile=profile, gi=index + 1, slices=slices,
                    ci_slices=int(compute) if compute else slices, memory_mb=memory,
                    caps=(cap, cap + 1),
                )
            )  # fmt: skip
        self.gpus[gpu].mig = True
        self.gpus[gpu].migs = migs
        self.write()
        return migs

    # What the kernel shows of it

    def nodes(self) -> list[str]:
        """Paths below /dev of everything that the driver makes there."""
        caps = [CAP_CONFIG, CAP_MONITOR, *(cap for gpu in self.gpus for mig in gpu.migs for cap in mig.caps)]
        plain = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"]
        return [*plain, *(f"nvidia{gpu.minor}" for gpu in self.gpus), *(f"nvidia-caps/nvidia-cap{n}" for n in caps)]

    def make_nodes(self, dev: Path | None = None) -> None:
        """Plain files for the nodes, in `dev` or where the library opens them; those of gone MIG devices are removed."""
        where = dev or self.dev
        assert where is not None, "never in this machine's /dev"
        wanted = set(self.nodes())
        for name in wanted:
            (where / name).parent.mkdir(parents=True, exist_ok=True)
            (where / name).touch()
        for old in (where / "nvidia-caps").glob("nvidia-cap*"):
            if f"nvidia-caps/{old.name}" not in wanted:
                old.unlink()

    def make_proc(self, proc: Path) -> None:
        """driver/nvidia/version and driver/nvidia-caps/mig-minors, as procfs has them."""
        lines = [f"config {CAP_CONFIG}", f"monitor {CAP_MONITOR}"]
        for gpu in self.gpus:
            for gi in range(_INSTANCES):
                lines.append(f"gpu{gpu.minor}/gi{gi}/access {cap_number(gpu.minor, gi)}")
                lines += [
                    f"gpu{gpu.minor}/gi{gi}/ci{ci}/access {cap_number(gpu.minor, gi, ci)}" for ci in range(_PARTS)
                ]
        for path, text in {
            "driver/nvidia/version": f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {self.driver}\n",
            "driver/nvidia-caps/mig-minors": "".join(f"{line}\n" for line in lines),
        }.items():
            (proc / path).parent.mkdir(parents=True, exist_ok=True)
            (proc / path).write_text(text)

    def make_sysfs(self, sys: Path, *, bridges: dict[int, str] | None = None) -> None:
        """The PCI functions, bound to `nvidia`. `bridges`: GPU -> path of bridges that it lies below, `0000:00:01.0/...`."""
        (sys / "bus/pci/devices").mkdir(parents=True, exist_ok=True)
        driver = sys / "bus/pci/drivers/nvidia"
        driver.mkdir(parents=True, exist_ok=True)
        if self._sys is None:
            self._sys = sys
            self._module(present=self.loaded)
        for number, gpu in enumerate(self.gpus):
            above = (bridges or {}).get(number, "")
            place = sys / "devices" / f"pci{gpu.pci[:4]}:{gpu.pci[5:7]}" / above / gpu.pci
            if place.exists():
                continue
            place.mkdir(parents=True)
            for name, value in {
                "vendor": "0x10de", "device": "0x20b0", "class": "0x030200", "numa_node": str(gpu.numa),
                "uevent": f"DRIVER=nvidia\nPCI_SLOT_NAME={gpu.pci}",
            }.items():  # fmt: skip
                (place / name).write_text(f"{value}\n")
            _link(sys / "bus/pci/devices" / gpu.pci, place)
            _link(place / "subsystem", sys / "bus/pci")
            _link(place / "driver", driver)
            _link(driver / gpu.pci, place)


def _link(path: Path, to: Path) -> None:
    path.symlink_to(os.path.relpath(to, path.parent))


def _quoted(value: object) -> str:
    return quote(str(value), safe="/:.,-_", errors="surrogateescape")


def _pairs(values: dict[str, object]) -> str:
    return " ".join(f"{key}={_quoted(value)}" for key, value in values.items())


def _gpu_values(gpu: Gpu) -> dict[str, object]:
    same = (
        "uuid", "name", "pci", "minor", "memory", "used", "reserved", "arch", "brand", "mig_max", "resets",
        "ecc_corrected", "ecc_uncorrected", "retired", "remap_pending", "remap_failed", "sram_exceeded",
        "temperature", "power", "utilisation", "sm_clock", "memory_clock", "link_errors",
    )  # fmt: skip
    mode = -1 if gpu.mig is None else int(gpu.mig)
    return {name: getattr(gpu, name) for name in same} | {
        "cc_major": gpu.compute[0],
        "cc_minor": gpu.compute[1],
        "lost": int(gpu.lost),
        "mig": mode,
        "mig_pending": mode,
        "recovery": gpu.recovery or 0,
        "recovery_known": int(gpu.recovery is not None),
    }


def _mig_values(gpu: Gpu, mig: Mig) -> dict[str, object]:
    same = ("uuid", "index", "gi", "ci", "slices", "ci_slices", "memory_mb", "used_mb")
    return {name: getattr(mig, name) for name in same} | {
        "name": f"{gpu.name} MIG {mig.profile}" if mig.profile else gpu.name,
        "cap_gi": mig.caps[0],
        "cap_ci": mig.caps[1],
    }
