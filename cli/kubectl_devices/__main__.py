"""The command line of `kubectl devices`: the flags that all commands share, and what becomes of errors."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from kubectl_devices import __version__, errors
from kubectl_devices.cluster.connection import Target
from kubectl_devices.commands import completion, flags
from kubectl_devices.commands.registry import COMMANDS
from kubectl_devices.output import Output
from kubectl_devices.session import Session

EXIT_FAILED = 1
EXIT_USAGE = 2
COMPLETE = "__complete"
"""Asks for completions; it stands in the place of a command."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command. Returns the exit status: 0, 1 for what failed or was found, 2 for mistakes in the request."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == [COMPLETE]:
        return complete(given[1:])
    options = parser().parse_args(given)
    session = Session(options, Output(plain=options.no_color), target(options))
    try:
        status: int = options.run(session)
        session.tell_gaps()
        sys.stdout.flush()
    except errors.CliError as error:
        session.tell_gaps()
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE if isinstance(error, errors.UsageError) else EXIT_FAILED
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # the reader has closed the pipe; the last flush must not fail
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    return status


def complete(words: Sequence[str] | None = None) -> int:
    """`kubectl_complete-devices`: prints what may stand at the end of a line."""
    sys.stdout.write(completion.answer(parser(), sys.argv[1:] if words is None else words))
    return 0


def parser() -> argparse.ArgumentParser:
    program = argparse.ArgumentParser(
        prog="kubectl devices",
        description="The hardware devices of a cluster: what is there, who holds it, what is wrong, and maintenance.",
        epilog="Each command has its own help: kubectl devices COMMAND --help",
    )
    program.add_argument("--version", action="version", version=f"kubectl-devices {__version__}")
    _shared(program)
    commands = program.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        added = commands.add_parser(command.name, help=command.help, description=command.about)
        command.arguments(added)
        # they may stand before the command too, as in an alias: only one that is given here replaces that
        _shared(added, default=argparse.SUPPRESS)
        added.set_defaults(run=command.run)
    return program


def _shared(parser: argparse.ArgumentParser, *, default: object = None) -> None:
    """The flags of all commands. `default`: instead of their own defaults."""
    group = parser.add_argument_group("flags of all commands")

    def add(*names: str, own: object, **how: Any) -> None:
        group.add_argument(*names, default=own if default is None else default, **how)

    add("--kubeconfig", metavar="FILE", own="", help="as for kubectl")
    add("--context", metavar="NAME", own="", help="context of the kubeconfig")
    add("-n", "--namespace", metavar="NAME", own="", help="of pods (default: the one of the context)")
    add("--as", dest="as_user", metavar="USER", own="", help="act as this user")
    add("--as-group", action="append", metavar="GROUP", own=[], help="may be given several times")
    add(
        "--operator-namespace",
        metavar="NAME",
        own="",
        help="where the operator runs (default: found by the labels of its chart, else device-operator)",
    )
    add("--request-timeout", type=flags.seconds, metavar="TIME", own=30.0, help="of one request (default: 30s)")
    add("--no-color", action="store_true", own=False, help="as the variable NO_COLOR")


def target(options: argparse.Namespace) -> Target:
    return Target(
        kubeconfig=options.kubeconfig,
        context=options.context,
        namespace=options.namespace,
        as_user=options.as_user,
        as_groups=tuple(options.as_group),
        timeout=options.request_timeout,
    )


if __name__ == "__main__":
    sys.exit(main())
