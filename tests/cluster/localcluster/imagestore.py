"""Gives a new node its images at once, instead of having each node import and unpack the same archives.

A store is a containerd root folder with the images unpacked, made once per set of archives. A node's own root folder
starts as a copy of it by hard links: layers and blobs are only ever read, and the databases are copied for real.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from localcluster import archive, binaries, node_config, places
from localcluster.console import LocalClusterError, step
from localcluster.processes import SYSTEM_PATH, run, succeeds, tail

_KEPT = 3

# A containerd with a /run of its own fills the store and ends. $1 configuration, $2 log, $3 archives to import,
# $4 references to keep
_FILL = r"""
    mount --make-rprivate /
    mount -t proc proc /proc
    mount -t tmpfs tmpfs /run
    containerd --config "$1" >"$2" 2>&1 &
    until ctr version >/dev/null 2>&1; do
        sleep 0.05
        kill -0 $!
    done
    for archive in $3; do
        ctr -n k8s.io images import "$archive" >/dev/null
    done
    for reference in $(ctr -n k8s.io images ls -q); do
        case " $4 " in
            *" $reference "*) ;;
            *) ctr -n k8s.io images rm --sync "$reference" >/dev/null ;;
        esac
    done
    kill $!
    wait $! || true
"""


def prepare(archives: Sequence[Path]) -> Path:
    """The store with exactly the images of these archives. If there is none, it is made from the newest other store."""
    known = {archive.identify(file)[1]: file for file in archives}
    store = _root() / hashlib.sha256(" ".join(sorted(known)).encode()).hexdigest()[:16]
    with places.locked(_root() / "lock", what="unpacking images"):
        if not store.exists():
            with step(f"unpacking {len(known)} images for new nodes"):
                _make(store, known)
        os.utime(store)
    return store


def give(store: Path, *, root: Path, marks: Path) -> bool:
    """Copies the store to `root`, a node's containerd folder. Returns False if the file systems do not allow it.

    `marks`: the folder in which a node notes the digests of the archives that it has.
    """
    if not succeeds(["cp", "--archive", "--link", store / "root", root]):
        shutil.rmtree(root, ignore_errors=True)
        return False
    for database in root.rglob("*.db"):
        copy = database.with_suffix(".copy")
        shutil.copy2(database, copy)
        copy.replace(database)
    for mark in (store / "archives").iterdir():
        (marks / mark.name).touch()
    return True


def _make(store: Path, known: dict[str, Path]) -> None:
    with tempfile.TemporaryDirectory(dir=_root(), prefix="unfinished-") as scratch:
        made = Path(scratch) / "store"
        (made / "archives").mkdir(parents=True)
        others = sorted(_stores(), key=lambda each: each.stat().st_mtime)
        if others:
            give(others[-1], root=made / "root", marks=made / "archives")
        missing = [file for digest, file in known.items() if not (made / "archives" / digest).exists()]
        references = [reference for file in known.values() for reference in archive.identify(file)[0]]
        config, log = Path(scratch) / "containerd.toml", _root() / "log"
        config.write_text(node_config.containerd_store(made / "root"))
        enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        fill: list[str | Path] = [
            "bash",
            "-euc",
            _FILL,
            "fill",
            config,
            log,
            " ".join(map(str, missing)),
            " ".join(references),
        ]
        try:
            run([*enter, *fill], env={"PATH": f"{binaries.folder('containerd')}:{SYSTEM_PATH}"})
        except LocalClusterError as failed:
            raise LocalClusterError(f"{failed}\n{tail(log)}") from failed
        shutil.rmtree(made / "archives")
        (made / "archives").mkdir()
        for digest in known:
            (made / "archives" / digest).touch()
        made.rename(store)
    for old in sorted(_stores(), key=lambda each: each.stat().st_mtime)[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def _stores() -> list[Path]:
    return [each for each in _root().iterdir() if (each / "archives").is_dir()]


def _root() -> Path:
    root = places.cache() / "images" / "stores"
    root.mkdir(parents=True, exist_ok=True)
    return root
