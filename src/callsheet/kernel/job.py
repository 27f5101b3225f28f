"""The records of the engine: jobs, attempts, claims, events and callbacks. All are immutable tuples.

Times are integers, milliseconds since the epoch, always from the store's clock. JSON is text (see `wire`).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from .wire import event_id

Json = str


class Status(StrEnum):
    """The six statuses that every contract's words map onto."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DEAD_LETTER = "dead_letter"
    CANCELED = "canceled"

    @property
    def terminal(self) -> bool:
        """True if only an operator can return the job to the queue."""
        return self not in (Status.QUEUED, Status.RUNNING)


DELETES_CREDENTIALS = frozenset({Status.SUCCEEDED, Status.CANCELED})
"""Final statuses that delete a job's credentials at once. A failed job keeps them for a retry by an operator."""


class HoldReason(StrEnum):
    """Why a queued job is not ready to be claimed."""

    DELAY = "delay"
    DEPENDENCY = "dependency"
    SLOT = "slot"


class OnDependencyFailure(StrEnum):
    """The fate of a job whose dependency failed: cancel the job, or run it anyway."""

    CANCEL = "cancel"
    RUN = "run"


class Outcome(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RETRIED = "retried"
    DEAD_LETTERED = "dead_lettered"
    RELEASED = "released"
    LEASE_LOST = "lease_lost"
    CANCELED = "canceled"


class Claim(NamedTuple):
    """The right to act on a job, proved by `claim_version`; every write of a worker names the claim."""

    job_id: str
    claim_version: int


class Idempotency(NamedTuple):
    """A client's key for one enqueue request, scoped to the requester and stored until the key expires."""

    key: str
    request_hash: str
    response: Json = ""
    ttl_s: int = 72 * 3600


class Envelope(NamedTuple):
    """Encrypted credentials, never plain text. The texts are base64; the field names are the contract's columns.

    `credential_version` is 1 for a new job and rises by one each time the requester replaces the credentials.
    """

    credential_version: int
    storage_creds_encrypted: str
    storage_creds_dek_wrapped: str
    storage_creds_kek_id: str
    storage_creds_encryption_version: int


class Credentials(NamedTuple):
    """The encrypted credentials of one job, stored apart from the job's row."""

    job_id: str
    requester_id: str
    envelope: Envelope


RESERVED_PREFIX = "~"
"""Prefix of the system's own checkpoint names: no task, worker or client can write or read these checkpoints."""

RESUMED_FROM = f"{RESERVED_PREFIX}resumed_from"
"""The checkpoint with the id of the job that a new job resumes; it is written together with the new job."""

ADOPTED_FILES = f"{RESERVED_PREFIX}artifacts"
"""The checkpoint that lists the files adopted by a job's success; it is written together with the success."""

RUN_AT = f"{RESERVED_PREFIX}run_at"
"""The checkpoint with a job's requested `run_at`. A job with a relative delay has no such checkpoint."""


class NewJob(NamedTuple):
    """The fields of a job to enqueue; the store adds times and counters.

    `resumed_from` names the ended job whose steps this job takes over. Only trusted code of this program sets the
    field: no request body has it.
    """

    job_id: str
    kind: str
    payload: Json = "{}"
    queue: str = "default"
    priority: int = 0
    delay_ms: int = 0
    run_at: int | None = None
    requester_id: str = ""
    contract: str = "callsheet"
    max_attempts: int | None = None
    retry: str = ""
    depends_on: tuple[str, ...] = ()
    on_dependency_failure: OnDependencyFailure = OnDependencyFailure.CANCEL
    unique_key: str | None = None
    concurrency_key: str | None = None
    concurrency_limit: int = 1
    idempotency: Idempotency | None = None
    ttl_s: int | None = None
    correlation_id: str = ""
    credentials: Envelope | None = None
    resumed_from: str | None = None


class Job(NamedTuple):
    """One durable unit of work, as a store holds it."""

    job_id: str
    requester_id: str
    contract: str
    kind: str
    queue: str
    priority: int
    status: Status
    stage: str
    held: HoldReason | None
    progress: float
    run_at: int
    payload: Json
    result: Json | None
    error: Json | None
    worker_id: str | None
    claim_version: int
    lease_expires_at: int | None
    heartbeat_at: int | None
    attempt_count: int
    max_attempts: int
    lease_losses: int
    refresh_count: int
    retry: str
    created_at: int
    updated_at: int
    started_at: int | None
    attempt_started_at: int | None
    ended_at: int | None
    cancel_requested_at: int | None
    cancel_reason: str | None
    unique_key: str | None
    concurrency_key: str | None
    blocked_by: int
    broken_by: str | None
    on_dependency_failure: OnDependencyFailure
    ttl_s: int | None
    correlation_id: str
    event_seq: int
    event_ms: int

    @property
    def claim(self) -> Claim:
        """The present claim on this job."""
        return Claim(self.job_id, self.claim_version)

    @property
    def has_started(self) -> bool:
        """True if execution under the present claim has begun."""
        return self.attempt_started_at is not None


class Attempt(NamedTuple):
    """One execution of a job, stored until the job is deleted; `ended_at` and `outcome` are None while it runs."""

    job_id: str
    claim_version: int
    attempt: int
    worker_id: str
    started_at: int
    ended_at: int | None
    outcome: Outcome | None
    error: Json | None


class NewEvent(NamedTuple):
    """An event to record; the store gives the event its number."""

    type: str
    step: str = ""
    data: Json = "{}"


class Event(NamedTuple):
    """A durable event of one job. `seq` has no gaps, `ms` never falls; `progress` is the job's progress at that moment.

    `raw_id` is the entry's id in a Redis stream if another program wrote the event; '' for events of this program.
    """

    job_id: str
    seq: int
    ms: int
    type: str
    step: str
    progress: float
    data: Json
    raw_id: str = ""

    @property
    def id(self) -> str:
        """The id that a client resumes from, the same text on every store."""
        return event_id(self.ms, self.seq)


class Delivery(StrEnum):
    """The statuses of an outbox event; outbox events have claims and leases as jobs do."""

    PENDING = "pending"
    DELIVERING = "delivering"
    DELIVERED = "delivered"
    DEAD_LETTER = "dead_letter"


class NewOutboxEvent(NamedTuple):
    """A new callback, written in the same transaction as the job's move.

    `stamp` names the body member that holds the move's time by the store's clock; '' adds no member.
    """

    event_id: str
    endpoint: str
    body: str
    stamp: str = ""

    @property
    def destination(self) -> str:
        """The unit that deliveries share limits by: scheme, host and port of a URL, else the endpoint itself."""
        scheme, mark, rest = self.endpoint.partition("://")
        return f"{scheme}{mark}{re.split('[/?#]', rest, maxsplit=1)[0]}".lower() if mark else self.endpoint

    def body_at(self, at: int) -> str:
        """Return the body, with the time of the move as the member `stamp` unless `stamp` is empty."""
        return f'{self.body[:-1]},"{self.stamp}":{at}}}' if self.stamp else self.body


class OutboxEvent(NamedTuple):
    """A durable callback; the body's bytes are fixed at creation."""

    event_id: str
    job_id: str
    requester_id: str
    endpoint: str
    body: str
    status: Delivery
    run_at: int
    attempt_count: int
    worker_id: str | None
    claim_version: int
    lease_expires_at: int | None
    heartbeat_at: int | None
    created_at: int
    ended_at: int | None
    error: Json | None
    destination: str = ""
