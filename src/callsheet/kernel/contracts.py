"""The five published contracts and our own, as tables. A new contract is a new table, not a new branch in code."""

from __future__ import annotations

from .errors import InvalidJob
from .job import Status
from .lifecycle import Lifecycle
from .progress import COMPOSE, PLAN, RENDER, TTS, VISUALS
from .retry import Backoff, RetryPolicy


def _pairs(text: str) -> frozenset[tuple[str, str]]:
    """Parse lines of `a|b > c|d` into pairs of words."""
    found: set[tuple[str, str]] = set()
    for line in text.strip().splitlines():
        before, after = line.split(">")
        found |= {(b.strip(), a.strip()) for b in before.split("|") for a in after.split("|")}
    return frozenset(found)


def _words(*words: str | None) -> dict[Status, str]:
    """Map the six statuses, in their order, to these words; None leaves out a status that the contract lacks."""
    return {status: word for status, word in zip(Status, words, strict=True) if word}


CALLSHEET = Lifecycle(
    name="callsheet",
    words=_words("queued", "running", "succeeded", "failed", "dead_letter", "canceled"),
    moves=_pairs("""
        queued > running | canceled
        running > succeeded | failed | dead_letter | canceled | queued
        failed | dead_letter | canceled > queued
    """),
    policy="default",
    resumable=True,
)

EUTERPE = Lifecycle(
    name="euterpe",
    words=_words("queued", "claimed", "succeeded", "failed", "dead_letter", None),
    stages=("fetching", "processing", "uploading"),
    moves=_pairs("""
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
    callback="status_webhook_url",
    route="POST /transcode",
    payload_checked=True,
)

REDIS_GATEWAY = Lifecycle(
    name="redis_gateway",
    words=_words("queued", "running", "done", "error", "error", "canceled"),
    moves=_pairs("""
        queued > running | canceled
        running > done | error | canceled | queued
    """),
    policy="default",
    route="POST /v1/jobs",
    resumable=True,
    shared=True,
    expires=True,
)

CORTANA = Lifecycle(
    name="cortana",
    words=_words("queued", "processing", "done", "failed", "failed", "failed"),
    moves=_pairs("""
        queued > processing
        processing > done | failed
        failed > queued
    """),
    passes=frozenset({"failed"}),
    policy="cortana",
    route="POST /videos or POST /clips",
    payload_checked=True,
)

CONTROL_PLANE = Lifecycle(
    name="control_plane",
    words=_words("QUEUED", "RUNNING", "SUCCEEDED", "FAILED", "DLQ", "CANCELED"),
    moves=_pairs("""
        QUEUED > RUNNING | CANCELED
        RUNNING > SUCCEEDED | FAILED | DLQ | CANCELED | QUEUED
        FAILED | DLQ > QUEUED
    """),
    policy="default",
    resumable=True,
)

AURA = Lifecycle(
    name="aura",
    words=_words("Queued", "Running", "Done", "Failed", "Failed", "Canceled"),
    moves=_pairs("""
        Queued > Running | Canceled
        Running > Done | Failed | Canceled
    """),
    running_once_started=True,
    policy="default",
    route="POST /api/jobs",
    phases=(PLAN, TTS, VISUALS, COMPOSE, RENDER),
    resumable=True,
)

TASKS: dict[str, str] = {
    "transcode": EUTERPE.name,
    "video.transcode": CORTANA.name,
    "video.sample": CORTANA.name,
    "video.ocr": CORTANA.name,
    "video.segment_index": CORTANA.name,
    "video.clip_generate": CORTANA.name,
    "compose": AURA.name,
    "chat": REDIS_GATEWAY.name,
    "plan": REDIS_GATEWAY.name,
    "code": REDIS_GATEWAY.name,
    "tool": REDIS_GATEWAY.name,
    "rag": REDIS_GATEWAY.name,
    "embed": REDIS_GATEWAY.name,
}
"""The built-in tasks, each with its contract: only the contract's own route creates jobs of the task."""

RETRY_POLICIES = {
    EUTERPE.policy: RetryPolicy(
        max_attempts=5,
        backoff=Backoff(base_ms=2_000, cap_ms=900_000),
        throttled_backoff=Backoff(base_ms=60_000, cap_ms=3_600_000),
        retryable=frozenset({"423", "500", "502", "503", "504"}),
        refresh=frozenset({"401", "403"}),
    ),
    CORTANA.policy: RetryPolicy(
        max_attempts=4,  # the first run and three retries
        backoff=Backoff(table_ms=(60_000, 300_000, 900_000), low=0.8, high=1.2),
        throttled_backoff=Backoff(table_ms=(60_000, 300_000, 900_000), low=0.8, high=1.2),
        fatal=frozenset({"invalid_payload", "missing_object", "constraint_violation", "unauthorized", "forbidden"}),
    ),
}
"""The retry policies of the contracts, by the policy names that jobs carry."""

CONTRACTS = {c.name: c for c in (CALLSHEET, EUTERPE, REDIS_GATEWAY, CORTANA, CONTROL_PLANE, AURA)}

WITH_CALLBACKS = frozenset(c.name for c in CONTRACTS.values() if c.callback)
RESUMABLE = frozenset(c.name for c in CONTRACTS.values() if c.resumable)
PAYLOAD_CHECKED = frozenset(c.name for c in CONTRACTS.values() if c.payload_checked)
SHARED = frozenset(c.name for c in CONTRACTS.values() if c.shared)
EXPIRING = frozenset(c.name for c in CONTRACTS.values() if c.expires)
(FOREIGN,) = SHARED  # the contract of a job that another program has written


def lifecycle_of(contract: str) -> Lifecycle:
    """Return the lifecycle of a contract by name; raises InvalidJob for an unknown contract."""
    try:
        return CONTRACTS[contract]
    except KeyError:
        message = f"unknown contract {contract!r}; known are {', '.join(sorted(CONTRACTS))}"
        raise InvalidJob(message) from None
