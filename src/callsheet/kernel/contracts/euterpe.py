"""Euterpe: the contract of transcoding, with its callbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from callsheet.kernel.job import Status
from callsheet.kernel.lifecycle import CallbackBody, Lifecycle, pairs, words
from callsheet.kernel.retry import Backoff, RetryPolicy
from callsheet.kernel.wire import decode

if TYPE_CHECKING:
    from callsheet.kernel.settlement import Settlement


def _constant_members(
    kind: str, job_id: str, after: str, before: str | None, payload: dict[str, Any]
) -> dict[str, Any]:
    """Return the members of a callback's body that are equal for every claim of the job."""
    return {
        "type": f"{kind}.{after}",
        "job_id": job_id,
        "status": after,
        "previous_status": before,
        "metadata": payload.get("metadata") or {},
    }


def _end_members(settlement: Settlement) -> dict[str, Any]:
    """Return the outputs of a success, or the error of any other settlement that carries an error."""
    if settlement.status is Status.SUCCEEDED:
        result = decode(settlement.result) if settlement.result else None
        return {"outputs": result.get("outputs", []) if isinstance(result, dict) else []}
    if settlement.error:
        return {"error": error_for_clients(settlement.error)}
    return {}


def error_for_clients(error: str) -> dict[str, Any]:
    """Return an error as clients see it: code, message and whether a retry may help; no traceback."""
    body = decode(error)
    if not isinstance(body, dict):
        return {"code": "error", "message": str(body)}
    return {name: body[name] for name in ("code", "message", "retryable") if name in body}


EUTERPE = Lifecycle(
    name="euterpe",
    words=words("queued", "claimed", "succeeded", "failed", "dead_letter", None),
    stages=("fetching", "processing", "uploading"),
    moves=pairs("""
        queued > claimed
        claimed > fetching
        fetching > processing
        processing > uploading
        uploading > succeeded
        claimed | fetching | processing | uploading > queued
        claimed | fetching | processing | uploading > failed
        failed > queued | dead_letter
    """),
    passes=frozenset({"failed"}),
    requeue_needs_budget=True,
    policy="euterpe",
    retry=RetryPolicy(
        max_attempts=5,
        backoff=Backoff(base_ms=2_000, cap_ms=900_000),
        throttled_backoff=Backoff(base_ms=60_000, cap_ms=3_600_000),
        retryable=frozenset({"423", "500", "502", "503", "504"}),
        refresh=frozenset({"401", "403"}),
    ),
    callback=CallbackBody("status_webhook_url", "occurred_at", _constant_members, _end_members),
    route="POST /transcode",
    tasks=("transcode",),
    payload_checked=True,
)
