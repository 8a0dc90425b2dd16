"""The format of log lines, for operator and agent: names of the fields and words of the levels.

A line has a constant message, and fields from the `extra` of the logging call. The fields below come first, in this
order; an `extra` with one of these names is not shown. docs/operations.md has the table.

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
"""The module that logs."""
MESSAGE: Final = "message"
"""A constant text; all values that vary are in fields."""
TRACEBACK: Final = "traceback"
"""Where a defect happened. The last field in json; in text the lines below the message."""

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
"""Types of shown fields. Libraries also attach whole objects to their records; those are left out."""
_encode = json.JSONEncoder(ensure_ascii=False).encode


class LogFormatter(logging.Formatter):
    """Formats records as described above. `style`: json or text."""

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
    """A field's value, in quotes if it is not a single word."""
    text = str(value)
    plain = text.isprintable() and not any(mark in text for mark in ' "=')
    return text if text and plain else json.dumps(text, ensure_ascii=False)
