"""Settlements, the effects of commands on jobs.

The kernel writes them; a store applies one if its fence still holds.
"""

from __future__ import annotations

from typing import NamedTuple

from .job import Delivery, Json, NewEvent, NewJob, NewOutboxEvent, Outcome, Status


class Settlement(NamedTuple):
    """One move of one job, applied whole in one transaction, or not at all.

    The fence is `(job_id, claim_version, from_status)`: if the row differs, nothing is written. Delays are relative:
    the store adds its own clock. `silence_ms` shortens a lease to that time after the last heartbeat; a lease that ends
    sooner stays as it is.
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
    """One move of one outbox event. The fence is `(event_id, claim_version)`, and the status must be delivering."""

    event_id: str
    claim_version: int
    status: Delivery
    delay_ms: int = 0
    counts: bool = True
    error: Json | None = None
