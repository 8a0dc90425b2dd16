"""Rows to aligned lines, as kubectl prints them: headings in capitals, three spaces between columns. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

_GAP: Final = "   "
NONE: Final = "-"
"""Stands for an empty cell, so that every row has the same number of words where cells have no spaces."""


@dataclass(frozen=True, slots=True)
class Table:
    """`rows`: each as long as `headings`. The last column may be long: nothing follows it."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def lines(self) -> tuple[tuple[str, ...], ...]:
        """Heading and rows, each cell padded to its column; the last cell is not."""
        every = (self.headings, *(tuple(_clean(cell) or NONE for cell in row) for row in self.rows))
        widths = [max(len(row[i]) for row in every) for i in range(len(self.headings))]
        return tuple(tuple(_padded(row, widths)) for row in every)

    def text(self) -> str:
        return "".join(f"{''.join(line)}\n" for line in self.lines())


def table(headings: str, rows: Iterable[Sequence[str]]) -> Table:
    """`headings`: separated by spaces; a '_' in one stands for a space."""
    return Table(tuple(h.replace("_", " ") for h in headings.split()), tuple(tuple(row) for row in rows))


def _padded(row: Sequence[str], widths: Sequence[int]) -> Iterable[str]:
    last = len(row) - 1
    for i, (cell, width) in enumerate(zip(row, widths, strict=True)):
        yield cell if i == last else f"{cell:{width}}{_GAP}"


def _clean(cell: str) -> str:
    """Texts from devices and pods may have control characters, which a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in cell).strip()
