"""Server-sent events: frames, encoded once for all who watch, and the stream that one connection is.

A stream holds a bounded number of events. A reader that does not take what is written within WRITE_S is let go; it
comes back with the id of its last event and misses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from callsheet.kernel.errors import CallsheetError
from callsheet.kernel.wire import event_id

from .json_text import json_text, one_line, parsed
from .problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from starlette.types import Receive, Scope, Send

    from callsheet.engine.watch import Watcher
    from callsheet.kernel.job import Event

    from .keys import Principal
    from .site import Site

log = logging.getLogger("callsheet.http")
PING_S = 15.0
WRITE_S = 10.0
RECHECK_S = 60.0
ROTATE_S = (300.0, 600.0)
RETRY_MS = (1_000, 5_000)
PING = b": ping\n\n"
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
]


@lru_cache(maxsize=4096)
def body_of(event: Event) -> str:
    """An event as one line of JSON; the same text for streams and for polling."""
    return one_line(
        f'{{"id":"{event_id(event.ms, event.seq)}","job_id":"{event.job_id}","seq":{event.seq},'
        f'"type":{_text(event.type)},"ts":{event.ms},"step":{_text(event.step)},"progress":{event.progress:g},'
        f'"data":{_data(event.data)}}}'
    )


@lru_cache(maxsize=4096)
def frame_of(event: Event) -> bytes:
    """An event of a stream of one job."""
    return _frame(event, event_id(event.ms, event.seq))


def _frame(event: Event, ident: str) -> bytes:
    return f"id: {ident}\nevent: {_name(event.type)}\ndata: {body_of(event)}\n\n".encode()


def frame(name: str, data: Any, ident: str = "") -> bytes:
    """A frame of our own: hello, reset."""
    head = f"id: {ident}\n" if ident else ""
    return f"{head}event: {name}\ndata: {json_text(data)}\n\n".encode()


def retry() -> bytes:
    """When to come back after a loss; not all at once."""
    return f"retry: {random.randint(*RETRY_MS)}\n\n".encode()  # noqa: S311 - jitter


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _name(text: str) -> str:
    """A foreign worker may write any type; no line of ours may be broken by it."""
    return text if text.isprintable() and text else "event"


def _data(data: str) -> str:
    """The event's own JSON on one line; what a foreign worker wrote may be none."""
    value = parsed(data)
    whole = "\n" not in data and "\r" not in data and value != {"_raw": data}
    return data if whole else json.dumps(value, ensure_ascii=False)


class EventStream(Response):
    """The answer that stays open: first some frames, then what the watcher gets, until its end."""

    def __init__(
        self,
        site: Site,
        who: Principal,
        first: bytes,
        watcher: Watcher,
        ident: Callable[[Event], str] | None = None,
    ) -> None:
        super().__init__(media_type="text/event-stream")
        site.streams.enter(who)
        site.open.add(self)
        self._site, self._who, self._first, self._watcher, self._ident = site, who, first, watcher, ident
        self.beside: Coroutine[Any, Any, None] | None = None  # what runs while the stream is open
        self._encode = frame_of if ident is None else self._with_cursor

    def end(self) -> None:
        """Let the client go; it will come back."""
        self._watcher.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        """Write until the job ends, the client leaves, or it is time to come back."""
        helpers = [asyncio.create_task(self._until_gone(receive))]
        if self.beside is not None:
            helpers.append(asyncio.create_task(self.beside))
        whole = False
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await _write(send, retry() + self._first)
            if not self._site.stopping.is_set():
                await self._serve(send)
            whole = True
        except (TimeoutError, OSError):
            log.info("a reader of events was too slow, or has gone; it can come back with its last id")
        finally:
            for helper in helpers:
                helper.cancel()
            self._watcher.close()
            self._site.open.discard(self)
            self._site.streams.leave(self._who)
        if whole:
            with contextlib.suppress(OSError):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _serve(self, send: Send) -> None:
        clock = asyncio.get_running_loop().time
        check_at, leave_at = clock() + RECHECK_S, clock() + random.uniform(*ROTATE_S)  # noqa: S311 - jitter
        while clock() < leave_at:  # a stream that is never quiet is checked and rotated too
            if clock() >= check_at:
                if not await self._still_allowed():
                    return
                check_at = clock() + RECHECK_S
            body = PING
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(PING_S, leave_at - clock())):
                    body = b"".join(map(self._encode, await self._watcher.take()))
            if not body:
                return
            await _write(send, body)

    def _with_cursor(self, event: Event) -> bytes:
        assert self._ident is not None  # noqa: S101 - else frame_of encodes
        return _frame(event, self._ident(event))

    async def _still_allowed(self) -> bool:
        try:
            return self._site.keys is None or await self._site.keys.holds(self._who)
        except CallsheetError:
            return True  # the store is away; the next look tells

    async def _until_gone(self, receive: Receive) -> None:
        with contextlib.suppress(Problem):  # a body where none belongs, and too large: it goes too
            while (await receive())["type"] != "http.disconnect":
                pass
        self._watcher.end()


async def _write(send: Send, body: bytes) -> None:
    async with asyncio.timeout(WRITE_S):
        await send({"type": "http.response.body", "body": body, "more_body": True})
