"""Answers as they come in: parsed by httptools (llhttp), never more of them than the limits allow."""

from __future__ import annotations

from typing import NamedTuple

import httptools

FINAL = 200


class Limits(NamedTuple):
    """What one request may take. `kept_bytes` of the answer's body are given back, the rest is let go."""

    deadline_s: float = 15.0
    head_bytes: int = 16 * 1024
    body_bytes: int = 64 * 1024
    kept_bytes: int = 1024


class NoHttp(Exception):
    """What came is no HTTP, was cut off, or has a head beyond all measure."""


class Parsed:
    """One answer. The methods `on_…` are called by the parser."""

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
        """Take what came, b"" for the end; raises NoHttp."""
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
        """A header of the present message."""
        lower = name.lower()
        if lower == b"retry-after":
            self.retry_after = value.decode("latin-1")
        elif lower in (b"content-length", b"transfer-encoding"):
            self._sized = True

    def on_headers_complete(self) -> None:
        """The end of a head; one of 1xx stands before the answer itself."""
        status = self._parser.get_status_code()
        if status >= FINAL or status == 101:  # noqa: PLR2004 - who switches protocols says no more in this one
            self.status = status

    def on_body(self, data: bytes) -> None:
        """A part of the body."""
        self._body_bytes += len(data)
        self.kept += data[: max(0, self._limits.kept_bytes - len(self.kept))]
        self.done = self.done or self._body_bytes >= self._limits.body_bytes

    def on_message_complete(self) -> None:
        """The end of a message."""
        self.done = self.done or bool(self.status)
        self._sized = False
