"""The format of log lines, the same for operator and agent."""

import json
import logging
import re
import sys
from pathlib import Path

import pytest
from device_agent.contract import log_format
from device_agent.contract.log_format import LogFormatter

DOCS = Path(__file__).parents[3] / "docs"


def record(**fields: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"levelname": "INFO", "levelno": 20, "msg": "registered", "name": "x", "created": 0.0})
    made.__dict__.update(fields)
    return made


def as_json(made: logging.LogRecord) -> dict[str, object]:
    return dict(json.loads(LogFormatter(style="json").format(made)))


def as_text(made: logging.LogRecord) -> str:
    return LogFormatter(style="text").format(made)


def test_a_line_has_a_message_and_fields() -> None:
    made = record(resource="example.com/a", error="two words", ids=3, ok=True)
    assert as_text(made) == (
        '1970-01-01T00:00:00.000Z info    x: registered resource=example.com/a error="two words" ids=3 ok=True'
    )
    assert list(as_json(made).items()) == [
        ("time", "1970-01-01T00:00:00.000Z"),
        ("level", "info"),
        ("logger", "x"),
        ("message", "registered"),
        ("resource", "example.com/a"),
        ("error", "two words"),
        ("ids", 3),
        ("ok", True),
    ]


@pytest.mark.parametrize("value", ["a\nb", 'say "x"', "a=b", "", "a b", "\x1b[2J", "\u2028"])
def test_a_value_cannot_look_like_another_field_or_line(value: str) -> None:
    line = as_text(record(error=value, after=1))
    assert len(line.splitlines()) == 1 or not value.isprintable()
    assert "\n" not in line
    assert "\x1b" not in line
    assert line.endswith(" after=1")
    assert ' error="' in line


def test_the_traceback_of_a_defect_comes_last() -> None:
    try:
        int("boom")
    except ValueError:
        made = record(exc_info=sys.exc_info(), config="lab")
    line = as_json(made)
    assert list(line)[-1] == "traceback"
    assert "ValueError: invalid literal" in str(line["traceback"])
    assert as_text(made).splitlines()[1] == "Traceback (most recent call last):"


def test_objects_are_not_shown_and_extras_cannot_replace_the_fixed_fields() -> None:
    line = as_json(record(settings=object(), none=None, level="mine", time="mine", logger="mine", traceback="mine"))
    assert line == {"time": "1970-01-01T00:00:00.000Z", "level": "info", "logger": "x", "message": "registered"}


def test_each_level_has_its_word() -> None:
    words = {name: as_json(record(levelno=getattr(logging, name), levelname=name))["level"] for name in
             ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")}  # fmt: skip
    assert words == {name: name.lower() for name in words}
    assert as_json(record(levelno=5, levelname="TRACE"))["level"] == "trace"


def test_the_operations_page_lists_every_field_and_level() -> None:
    told = (DOCS / "operations.md").read_text().partition("\n## Logs\n")[2].partition("\n## ")[0]
    rows = set(re.findall(r"^\| `(\w+)` \|", told, re.MULTILINE))
    assert rows == {log_format.TIME, log_format.LEVEL, log_format.LOGGER, log_format.MESSAGE, log_format.TRACEBACK}
    assert all(f"`{word}`" in told for word in log_format.LEVELS.values())
