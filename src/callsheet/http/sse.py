"""Server-sent events: frames, encoded once for all readers, and the response of one open stream.

A stream buffers a bounded number of events. A reader that blocks a write for WRITE_S is disconnected; it can reconnect
with the id of its last event and misses none.
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

from .json_bodies import json_text, one_line, parse_json
from .problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from starlette.types import Receive, Scope, Send

    from callsheet.engine.watch import Watcher
    from callsheet.kernel.job import Event

    from .keys import Principal
    from .state import ServerState

log = logging.getLogger("callsheet.http")
PING_S = 15.0
WRITE_S = 10.0
RECHECK_S = 10.0  # streams of a key or session ended in another process close within 1.5 times this
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
    """Return an event as one line of JSON, the same text for streams and for polling."""
    return one_line(
        f'{{"id":"{event_id(event.ms, event.seq)}","job_id":"{event.job_id}","seq":{event.seq},'
        f'"type":{_text(event.type)},"ts":{event.ms},"step":{_text(event.step)},"progress":{event.progress:g},'
        f'"data":{_data(event.data)}}}'
    )


@lru_cache(maxsize=4096)
def frame_of(event: Event) -> bytes:
    """Return an event's frame for a stream of one job."""
    return _frame(event, event_id(event.ms, event.seq))


def _frame(event: Event, ident: str) -> bytes:
    return f"id: {ident}\nevent: {_name(event.type)}\ndata: {body_of(event)}\n\n".encode()


def frame(name: str, data: Any, ident: str = "") -> bytes:
    """Return a frame that is no job event, such as hello or reset."""
    head = f"id: {ident}\n" if ident else ""
    return f"{head}event: {name}\ndata: {json_text(data)}\n\n".encode()


def retry() -> bytes:
    """Return the `retry` line with a random reconnection delay, so that clients do not reconnect simultaneously.

    The line is part of the first frame: parsers such as httpx2-sse turn a separate block into an empty message.
    """
    return f"retry: {random.randint(*RETRY_MS)}\n".encode()  # noqa: S311 - jitter


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _name(text: str) -> str:
    """Return an event type that fits on one line, else "event": a foreign worker may write any type."""
    return text if text.isprintable() and text else "event"


def _data(data: str) -> str:
    """Return the event's data as JSON on one line; a foreign worker may have written invalid JSON."""
    value = parse_json(data)
    whole = "\n" not in data and "\r" not in data and value != {"_raw": data}
    return data if whole else json.dumps(value, ensure_ascii=False)


class EventStream(Response):
    """A streaming response: initial frames, then the watcher's events until the stream ends."""

    def __init__(
        self,
        state: ServerState,
        who: Principal,
        first: bytes,
        watcher: Watcher,
        ident: Callable[[Event], str] | None = None,
    ) -> None:
        super().__init__(media_type="text/event-stream")
        state.streams.enter(who, state.quotas.limits_of(who.requester_id))
        state.open.add(self)
        self._state, self.who, self._first, self._watcher, self._ident = state, who, first, watcher, ident
        self.beside: Coroutine[Any, Any, None] | None = None  # a coroutine that runs while the stream is open
        self._encode = frame_of if ident is None else self._with_cursor
        self._retry_line = retry()
        self.ping_s = PING_S
        self.steady = False  # True: ping every `ping_s`, even while events are written

    def end(self) -> None:
        """End the stream; its client will reconnect."""
        self._watcher.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        """Write events until the job ends, the client disconnects, or the stream reaches its maximum age."""
        helpers = [asyncio.create_task(self._until_gone(receive))]
        if self.beside is not None:
            helpers.append(asyncio.create_task(self.beside))
        watchdog = _Watchdog(self._watcher, self.ping_s, steady=self.steady)
        whole = False
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            if self._first:
                await watchdog.write(send, self._after_retry(self._first))
            if not self._state.stopping.is_set():
                await self._serve(send, watchdog)
            whole = True
        except OSError:
            log.debug("a reader of events has gone")
        except asyncio.CancelledError:
            if not watchdog.bit:
                raise
            log.info("a reader of events was too slow; it can come back with its last id")
        finally:
            watchdog.end()
            for helper in helpers:
                helper.cancel()
            self._watcher.close()
            self._state.open.discard(self)
            self._state.streams.leave(self.who)
        if whole:
            with contextlib.suppress(OSError):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _serve(self, send: Send, watchdog: _Watchdog) -> None:
        clock = asyncio.get_running_loop().time
        while clock() < watchdog.leave_at:  # busy streams are checked and rotated, too
            if clock() >= watchdog.check_at:
                if not await self._still_allowed():
                    return
                watchdog.check_at = clock() + RECHECK_S
            events = await self._watcher.take()
            if not events and self._watcher.has_ended:
                return
            body = self._after_retry(await self.frames(events))
            if watchdog.ping_is_due() and (self.steady or not body):
                body += self.ping()
                watchdog.note_ping()
            if body:
                await watchdog.write(send, body)

    def _after_retry(self, frames: bytes) -> bytes:
        """Return the frames, preceded by the `retry` line if they are the stream's first."""
        if not frames:
            return frames
        line, self._retry_line = self._retry_line, b""
        return line + frames

    async def frames(self, events: list[Event]) -> bytes:
        """Return the bytes to write for events. The list is empty if only the watchdog woke the watcher."""
        return b"".join(map(self._encode, events))

    def ping(self) -> bytes:
        """Return a comment that keeps the connection alive."""
        return PING

    def _with_cursor(self, event: Event) -> bytes:
        assert self._ident is not None  # noqa: S101 - else frame_of encodes
        return _frame(event, self._ident(event))

    async def _still_allowed(self) -> bool:
        """Return whether the reader's key and session are valid. One store lookup serves all streams of a reader."""
        name, validity = f"{self.who.key_id} {self.who.session_id}", self._state.reader_validity
        is_valid = validity.get(name, RECHECK_S / 2)
        if is_valid is None:
            try:
                is_valid = await self._state.holds(self.who)
            except CallsheetError:
                return True  # the store is unavailable; the next check decides
            validity.put(name, is_valid)
        return is_valid

    async def _until_gone(self, receive: Receive) -> None:
        with contextlib.suppress(Problem):  # an unexpected, oversized body also ends the stream
            while (await receive())["type"] != "http.disconnect":
                pass
        self._watcher.end()


class _Watchdog:
    """One timer for all limits of a stream: a timeout per event was a fifth of the cost of an event.

    The timer wakes the watcher when a ping, a check of the reader's key or the end of the stream is due, and cancels
    the stream when a write takes too long.
    """

    def __init__(self, watcher: Watcher, ping_s: float, *, steady: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._watcher, self._ping_s, self._steady = watcher, ping_s, steady
        self._since, self._writing = self._loop.time(), False
        self._ping_at = self._since + ping_s
        self.check_at = self._since + RECHECK_S
        self.leave_at = self._since + random.uniform(*ROTATE_S)  # noqa: S311 - jitter
        self.bit = False
        self._timer = self._loop.call_later(0.0, self._look)

    async def write(self, send: Send, body: bytes) -> None:
        """Send bytes to the client, limited to WRITE_S seconds."""
        self._since, self._writing = self._loop.time(), True
        await send({"type": "http.response.body", "body": body, "more_body": True})
        self._since, self._writing = self._loop.time(), False
        if not self._steady:
            self._ping_at = self._since + self._ping_s

    def ping_is_due(self) -> bool:
        """Return whether the next ping is due."""
        return self._loop.time() >= self._ping_at

    def note_ping(self) -> None:
        """Record that a ping was written."""
        self._ping_at = self._loop.time() + self._ping_s

    def end(self) -> None:
        """Stop the timer, and withdraw its cancellation of the stream's task."""
        self._timer.cancel()
        if self.bit and self._task is not None:
            self._task.uncancel()

    def _look(self) -> None:
        now = self._loop.time()
        if self._writing and now - self._since >= WRITE_S and self._task is not None:
            self.bit = True
            self._task.cancel()
            return
        if not self._writing and now >= min(self._ping_at, self.check_at, self.leave_at):
            self._watcher.poke()
        leave_s = self.leave_at - now if now < self.leave_at else self._ping_s
        ping_s = self._ping_at - now if now < self._ping_at else self._ping_s / 2
        check_s = self.check_at - now if now < self.check_at else RECHECK_S / 2
        wait_s = max(0.001, min(ping_s, WRITE_S / 2, leave_s, check_s))
        self._timer = self._loop.call_later(wait_s, self._look)
