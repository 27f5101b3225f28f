"""Retry decisions by error class. A policy is data; randomness enters as a number from 0 to 1."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from .wire import clean, decode, encode

if TYPE_CHECKING:
    from .job import Job, Json

WAIT_COUNTS = ("waits", "waited_ms", "handed_on", "handed_on_ms")
MAX_COUNT = 10**12
WAITS_FOR = "waits_for"  # in an error's details, marks them as written by the kernel


class JobError(NamedTuple):
    """Why an attempt failed. Policies match `code`: an HTTP status, a storage code or an error class."""

    code: str
    message: str = ""
    retryable: bool | None = None
    details: Json = "{}"

    def json(self) -> Json:
        """Return the error as the JSON that a store keeps."""
        body: dict[str, Any] = {"code": clean(self.code), "message": clean(self.message)}
        if self.retryable is not None:
            body["retryable"] = self.retryable
        if self.details != "{}":
            body["details"] = json.loads(self.details)
            if isinstance(body["details"], dict):
                body["details"].pop(WAITS_FOR, None)
        return encode(body)

    def json_of_wait(self, service: str) -> Json:
        """Return the error of a job that waits for a service. Only the kernel writes the `waits_for` in its details."""
        body = json.loads(self.json())
        return encode({**body, "details": {**body["details"], WAITS_FOR: service}})


def waits_of(job: Job) -> dict[str, int]:
    """Return how often and for how many milliseconds a job has waited, by kind of wait; empty after a failure."""
    error = decode(job.error) if job.error is not None else None
    details = error.get("details") if isinstance(error, dict) else None
    if not isinstance(details, dict) or WAITS_FOR not in details:
        return {}
    counts = {name: details.get(name) for name in WAIT_COUNTS}  # another program may have written anything there
    return {name: min(count, MAX_COUNT) for name, count in counts.items() if type(count) is int and count >= 0}


class Verdict(StrEnum):
    """The policy's decision on an error: retry, refresh credentials first, or fail."""

    RETRY = "retry"
    REFRESH = "refresh"
    FAIL = "fail"


class Decision(NamedTuple):
    """A verdict and the delay before a retry, in milliseconds."""

    verdict: Verdict
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class Backoff:
    """A series of delays: `table_ms`, or else `base_ms × factor^n` up to `cap_ms`; times a jitter from `low` to `high`.

    The last delay of `table_ms` repeats.
    """

    base_ms: int = 1_000
    factor: float = 2.0
    cap_ms: int = 3_600_000
    table_ms: tuple[int, ...] = ()
    low: float = 0.5
    high: float = 1.0

    def delay_ms(self, n: int, rand: float) -> int:
        """Return the delay in milliseconds before retry number `n` (1 is the first)."""
        if self.table_ms:
            nominal = float(self.table_ms[min(n, len(self.table_ms)) - 1])
        else:
            nominal = min(float(self.cap_ms), self.base_ms * self.factor ** min(n - 1, 64))
        return round(nominal * (self.low + (self.high - self.low) * rand))


OUTAGE_BACKOFF = Backoff(base_ms=1_000, cap_ms=60_000)
"""The pauses of a job that waits for an outage to end."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Rules that judge a job's errors. Executions, refreshes and deliveries have separate counters and limits.

    `retryable`: None retries every code that is not fatal; a set retries only its codes. `max_lease_losses`: this many
    lost workers make a dead letter; None leaves the limit to `max_attempts`. `outage_ms`: an attempt waits this long,
    in all, for storage and other unreachable services before the outage counts as a failure.
    """

    max_attempts: int = 3
    backoff: Backoff = Backoff()
    throttled_backoff: Backoff = Backoff(base_ms=30_000)
    lost_lease_backoff: Backoff = Backoff(table_ms=(0, 5_000, 30_000))
    throttled: frozenset[str] = frozenset({"429"})
    retryable: frozenset[str] | None = None
    fatal: frozenset[str] = frozenset()
    refresh: frozenset[str] = frozenset()
    max_refreshes: int = 3
    max_lease_losses: int | None = None
    outage_ms: int = 3_600_000

    def decide(self, error: JobError, *, attempt: int, refreshes: int, rand: float) -> Decision:
        """Judge an error by its class alone; the command checks whether attempts are left."""
        if error.code in self.refresh:
            return Decision(Verdict.REFRESH if refreshes < self.max_refreshes else Verdict.FAIL)
        if error.retryable is False or error.code in self.fatal:
            return Decision(Verdict.FAIL)
        if error.code in self.throttled:
            return Decision(Verdict.RETRY, self.throttled_backoff.delay_ms(attempt, rand))
        if error.retryable or self.retryable is None or error.code in self.retryable:
            return Decision(Verdict.RETRY, self.backoff.delay_ms(attempt, rand))
        return Decision(Verdict.FAIL)


DEFAULT = RetryPolicy(fatal=frozenset({"fatal", "unknown_kind", "invalid_payload"}))

# 5 s, 10 s … 24 h with full jitter: nineteen waits of together 71 hours on average
OUTBOX = RetryPolicy(max_attempts=20, backoff=Backoff(base_ms=5_000, cap_ms=86_400_000, low=0.0, high=1.0))
