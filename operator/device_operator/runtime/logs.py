"""Logs on stderr: a constant message plus fields, as text or as JSON."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class _Formatter(logging.Formatter):
    """A constant message, and the fields given as `extra`."""

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        return {
            key: value
            for key, value in vars(record).items()
            if key not in _PLAIN and isinstance(value, str | int | float | bool)
        }

    def time(self, record: logging.LogRecord) -> str:
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {key}={_quoted(value)}" for key, value in self.fields(record).items())
        line = f"{self.time(record)} {record.levelname} {record.name} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self.fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def configure_logging(*, form: str, level: str) -> None:
    """`form`: text or json; `level`: debug, info, warning or error. kopf's own lines go the same way."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(level.upper())
    for quiet in ("aiohttp", "asyncio", "kopf", "kubernetes"):
        logging.getLogger(quiet).setLevel(max(logging.WARNING, logging.root.level))


def _quoted(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(c in text for c in ' "=\n') else text
