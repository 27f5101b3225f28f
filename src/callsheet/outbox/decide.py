"""What an attempt means for its event: delivered, once more later, or given up. Pure; chance comes in as a number."""

from __future__ import annotations

import json
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from callsheet.kernel.job import Delivery, OutboxEvent
from callsheet.kernel.retry import OUTBOX
from callsheet.kernel.settlement import OutboxSettlement
from callsheet.kernel.wire import encode

DAY_MS = 86_400_000
GONE = 410
REFUSED_LIMIT = 3
TRY_AGAIN = frozenset({408, 409, 423, 425, 429})
KEPT_ATTEMPTS = 20
KEPT_BYTES = 1024
TIMING = ((1_000, "under_1s"), (5_000, "under_5s"), (15_000, "under_15s"))


class Outcome(NamedTuple):
    """How an attempt went. `status` 0: no answer came, and `code` says why. `response` is the beginning of a body."""

    status: int = 0
    code: str = ""
    took_ms: int | None = None
    retry_after_ms: int | None = None
    response: bytes = b""

    @property
    def ok(self) -> bool:
        """True for 2xx."""
        return 200 <= self.status < 300  # noqa: PLR2004

    @property
    def word(self) -> str:
        """What went wrong, as the log has it."""
        return self.code or ("delivered" if self.ok else f"http_{self.status}")


def settlement_of(event: OutboxEvent, outcome: Outcome, *, at_ms: int, rand: float) -> OutboxSettlement:
    """The event's next state, with the log of its attempts."""
    attempt = event.attempt_count + 1
    status, delay_ms, reason = Delivery.DELIVERED, 0, ""
    if not outcome.ok:
        reason = given_up(outcome, attempt, _refusals(event) + _is_refusal(outcome))
        status = Delivery.DEAD_LETTER if reason else Delivery.PENDING
        delay_ms = 0 if reason else delay_of(outcome, attempt, rand)
    log = logged(event.error, outcome, attempt=attempt, at_ms=at_ms, reason=reason)
    return OutboxSettlement(event.event_id, event.claim_version, status, delay_ms, error=log)


def given_up(outcome: Outcome, attempt: int, refusals: int) -> str:
    """Why no further attempt is made, '' while one is."""
    if outcome.status == GONE:
        return "gone"
    if refusals >= REFUSED_LIMIT:
        return "refused"
    return "attempts_spent" if attempt >= OUTBOX.max_attempts else ""


def delay_of(outcome: Outcome, attempt: int, rand: float) -> int:
    """Exponential with full jitter, 5 s to 24 h; a Retry-After counts where it is longer, up to 24 h."""
    backoff = OUTBOX.backoff.delay_ms(attempt, rand)
    return max(backoff, min(outcome.retry_after_ms or 0, DAY_MS))


def retry_after_ms(text: str, now_ms: int) -> int | None:
    """A Retry-After header, in seconds or as a date; None for what is neither."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:12]) * 1000, DAY_MS)
    try:
        return max(0, min(round(parsedate_to_datetime(text).timestamp() * 1000) - now_ms, DAY_MS))
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def logged(before: str | None, outcome: Outcome, *, attempt: int, at_ms: int, reason: str = "") -> str:
    """The log of an event's attempts, as it is kept with it: the last ones, and what was answered to the last."""
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
    """A class of durations: exact ones would tell too much of the network between."""
    return next((word for most, word in TIMING if took_ms is not None and took_ms < most), "timeout")


def log_of(text: str | None) -> dict[str, Any]:
    """A log as it was written; one of another making is shown as it is."""
    try:
        log = json.loads(text) if text else {}
    except ValueError:
        log = {}
    return log if isinstance(log, dict) else {"reason": str(log)[:KEPT_BYTES]}


def attempts_in(text: str | None) -> list[dict[str, Any]]:
    """The attempts in a log, oldest first."""
    found = log_of(text).get("attempts", [])
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def _is_refusal(outcome: Outcome) -> bool:
    """The other end does not want this and will not, as far as its status says."""
    return 300 <= outcome.status < 500 and outcome.status not in TRY_AGAIN  # noqa: PLR2004


def _refusals(event: OutboxEvent) -> int:
    """How many of the last attempts in a row were refused; those before a replay do not count."""
    count = 0
    for entry in reversed(attempts_in(event.error)[-event.attempt_count :] if event.attempt_count else []):
        status = entry.get("status", 0)
        if not isinstance(status, int) or not _is_refusal(Outcome(status)):
            break
        count += 1
    return count
