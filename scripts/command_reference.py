"""Writes docs/commands.md from the programs' own argument parsers: scripts/command_reference.py [--check].

With --check nothing is written, and the exit status is 1 when the file is not what would be written.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from device_agent import __main__ as agent
from device_operator import __main__ as operator
from kubectl_devices import __main__ as cli

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "commands.md"
SHARED = "flags of all commands"
"""The title of the group that every command of `kubectl devices` has."""
_DEFAULT = re.compile(r" \(default(?: here)?: %\(default\)s\)")
"""It depends on the machine that makes the page."""


def main(arguments: list[str]) -> int:
    text = "\n".join(page()) + "\n"
    if arguments == ["--check"]:
        if TARGET.exists() and TARGET.read_text() == text:
            return 0
        print(f"{TARGET.relative_to(ROOT)} is not up to date: run scripts/command_reference.py", file=sys.stderr)
        return 1
    TARGET.write_text(text)
    return 0


def page() -> Iterator[str]:
    yield "# Commands and flags"
    yield ""
    yield "Made from the programs' own parsers by `scripts/command_reference.py`. The same texts: `--help`."
    yield from program(
        cli.parser(), "On an admin's machine: [what the commands do, with their output](kubectl-devices.md)."
    )
    yield from program(
        operator.parser(),
        "In the operator's image and in a checkout ([where](operations.md#where-the-programs-are)). "
        "What stands in brackets is the default.",
    )
    yield from program(
        agent.parser(),
        "In the agent's image and in a checkout. `serve` is what agents run: the operator sets its flags.",
        only="scan",
    )


def program(parser: argparse.ArgumentParser, where: str, *, only: str = "") -> Iterator[str]:
    """The commands of a program. `only`: this one alone."""
    yield from ("", f"## {parser.prog}", "", f"{parser.description} {where}")
    shared = [action for group in parser._action_groups if group.title == SHARED for action in group._group_actions]
    if shared:
        yield from ("", "Flags of all commands:", *table(shared))
    names = {action.option_strings[0] for action in shared}
    for command, (text, inner) in commands(parser).items():
        if only in ("", command):
            own = [a for a in inner._actions if not {"--help", *names} & set(a.option_strings)]
            told = (inner.description or text).strip()
            usage = " ".join([inner.prog, *filter(None, map(placed, own))])
            yield from (
                "",
                f"### {parser.prog} {command}",
                "",
                f"{told[0].upper()}{told[1:]}{'' if told.endswith('.') else '.'}",
            )
            yield from ("", f"`{usage}{' [flags]' if any(a.option_strings for a in own) else ''}`")
            yield from table([action for action in own if action.help != argparse.SUPPRESS])


def commands(parser: argparse.ArgumentParser) -> dict[str, tuple[str, argparse.ArgumentParser]]:
    """Name -> help and parser."""
    (chosen,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    helps = {action.dest: action.help or "" for action in chosen._choices_actions}
    return {name: (helps[name], inner) for name, inner in chosen.choices.items()}


def placed(action: argparse.Action) -> str:
    """A positional argument as a usage line has it; of a flag nothing."""
    name = str(action.metavar or action.dest.upper())
    if action.option_strings:
        return f"{action.option_strings[0]} {name}" if action.required else ""
    return {"*": f"[{name} ...]", "?": f"[{name}]"}.get(str(action.nargs), name)


def table(actions: Sequence[argparse.Action]) -> Iterator[str]:
    if actions:
        yield from ("", "| argument | meaning |", "|---|---|")
    for action in actions:
        text = _DEFAULT.sub("", action.help or f"one of: {', '.join(map(str, action.choices or ()))}")
        text = text.removesuffix(" [none]").replace("|", "\\|").replace("<", "&lt;")
        yield f"| `{called(action)}` | {text} |"


def called(action: argparse.Action) -> str:
    name = action.metavar or action.dest.upper()
    if action.choices and not action.metavar:
        name = "|".join(map(str, action.choices))
    if not action.option_strings:
        return placed(action).replace("|", "\\|")
    value = "" if action.nargs == 0 else f" {name}"
    return f"{', '.join(action.option_strings)}{value}".replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
