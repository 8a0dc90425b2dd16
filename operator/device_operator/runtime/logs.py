"""Logs on stderr, in the format that both programs have."""

import logging
import sys

from device_agent.contract.log_format import LogFormatter


def configure_logging(*, form: str, level: str) -> None:
    """`form`: text or json; `level`: debug, info, warning or error. kopf's own lines use the same format."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogFormatter(style=form))
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(level.upper())
    for quiet in ("aiohttp", "asyncio", "kopf", "kubernetes"):
        logging.getLogger(quiet).setLevel(max(logging.WARNING, logging.root.level))
