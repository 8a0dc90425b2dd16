"""What the harness says while it works, and the one exception with which it gives up.

Progress goes to standard error, so that `kubectl` and friends keep standard output to themselves.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class LocalClusterError(Exception):
    """Something the user has to know: what failed, and what mends it."""


def say(text: str) -> None:
    print(f"localcluster: {text}", file=sys.stderr, flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Announces a long step before it starts and its seconds when it is done."""
    say(f"{text} ...")
    started = time.monotonic()
    yield
    say(f"{text}: {time.monotonic() - started:.1f} s")
