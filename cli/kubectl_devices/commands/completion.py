"""Completion in the shell. kubectl asks the program `kubectl_complete-devices` for the end of a line.

The protocol is that of kubectl's plugins: one candidate a line, a tab before its description, and at the end a colon
with a number: 4 means no names of files.
"""

import argparse
import contextlib
import io
from collections.abc import Iterable, Sequence
from typing import Final

from kubectl_devices import errors
from kubectl_devices.cluster.connection import Target, connect
from kubectl_devices.cluster.kinds import CONFIGS
from kubectl_devices.commands.command import Command
from kubectl_devices.model import completion
from kubectl_devices.model.completion import Asked, Flag, Shape
from kubectl_devices.output import Output
from kubectl_devices.session import Session

_NO_FILES: Final = 4
_FILES: Final = 0
_TIMEOUT: Final = 3.0
"""Seconds; nobody waits longer for a candidate."""
_SCRIPT: Final = """\
#!/bin/sh
# Completion of `kubectl devices`. Save it as kubectl_complete-devices in a directory of PATH and make it executable:
#   kubectl devices completion > ~/.local/bin/kubectl_complete-devices && chmod +x ~/.local/bin/kubectl_complete-devices
# kubectl's own completion must be set up too: kubectl completion --help
exec kubectl-devices __complete "$@"
"""


def arguments(_parser: argparse.ArgumentParser) -> None:
    """It has none."""


def run(session: Session) -> int:
    session.out.stdout.write(_SCRIPT)
    return 0


def answer(program: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """The candidates for a line, in kubectl's protocol. Without a cluster, those that need none."""
    wanted = completion.asked(_shapes(program), words)
    candidates = list(wanted.fixed)
    if wanted.kind:
        with contextlib.suppress(errors.CliError):
            candidates += _names(wanted)
    fitting = [c for c in candidates if c.partition("\t")[0].startswith(wanted.prefix)]
    return "".join(f"{c}\n" for c in fitting) + f":{_FILES if wanted.files else _NO_FILES}\n"


def _names(wanted: Asked) -> Iterable[str]:
    """Names of the cluster. Raises errors.CliError if it cannot be asked."""
    given = wanted.given
    target = Target(
        kubeconfig=given.get("kubeconfig", ""),
        context=given.get("context", ""),
        as_user=given.get("as_user", ""),
        timeout=_TIMEOUT,
    )
    session = Session(argparse.Namespace(), Output(stdout=io.StringIO(), stderr=io.StringIO()), target)
    if wanted.kind == "config":
        return sorted(o["metadata"]["name"] for o in connect(target).api.items(CONFIGS))
    return completion.names(wanted.kind, session.fleet().devices, node=given.get("node", ""))


def _shapes(program: argparse.ArgumentParser) -> tuple[Shape, ...]:
    """The commands as argparse has them. It has no public way to ask."""
    (commands,) = (a for a in program._actions if isinstance(a, argparse._SubParsersAction))  # noqa: SLF001
    helps = {choice.dest: choice.help or "" for choice in commands._choices_actions}  # noqa: SLF001
    return tuple(_shape(name, helps.get(name, ""), parser) for name, parser in commands.choices.items())


def _shape(name: str, text: str, parser: argparse.ArgumentParser) -> Shape:
    actions = parser._actions  # noqa: SLF001
    flags = {
        spelling: Flag(action.dest, takes_value=action.nargs != 0, choices=tuple(action.choices or ()))
        for action in actions
        for spelling in action.option_strings
    }
    return Shape(name, text, tuple(a.dest for a in actions if not a.option_strings), flags)


COMMAND = Command(
    name="completion",
    help="how to complete commands, nodes and devices in the shell",
    about="Prints the program that kubectl asks for completions. pipx installs it by itself.",
    arguments=arguments,
    run=run,
)
