"""Incremental parsing of HTTP responses with httptools (llhttp), within size limits."""

from __future__ import annotations

from typing import NamedTuple

import httptools

FINAL = 200


class Limits(NamedTuple):
    """Limits of one request. `kept_bytes` of the response body are returned, later bytes are discarded."""

    deadline_s: float = 15.0
    head_bytes: int = 16 * 1024
    body_bytes: int = 64 * 1024
    kept_bytes: int = 1024


class NoHttp(Exception):
    """Malformed response: not HTTP, truncated, or head longer than allowed."""


class Parsed:
    """One HTTP response. The parser calls the `on_…` methods."""

    def __init__(self, limits: Limits) -> None:
        self.status = 0
        self.retry_after = ""
        self.kept = bytearray()
        self.done = False
        self._limits = limits
        self._received = self._body_bytes = 0
        self._sized = False
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Parse received bytes, b"" at the end of the connection; raises NoHttp."""
        if not data:
            if not self.status or self._sized:
                raise NoHttp("the answer was cut off")
            self.done = True  # a body without a length ends with the connection
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.done = True
        except httptools.HttpParserError:
            if not self.done:
                raise NoHttp("the answer is no HTTP") from None
        if not self.status and self._received > self._limits.head_bytes:
            raise NoHttp("the head of the answer is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Handle a header of the current message."""
        lower = name.lower()
        if lower == b"retry-after":
            self.retry_after = value.decode("latin-1")
        elif lower in (b"content-length", b"transfer-encoding"):
            self._sized = True

    def on_headers_complete(self) -> None:
        """Handle the end of a head; interim 1xx heads precede the final response."""
        status = self._parser.get_status_code()
        if status >= FINAL or status == 101:  # noqa: PLR2004 - who switches protocols says no more in this one
            self.status = status

    def on_body(self, data: bytes) -> None:
        """Handle a piece of the body."""
        self._body_bytes += len(data)
        self.kept += data[: max(0, self._limits.kept_bytes - len(self.kept))]
        self.done = self.done or self._body_bytes >= self._limits.body_bytes

    def on_message_complete(self) -> None:
        """Handle the end of a message."""
        self.done = self.done or bool(self.status)
        self._sized = False
