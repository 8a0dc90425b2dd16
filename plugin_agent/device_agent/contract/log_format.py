"""How both programs write a log line: the names of the fields and the words of the levels, once.

A line is a constant message with fields: what the logging call gave as `extra`. The fields below come first, in this
order; an `extra` of the same name is not shown. docs/operations.md has the table.

    json  {"time": "2026-01-01T00:00:00.000Z", "level": "info", "logger": "...", "message": "...", <fields>}
    text  2026-01-01T00:00:00.000Z info    logger: message field=value ...
"""

import json
import logging
from datetime import UTC, datetime
from typing import Final

TIME: Final = "time"
"""RFC 3339 in UTC, with milliseconds."""
LEVEL: Final = "level"
"""One of LEVELS."""
LOGGER: Final = "logger"
"""The module that speaks."""
MESSAGE: Final = "message"
"""Constant: what differs from one occasion to the next stands in fields."""
TRACEBACK: Final = "traceback"
"""Of a defect: where it happened. The last field; in text the lines below the message."""

LEVELS: Final = {
    logging.DEBUG: "debug",
    logging.INFO: "info",
    logging.WARNING: "warning",
    logging.ERROR: "error",
    logging.CRITICAL: "critical",
}

_NO_FIELDS: Final = frozenset(
    (*logging.makeLogRecord({}).__dict__, "asctime", "taskName", TIME, LEVEL, LOGGER, MESSAGE, TRACEBACK)
)
_SHOWN: Final = (str, int, float)
"""What a field may be. Libraries attach whole objects to their records, which no line can show."""
_encode = json.JSONEncoder(ensure_ascii=False).encode


class LogFormatter(logging.Formatter):
    """Formats records as above; `style`: json or text."""

    def __init__(self, *, style: str) -> None:
        super().__init__()
        self._json = style == "json"

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        level = LEVELS.get(record.levelno) or record.levelname.lower()
        fields = {k: v for k, v in record.__dict__.items() if k not in _NO_FIELDS and isinstance(v, _SHOWN)}
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        if self._json:
            head = {TIME: moment, LEVEL: level, LOGGER: record.name, MESSAGE: record.getMessage()}
            return _encode(head | fields | ({TRACEBACK: trace} if trace else {}))
        tail = "".join(f" {k}={_word(v)}" for k, v in fields.items())
        line = f"{moment} {level:<7} {record.name}: {record.getMessage()}{tail}"
        return f"{line}\n{trace}" if trace else line


def _word(value: float | str) -> str:
    """A field's value, in quotes where it would not read as one word on one line."""
    text = str(value)
    plain = text.isprintable() and not any(mark in text for mark in ' "=')
    return text if text and plain else json.dumps(text, ensure_ascii=False)
