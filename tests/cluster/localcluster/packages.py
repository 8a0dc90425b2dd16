"""The distribution's programs that the harness needs, installed where they are missing and apt can do it."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from localcluster.console import LocalClusterError, step
from localcluster.processes import run

# Debian package -> a program or file by which its presence is known
_MARKS = {
    "buildah": "buildah",
    "conntrack": "conntrack",
    "gcc": "gcc",
    "iproute2": "ip",
    "iptables": "iptables",
    "libc6-dev": "/usr/include/stdlib.h",
    "libseccomp-dev": "/usr/include/seccomp.h",
    "mmdebstrap": "mmdebstrap",
    "nftables": "nft",
    "openssl": "openssl",
    "pkg-config": "pkg-config",
    "procps": "sysctl",
    "util-linux": "nsenter",
}

TO_BUILD_BINARIES = ("gcc", "libc6-dev", "libseccomp-dev", "pkg-config")
TO_RUN_NODES = ("conntrack", "iproute2", "iptables", "nftables", "openssl", "procps", "util-linux")
TO_BUILD_IMAGES = ("buildah", "mmdebstrap")


def ensure(packages: Iterable[str]) -> None:
    """Installs those packages that are not there, or says which ones are missing."""
    missing = [package for package in packages if not _present(_MARKS[package])]
    if not missing:
        return
    names = " ".join(missing)
    if os.geteuid() != 0:
        raise LocalClusterError(f"root is needed to install: {names}")
    if not shutil.which("apt-get"):
        raise LocalClusterError(f"install these Debian packages' equivalents with your system's tool: {names}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with step(f"installing packages: {names}"):
        run(["apt-get", "update", "-q"], env=env)
        run(["apt-get", "install", "-q", "-y", "--no-install-recommends", *missing], env=env)


def require_root() -> None:
    if os.geteuid() != 0:
        raise LocalClusterError("a local cluster makes namespaces, mounts and cgroups: run it as root")


def _present(mark: str) -> bool:
    if mark.startswith("/"):
        return Path(mark).exists()
    return shutil.which(mark, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is not None
