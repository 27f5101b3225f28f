"""Positions in an event stream: the request that resumes the stream, and the filter that drops repeated events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import quote

from callsheet.kernel.errors import InvalidInput
from callsheet.kernel.wire import parse_event_id
from callsheet.net.sse import Frame

from .errors import UnexpectedAnswer
from .records import END_STATES, RESET, JobEvent, RemoteJob

ALL = "*"
RESUME = "Last-Event-ID"


class Cursor(Protocol):
    """A position in an event stream. `ended` becomes True when no more events can follow."""

    has_ended: bool
    path: str

    @property
    def query(self) -> Mapping[str, str]:
        """The query parameters of the stream's request."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The request headers that tell the server where to resume."""
        ...

    def take(self, frame: Frame) -> Iterator[JobEvent]:
        """Yield the new events of a frame: none, one, or several if the frame resets the stream."""
        ...


class OneJob:
    """A position in the event stream of one job."""

    query: Mapping[str, str] = {}

    def __init__(self, job_id: str, after: str | None) -> None:
        self.has_ended = False
        self.path = job_path(job_id, "/events")
        self._after = after
        self._seq = parse_event_id(after)[1] if after is not None else 0

    @property
    def headers(self) -> Mapping[str, str]:
        """The Last-Event-ID header with the id of the last event."""
        return {} if self._after is None else {RESUME: self._after}

    def take(self, frame: Frame) -> Iterator[JobEvent]:
        """Yield the frame's event unless it is a repeat. A reset event sets the position, forward or back."""
        body = read(frame)
        if "seq" in body:  # tasks may name their own events hello or reset: the form decides, not the name
            event = JobEvent.read(body)
            if event.seq <= self._seq:
                return
            self.has_ended = event.ends
        elif frame.event == RESET:
            event = JobEvent.reset(body)
            self.has_ended = RemoteJob.read(body["job"]).ended
        else:
            return
        self._after, self._seq = event.id, event.seq
        yield event


class ManyJobs:
    """A position in the stream of several jobs: the server's opaque cursor, and each job's last event number."""

    path = "/v1/events"

    def __init__(self, job_ids: Sequence[str]) -> None:
        if not job_ids:
            raise InvalidInput('which jobs? Name some, or "*"')
        self.has_ended = False
        self._cursor = ""
        self._seqs: dict[str, int] = {}
        self._job_ids = list(dict.fromkeys(job_ids))
        self._left = set(self._job_ids) - {ALL}

    @property
    def query(self) -> Mapping[str, str]:
        """The query parameter with the job ids."""
        return {"jobs": ",".join(self._job_ids)}

    @property
    def headers(self) -> Mapping[str, str]:
        """The Last-Event-ID header with the server's cursor."""
        return {RESUME: self._cursor} if self._cursor else {}

    def take(self, frame: Frame) -> Iterator[JobEvent]:
        """Yield the frame's event if it is new, or a reset event for each job whose state in a snapshot is newer."""
        body = read(frame)
        self._cursor = frame.id or self._cursor
        anew = frame.event == RESET and "seq" not in body
        if "seq" in body:
            events = [(JobEvent.read(body), str(body.get("type")))]
        elif anew or ALL in self._job_ids:  # for "*" a hello frame lists the open jobs, with changes that were missed
            events = [(JobEvent.reset({"job": job}), RemoteJob.read(job).status) for job in body.get("jobs") or ()]
        else:
            return
        for event, word in events:
            if anew or event.seq > self._seqs.get(event.job_id, 0):
                self._seqs[event.job_id] = event.seq
                yield event
                self._end(event.job_id, word)

    def _end(self, job_id: str, word: str) -> None:
        if word in END_STATES and ALL not in self._job_ids:
            self._left.discard(job_id)
            self.has_ended = not self._left


def job_path(job_id: str, rest: str = "") -> str:
    """Return the URL path of a job; raise InvalidInput for an empty id."""
    if not job_id:
        raise InvalidInput("a job's id is missing")
    return f"/v1/jobs/{quote(job_id, safe='')}{rest}"


def read(frame: Frame) -> dict[str, Any]:
    """Return the JSON object in a frame; raise UnexpectedAnswer for other data."""
    try:
        body = json.loads(frame.data)
    except ValueError as error:
        raise UnexpectedAnswer("the server sent an event that is no JSON") from error
    if not isinstance(body, dict):
        raise UnexpectedAnswer("the server sent an event that is no JSON object")
    return body
