"""A parser of server-sent events, by the rules of the WHATWG standard. No I/O: bytes go in, events come out.

Chunks may be split anywhere, even inside a character or between CR and LF. An event is limited to 1 MiB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

LIMIT_BYTES = 1024 * 1024
LONGEST_RETRY_DIGITS = 9
BOM = b"\xef\xbb\xbf"
FIELDS = frozenset({"", "data", "event", "id", "retry"})  # a comment is a field without a name
_LINE_END = re.compile(rb"\r\n|\r|\n")


class Frame(NamedTuple):
    """One dispatched event. `id` is the stream's last event id at that moment, "" before the first id."""

    event: str
    data: str
    id: str


class Parser:
    """Parses the bytes of one connection. Without `flush`, an unfinished event is dropped together with its id.

    `last_id` is the stream's last event id, `retry_ms` the last reconnection time that the server sent. `strict` raises
    `error` for unknown fields and for bytes that are not UTF-8, which the standard ignores or replaces.
    """

    def __init__(self, error: type[Exception], *, strict: bool = False, limit_bytes: int = LIMIT_BYTES) -> None:
        self.last_id = ""
        self.retry_ms: int | None = None
        self._error = error
        self._strict = strict
        self._limit = limit_bytes
        self._line = bytearray()  # the beginning of an unfinished line
        self._first = True
        self._after_cr = False
        self._data: list[str] = []
        self._held = 0  # bytes in _data
        self._event = ""
        self._id = ""

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """Yield the events that this chunk completes; raise `error` at the first event over the limit."""
        start = 0
        if chunk and self._after_cr:
            start = chunk[:1] == b"\n"  # the second half of a CRLF that was cut
            self._after_cr = False
        for end in _LINE_END.finditer(chunk, start):
            self._line += chunk[start : end.start()]
            start = end.end()
            self._check()
            frame = self._end_line()
            if frame is not None:
                yield frame
        self._line += chunk[start:]
        self._after_cr = chunk.endswith(b"\r") if chunk else self._after_cr
        self._check()

    def flush(self) -> Frame | None:
        """Return the event that the end of the stream completes, for servers that send no last blank line."""
        return (self._end_line() if self._line else None) or self._dispatch()

    def _check(self) -> None:
        if self._held + len(self._line) > self._limit:
            raise self._error(f"the server sent an event of more than {self._limit} bytes")

    def _end_line(self) -> Frame | None:
        line = bytes(self._line)
        self._line.clear()
        if self._first:
            self._first = False
            line = line.removeprefix(BOM)
        if not line:
            return self._dispatch()
        text = self._decode(line)
        name, _, value = text.partition(":")
        if self._strict and name not in FIELDS:
            raise self._error(f"the server's stream has a line that is no event: {text[:120]!r}")
        self._field(name, value.removeprefix(" "))
        return None

    def _decode(self, line: bytes) -> str:
        try:
            return line.decode("utf-8", "strict" if self._strict else "replace")
        except UnicodeDecodeError:
            raise self._error("the server's stream is not UTF-8") from None

    def _field(self, name: str, value: str) -> None:
        """Apply one field to the current event; comments (fields without a name) and unknown fields are ignored."""
        match name:
            case "data":
                self._data.append(value)
                self._held += len(value.encode()) + 1
            case "event":
                self._event = value
            case "id" if "\0" not in value:
                self._id = value
            case "retry" if value.isascii() and value.isdigit():
                self.retry_ms = int(value) if len(value) <= LONGEST_RETRY_DIGITS else 10**LONGEST_RETRY_DIGITS

    def _dispatch(self) -> Frame | None:
        data, event = self._data, self._event
        self._data, self._held, self._event = [], 0, ""
        self.last_id = self._id
        return Frame(event or "message", "\n".join(data), self.last_id) if data else None
