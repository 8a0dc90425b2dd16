"""What a command is."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from kubectl_devices.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`arguments`: adds its flags. `run`: does it and returns the exit status; it raises `errors.CliError`."""

    name: str
    help: str
    about: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[Session], int]
