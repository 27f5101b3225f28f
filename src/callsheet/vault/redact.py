"""Redacts secrets in text: this process's own secrets in all usual encodings, and text in the shape of a secret.

Log lines go through `redact`; streamed text, where a secret may span two pieces, goes through `Stream`.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import threading
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

from .secret import HIDDEN, SHORTEST, alive, on_new_secret

LONGEST_LINE = 64 * 1024
SHORTEST_BASE64 = 8
_NAMES = (
    r"(?:aws[_-]?)?secret[_-]?(?:access[_-]?)?key|(?:x-amz-)?(?:session|security|access|refresh|id)[_-]?token|token"
    r"|client[_-]?secret|secret|passw(?:or)?d|pwd|api[_-]?key|x-amz-(?:signature|credential)|signature|sig|pepper"
)
_HEADERS = r"(?:proxy-)?authorization|x-vault-token|x-api-key|set-cookie|cookie"
SHAPES = [
    (re.compile(r"(://[^\s\"'<>:@/]*):(?!\d+[/\s])[^\s\"'<>]*@"), rf"\1:{HIDDEN}@"),
    (re.compile(r"(://)[^\s\"'<>:@/]+@"), rf"\1{HIDDEN}@"),
    (re.compile(r"(://[^\s?#\"'<>]*)\?[^\s\"'<>]+"), rf"\1?{HIDDEN}"),
    (re.compile(rf"(?i)(\b(?:{_HEADERS})[\"']?\s*[:=,]\s*b?)([\"'])(?:\\.|(?!\2).)*"), rf"\1\2{HIDDEN}"),
    (re.compile(rf"(?i)(\b(?:{_HEADERS})\s*[:=]\s*)[^\s\"'][^\r\n\"']*"), rf"\1{HIDDEN}"),
    (re.compile(rf"(?i)((?<![a-z0-9])(?:{_NAMES})[\"']?\s*[:=]\s*b?)([\"'])(?:\\.|(?!\2).)*"), rf"\1\2{HIDDEN}"),
    (re.compile(rf"(?i)((?<![a-z0-9])(?:{_NAMES})\s*[:=]\s*)[^\s\"',;&}}]+"), rf"\1{HIDDEN}"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[a-z0-9._~+/=-]{8,}"), rf"\1 {HIDDEN}"),
    (re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}\b"), HIDDEN),
    (re.compile(r"\b(?:hv[sbr]\.[\w-]{20,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+)"), HIDDEN),
]


def redact(text: str) -> str:
    """Replace this process's secrets, and text in the shape of a secret, by `***`."""
    pattern = _live_secrets.pattern()
    if pattern is not None:
        text = pattern.sub(HIDDEN, text)
    for shape, instead in SHAPES:
        text = shape.sub(instead, text)
    return text


def forms(part: str) -> Iterator[str]:
    """Yield the usual encodings of a text: plain, JSON, repr, URL, hex, base64 at any offset, and its single lines."""
    raw = part.encode("utf-8", "surrogatepass")
    yield part
    yield json.dumps(part)[1:-1]
    yield json.dumps(part, ensure_ascii=False)[1:-1]
    yield repr(part)[1:-1]
    for encoding in (quote(part, safe="", errors="replace"), quote(part, errors="replace"), quote_plus(part)):
        yield encoding
        yield re.sub("%..", lambda match: match[0].lower(), encoding)
    yield raw.hex()
    yield raw.hex().upper()
    yield from _in_base64(raw)
    lines = part.splitlines()
    if len(lines) > 1:
        yield from (form for line in lines if len(line) >= SHORTEST for form in forms(line))


def _in_base64(raw: bytes) -> Iterator[str]:
    """Yield the base64 forms inside a longer text, without the characters that also encode neighbouring bytes."""
    for offset in range(3):
        text = base64.b64encode(bytes(offset) + raw).decode()
        inner = text.rstrip("=")[(0, 2, 3)[offset] :]
        inner = inner[:-1] if (offset + len(raw)) % 3 else inner
        if len(inner) >= SHORTEST_BASE64:
            yield inner
            yield inner.translate(str.maketrans("+/", "-_"))


class _Known:
    """One pattern for all live secrets, rebuilt after secrets appear or disappear."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stale = True
        self._count = 0
        self._pattern: re.Pattern[str] | None = None
        on_new_secret(self._forget)

    def _forget(self) -> None:
        self._stale = True

    def pattern(self) -> re.Pattern[str] | None:
        """Return the pattern of all live secrets; None without secrets."""
        held = alive()
        if self._stale or len(held) != self._count:
            with self._lock:
                self._stale, self._count = False, len(held)
                texts = {form for secret in held for part in secret.parts() for form in forms(part)}
                longest_first = sorted((text for text in texts if len(text) >= SHORTEST), key=len, reverse=True)
                self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
        return self._pattern


_live_secrets = _Known()


class Stream:
    """Redacts streamed text line by line. An incomplete line waits for its end; a line over 64 KiB is hidden."""

    def __init__(self) -> None:
        self._rest = ""
        self._hiding = False

    def feed(self, piece: str) -> str:
        """Add a piece of text and return the complete lines, redacted."""
        lines = re.split(r"(?<=[\r\n])", self._rest + piece)
        self._rest = lines.pop()
        output = "".join(map(self._line, lines))
        if len(self._rest) > LONGEST_LINE:
            self._rest, self._hiding = "", True
        return output

    def close(self) -> str:
        """Return the last, incomplete line, redacted."""
        rest, self._rest = self._rest, ""
        return self._line(rest) if rest or self._hiding else ""

    def _line(self, line: str) -> str:
        if self._hiding or len(line) > LONGEST_LINE:
            self._hiding = False
            return HIDDEN + ("\n" if line.endswith(("\r", "\n")) else "")
        return redact(line)


class Filter(logging.Filter):
    """A filter for third-party log handlers that redacts message, traceback and stack of each record."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact the record in place and return True."""
        record.msg, record.args = redact(record.getMessage()), None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = redact(record.exc_text)
        if record.stack_info:
            record.stack_info = redact(record.stack_info)
        return True
