"""Log lines: one for people or one JSON object for machines. Both without secrets."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import IO

import click

from callsheet.vault.redact import redact
from callsheet.worker.telling import name_the_job

from .passwords import without_passwords

COLORS = {"DEBUG": "bright_black", "INFO": "green", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}
TALKATIVE = ("asyncio", "watchfiles")
WORDY = ("httpcore2", "httpx2", "httpcore", "httpx")  # a line for each request that we send


class Human(logging.Formatter):
    """`12:03:44 INFO  message`, local time; the level in colour on a terminal."""

    def __init__(self, *, colored: bool) -> None:
        super().__init__()
        self._colored = colored

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback below it where there is one."""
        level = f"{record.levelname:<5}"
        if self._colored:
            level = click.style(level, fg=COLORS.get(record.levelname))
        at = datetime.fromtimestamp(record.created).astimezone()
        text = f"{at:%H:%M:%S} {level} {_one_line(record.getMessage())}{_correlation(record)}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return redact(without_passwords(text))


class Json(logging.Formatter):
    """`ts`, `level`, `logger`, `message`, then the record's `fields`; an error's traceback is `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        """One object on one line."""
        at = datetime.fromtimestamp(record.created, UTC)
        told: dict[str, object] = {
            "ts": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict):
            told |= {name: value for name, value in fields.items() if name not in told}
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(_cleaned(told), ensure_ascii=False, default=str)


def set_up(format_name: str, level: str, stream: IO[str] | None = None) -> None:
    """Send all records of this process to stderr (or `stream`), replacing what was set up before."""
    out = stream or sys.stderr
    handler = logging.StreamHandler(out)
    handler.addFilter(name_the_job)
    handler.setFormatter(Json() if format_name == "json" else Human(colored=out.isatty()))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(max(logging.INFO, logging.getLogger().level))
    for name in WORDY:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))


def _cleaned(value: object) -> object:
    """The texts in it without secrets: before they are quoted as JSON, so that the line stays JSON."""
    if isinstance(value, dict):
        return {str(name): _cleaned(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    if isinstance(value, bool | int | float | None):
        return value
    return redact(without_passwords(str(value)))


def _correlation(record: logging.LogRecord) -> str:
    """Return what a line for people ends with: the correlation id of its job, unless the message has it."""
    fields = getattr(record, "fields", None)
    ident = str(fields.get("correlation_id") or "") if isinstance(fields, dict) else ""
    return f", correlation id {_one_line(ident)}" if ident and ident not in record.getMessage() else ""


def _one_line(message: str) -> str:
    return message.replace("\r", "").replace("\n", "\\n")
