"""New jobs and settlements as flat arguments of their scripts; rare fields travel as JSON in the last argument."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from callsheet.kernel.callbacks import claim_callback_of
from callsheet.kernel.contracts import WITH_CALLBACKS
from callsheet.kernel.job import Delivery, NewEvent, NewJob, OnDependencyFailure, OutboxEvent, Status
from callsheet.kernel.new_jobs import max_attempts_of
from callsheet.kernel.settlement import Settlement

from .keys import idempotency_name

if TYPE_CHECKING:
    from callsheet.store.outbox import OutboxFilter

Argument = str | int | float
SETTLE_HEAD = 4
SETTLE_STRIDE = 11
_NO_EVENT = NewEvent("")
_FLAGS = ("starts", "refund", "lease_lost", "refreshed", "expired_only")
_PLAIN = Settlement("", 0, Status.RUNNING, Status.RUNNING)
_STAGE, _DELAY, _OUTCOME, _LOSS = map(Settlement._fields.index, ("stage", "delay_ms", "outcome", "lease_lost"))
_NONE, _NO_MORE = _PLAIN[_DELAY:_OUTCOME], _PLAIN[_LOSS:]


def of_jobs(batch: Sequence[NewJob]) -> list[Argument]:
    """Return the new jobs of one call, ten arguments each."""
    arguments: list[Argument] = []
    for new in batch:
        arguments += (
            new.job_id,
            new.kind,
            new.payload,
            new.queue,
            new.priority,
            new.requester_id,
            new.contract,
            max_attempts_of(new),
            new.ttl_s or 0,
            _rare_of_job(new),
        )
    return arguments


def _rare_of_job(new: NewJob) -> str:
    rare = _waits_until(new)
    if new.retry:
        rare["retry"] = new.retry
    if new.depends_on:
        rare["depends_on"] = list(dict.fromkeys(new.depends_on))
    if new.on_dependency_failure is not OnDependencyFailure.CANCEL:
        rare["on_failure"] = new.on_dependency_failure.value
    if new.unique_key is not None:
        rare["unique_key"] = new.unique_key
    if new.concurrency_key is not None:
        rare["concurrency_key"] = new.concurrency_key
        rare["concurrency_limit"] = new.concurrency_limit
    if new.correlation_id:
        rare["correlation_id"] = new.correlation_id
    if new.idempotency is not None or new.credentials is not None or new.resumed_from is not None:
        rare |= _side_fields(new)
    if new.contract in WITH_CALLBACKS:
        rare |= _told_of_claims(new)
    return json.dumps(rare, ensure_ascii=False) if rare else ""


def _told_of_claims(new: NewJob) -> dict[str, object]:
    """Return the prepared claim callback as JSON, if the job asked for callbacks."""
    callback = claim_callback_of(new)
    return {} if callback is None else {"on_claim": json.dumps(callback, ensure_ascii=False)}


def _waits_until(new: NewJob) -> dict[str, object]:
    """Return the job's `run_at` or delay; empty for a job that may run at once."""
    if new.run_at is not None:
        return {"run_at": new.run_at}
    return {"delay_ms": new.delay_ms} if new.delay_ms else {}


def _side_fields(new: NewJob) -> dict[str, object]:
    """Return the values that are stored under separate keys: credentials, idempotency, resumed job."""
    fields: dict[str, object] = {}
    if new.resumed_from is not None:
        fields["resumed_from"] = new.resumed_from
    if new.credentials is not None:
        fields["credentials"] = [str(value) for value in new.credentials]
    if (key := new.idempotency) is not None:
        fields["idem"] = name = idempotency_name(new.requester_id, key.key)
        if not new.requester_id and name != (plain := f"idempotency:{key.key}"):
            fields["idem_plain"] = plain  # the name that other gateways use, without quoting
        fields["idem_hash"] = key.request_hash
        fields["idem_response"] = key.response
        fields["idem_ttl_s"] = key.ttl_s
    return fields


def of_settlements(settlements: Sequence[Settlement]) -> list[Argument]:
    """Return the arguments of one settle call: count, a flag for a check first, settlements, follow-up jobs."""
    arguments: list[Argument] = [len(settlements), ""]
    follow_ups: list[Argument] = []
    first = SETTLE_HEAD + SETTLE_STRIDE * len(settlements) + 1
    for s in settlements:
        event = s.event or _NO_EVENT
        arguments += (
            s.job_id,
            s.claim_version,
            s.status.value,
            event.type,
            event.step,
            event.data,
            "" if s.progress is None else repr(float(s.progress)),
            "" if s.outcome is None else s.outcome.value,
            s.result or "",
            s.error or "",
            _rare_of_settlement(s, first + len(follow_ups)),
        )
        if s.follow_ups:
            follow_ups += of_jobs(s.follow_ups)
        if s.follow_ups or s.outbox or (s.status is Status.QUEUED and s.from_status.terminal):
            arguments[1] = "1"
    return arguments + follow_ups


def _rare_of_settlement(s: Settlement, follow_ups_at: int) -> str:
    """Return the rare fields of a settlement as JSON; empty for most settlements."""
    if s.from_status is Status.RUNNING and s[_STAGE] is None and s[_DELAY:_OUTCOME] == _NONE and s[_LOSS:] == _NO_MORE:
        return ""
    rare: dict[str, object] = {name: 1 for name in _FLAGS if getattr(s, name)}
    rare["from"] = s.from_status.value
    if s.stage is not None:
        rare["stage"] = s.stage
    if s.delay_ms:
        rare["delay_ms"] = s.delay_ms
    if s.fresh_attempts:
        rare["fresh_attempts"] = s.fresh_attempts
    if s.cancel_reason is not None:
        rare["cancel_reason"] = s.cancel_reason
    if s.silence_ms is not None:
        rare["silence_ms"] = s.silence_ms
    if s.checkpoint is not None:
        rare["checkpoint"] = s.checkpoint
    if s.outbox:
        rare["outbox"] = [(out.event_id, out.endpoint, out.body, out.destination, out.stamp) for out in s.outbox]
    if s.follow_ups:
        rare["follow_ups"] = (follow_ups_at, len(s.follow_ups))
    return json.dumps(rare, ensure_ascii=False)


def of_filter(where: OutboxFilter) -> tuple[Argument, ...]:
    """Return the arguments of an outbox filter, apart from job and status."""
    has_requester = where.requester_id is not None
    times = ("" if at is None else at for at in (where.created_from, where.created_to))
    ends = (where.after or "", int(where.newest_first), int(has_requester))
    return (where.requester_id or "", where.endpoint or "", *times, *ends)


def matches(event: OutboxEvent, where: OutboxFilter, job_id: str | None, status: Delivery | None) -> bool:
    """Return whether an event that was read by its id fits the filter."""
    same = ((job_id, event.job_id), (status, event.status), (where.requester_id, event.requester_id))
    return (
        all(expected in (None, actual) for expected, actual in (*same, (where.endpoint, event.endpoint)))
        and (where.created_from is None or event.created_at >= where.created_from)
        and (where.created_to is None or event.created_at < where.created_to)
        and where.after is None
    )
