"""Request and answer models of the control plane. Fields beyond the contract are optional: old workers ignore them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from . import tolerant

Name = Annotated[str, Field(min_length=1, max_length=240, pattern=r"^[^~\x00-\x1f]+$")]
Stream = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f]+$")]
Label = Annotated[str, Field(min_length=1, max_length=50, pattern=r"^[A-Za-z0-9_.-]+$")]
MAX_WAIT_MS = 60_000
MAX_DELAY_MS = 10 * 366 * 86_400_000  # ten years: a longer delay is a mistake, and may not fit a store's number
MAX_ATTEMPTS = 10_000
MAX_PRIORITY = 1_000_000
LATEST_MS = 2**53 - 1  # a moment that every client can read
MAX_REST_MS = 7 * 86_400_000
MAX_BEAT_WAIT_MS = 25_000
MAX_STREAMS = 50
MAX_JOBS = 200
MAX_MOVES = 1_000
STRICT = ConfigDict(strict=True, extra="ignore")


class ClaimBody(BaseModel):
    """A worker asks for jobs."""

    model_config = STRICT
    worker_id: Name
    streams: Annotated[list[Stream], Field(min_length=1, max_length=MAX_STREAMS)] = Field(
        description="Queues in order of priority."
    )
    max_wait_ms: Annotated[int, tolerant.at_most(MAX_WAIT_MS)] = Field(
        default=0, ge=0, le=MAX_WAIT_MS, description="How long to wait for a job; more than the limit is the limit."
    )
    max_jobs: Annotated[int, tolerant.at_most(MAX_JOBS)] = Field(
        default=1, ge=1, le=MAX_JOBS, description="How many jobs to take at once; more than the limit is the limit."
    )
    labels: list[Label] = Field(default=[], max_length=50, description="What this worker can do, such as gpu.")
    claim_request_id: Annotated[str, Field(min_length=16, max_length=100)] | None = Field(
        default=None, description="Random, anew for each claim: a repeat of it answers with the same jobs."
    )
    first: bool = Field(
        default=False, description="True: this claim_request_id is sent for the first time, nothing is to be looked up."
    )
    protocol: int = Field(default=1, ge=1, description="The protocol version that the worker speaks.")


class ClaimedJob(BaseModel):
    """A claimed job and its lease."""

    job_id: str
    attempt_id: str
    lease_token: str
    stream: str
    message_id: str
    payload: JsonValue
    lease_ttl_seconds: float
    heartbeat_interval_seconds: float
    task: str
    attempt: int
    max_attempts: int
    fence: int
    lease_expires_in_ms: int
    heartbeat_every_ms: int
    cancel: bool
    inputs: dict[str, str] = Field(description="Signed URLs of the objects that the payload names as object:key.")
    job: dict[str, JsonValue] = Field(description="What else is known of the job; for workers of our own making.")


class Claimed(BaseModel):
    """The answer to a claim: a job, or none. If `max_jobs` was more than 1, `jobs` lists all claimed jobs."""

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
    lease_expires_in_ms: int | None = None
    heartbeat_every_ms: int | None = None
    cancel: bool = False
    inputs: dict[str, str] | None = None
    job: dict[str, JsonValue] | None = None
    jobs: list[ClaimedJob] | None = None
    drain: bool = Field(default=False, description="Take no more jobs: finish what runs, and end.")
    note: str | None = Field(default=None, description="For people: for whom a worker that is bound gets no job.")
    protocol: int = 2


class Chunk(BaseModel):
    """A piece of an attempt's log at a byte offset."""

    model_config = STRICT
    offset: int = Field(ge=0)
    text: str = Field(max_length=64 * 1024)


class Proof(BaseModel):
    """The job and lease token that prove a worker's claim."""

    model_config = STRICT
    job_id: str
    lease_token: str


class HeartbeatBody(Proof):
    """A worker extends its lease and may report progress, a stage or a piece of the log."""

    worker_id: Name
    progress: float | None = Field(default=None, ge=0, le=100, allow_inf_nan=False)
    message: Annotated[str, tolerant.cut_at(tolerant.MAX_REASON)] = ""
    stage: str | None = Field(default=None, min_length=1, max_length=255)
    log: Chunk | None = None
    wait_ms: Annotated[int, tolerant.at_most(MAX_BEAT_WAIT_MS)] = Field(
        default=0, ge=0, le=MAX_BEAT_WAIT_MS, description="Answer only when the job is to be cancelled, or then."
    )
    protocol: int = Field(default=1, ge=1)


class Beaten(BaseModel):
    """The lease is extended. If `cancel` is true, stop the job and report it with fail."""

    ok: bool
    lease_expires_at: int = Field(description="Milliseconds since the epoch, by the store's clock.")
    lease_expires_in_ms: int
    cancel: bool
    drain: bool = False
    log_offset: int | None = Field(default=None, description="The log is kept up to here; send on from it.")
    log_full: bool | None = None


class HeartbeatsBody(BaseModel):
    """A worker extends the leases of all its jobs in one request."""

    model_config = STRICT
    worker_id: Name
    leases: Annotated[list[Proof], Field(max_length=MAX_MOVES)]
    wait_ms: Annotated[int, tolerant.at_most(MAX_BEAT_WAIT_MS)] = Field(default=0, ge=0, le=MAX_BEAT_WAIT_MS)
    protocol: int = Field(default=1, ge=1)


class BeatenJob(BaseModel):
    """One lease's heartbeat result."""

    job_id: str
    ok: bool
    cancel: bool = False
    code: str | None = None


class BeatenAll(BaseModel):
    """Heartbeat results, one per lease, in request order."""

    ok: bool
    leases: list[BeatenJob]
    lease_expires_in_ms: int
    drain: bool


class EndBody(BaseModel):
    """The fields of every request that ends an attempt."""

    model_config = STRICT
    worker_id: Name
    job_id: str
    attempt_id: tolerant.AttemptId
    lease_token: str
    stream: tolerant.IgnoredText = ""
    message_id: tolerant.IgnoredText = ""


class Artifact(BaseModel):
    """A file that was uploaded for this attempt and becomes part of the result."""

    model_config = STRICT
    name: str = Field(min_length=1, max_length=255)
    bytes: int | None = Field(default=None, ge=0)
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")


class LogEnd(BaseModel):
    """Length and SHA-256 of an attempt's complete log. The server answers `log_incomplete` if a part is missing."""

    model_config = STRICT
    bytes: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class FollowUp(BaseModel):
    """A follow-up job: the server creates the job in the same transaction as its parent's success."""

    model_config = STRICT
    job_id: str | None = None
    task: str = Field(min_length=1, max_length=255)
    payload: JsonValue = None
    queue: Stream = "default"
    priority: int = Field(default=0, ge=-MAX_PRIORITY, le=MAX_PRIORITY)
    delay_ms: int = Field(default=0, ge=0, le=MAX_DELAY_MS)
    run_at: int | None = Field(default=None, ge=0, le=LATEST_MS)
    max_attempts: int | None = Field(default=None, ge=1, le=MAX_ATTEMPTS)
    retry: str = ""
    depends_on: list[str] = []
    on_dependency_failure: Literal["cancel", "run"] = "cancel"
    unique_key: str | None = None
    concurrency_key: str | None = None
    concurrency_limit: int = Field(default=1, ge=1, le=1_000_000)
    ttl_s: int | None = Field(default=None, ge=0, le=MAX_DELAY_MS // 1000)
    correlation_id: str = ""


class CompleteBody(EndBody):
    """An attempt has succeeded."""

    result: tolerant.Result = None
    artifacts: list[Artifact] = Field(default=[], max_length=1000)
    follow_ups: list[FollowUp] = Field(default=[], max_length=100)
    log: LogEnd | None = None


class Completed(BaseModel):
    """The outcome is committed: acknowledge the message."""

    ok: bool
    ack: bool
    drain: bool = False


class ErrorBody(BaseModel):
    """Why an attempt failed."""

    model_config = STRICT
    code: tolerant.Code = Field(
        default=tolerant.UNKNOWN, description="The first 100 characters are kept; `unknown` where there is none."
    )
    message: Annotated[str, tolerant.cut_at(tolerant.MAX_MESSAGE)] = Field(
        default="", description="The first 4,000 characters are kept."
    )
    stack: Annotated[str, tolerant.cut_at(tolerant.MAX_STACK)] = Field(
        default="", description="The first 8,000 characters are kept."
    )
    retryable: tolerant.Maybe = None
    details: tolerant.Details = Field(default=None, description="An object of up to 100 KiB; a larger one is cut.")


Error = Annotated[ErrorBody, BeforeValidator(tolerant.error_of)]


class FailBody(EndBody):
    """An attempt has failed."""

    error: Error = ErrorBody()
    retry_in_ms: Annotated[int | None, tolerant.clamp(0, MAX_DELAY_MS, None)] = Field(
        default=None, description="Ask for another attempt after this time, of ten years at most."
    )
    bury: tolerant.Flag = Field(default=False, description="A dead letter at once: nobody can run this.")


class Failed(Completed):
    """The job is queued again (`requeued`), a dead letter (`dlq`), or has ended otherwise (neither)."""

    requeued: bool
    dlq: bool


class ReleaseBody(EndBody):
    """A worker hands its job back; the attempt is not counted."""

    delay_ms: Annotated[int, tolerant.clamp(0, MAX_REST_MS, 0)] = 0
    reason: Annotated[str, tolerant.cut_at(tolerant.MAX_REASON)] = Field(
        default="", description="incapable: this worker cannot run it and is not offered it again."
    )


class MoveBody(BaseModel):
    """One report about a job. `do` names the kind of report; the other fields match the route of that kind."""

    model_config = STRICT
    do: Literal["progress", "stage", "event", "checkpoint", "log", "complete", "fail", "release", "cancel"]
    job_id: str
    attempt_id: tolerant.AttemptId
    lease_token: str
    percent: float | None = Field(default=None, ge=0, le=100, allow_inf_nan=False)
    message: Annotated[str, tolerant.cut_at(tolerant.MAX_REASON)] = ""
    stage: str | None = Field(default=None, min_length=1, max_length=255)
    type: str | None = Field(default=None, pattern=r"^[a-z][a-z0-9_.]{0,39}$")
    name: str | None = Field(default=None, min_length=1, max_length=255)
    data: JsonValue = None
    log: Chunk | LogEnd | None = None
    result: tolerant.Result = None
    artifacts: list[Artifact] = Field(default=[], max_length=1000)
    follow_ups: list[FollowUp] = Field(default=[], max_length=100)
    error: Error = ErrorBody()
    retry_in_ms: Annotated[int | None, tolerant.clamp(0, MAX_DELAY_MS, None)] = None
    bury: tolerant.Flag = False
    delay_ms: Annotated[int, tolerant.clamp(0, MAX_REST_MS, 0)] = 0
    reason: Annotated[str, tolerant.cut_at(tolerant.MAX_REASON)] = ""
    waits_for: Annotated[str | None, tolerant.cut_at(255)] = Field(
        default=None, description="With release: what is away, such as storage."
    )
    patience_ms: Annotated[int | None, tolerant.clamp(0, MAX_DELAY_MS, None)] = Field(
        default=None, description="With waits_for: what is away is a worker with the task, looked for so long in all."
    )


class MovesBody(BaseModel):
    """Reports about a worker's jobs, in order."""

    model_config = STRICT
    worker_id: Name
    moves: Annotated[list[MoveBody], Field(max_length=MAX_MOVES)]
    protocol: int = Field(default=1, ge=1)


class UncheckedMoves(BaseModel):
    """A request's moves before validation: the server validates each alone, so an invalid move affects no other."""

    model_config = STRICT
    worker_id: Name
    moves: Annotated[list[Any], Field(max_length=MAX_MOVES)]


class Moved(BaseModel):
    """The result of one move; if the move was refused, `code` is the code of the problem."""

    ok: bool
    ack: bool = False
    requeued: bool = False
    dlq: bool = False
    repeated: bool = False
    log_offset: int | None = None
    log_full: bool | None = None
    code: str | None = None
    detail: str | None = None


class MovedAll(BaseModel):
    """Move results, one per move, in request order."""

    ok: bool
    answers: list[Moved]
    drain: bool


class CheckpointsBody(Proof):
    """A worker asks which steps of its job earlier attempts have completed."""

    worker_id: Name


class Checkpoints(BaseModel):
    """Results of completed steps by step name, from this job and the ended jobs it resumes."""

    ok: bool
    checkpoints: dict[str, JsonValue]
    resumes: list[str] = Field(default=[], description="The ended jobs whose steps are among these, the latest first.")
    cancel_reason: str | None = None
