"""Where a reader is in a stream: what to ask for after a lost connection, and which events are new to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import quote

from callsheet.kernel.errors import InvalidInput
from callsheet.kernel.wire import parse_event_id

from .errors import UnexpectedAnswer
from .records import ENDED, RESET, JobEvent, RemoteJob
from .sse import Frame

ALL = "*"
RESUME = "Last-Event-ID"


class Place(Protocol):
    """A place in a stream. `ended` becomes True when nothing more can come."""

    ended: bool
    path: str

    @property
    def query(self) -> Mapping[str, str]:
        """What is asked for."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """How the server learns where to go on."""
        ...

    def take(self, frame: Frame) -> Iterator[JobEvent]:
        """The events of a frame that are new, none or one or (of a new beginning) several."""
        ...


class OneJob:
    """A place among the events of one job."""

    query: Mapping[str, str] = {}

    def __init__(self, job_id: str, after: str | None) -> None:
        self.ended = False
        self.path = job_path(job_id, "/events")
        self._after = after
        self._seq = parse_event_id(after)[1] if after is not None else 0

    @property
    def headers(self) -> Mapping[str, str]:
        """The id of the last event that was taken."""
        return {} if self._after is None else {RESUME: self._after}

    def take(self, frame: Frame) -> Iterator[JobEvent]:
        """The frame's event, unless it was seen before. A reset moves the place, also back."""
        told = read(frame)
        if "seq" in told:  # a task may call an event of its own hello or reset: the form decides, not the name
            event = JobEvent.read(told)
            if event.seq <= self._seq:
                return
            self.ended = event.ends
        elif frame.event == RESET:
            event = JobEvent.reset(told)
            self.ended = RemoteJob.read(told["job"]).ended
        else:
            return
        self._after, self._seq = event.id, event.seq
        yield event


class ManyJobs:
    """A place in the stream of many jobs. The server's cursor is opaque; each job's own numbers tell what is new."""

    path = "/v1/events"

    def __init__(self, job_ids: Sequence[str]) -> None:
        if not job_ids:
            raise InvalidInput('which jobs? Name some, or "*"')
        self.ended = False
        self._cursor = ""
        self._seqs: dict[str, int] = {}
        self._named = list(dict.fromkeys(job_ids))
        self._left = set(self._named) - {ALL}

    @property
    def query(self) -> Mapping[str, str]:
        """The jobs."""
        return {"jobs": ",".join(self._named)}

    @property
    def headers(self) -> Mapping[str, str]:
        """The server's cursor."""
        return {RESUME: self._cursor} if self._cursor else {}

    def take(self, frame: Frame) -> Iterator[JobEvent]:
        """The frame's event if it is new, or a reset for each job of a snapshot that says more than is known."""
        told = read(frame)
        self._cursor = frame.id or self._cursor
        anew = frame.event == RESET and "seq" not in told
        if "seq" in told:
            events = [(JobEvent.read(told), str(told.get("type")))]
        elif anew or ALL in self._named:  # of "*" a hello tells what was missed meanwhile
            events = [(JobEvent.reset({"job": job}), RemoteJob.read(job).status) for job in told.get("jobs") or ()]
        else:
            return
        for event, word in events:
            if anew or event.seq > self._seqs.get(event.job_id, 0):
                self._seqs[event.job_id] = event.seq
                yield event
                self._end(event.job_id, word)

    def _end(self, job_id: str, word: str) -> None:
        if word in ENDED and ALL not in self._named:
            self._left.discard(job_id)
            self.ended = not self._left


def job_path(job_id: str, rest: str = "") -> str:
    """The path of a job on the server."""
    if not job_id:
        raise InvalidInput("a job's id is missing")
    return f"/v1/jobs/{quote(job_id, safe='')}{rest}"


def read(frame: Frame) -> dict[str, Any]:
    """The JSON object of a frame; raises UnexpectedAnswer."""
    try:
        told = json.loads(frame.data)
    except ValueError as error:
        raise UnexpectedAnswer("the server sent an event that is no JSON") from error
    if not isinstance(told, dict):
        raise UnexpectedAnswer("the server sent an event that is no JSON object")
    return told
