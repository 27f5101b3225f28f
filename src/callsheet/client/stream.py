"""Events over as many connections as it takes: each one once, in order, until the end."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from http import HTTPStatus

import httpx2

from .errors import ApiError, ServerUnreachable
from .patience import Pauses
from .places import Place
from .records import JobEvent
from .sse import Frame, Parser
from .transport import Transport


async def follow(transport: Transport, place: Place) -> AsyncGenerator[JobEvent]:
    """What comes after a place. Raises what the server refuses, and ServerUnreachable when it stays away."""
    pauses = Pauses(transport.patience, transport.patience.reconnect_for_s)
    while not place.ended:
        try:
            async with transport.stream(place.path, place.query, place.headers) as answer:
                if answer.status_code == HTTPStatus.NO_CONTENT:
                    return
                pauses.connected()
                async with aclosing(_frames(answer, pauses)) as frames:
                    async for frame in frames:
                        for event in place.take(frame):
                            pauses.moved_on()
                            yield event
                        if place.ended:
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
    """The frames of one connection. One that lasted was of use, even if nothing happened meanwhile."""
    parser, opened_at = Parser(), time.monotonic()
    async for chunk in answer.aiter_raw():
        for frame in parser.feed(chunk):
            yield frame
        if parser.retry_ms is not None:
            pauses.hint_s = parser.retry_ms / 1000
        if time.monotonic() - opened_at > pauses.longest_s:
            pauses.moved_on()
