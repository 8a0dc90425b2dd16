"""Writes the tables of reasons into docs/troubleshooting.md: scripts/reasons.py [--check].

The meanings stand in device_agent/contract/ alone: reasons.py, node_reasons.py, config_reasons.py. With --check nothing
is written, and the exit status is 1 when a table is not what would be written.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from device_agent.contract.config_reasons import ConditionReason, EventReason
from device_agent.contract.node_reasons import NodeReason, NodeState
from device_agent.contract.reasons import DeviceHealth, DeviceReason, ExclusionReason, RefusalReason, Withheld, Word

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "troubleshooting.md"
TABLES = (
    DeviceHealth,
    Withheld,
    DeviceReason,
    RefusalReason,
    ExclusionReason,
    NodeState,
    NodeReason,
    ConditionReason,
    EventReason,
)
_LINK = re.compile(r"docs/([a-z-]+\.md)#([a-z0-9-]+)")


def main(arguments: list[str]) -> int:
    before = TARGET.read_text()
    text = before
    for words in TABLES:
        text = with_table(text, words)
    if arguments != ["--check"]:
        TARGET.write_text(text)
        return 0
    if text == before:
        return 0
    print(f"{TARGET.relative_to(ROOT)} is not up to date: run scripts/reasons.py", file=sys.stderr)
    return 1


def with_table(text: str, words: type[Word]) -> str:
    """The page with the table of these words between its two marks.

    Raises:
        ValueError: the page lacks the marks.
    """
    begin, end = f"<!-- {words.__name__}: made by scripts/reasons.py -->\n", f"<!-- end of {words.__name__} -->"
    head, first, rest = text.partition(begin)
    _, second, tail = rest.partition(end)
    if not first or not second:
        raise ValueError(f"{TARGET.name} has no lines {begin.strip()} and {end}")
    return "".join([head, begin, *(f"{line}\n" for line in table(words)), end, tail])


def table(words: type[Word]) -> Iterator[str]:
    yield f"| {'state' if words in (DeviceHealth, NodeState) else 'reason'} | meaning |"
    yield "|---|---|"
    for word in words:
        meaning = _LINK.sub(r"[\1](\1#\2)", word.meaning)
        yield f"| `{word}` | {meaning} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
