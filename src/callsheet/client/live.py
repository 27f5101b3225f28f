"""Live jobs (contract 004): follow a job's events over an unreliable network, and merge them into the job's state.

Reconnects after 1, 2, 4, 8 and 16 s (never more than 30), at most five times in a row; an event with an id resets the
count. The server sends at least a comment each 10 s: a connection that is silent for 25 s counts as lost. A job that
does not exist, or that the key may not see, is not requested again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, NamedTuple

from callsheet.net.backoff import pause_after
from callsheet.net.sse import Parser

from .errors import ApiError, EventTooLarge, ServerUnreachable, UnexpectedAnswer
from .transport import Transport

log = logging.getLogger("callsheet.client")
ENDS = {"job-completed": "Done", "job-failed": "Failed", "job-cancelled": "Canceled"}
PERMANENT = frozenset({401, 403, 404})
FIRST_S, LONGEST_S, ATTEMPTS = 1.0, 30.0, 5
SILENCE_S = 25.0  # two and a half of the contract's keepalives
OLDER_WARNINGS = 99  # warnings beside the newest: a job may run for days


class LiveEvent(NamedTuple):
    """An event in the form of contract 004."""

    id: str
    type: str
    data: Mapping[str, Any]


@dataclass
class LiveState:
    """The state of a job, merged from its events. Progress never decreases, even if events arrive out of order."""

    status: str = "Queued"
    stage: str = ""
    phase: str = ""
    percent: float = 0.0
    message: str = ""
    warnings: list[str] = field(default_factory=list)
    errors: list[Any] = field(default_factory=list)
    output: Any = None
    rejected: int = 0
    ended: bool = False

    def merge(self, event: LiveEvent) -> bool:
        """Merge an event into the state; return False for outdated progress, which only counts as `rejected`."""
        data = event.data
        progress = data.get("progressPct", data.get("percent"))
        if isinstance(progress, int | float):
            if progress < self.percent:
                self.rejected += 1
                log.debug("rejected progress %s%%, it is %s%% already", progress, self.percent)
                if event.type == "step-progress":
                    return False
            self.percent = max(self.percent, float(progress))
        self.stage = str(data.get("step") or data.get("stage") or self.stage)
        self.phase = str(data.get("phase") or self.phase)
        begins = event.type == "step-status" and data.get("status") == "started"
        self.message = str(data.get("message") or ("" if begins else self.message))  # not of the stage before
        if event.type == "warning":
            self.warnings = [*self.warnings[-OLDER_WARNINGS:], str(data.get("message", ""))]
        if event.type in ENDS:
            self.status, self.ended = ENDS[event.type], True
            self.errors = list(data.get("errors") or ())
            self.output = data.get("output")
            self.percent = 100.0 if event.type == "job-completed" else self.percent
        elif event.type == "job-status" and not self.ended:
            self.status = str(data.get("status", self.status))
        return True


async def follow_live(
    transport: Transport,
    job_id: str,
    *,
    last_event_id: str = "",
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> AsyncGenerator[LiveEvent]:
    """Yield a live job's events, each once and in order, until it ends. Raises ApiError or ServerUnreachable."""
    attempt, last, window = 0, last_event_id, secrets.token_urlsafe(12)
    silence_s = min(SILENCE_S, transport.patience.silence_s)
    while True:
        trouble: ApiError | ServerUnreachable = ServerUnreachable(f"{transport.url} ended the stream of job {job_id}")
        query = {"window": window, "lastEventId": last} if last else {"window": window}
        try:
            async with transport.stream(f"/api/jobs/{job_id}/events", query, {}, silence_s) as answer:
                if answer.status_code == HTTPStatus.NO_CONTENT:
                    return
                async with aclosing(_events(answer.aiter_raw())) as events:
                    async for event in events:
                        if event.id:
                            last, attempt = event.id, 0
                        yield event
                        if event.type in ENDS:
                            return
        except ApiError as error:
            if error.status in PERMANENT or not error.again:
                raise
            trouble = error
        except ServerUnreachable as error:
            trouble = error
        if attempt >= ATTEMPTS:
            raise trouble
        await pause(pause_after(attempt, FIRST_S, LONGEST_S))
        attempt += 1


async def _events(chunks: Any) -> AsyncGenerator[LiveEvent]:
    parser = Parser(EventTooLarge)
    async for chunk in chunks:
        for frame in parser.feed(chunk):
            try:
                data = json.loads(frame.data)
            except ValueError as error:
                raise UnexpectedAnswer("an event of a live job is not JSON") from error
            yield LiveEvent(frame.id, frame.event, data if isinstance(data, dict) else {})
