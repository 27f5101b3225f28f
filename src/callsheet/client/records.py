"""Records of the server's JSON: jobs, events, uploads. Unknown members are ignored, as newer servers may add some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeVar

from callsheet.kernel.errors import InvalidInput
from callsheet.kernel.wire import parse_event_id

from .errors import UnexpectedAnswer

END_STATES = frozenset({"done", "error", "canceled"})
RESET = "reset"
R = TypeVar("R", bound="RemoteJob | Receipt | Upload | Part")


class RemoteJob(NamedTuple):
    """A job as the server reports it: `status` is queued, running, done, error or canceled. Times are milliseconds."""

    job_id: str
    task: str
    status: str
    payload: Any = None
    result: Any = None
    error: dict[str, Any] | None = None
    progress: float = 0.0
    step: str = ""
    attempts: int = 0
    max_attempts: int = 0
    queue: str = ""
    priority: int = 0
    created_ts: int = 0
    updated_ts: int = 0
    ttl_s: int | None = None
    cancel_reason: str | None = None
    last_event_id: str | None = None

    @property
    def ended(self) -> bool:
        """True if the job is done, failed or canceled."""
        return self.status in END_STATES

    @classmethod
    def read(cls, body: Any) -> Self:
        """Return the job in JSON data; raise UnexpectedAnswer for unreadable data."""
        return _read(cls, body)


class Receipt(NamedTuple):
    """The server's confirmation that a job is stored durably, with the job's status at that moment."""

    job_id: str
    task: str
    status: str
    ttl_s: int | None = None

    @classmethod
    def read(cls, body: Any) -> Self:
        """Return the receipt in JSON data; raise UnexpectedAnswer for unreadable data."""
        return _read(cls, body)


class Part(NamedTuple):
    """A signed request that uploads `size` bytes of a file from `offset` on; the URL is valid for this part only."""

    offset: int
    size: int
    method: str
    url: str
    headers: Mapping[str, str]


class Upload(NamedTuple):
    """An upload: the server has `received` of `size` bytes; `status` is open or done. Jobs name the file by `key`."""

    upload_id: str
    key: str
    name: str
    size: int
    received: int
    status: str
    todo: Sequence[Part]

    @classmethod
    def read(cls, body: Any) -> Self:
        """Return the upload in JSON data; raise UnexpectedAnswer for unreadable data."""
        upload = _read(cls, body)
        return upload._replace(todo=tuple(_read(Part, part) for part in upload.todo))


class JobEvent(NamedTuple):
    """An event of a job. Type `reset` means that the server lost the position; `data["job"]` is the job's state."""

    id: str
    job_id: str
    seq: int
    type: str
    ts: int
    step: str
    progress: float
    data: Mapping[str, Any]

    @property
    def ends(self) -> bool:
        """True for the last event of a job."""
        return self.type in END_STATES

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        """Return the event in JSON data; raise UnexpectedAnswer for unreadable data."""
        try:
            return cls(
                str(body["id"]),
                str(body["job_id"]),
                int(body["seq"]),
                str(body["type"]),
                int(body["ts"]),
                str(body.get("step") or ""),
                float(body.get("progress") or 0.0),
                _object(body.get("data")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UnexpectedAnswer(f"the server sent an event that cannot be read ({error!r})") from error

    @classmethod
    def reset(cls, body: Mapping[str, Any]) -> Self:
        """Return a `reset` event with the job's state; raise UnexpectedAnswer for unreadable JSON."""
        job = RemoteJob.read(body.get("job"))
        last_id = str(body.get("last_event_id") or job.last_event_id or "0-0")
        return cls(
            last_id, job.job_id, seq_of(last_id), RESET, job.updated_ts, job.step, job.progress, {"job": body["job"]}
        )


def _read(cls: type[R], body: Any) -> R:
    if not isinstance(body, dict):
        raise UnexpectedAnswer(f"a {cls.__name__} was expected, not {type(body).__name__}")
    try:
        return cls(**{name: body[name] for name in cls._fields if name in body})
    except TypeError as error:
        raise UnexpectedAnswer(f"the server told of a {cls.__name__} without all of it ({error})") from error


def _object(data: Any) -> Mapping[str, Any]:
    """Return event data as a mapping; other values, which foreign workers may send, go under `_raw`."""
    return data if isinstance(data, dict) else {} if data is None else {"_raw": data}


def seq_of(event_id: str) -> int:
    """Return the event number in an event id; raise UnexpectedAnswer for an invalid id."""
    try:
        return parse_event_id(event_id)[1]
    except InvalidInput as error:
        raise UnexpectedAnswer(f"the server sent {event_id[:40]!r} as an event's id") from error
