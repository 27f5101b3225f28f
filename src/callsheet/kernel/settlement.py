"""What a command does to a job. The kernel writes settlements; a store applies one if its fence still holds."""

from __future__ import annotations

from typing import NamedTuple

from .job import Delivery, Json, NewEvent, NewJob, NewOutboxEvent, Outcome, Status


class Settlement(NamedTuple):
    """One move of one job: applied whole, in one transaction, or not at all.

    The fence is `(job_id, claim_version, from_status)`: if the row differs, nothing is written.
    Delays are relative: the store adds them to its own clock. `silence_ms` lets a lease end so long after the last
    heartbeat, if it would not end sooner.
    """

    job_id: str
    claim_version: int
    from_status: Status
    status: Status
    event: NewEvent | None = None
    stage: str | None = None
    progress: float | None = None
    delay_ms: int = 0
    starts: bool = False
    refund: bool = False
    outcome: Outcome | None = None
    result: Json | None = None
    error: Json | None = None
    lease_lost: bool = False
    refreshed: bool = False
    fresh_attempts: int = 0
    cancel_reason: str | None = None
    checkpoint: tuple[str, Json] | None = None
    expired_only: bool = False
    outbox: tuple[NewOutboxEvent, ...] = ()
    follow_ups: tuple[NewJob, ...] = ()
    silence_ms: int | None = None


class OutboxSettlement(NamedTuple):
    """One move of one outbox event, under the same fence: `(event_id, claim_version)` while it is delivering."""

    event_id: str
    claim_version: int
    status: Delivery
    delay_ms: int = 0
    counts: bool = True
    error: Json | None = None
