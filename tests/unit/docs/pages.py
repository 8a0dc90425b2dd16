"""What the guides say: their blocks of commands with the marks before them, and commands in the text."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]
PAGES = [
    CHECKOUT / "README.md",
    CHECKOUT / "CONTRIBUTING.md",
    *(path for path in sorted((CHECKOUT / "docs").glob("*.md")) if path.name != "commands.md"),  # usage, not commands
    CHECKOUT / "charts/device-operator/README.md",
]
PROGRAMS = ("kubectl", "helm", "device-operator", "device-agent", "make", "k", "d")
"""A code span that begins with one of these and a space is a command."""
_FENCE = re.compile(r"^( *)(```|~~~)(\w*)\n(.*?)^\1\2$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- (run by|tried by|not tried): ?(.*?) -->\s*\Z")
_SPAN = re.compile(rf"`((?:{'|'.join(PROGRAMS)}) [^`]+)`")


@dataclass(frozen=True)
class Block:
    """Commands of one block. `mark`: what stands in the comment before it: a kind and a text, or two empty ones."""

    page: Path
    commands: tuple[str, ...]
    mark: tuple[str, str]

    def __str__(self) -> str:
        return f"{self.page.relative_to(CHECKOUT)}: {self.commands[0][:60]}"


def blocks(path: Path) -> Iterator[Block]:
    text = path.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        indent, language, content = found[1], found[3], found[4]
        lines = tuple(commands(content.replace(f"\n{indent}", "\n"), language))
        if lines:
            mark = _MARK.search(text[: found.start()])
            yield Block(path, lines, (mark[1], mark[2]) if mark else ("", ""))


def commands(content: str, language: str) -> Iterator[str]:
    """The command lines of a block. Where some lines have a prompt, the others are output."""
    joined = content.replace("\\\n", " ").strip("\n").split("\n")
    joined = [line.strip() for line in joined]
    shown = [line.removeprefix("$ ") for line in joined if line.startswith("$ ")]
    if shown or language not in ("sh", "console"):
        yield from shown
        return
    yield from (line for line in _whole(joined) if line and not line.startswith("#"))


def _whole(lines: list[str]) -> Iterator[str]:
    """Lines that end with a pipe, with the line after."""
    begun = ""
    for line in lines:
        begun = f"{begun} {line}".strip()
        if not begun.endswith("|"):
            yield begun
            begun = ""
    if begun:
        yield begun


def spans(path: Path) -> list[str]:
    """Commands in the text; <what stands for a value> is one word."""
    return [
        " ".join(re.sub(r"<[^>]*>", "VALUE", found).split())
        for found in _SPAN.findall(_FENCE.sub("", path.read_text(encoding="utf-8")))
    ]


def programs(line: str) -> Iterator[list[str]]:
    """The programs that a command line starts, each with its arguments."""
    while inner := re.search(r"\$\(([^()]*)\)", line):
        yield from programs(inner[1])
        line = f"{line[: inner.start()]}SUBSTITUTED{line[inner.end() :]}"
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    skip = False
    for word in lexer:
        if word == "#":
            break
        if set(word) <= set("|&;"):
            yield words
            words = []
        elif skip or set(word) <= set("<>"):
            skip = not skip
        else:
            words.append(word)
    yield words
