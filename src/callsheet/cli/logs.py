"""Formats log lines, for people or as JSON objects, without secrets."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import IO

import click

from callsheet.vault.redact import redact
from callsheet.worker.current import name_the_job

from .errors import without_passwords

COLORS = {"DEBUG": "bright_black", "INFO": "green", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}
QUIET_BELOW_INFO = ("asyncio", "watchfiles")
QUIET_BELOW_WARNING = ("httpcore2", "httpx2", "httpcore", "httpx")  # they log each request


class Human(logging.Formatter):
    """Formats `12:03:44 INFO  message` in local time; the level is coloured on a terminal."""

    def __init__(self, *, has_colors: bool) -> None:
        super().__init__()
        self._has_colors = has_colors

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, with the traceback of an exception below."""
        level = f"{record.levelname:<5}"
        if self._has_colors:
            level = click.style(level, fg=COLORS.get(record.levelname))
        at = datetime.fromtimestamp(record.created).astimezone()
        text = f"{at:%H:%M:%S} {level} {_one_line(record.getMessage())}{_correlation(record)}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return redact(without_passwords(text))


class Json(logging.Formatter):
    """Formats JSON objects: `ts`, `level`, `logger`, `message`, the record's `fields`, a traceback as `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one JSON object on one line."""
        at = datetime.fromtimestamp(record.created, UTC)
        entry: dict[str, object] = {
            "ts": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict):
            entry |= {name: value for name, value in fields.items() if name not in entry}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(_redact_all(entry), ensure_ascii=False, default=str)


def set_up(format_name: str, level: str, stream: IO[str] | None = None) -> None:
    """Send all log records of this process to stderr (or `stream`), instead of all other handlers."""
    out = stream or sys.stderr
    handler = logging.StreamHandler(out)
    handler.addFilter(name_the_job)
    handler.setFormatter(Json() if format_name == "json" else Human(has_colors=out.isatty()))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in QUIET_BELOW_INFO:
        logging.getLogger(name).setLevel(max(logging.INFO, logging.getLogger().level))
    for name in QUIET_BELOW_WARNING:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))


def _redact_all(value: object) -> object:
    """Return a value whose texts have no secrets. This comes before JSON quoting, so the line stays JSON."""
    if isinstance(value, dict):
        return {str(name): _redact_all(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_redact_all(item) for item in value]
    if isinstance(value, bool | int | float | None):
        return value
    return redact(without_passwords(str(value)))


def _correlation(record: logging.LogRecord) -> str:
    """Return the end of a line for people: the correlation id of its job, unless the message contains it."""
    fields = getattr(record, "fields", None)
    ident = str(fields.get("correlation_id") or "") if isinstance(fields, dict) else ""
    return f", correlation id {_one_line(ident)}" if ident and ident not in record.getMessage() else ""


def _one_line(message: str) -> str:
    return message.replace("\r", "").replace("\n", "\\n")
