"""What is printed: tables, plain or in colours by `rich` on a terminal, JSON, YAML, and notes on stderr."""

import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TextIO

from kubectl_devices.model.table import Table

_STYLES: Final[Mapping[str, str]] = {
    "Healthy": "green",
    "Serving": "green",
    "True": "green",
    "ok": "green",
    "Unknown": "yellow",
    "Cordoned": "yellow",
    "Draining": "yellow",
    "HeldAs": "yellow",
    "warning": "yellow",
    "Unhealthy": "bold red",
    "No": "red",
    "PROBLEM": "bold red",
}


@dataclass(slots=True)
class Output:
    """`plain`: no colours even on a terminal."""

    plain: bool = False
    stdout: TextIO = field(default_factory=lambda: sys.stdout)
    stderr: TextIO = field(default_factory=lambda: sys.stderr)

    def table(self, table: Table) -> None:
        if not self.rich:
            self.stdout.write(table.text())
            return
        from rich.console import Console  # noqa: PLC0415 a tenth of a second, for terminals alone
        from rich.text import Text  # noqa: PLC0415

        console = Console(file=self.stdout, highlight=False)
        for number, line in enumerate(table.lines()):
            text = Text()
            for cell in line:
                text.append(cell, style="bold" if number == 0 else _STYLES.get(cell.strip(), ""))
            console.print(text, soft_wrap=True)

    def line(self, text: str = "") -> None:
        self.stdout.write(f"{text}\n")

    def styled(self, word: str, style: str, rest: str) -> None:
        """A line that begins with a word in colour."""
        if not self.rich:
            self.line(f"{word}{rest}")
            return
        from rich.console import Console  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        Console(file=self.stdout, highlight=False).print(Text(word, style=style).append(rest, style=""), soft_wrap=True)

    def json(self, value: object) -> None:
        self.stdout.write(f"{json.dumps(value, indent=2)}\n")

    def yaml(self, value: object, *, compact: bool = False) -> None:
        """`compact`: innermost lists and maps in one line."""
        import yaml  # noqa: PLC0415

        plain = json.loads(json.dumps(value))  # without enums and tuples
        self.stdout.write(
            yaml.safe_dump(plain, sort_keys=False, width=120, default_flow_style=None if compact else False)
        )

    def structured(self, form: str, value: object) -> bool:
        """Prints `value` if `form` is json or yaml."""
        if form not in ("json", "yaml"):
            return False
        (self.json if form == "json" else self.yaml)(value)
        return True

    def notes(self, texts: Iterable[str]) -> None:
        """What is missing in the output; on stderr, so that a pipe has only the output."""
        self.stdout.flush()
        for text in texts:
            self.stderr.write(f"note: {text}\n")
        self.stderr.flush()

    @property
    def rich(self) -> bool:
        environment: Mapping[str, Any] = os.environ
        wanted = not self.plain and not environment.get("NO_COLOR") and environment.get("TERM", "") != "dumb"
        return wanted and self.stdout.isatty()
