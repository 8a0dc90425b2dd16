"""Builds the project's images from its Dockerfiles and keeps them as archives, named after what went into them.

There is no registry to pull a base image from: a small Debian tree with Python stands in for it, and the same tree is
the image for test pods. `BASE=python:3.12-slim` in the environment takes a real base image instead, where one can be
pulled.
"""

import hashlib
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from localcluster import archive, binaries, packages, places
from localcluster.console import LocalClusterError, step
from localcluster.node_config import PAUSE_IMAGE
from localcluster.processes import run, succeeds, tail

PYTHON = "localhost/python:3.11-slim"
_SUITE = "bookworm"  # its Python is 3.11
_BOOTSTRAP = (
    "mmdebstrap",
    "--quiet",
    "--variant=essential",
    "--include=python3,python3-venv,ca-certificates,libstdc++6",  # what python:slim has and wheels build on
    *(f"--dpkgopt=path-exclude=/usr/share/{below}/*" for below in ("doc", "info", "locale", "man")),
    _SUITE,
)
_KEPT = 4  # archives per image
_STORE_LIMIT = 6 << 30


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image in an archive, as `docker save` writes it, under one reference that names its content."""

    name: str
    reference: str
    archive: Path

    @property
    def repository(self) -> str:
        return self.reference.rsplit(":", 1)[0]

    @property
    def tag(self) -> str:
        return self.reference.rsplit(":", 1)[1]


_BUILT = {"agent": "localhost/device-agent", "operator": "localhost/device-operator"}


def build(names: Sequence[str] = ("agent", "operator"), *, checkout: Path = places.CHECKOUT) -> dict[str, Image]:
    """The project's images by name; only those whose content changed are built."""
    images = {name: _image(name, checkout=checkout) for name in names}
    if any(not image.archive.exists() for image in images.values()):
        packages.require_root()
        packages.ensure(packages.TO_BUILD_IMAGES)
        with places.locked(_root() / "lock", what="building images"):
            for image in images.values():
                if not image.archive.exists():
                    with step(f"building the image {image.reference}"):
                        _build(image, checkout=checkout)
    for image in images.values():
        os.utime(image.archive)
    return images


def python() -> Image:
    """The stand-in for python:3.12-slim, with which test pods run too."""
    target = _root() / f"python-{_base_key()}.tar"
    if not target.exists():
        packages.require_root()
        packages.ensure(packages.TO_BUILD_IMAGES)
        with places.locked(_root() / "python.lock", what="building the base image"):
            if not target.exists():
                with step(f"building the base image from Debian {_SUITE}'s packages, about a minute"):
                    _bootstrap(target)
    return Image(name="python", reference=PYTHON, archive=target)


def pause() -> Image:
    """The image that holds a pod's namespaces on each node. Its program `pause` must have been built."""
    program = binaries.path("pause")
    target = _root() / f"pause-{program.parent.name}.tar"
    with places.locked(_root() / "pause.lock", what="making the pause image"):
        if not target.exists():
            archive.from_program(program, reference=PAUSE_IMAGE, target=target)
            _prune("pause")
    return Image(name="pause", reference=PAUSE_IMAGE, archive=target)


def push(image: Image, *, registry: str) -> str:
    """Pushes an image to a registry and returns the reference it has there."""
    target = f"{registry.rstrip('/')}/{image.repository.rsplit('/', 1)[1]}:{image.tag}"
    local = re.match(r"(localhost|127\.0\.0\.1)(:\d+)?(/|$)", registry) is not None
    packages.ensure(["buildah"])
    with places.locked(_root() / "lock", what="building images"), step(f"pushing {target}"):
        printed = run([*_buildah(), "pull", _policy(), f"docker-archive:{image.archive}"], env=_environment())
        verify = "--tls-verify=false" if local else "--tls-verify=true"
        run([*_buildah(), "push", _policy(), verify, printed.split()[-1], f"docker://{target}"], env=_environment())
    return target


def content_hash(dockerfile: Path, *, checkout: Path, base: str) -> str:
    """Names an image by the files that its Dockerfile copies, the Dockerfile and the base."""
    digest = hashlib.sha256(base.encode())
    for file in [dockerfile, *sorted(_copied(dockerfile, checkout=checkout))]:
        digest.update(f"\0{file.relative_to(checkout)}\0{file.stat().st_mode & 0o111}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]


def _copied(dockerfile: Path, *, checkout: Path) -> Iterator[Path]:
    for line in dockerfile.read_text().replace("\\\n", " ").splitlines():
        words = line.split()
        if words[:1] != ["COPY"] or any(word.startswith("--from") for word in words):
            continue
        for source in (word for word in words[1:-1] if not word.startswith("--")):
            if not (checkout / source).exists():
                raise LocalClusterError(f"{dockerfile.name} copies {source}, which is not in {checkout}")
            yield from _files(checkout / source)


def _files(top: Path) -> Iterator[Path]:
    if top.is_file():
        yield top
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from (Path(folder) / name for name in names if not name.endswith(".pyc"))


def _image(name: str, *, checkout: Path) -> Image:
    if name not in _BUILT:
        raise LocalClusterError(f"there is no image {name!r}, but {', '.join(_BUILT)}")
    base = os.environ.get("BASE") or _base_key()
    tag = content_hash(checkout / f"Dockerfile.{name}", checkout=checkout, base=base)
    return Image(name=name, reference=f"{_BUILT[name]}:{tag}", archive=_root() / f"{name}-{tag}.tar")


def _build(image: Image, *, checkout: Path) -> None:
    _limit_store()
    base = os.environ.get("BASE")
    if not base:
        base = PYTHON
        stand_in = python()
        if not succeeds([*_buildah(), "inspect", "--type", "image", _stored(stand_in)]):
            run([*_buildah(), "pull", _policy(), f"docker-archive:{stand_in.archive}"], env=_environment())
            run([*_buildah(), "tag", PYTHON, _stored(stand_in)], env=_environment())
        pull = ["--pull-never"]
    else:
        pull = ["--pull"]
    log = _root() / f"{image.name}.log"
    command = [
        *_buildah(),
        "build",
        _policy(),
        *pull,
        "--layers",
        "--network=host",
        f"--ulimit=nofile={_open_files()}",
        *_mounts(),
        f"--build-arg=BASE={base}",
        f"--file={checkout / f'Dockerfile.{image.name}'}",
        f"--tag={image.reference}",
        f"--tag={image.repository}:dev",
        str(checkout),
    ]
    with log.open("w") as output:
        done = subprocess.run(
            command,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != 0:
        raise LocalClusterError(f"building {image.reference} failed; {tail(log, 25)}")
    unfinished = image.archive.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    destination = f"docker-archive:{unfinished}:{image.reference}"
    run([*_buildah(), "push", _policy(), image.reference, destination], env=_environment())
    unfinished.rename(image.archive)
    _prune(image.name)


def _prune(name: str) -> None:
    archives = sorted(_root().glob(f"{name}-*.tar"), key=lambda file: file.stat().st_mtime)
    for old in archives[:-_KEPT]:
        old.unlink()


def _bootstrap(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=_root()) as scratch:
        layer = Path(scratch) / "layer.tar"  # mmdebstrap makes a folder unless the name ends in .tar
        run([*_BOOTSTRAP, layer])
        archive.from_layer(layer, reference=PYTHON, entrypoint=(), target=target)
    _prune("python")


def _base_key() -> str:
    return hashlib.sha256("\0".join([*_BOOTSTRAP, platform.machine()]).encode()).hexdigest()[:12]


def _stored(base: Image) -> str:
    """The base's name in buildah's store. Each recipe has another name."""
    return f"localhost/base:{base.archive.stem}"


def _buildah() -> list[str]:
    """buildah with all of its state in the cache, in a mount namespace that takes its mounts along when it ends."""
    root = _root()
    root.mkdir(parents=True, exist_ok=True)
    registries = root / "registries.conf"
    registries.write_text("")
    return [
        *("unshare", "--mount", "--", "buildah"),
        f"--root={root / 'store'}",
        f"--runroot={root / 'run'}",
        f"--storage-driver={_driver()}",
        f"--registries-conf={registries}",
    ]


def _policy() -> str:
    """Without a policy file buildah refuses to move any image, and Debian's package brings none."""
    policy = _root() / "policy.json"
    policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}\n')
    return f"--signature-policy={policy}"


def _driver() -> str:
    """overlay is far quicker than vfs, which copies the whole tree at each step, but needs a fitting file system."""
    chosen = _root() / "driver"
    if not chosen.exists():
        with tempfile.TemporaryDirectory(dir=_root()) as scratch:
            for name in ("lower", "upper", "work", "merged"):
                (Path(scratch) / name).mkdir()
            layers = f"lowerdir={scratch}/lower,upperdir={scratch}/upper,workdir={scratch}/work"
            mount = ["unshare", "--mount", "mount", "-t", "overlay", "overlay", "-o", layers, f"{scratch}/merged"]
            chosen.write_text("overlay" if succeeds(mount) else "vfs")
    return chosen.read_text()


def _environment() -> dict[str, str]:
    scratch = _root() / "scratch"
    scratch.mkdir(exist_ok=True)
    return {**os.environ, "BUILDAH_ISOLATION": "chroot", "TMPDIR": str(scratch)}


def _open_files() -> str:
    """This process's own limit: chroot isolation cannot raise it, and would try to."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"{hard}:{hard}"


def _mounts() -> list[str]:
    """Lends the build this machine's pip settings and certificates, of which nothing stays in the image."""
    settings = _pip_settings()
    lent = [Path("/etc/ssl/certs")] if Path("/etc/ssl/certs").is_dir() else []
    for key in ("cert", "client-cert", "find-links"):
        lent += [Path(value) for value in settings.get(key, "").split() if Path(value).exists()]
    file = _root() / "pip.conf"
    file.write_text("".join(["[global]\n", *(f"{key} = {value}\n" for key, value in sorted(settings.items()))]))
    file.chmod(0o600)
    shown = [path for path in dict.fromkeys(lent) if not any(other in path.parents for other in lent)]
    return [f"--volume={file}:/etc/pip.conf:ro", *(f"--volume={path}:{path}:ro" for path in shown)]


def _pip_settings() -> dict[str, str]:
    """pip's settings on this machine, from its files and its environment alike."""
    settings = {}
    for line in run([sys.executable, "-m", "pip", "config", "list"]).splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if section in ("global", "install", ":env:"):
            settings[key] = value.strip("'\"").replace("\\n", " ")
    return settings


def _limit_store() -> None:
    """Empties buildah's store if it is too large: it keeps every step of every build."""
    store = _root() / "store"
    sizes = run(["du", "-sb", store]).split()[0] if store.exists() else "0"
    shutil.rmtree(_root() / "run", ignore_errors=True)  # a killed build leaves counts of mounts that are gone
    if int(sizes) > _STORE_LIMIT:
        shutil.rmtree(store, ignore_errors=True)


def _root() -> Path:
    root = places.cache() / "images"
    root.mkdir(parents=True, exist_ok=True)
    return root
