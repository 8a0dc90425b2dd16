"""Where the harness keeps things: a cache outside the checkout, one state folder per cluster, the checkout itself."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localcluster.console import say

CHECKOUT = Path(__file__).resolve().parents[3]
MODULES = Path(__file__).resolve().parents[1] / "modules"


def cache() -> Path:
    """The project's folder in the user's cache; $XDG_CACHE_HOME moves it."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "device-operator"


def clusters() -> Path:
    """The folder of all clusters' states; $LOCALCLUSTER_STATE moves it."""
    return Path(os.environ.get("LOCALCLUSTER_STATE") or cache() / "clusters")


@contextmanager
def locked(lock: Path, *, what: str) -> Iterator[None]:
    """Keeps two processes from doing `what` at once; the second one waits and says so."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is {what}; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
