"""The control plane's words. Fields that the contract does not have are optional: an old worker can ignore them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue

Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^~\x00-\x1f]+$")]
Stream = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f]+$")]
MAX_WAIT_MS = 60_000
MAX_STREAMS = 50
STRICT = ConfigDict(strict=True, extra="ignore")


class ClaimBody(BaseModel):
    """A worker asks for work."""

    model_config = STRICT
    worker_id: Name
    streams: Annotated[list[Stream], Field(min_length=1, max_length=MAX_STREAMS)] = Field(
        description="Queues in order of priority."
    )
    max_wait_ms: int = Field(default=0, ge=0, le=MAX_WAIT_MS, description="How long to wait for a job.")


class Claimed(BaseModel):
    """A job to run, or none."""

    claimed: bool
    job_id: str | None = None
    attempt_id: str | None = None
    lease_token: str | None = None
    stream: str | None = None
    message_id: str | None = None
    payload: JsonValue = None
    lease_ttl_seconds: float | None = None
    heartbeat_interval_seconds: float | None = None
    task: str | None = None
    attempt: int | None = None
    max_attempts: int | None = None
    fence: int | None = None
    cancel: bool = False


class HeartbeatBody(BaseModel):
    """A worker says that it is alive."""

    model_config = STRICT
    worker_id: Name
    job_id: str
    lease_token: str
    progress: float | None = Field(default=None, ge=0, le=100, allow_inf_nan=False)
    message: str = Field(default="", max_length=1000)


class Beaten(BaseModel):
    """The lease is extended. `cancel`: stop, and say so with fail."""

    ok: bool
    lease_expires_at: int = Field(description="Milliseconds since the epoch, by the store's clock.")
    lease_expires_in_ms: int
    cancel: bool


class EndBody(BaseModel):
    """What every end of an attempt names."""

    model_config = STRICT
    worker_id: Name
    job_id: str
    attempt_id: str
    lease_token: str
    stream: str = ""
    message_id: str = ""


class CompleteBody(EndBody):
    """An attempt went well."""

    result: JsonValue = None


class Completed(BaseModel):
    """The outcome is committed: acknowledge the message."""

    ok: bool
    ack: bool


class ErrorBody(BaseModel):
    """Why an attempt failed."""

    model_config = STRICT
    code: str = Field(min_length=1, max_length=100)
    message: str = Field(default="", max_length=4000)
    stack: str = Field(default="", max_length=20_000)
    retryable: bool | None = None


class FailBody(EndBody):
    """An attempt went wrong."""

    error: ErrorBody


class Failed(Completed):
    """What became of the job: it runs again, it is a dead letter, or neither."""

    requeued: bool
    dlq: bool


class ReleaseBody(EndBody):
    """A worker hands its job back; that costs no attempt."""
