"""Decides an event's settlement after an attempt: delivered, retry or dead letter. Pure: randomness is a parameter."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from callsheet.kernel.job import Delivery, OutboxEvent
from callsheet.kernel.retry import OUTBOX
from callsheet.kernel.settlement import OutboxSettlement
from callsheet.kernel.wire import encode
from callsheet.net.retry_after import retry_after_s

DAY_MS = 86_400_000
GONE = 410
REFUSED_LIMIT = 3
TRY_AGAIN = frozenset({408, 409, 423, 425, 429})
KEPT_ATTEMPTS = 20
KEPT_BYTES = 1024
TIMING = ((1_000, "under_1s"), (5_000, "under_5s"), (15_000, "under_15s"))


class Outcome(NamedTuple):
    """An attempt's outcome. `status` 0: no response, for the reason `code`. `response` is the body's beginning."""

    status: int = 0
    code: str = ""
    took_ms: int | None = None
    retry_after_ms: int | None = None
    response: bytes = b""

    @property
    def ok(self) -> bool:
        """Return whether the status is 2xx."""
        return 200 <= self.status < 300  # noqa: PLR2004

    @property
    def word(self) -> str:
        """The outcome's code in the attempt log: an error code, `delivered` or `http_<status>`."""
        return self.code or ("delivered" if self.ok else f"http_{self.status}")


def settlement_of(event: OutboxEvent, outcome: Outcome, *, at_ms: int, rand: float) -> OutboxSettlement:
    """Return the settlement with the event's next status, delay and attempt log."""
    attempt = event.attempt_count + 1
    status, delay_ms, reason = Delivery.DELIVERED, 0, ""
    if not outcome.ok:
        reason = given_up(outcome, attempt, _refusals(event) + _is_refusal(outcome))
        status = Delivery.DEAD_LETTER if reason else Delivery.PENDING
        delay_ms = 0 if reason else delay_of(outcome, attempt, rand)
    log = log_with(event.error, outcome, attempt=attempt, at_ms=at_ms, reason=reason)
    return OutboxSettlement(event.event_id, event.claim_version, status, delay_ms, error=log)


def given_up(outcome: Outcome, attempt: int, refusals: int) -> str:
    """Return the reason for giving up the event, '' for another attempt."""
    if outcome.status == GONE:
        return "gone"
    if refusals >= REFUSED_LIMIT:
        return "refused"
    return "attempts_spent" if attempt >= OUTBOX.max_attempts else ""


def delay_of(outcome: Outcome, attempt: int, rand: float) -> int:
    """Return the retry delay: exponential with full jitter, 5 s to 24 h, or a longer Retry-After up to 24 h."""
    backoff = OUTBOX.backoff.delay_ms(attempt, rand)
    return max(backoff, min(outcome.retry_after_ms or 0, DAY_MS))


def retry_after_ms(text: str, now_ms: int) -> int | None:
    """Return a Retry-After header (seconds or date) in milliseconds, at most a day; None if malformed."""
    wait_s = retry_after_s(text, now_ms / 1000)
    return None if wait_s is None else round(min(wait_s * 1000, DAY_MS))


def log_with(before: str | None, outcome: Outcome, *, attempt: int, at_ms: int, reason: str = "") -> str:
    """Append an attempt to an event's log: the last 20 attempts, and the latest response body."""
    entry: dict[str, Any] = {"attempt": attempt, "at_ms": at_ms, "code": outcome.word}
    if outcome.status:
        entry |= {"status": outcome.status, "timing": timing(outcome.took_ms)}
    log: dict[str, Any] = {"attempts": [*attempts_in(before), entry][-KEPT_ATTEMPTS:]}
    if reason:
        log["reason"] = reason
    if outcome.response:
        log["response"] = outcome.response[:KEPT_BYTES].decode("utf-8", "replace").replace("\x00", "\ufffd")
    return encode(log)


def timing(took_ms: int | None) -> str:
    """Return the duration's class; exact durations would reveal details of the network."""
    return next((word for most, word in TIMING if took_ms is not None and took_ms < most), "timeout")


def log_of(text: str | None) -> dict[str, Any]:
    """Parse an attempt log; text of another format becomes the `reason`."""
    try:
        log = json.loads(text) if text else {}
    except ValueError:
        log = {}
    return log if isinstance(log, dict) else {"reason": str(log)[:KEPT_BYTES]}


def attempts_in(text: str | None) -> list[dict[str, Any]]:
    """Return the attempts in a log, oldest first."""
    attempts = log_of(text).get("attempts", [])
    return [entry for entry in attempts if isinstance(entry, dict)] if isinstance(attempts, list) else []


def _is_refusal(outcome: Outcome) -> bool:
    """Return whether the status is a lasting refusal: 3xx or 4xx, except the retryable statuses."""
    return 300 <= outcome.status < 500 and outcome.status not in TRY_AGAIN  # noqa: PLR2004


def _refusals(event: OutboxEvent) -> int:
    """Count the consecutive refusals at the end of an event's log; attempts before a replay are excluded."""
    count = 0
    for entry in reversed(attempts_in(event.error)[-event.attempt_count :] if event.attempt_count else []):
        status = entry.get("status", 0)
        if not isinstance(status, int) or not _is_refusal(Outcome(status)):
            break
        count += 1
    return count
