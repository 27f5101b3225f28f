"""Settlements as messages of the worker protocol. The server's kernel decides again, on its own copy of the job."""

from __future__ import annotations

import json
from typing import Any

from callsheet.kernel.errors import InvalidInput
from callsheet.kernel.handing_on import UNKNOWN_TASK
from callsheet.kernel.job import NewJob, Outcome, Status
from callsheet.kernel.settlement import Settlement

MESSAGE, CODE = 1_000, 100
MAX_DELAY_MS = 7 * 86_400_000
FOLLOW_UP = (
    "queue", "priority", "delay_ms", "run_at", "max_attempts", "retry", "unique_key", "concurrency_key",
    "concurrency_limit", "ttl_s", "correlation_id",
)  # fmt: skip


def move_of(settlement: Settlement) -> dict[str, Any]:
    """Return a settlement's message, without the lease; raises InvalidInput if the protocol has none."""
    match settlement.outcome:
        case Outcome.SUCCEEDED:
            return _complete(settlement)
        case Outcome.RETRIED:
            return {**_fail(settlement), "retry_in_ms": settlement.delay_ms}
        case Outcome.FAILED:
            return _fail(settlement, retryable=False)
        case Outcome.DEAD_LETTERED:
            return {**_fail(settlement), "bury": True}
        case Outcome.CANCELED:
            return {"do": "cancel", "reason": (settlement.cancel_reason or "")[:MESSAGE]}
        case Outcome.RELEASED if settlement.error is not None:
            return _wait(settlement)
        case Outcome.RELEASED:
            return {"do": "release", "delay_ms": min(MAX_DELAY_MS, settlement.delay_ms)}
    if settlement.status is Status.QUEUED:
        return {"do": "release", "delay_ms": min(MAX_DELAY_MS, settlement.delay_ms)}
    return _report(settlement)


def _report(settlement: Settlement) -> dict[str, Any]:
    """Return the message of a settlement that does not end the attempt."""
    event = settlement.event
    if settlement.checkpoint is not None:
        name, data = settlement.checkpoint
        return {"do": "checkpoint", "name": name, "data": json.loads(data)}
    if event is None or settlement.status is not Status.RUNNING or settlement.refreshed or settlement.starts:
        raise InvalidInput(f"a remote worker has no words for a move to {settlement.status}")
    if event.type == "stage":
        return {"do": "stage", "stage": settlement.stage}
    if event.type == "progress" and settlement.progress is not None:
        message = str(json.loads(event.data).get("message", ""))[:MESSAGE]
        return {"do": "progress", "percent": settlement.progress, "message": message}
    return {"do": "event", "type": event.type, "data": json.loads(event.data)}


def _complete(settlement: Settlement) -> dict[str, Any]:
    move: dict[str, Any] = {"do": "complete", "result": json.loads(settlement.result or "null")}
    if settlement.follow_ups:
        move["follow_ups"] = [_follow_up(new) for new in settlement.follow_ups]
    return move


def _fail(settlement: Settlement, *, retryable: bool | None = None) -> dict[str, Any]:
    told = json.loads(settlement.error or "{}")
    error: dict[str, Any] = {"code": str(told.get("code") or "error")[:CODE], "message": str(told.get("message", ""))}
    if retryable is not None or "retryable" in told:
        error["retryable"] = told.get("retryable") if retryable is None else retryable
    if isinstance(told.get("details"), dict):
        error["details"] = told["details"]
    return {"do": "fail", "error": error}


def _wait(settlement: Settlement) -> dict[str, Any]:
    """Return the message that releases a job during an outage, or for another worker with its task.

    The server chooses the delay; for a missing task the worker sends its patience as well.
    """
    error = _fail(settlement)["error"]
    details = error.pop("details", {})
    move = {"do": "release", "waits_for": details.get("waits_for", "a service"), "error": error}
    if "after_ms" in details:
        move["delay_ms"] = min(MAX_DELAY_MS, details["after_ms"])
    patience_ms = details.get("patience_ms") if error["code"] == UNKNOWN_TASK else None
    return move if patience_ms is None else {**move, "patience_ms": min(MAX_DELAY_MS, patience_ms)}


def _follow_up(new: NewJob) -> dict[str, Any]:
    fields = {name: getattr(new, name) for name in FOLLOW_UP}
    return {
        "job_id": new.job_id,
        "task": new.kind,
        "payload": json.loads(new.payload),
        "depends_on": list(new.depends_on),
        "on_dependency_failure": new.on_dependency_failure.value,
        **{name: value for name, value in fields.items() if value is not None},
    }
