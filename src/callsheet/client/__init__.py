"""The typed client of a Callsheet server: `async with Client() as client: …`, or `SyncClient` without async.

It speaks HTTP only and needs nothing of the engine; see `docs/guides/clients.md`.
"""

from .client import Client, JobOptions
from .errors import (
    ApiError,
    Conflict,
    EventTooLarge,
    Forbidden,
    InvalidRequest,
    KeyConflict,
    NoSuchJob,
    NotFound,
    ServerBusy,
    ServerFailed,
    ServerUnreachable,
    TooManyRequests,
    Unauthorized,
    UnexpectedAnswer,
)
from .live import LiveEvent, LiveState
from .patience import Patience
from .records import JobEvent, Receipt, RemoteJob, Upload
from .sync import SyncClient

__all__ = [
    "ApiError",
    "Client",
    "Conflict",
    "EventTooLarge",
    "Forbidden",
    "InvalidRequest",
    "JobEvent",
    "JobOptions",
    "KeyConflict",
    "LiveEvent",
    "LiveState",
    "NoSuchJob",
    "NotFound",
    "Patience",
    "Receipt",
    "RemoteJob",
    "ServerBusy",
    "ServerFailed",
    "ServerUnreachable",
    "SyncClient",
    "TooManyRequests",
    "Unauthorized",
    "UnexpectedAnswer",
    "Upload",
]
