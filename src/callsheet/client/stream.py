"""Event streams that reconnect: yield each event once, in order, over any number of connections."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from http import HTTPStatus

import httpx2

from callsheet.net.sse import Frame, Parser

from .cursor import Cursor
from .errors import ApiError, EventTooLarge, ServerUnreachable
from .patience import Pauses
from .records import JobEvent
from .transport import Transport


async def follow(transport: Transport, cursor: Cursor) -> AsyncGenerator[JobEvent]:
    """Yield the events after a position. Raises ApiError, or ServerUnreachable if reconnecting fails for too long."""
    pauses = Pauses(transport.patience, transport.patience.reconnect_for_s)
    while not cursor.has_ended:
        try:
            async with transport.stream(cursor.path, cursor.query, cursor.headers) as answer:
                if answer.status_code == HTTPStatus.NO_CONTENT:
                    return
                pauses.on_connection()
                async with aclosing(_frames(answer, pauses)) as frames:
                    async for frame in frames:
                        for event in cursor.take(frame):
                            pauses.moved_on()
                            yield event
                        if cursor.has_ended:
                            return
            trouble: ServerUnreachable | ApiError = ServerUnreachable(f"{transport.url} ended the stream")
        except ServerUnreachable as error:
            trouble = error
        except ApiError as error:
            if not error.again:
                raise
            trouble = error
        await pauses.after(trouble)


async def _frames(answer: httpx2.Response, pauses: Pauses) -> AsyncGenerator[Frame]:
    """Yield the frames of one connection. A connection that lasts resets the backoff, even without events."""
    parser, opened_at = Parser(EventTooLarge), time.monotonic()
    async for chunk in answer.aiter_raw():
        for frame in parser.feed(chunk):
            yield frame
        if parser.retry_ms is not None:
            pauses.hint_s = parser.retry_ms / 1000
        if time.monotonic() - opened_at > pauses.longest_s:
            pauses.moved_on()
