"""Compares the fake with the driver's own libraries, as far as that works on a machine without a GPU.

    sudo PYTHONPATH=tests python -m fakenvml.compare /path/to/libnvidia-ml.so.550.163.01 ...

Each library is started three times, each time in a /dev of its own. The driver's control node is missing, or its mode
refuses the open, or the device cgroup refuses it. The program prints each difference, and each function of the fake
that a library lacks. If there is any, the exit status is 1. Needs root. Debian's package libnvidia-ml1 has such a library.
"""

import ctypes
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

from fakenvml import Scenario, a100s

CONTROL = os.makedev(195, 255)
"""The driver's own number: nothing answers there while the driver is not loaded."""
NO_GPUS = 1
"""The flag that the agent starts the library with."""
NOBODY = 65534
CASES = ("missing", "no driver behind it", "refused by its mode", "refused by the cgroup")
CGROUP = Path("/sys/fs/cgroup/devices/fakenvml-compare")


def answers(library: Path) -> tuple[int, ...]:
    """Of this process: shutdown before any start, start, count, shutdown."""
    nvml = ctypes.CDLL(str(library))
    count = ctypes.c_uint()
    return (
        nvml.nvmlShutdown(),
        nvml.nvmlInitWithFlags(NO_GPUS),
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)),
        nvml.nvmlShutdown(),
    )


def in_case(case: str, library: Path) -> str:
    """The answers of a process in that case; it is run by `main` in a mount namespace with an empty /dev."""
    os.umask(0)
    if case != CASES[0]:
        os.mknod("/dev/nvidiactl", stat.S_IFCHR | (0o600 if case == CASES[2] else 0o666), CONTROL)
    if case == CASES[3]:
        (CGROUP / "cgroup.procs").write_text(str(os.getpid()))
    if case in CASES[:1] + CASES[2:3]:  # root would make the node, or open it all the same
        os.setgroups([])
        os.setuid(NOBODY)
    return " ".join(map(str, answers(library)))


def asked(case: str, library: Path) -> str:
    inner = f"mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && exec {sys.executable} -m fakenvml.compare"
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'{inner} --case "$0" "$1"']
    return subprocess.run([*command, case, library], check=True, capture_output=True, text=True).stdout.strip()


def functions(library: Path) -> set[str]:
    listed = subprocess.run(
        ["nm", "--dynamic", "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout
    return {line.split()[-1].split("@")[0] for line in listed.splitlines() if " T nvml" in line}


def main(libraries: list[Path]) -> int:
    differences = 0
    CGROUP.mkdir()
    try:
        (CGROUP / "devices.deny").write_text("c 195:* rw")
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            Path(folder).chmod(0o755)
            fake = Scenario(Path(folder), gpus=a100s(1)).library
            for library in libraries:
                lacking = sorted(functions(fake) - functions(library))
                print(f"{library.name}: {'; '.join(lacking) if lacking else 'has all that the fake has'}")
                differences += len(lacking)
                for case in CASES:
                    theirs, ours = asked(case, library), asked(case, fake)
                    differences += theirs != ours
                    print(f"  {case}: {theirs}" + ("" if theirs == ours else f", the fake: {ours}"))
    finally:
        CGROUP.rmdir()
    return 1 if differences else 0


if __name__ == "__main__":
    if sys.argv[1] == "--case":
        print(in_case(sys.argv[2], Path(sys.argv[3])))
    else:
        sys.exit(main([Path(argument).resolve() for argument in sys.argv[1:]]))
