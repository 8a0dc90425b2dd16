"""Builds the cluster's programs from the Go modules pinned in ../modules, once per pin.

Each group of programs has a folder of its own in the cache. The folder's name is a hash of everything that the build
depends on: module files, build flags, Go's version. So a new pin builds one group and leaves the others, and an old
checkout finds its programs again. Nothing is downloaded but Go modules.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache as memoized
from pathlib import Path

from localcluster import packages, places
from localcluster.console import LocalClusterError, say
from localcluster.processes import run

_FLAGS = ("-buildvcs=false", "-mod=readonly", "-trimpath")
_ROOM = 7 << 30  # the compiler's cache takes about 5 GiB while the groups are built
_UNUSED_DAYS = 30


@dataclass(frozen=True, kw_only=True)
class Group:
    """Programs that one Go module builds in one go."""

    name: str
    module: str
    programs: tuple[str, ...]
    minutes: float
    cgo: bool = False
    tags: str = ""
    stamps: tuple[str, ...] = ()  # `-X` values; {version} {major} {minor} of the module, {k8s_minor} of Kubernetes
    output: str = ""  # name of the program's file; empty: Go chooses it
    package: str = "tool"
    at: str = ""  # folder of its go.mod, relative to ../modules; empty: the folder of its name

    def source(self, modules: Path) -> Path:
        return modules / (self.at or self.name)


_VERSION = "k8s.io/component-base/version"
_HELM = "helm.sh/helm/v3"

GROUPS = {
    group.name: group
    for group in (
        Group(
            name="k8s",
            module="k8s.io/kubernetes",
            programs=(
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "kube-proxy",
                "kubelet",
                "kubectl",
            ),
            minutes=6,
            stamps=(
                f"{_VERSION}.gitVersion={{version}}",
                f"{_VERSION}.gitMajor={{major}}",
                f"{_VERSION}.gitMinor={{minor}}",
                f"{_VERSION}.gitTreeState=clean",
            ),
        ),
        Group(name="etcd", module="go.etcd.io/etcd/server/v3", programs=("etcd",), minutes=0.5, output="etcd"),
        Group(
            name="containerd",
            module="github.com/containerd/containerd/v2",
            programs=("containerd", "containerd-shim-runc-v2", "ctr"),
            minutes=1,
            tags="no_btrfs no_zfs no_devmapper no_aufs no_tracing",
            stamps=("github.com/containerd/containerd/v2/version.Version={version}",),
        ),
        # Without the tag seccomp every pod with the profile RuntimeDefault fails to start.
        Group(
            name="runc",
            module="github.com/opencontainers/runc",
            programs=("runc",),
            minutes=0.3,
            cgo=True,
            tags="seccomp urfave_cli_no_docs",
        ),
        Group(
            name="cni",
            module="github.com/containernetworking/plugins",
            programs=("bridge", "host-local", "loopback", "portmap"),
            minutes=0.2,
        ),
        # Without the Kubernetes version `helm template` takes the cluster for version 1.20.
        Group(
            name="helm",
            module=_HELM,
            programs=("helm",),
            minutes=1.2,
            stamps=(
                f"{_HELM}/internal/version.version={{version}}",
                f"{_HELM}/pkg/chartutil.k8sVersionMajor=1",
                f"{_HELM}/pkg/chartutil.k8sVersionMinor={{k8s_minor}}",
                f"{_HELM}/pkg/lint/rules.k8sVersionMajor=1",
                f"{_HELM}/pkg/lint/rules.k8sVersionMinor={{k8s_minor}}",
            ),
        ),
        # Without the tag promtool would contain the clients of every cloud.
        Group(
            name="prometheus",
            module="github.com/prometheus/prometheus",
            programs=("promtool", "promquery"),
            minutes=2,
            tags="remove_all_sd",
        ),
        Group(name="pause", module="", programs=("pause",), minutes=0.1, output="pause", package="."),
        Group(name="kwok", module="sigs.k8s.io/kwok", programs=("kwok",), minutes=1.5),
        # cgo: it loads the driver's library by dlopen
        Group(
            name="nvidia",
            module="github.com/NVIDIA/nvidia-container-toolkit",
            programs=("nvidia-container-runtime", "nvidia-ctk", "nvidia-cdi-hook", "nvidia-nri-plugin"),
            minutes=1,
            cgo=True,
        ),
        Group(
            name="goplugin",
            module="",
            programs=("goplugin",),
            minutes=0.8,
            output="goplugin",
            package=".",
            at="../../bench/goplugin",
        ),
    )
}
CONTROL_PLANE = ("k8s", "etcd")
CLUSTER = ("k8s", "etcd", "containerd", "runc", "cni", "pause", "helm")  # others when asked for by name


def version(module_file: Path, module: str) -> str:
    """The version that a go.mod pins for a module, e.g. v1.36.3."""
    found = re.search(rf"^(?:require )?\s*{re.escape(module)} (v\S+)", module_file.read_text(), re.MULTILINE)
    if found is None:
        raise LocalClusterError(f"{module_file} does not pin {module}")
    return found[1]


def link_flags(group: Group, *, modules: Path) -> str:
    values: dict[str, str] = {}
    if group.module:
        pinned = version(group.source(modules) / "go.mod", group.module)
        major, minor = pinned.removeprefix("v").split(".")[:2]
        values = {"version": pinned, "major": major, "minor": minor}
    if any("{k8s_minor}" in stamp for stamp in group.stamps):
        values["k8s_minor"] = version(modules / "k8s" / "go.mod", "k8s.io/kubernetes").split(".")[1]
    return " ".join(["-s", "-w", *(f"-X {stamp.format(**values)}" for stamp in group.stamps)])


def stamp(group: Group, *, go_version: str, modules: Path = places.MODULES) -> str:
    """Names what a group is built from: equal stamps, equal programs."""
    digest = hashlib.sha256()
    settings = (go_version, *_FLAGS, group.tags, str(group.cgo), group.output, link_flags(group, modules=modules))
    digest.update("\0".join(settings).encode())
    for file in sorted(group.source(modules).iterdir()):
        digest.update(b"\0" + file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def folder(group: str) -> Path:
    """Where a group's programs stand, or will stand once they are built."""
    return _root() / group / stamp(GROUPS[group], go_version=_go_version(group))


def path(program: str) -> Path:
    """A program's file; it must have been built."""
    for group in GROUPS.values():
        if program in group.programs:
            file = folder(group.name) / program
            if not file.exists():
                raise LocalClusterError(f"{program} is not built: run `localcluster binaries {group.name}`")
            return file
    raise LocalClusterError(f"no group of programs has {program}")


def build(names: Sequence[str] = CLUSTER) -> None:
    """Builds the named groups unless the cache has them."""
    unknown = [name for name in names if name not in GROUPS]
    if unknown:
        raise LocalClusterError(f"no such group: {', '.join(unknown)}; there are: {', '.join(GROUPS)}")
    if not _missing(names):
        return
    with places.locked(_root() / "lock", what="building the cluster's programs"):
        missing = _missing(names)
        if missing:
            _build_all(missing)


def _build_all(missing: list[str]) -> None:
    packages.ensure(packages.TO_BUILD_BINARIES if any(GROUPS[name].cgo for name in missing) else ())
    _check_room()
    compiled = _root() / "gocache"
    expected = sum(GROUPS[name].minutes for name in missing)
    say(f"building the cluster's programs, about {max(1, expected):.0f} min on two idle cores, kept in {_root()}")
    for number, name in enumerate(missing, start=1):
        group = GROUPS[name]
        pinned = version(group.source(places.MODULES) / "go.mod", group.module) if group.module else ""
        about = f"about {group.minutes:.0f} min" if group.minutes >= 1 else "less than a minute"
        say(f"building {' '.join(filter(None, [name, pinned]))} ({number}/{len(missing)}), {about} ...")
        started = time.monotonic()
        _build_one(group, compiled=compiled)
        say(f"built {name} in {time.monotonic() - started:.0f} s")
    shutil.rmtree(compiled, ignore_errors=True)  # it is much larger than the programs, and no longer needed


def _build_one(group: Group, *, compiled: Path) -> None:
    target = folder(group.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=target.parent, prefix="unfinished-"))
    try:
        command = ["go", "build", "-tags", group.tags, "-ldflags", link_flags(group, modules=places.MODULES)]
        done = subprocess.run(
            [*command, "-o", f"{unfinished}/{group.output}", group.package],
            cwd=group.source(places.MODULES),
            env=_go_environment(group, compiled=compiled),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            said = "\n".join(line for line in done.stdout.splitlines() if not line.startswith("go: downloading"))
            raise LocalClusterError(f"building {group.name} failed; what was compiled is kept:\n{said[-3000:]}")
        absent = [program for program in group.programs if not (unfinished / program).exists()]
        if absent:
            raise LocalClusterError(f"the build of {group.name} made no {', '.join(absent)}")
        unfinished.chmod(0o755)
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    _drop_unused(target)


def _go_environment(group: Group, *, compiled: Path) -> dict[str, str]:
    return {
        **os.environ,
        "CGO_ENABLED": "1" if group.cgo else "0",
        "GOCACHE": str(compiled),
        "GOFLAGS": " ".join(_FLAGS),
        "GOWORK": "off",
    }


@memoized
def _go_version(group: str) -> str:
    if not shutil.which("go"):
        raise LocalClusterError("Go is needed to build the cluster's programs: install Go 1.26 or newer, as `go`")
    return run(["go", "env", "GOVERSION"], cwd=GROUPS[group].source(places.MODULES)).strip()


def _missing(names: Sequence[str]) -> list[str]:
    wanted = [name for name in GROUPS if name in names]
    missing = [name for name in wanted if not folder(name).exists()]
    for name in wanted:
        if name not in missing:
            os.utime(folder(name))
    return missing


def _check_room() -> None:
    _root().mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(_root()).free
    if free < _ROOM:
        raise LocalClusterError(
            f"{_root()} has {free >> 20} MiB free, the build needs {_ROOM >> 20} MiB: make room or set XDG_CACHE_HOME"
        )


def _drop_unused(newest: Path) -> None:
    """Removes builds of the group that no checkout has asked for in a month."""
    for other in newest.parent.iterdir():
        if other != newest and other.stat().st_mtime < time.time() - _UNUSED_DAYS * 86400:
            shutil.rmtree(other, ignore_errors=True)


def _root() -> Path:
    return places.cache() / "cluster"
