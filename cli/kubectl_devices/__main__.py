"""The command line of `kubectl devices`: the flags that all commands share, and what becomes of errors."""

import argparse
import os
import sys
from collections.abc import Sequence

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
    commands = program.add_subparsers(dest="command", required=True, metavar="COMMAND")
    shared = _shared()
    for command in COMMANDS:
        added = commands.add_parser(command.name, parents=[shared], help=command.help, description=command.about)
        command.arguments(added)
        added.set_defaults(run=command.run)
    return program


def _shared() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    group = shared.add_argument_group("flags of all commands")
    group.add_argument("--kubeconfig", metavar="FILE", default="", help="as for kubectl")
    group.add_argument("--context", metavar="NAME", default="", help="context of the kubeconfig")
    group.add_argument(
        "-n", "--namespace", metavar="NAME", default="", help="of pods (default: the one of the context)"
    )
    group.add_argument("--as", dest="as_user", metavar="USER", default="", help="act as this user")
    group.add_argument("--as-group", action="append", metavar="GROUP", default=[], help="may be given several times")
    group.add_argument(
        "--operator-namespace",
        metavar="NAME",
        default="",
        help="where the operator runs (default: found by the labels of its chart, else device-operator)",
    )
    group.add_argument(
        "--request-timeout", type=flags.seconds, metavar="TIME", default=30.0, help="of one request (default: 30s)"
    )
    group.add_argument("--no-color", action="store_true", help="as the variable NO_COLOR")
    return shared


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
