"""The records of the engine: a job, its attempts, claims and events. All are immutable tuples.

Times are integers, milliseconds since the epoch, always from the store's clock. JSON is text (see wire).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from .wire import event_id

Json = str


class Status(StrEnum):
    """The six statuses every contract maps onto."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DEAD_LETTER = "dead_letter"
    CANCELED = "canceled"

    @property
    def terminal(self) -> bool:
        """True when only an operator can bring the job back."""
        return self not in (Status.QUEUED, Status.RUNNING)


FORGETTING = frozenset({Status.SUCCEEDED, Status.CANCELED})
"""Ends with which a job's credentials go at once. A failed job keeps them for a retry by hand, until it is pruned."""


class Held(StrEnum):
    """Why a queued job is not in line."""

    DELAY = "delay"
    DEPENDENCY = "dependency"
    SLOT = "slot"


class OnDependencyFailure(StrEnum):
    """What becomes of a job when one that it waits for does not succeed."""

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
    """The right to act on a job, proved by `claim_version`; every write of a worker names it."""

    job_id: str
    claim_version: int


class Idempotency(NamedTuple):
    """A client's key for one enqueue, scoped to its requester, kept until it expires."""

    key: str
    request_hash: str
    response: Json = ""
    ttl_s: int = 72 * 3600


class Envelope(NamedTuple):
    """Encrypted credentials, never plain ones. The texts are base64; the names are the contract's columns.

    `credential_version` is 1 with a new job and rises by one each time its requester replaces them.
    """

    credential_version: int
    storage_creds_encrypted: str
    storage_creds_dek_wrapped: str
    storage_creds_kek_id: str
    storage_creds_encryption_version: int


class Credentials(NamedTuple):
    """The credentials of one job, as a store keeps them beside it."""

    job_id: str
    requester_id: str
    envelope: Envelope


RESERVED = "~"
"""Names of checkpoints that begin so belong to the system: no task, worker or client can write or read them."""

RESUMED_FROM = f"{RESERVED}resumed_from"
"""The checkpoint that holds the id of the job that a new one resumes; it is written with the job."""

ADOPTED = f"{RESERVED}artifacts"
"""The checkpoint that lists the files that the success of a job has adopted; it is written with the success."""

RUN_AT = f"{RESERVED}run_at"
"""The checkpoint that holds the moment for which a job was asked for; a delay is counted from now, and has none."""


class NewJob(NamedTuple):
    """What a caller asks for; the store adds times and counters.

    `resumed_from` names the ended job whose steps this one takes over. Only trusted code of this program sets it: no
    body of a request has a field for it.
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
    held: Held | None
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
    def started(self) -> bool:
        """True when execution of the present claim has begun."""
        return self.attempt_started_at is not None


class Attempt(NamedTuple):
    """One execution, kept for ever beside its job; `ended_at` and `outcome` are None while it runs."""

    job_id: str
    claim_version: int
    attempt: int
    worker_id: str
    started_at: int
    ended_at: int | None
    outcome: Outcome | None
    error: Json | None


class NewEvent(NamedTuple):
    """A fact to be recorded; the store numbers it."""

    type: str
    step: str = ""
    data: Json = "{}"


class Event(NamedTuple):
    """A durable fact of one job. `seq` has no gaps, `ms` never falls; `progress` is the job's own at that moment.

    `raw_id` is the id of its entry in a Redis stream where another program wrote it there; none of ours has one.
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
        """The id a client resumes from, the same text on every store."""
        return event_id(self.ms, self.seq)


class Delivery(StrEnum):
    """The statuses of an outbox event; it shares the ownership protocol of jobs."""

    PENDING = "pending"
    DELIVERING = "delivering"
    DELIVERED = "delivered"
    DEAD_LETTER = "dead_letter"


class NewOutboxEvent(NamedTuple):
    """A callback to be made, written in the same transaction as the move that it tells of.

    `stamp` is the member that the store adds to the body: the time of the move by its own clock; '' for none.
    """

    event_id: str
    endpoint: str
    body: str
    stamp: str = ""

    @property
    def destination(self) -> str:
        """Who shares a fate with it: the endpoint itself, or scheme, host and port where it is a URL."""
        scheme, mark, rest = self.endpoint.partition("://")
        return f"{scheme}{mark}{re.split('[/?#]', rest, maxsplit=1)[0]}".lower() if mark else self.endpoint

    def body_at(self, at: int) -> str:
        """Return the body with the time of the move, where that is asked for."""
        return f'{self.body[:-1]},"{self.stamp}":{at}}}' if self.stamp else self.body


class OutboxEvent(NamedTuple):
    """A durable callback; the body's bytes are frozen when it is created."""

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
