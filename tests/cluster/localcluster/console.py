"""What the harness prints while it works, and the exception that it raises when it cannot go on.

Progress goes to standard error, so that `kubectl` and friends keep standard output to themselves.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class LocalClusterError(Exception):
    """The harness cannot go on. The message says what failed, and how to repair it."""


def say(text: str) -> None:
    print(f"localcluster: {text}", file=sys.stderr, flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Prints a long step when it starts, and again with its seconds when it has ended."""
    say(f"{text} ...")
    started = time.monotonic()
    yield
    say(f"{text}: {time.monotonic() - started:.1f} s")
