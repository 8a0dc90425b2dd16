"""Builds what levels of tests need, before pytest starts its clock, and says how long each part took.

tests/prepare.py LEVEL...     LEVEL: static unit agent operator cluster bench soak

Everything is kept in the cache, so that a second run only looks. The tests' own fixtures find it there.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "cluster"))

import fakenvml
from localcluster import LocalClusterError, binaries, images, imagestore, packages, places

Part = tuple[str, Callable[[], object]]


def programs(*groups: str) -> Part:
    return f"programs of {', '.join(groups)}", lambda: binaries.build(groups)


def needed_packages() -> None:
    packages.ensure(packages.TO_RUN_NODES)


def message_compiler() -> None:
    """The script installs the compiler of the kubelet's messages once, in a virtual environment of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([places.CHECKOUT / "plugin_agent" / "regenerate.sh", scratch], check=True)


def all_images() -> None:
    """The product's images and the one of test pods, as archives and unpacked for new nodes."""
    built = [*images.build().values(), images.python()]
    imagestore.prepare([images.pause().archive, *(image.archive for image in built)])


DRIVER_LIBRARY: Part = ("the stand-in for NVIDIA's driver library", fakenvml.library)
PACKAGES: Part = ("packages of this system", needed_packages)
CONTROL_PLANE = [PACKAGES, programs(*binaries.CONTROL_PLANE, "helm")]
PARTS: dict[str, list[Part]] = {
    "static": [],
    "unit": [programs("helm", "prometheus"), DRIVER_LIBRARY],
    "agent": [DRIVER_LIBRARY, ("the compiler of the kubelet's messages", message_compiler)],
    "operator": CONTROL_PLANE,
    "cluster": [PACKAGES, programs(*binaries.CLUSTER, "nvidia"), DRIVER_LIBRARY, ("images", all_images)],
    "soak": [PACKAGES, programs(*binaries.CLUSTER), ("images", all_images)],
    "bench": [*CONTROL_PLANE, programs("goplugin"), DRIVER_LIBRARY],
}


def main(levels: list[str]) -> int:
    if not levels or any(level not in PARTS for level in levels):
        print(__doc__)
        return 2
    for name, prepare in dict(part for level in levels for part in PARTS[level]).items():
        begun = time.monotonic()
        try:
            prepare()
        except (LocalClusterError, subprocess.CalledProcessError, OSError) as failed:
            print(f"not prepared: {name}: {failed}", flush=True)
            return 1
        print(f"prepared: {name} ({time.monotonic() - begun:.1f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
