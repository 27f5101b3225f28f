"""The rules for new jobs before a store sees them: the enqueue command and the checks of a batch."""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from .contracts import lifecycle_of, read_policy
from .errors import DependencyCycle, DuplicateJob, InvalidJob
from .job import Envelope, NewEvent, NewJob, OnDependencyFailure, Status
from .lane import is_lane_of_another
from .lifecycle import MAX_NAME
from .settlement import Settlement
from .wire import PAYLOAD_LIMIT_BYTES, check_json

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_PRIORITY = 32_767
MAX_TTL_S = 10 * 366 * 86_400
MAX_CREDENTIALS = 64 * 1024  # characters of base64
IS_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}").fullmatch
IS_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch


def enqueue(new: NewJob) -> Settlement:
    """Check a new job and return its settlement, which has no fence because it creates the job; raises InvalidJob."""
    check(new)
    event = NewEvent("queued", "gateway.enqueue")
    return Settlement(new.job_id, 0, Status.QUEUED, Status.QUEUED, event, follow_ups=(new,))


def check(new: NewJob) -> None:
    """Raise InvalidJob for the first rule that a new job breaks."""
    lifecycle = lifecycle_of(new.contract)
    policy = read_policy(new.retry or lifecycle.policy)
    budget = policy.max_attempts if new.max_attempts is None else new.max_attempts
    faults = [
        (not IS_UUID(new.job_id), "job_id must be a UUID in its usual lower-case form"),
        (not 0 < len(new.kind) <= MAX_NAME, f"kind must have 1 to {MAX_NAME} characters"),
        (not 0 < len(new.queue) <= MAX_NAME, f"queue must have 1 to {MAX_NAME} characters"),
        (not new.queue.isprintable() or not new.kind.isprintable(), "queue and kind must be printable text"),
        (
            is_lane_of_another(new.queue, new.requester_id),
            "queue: what follows an @ is the tenant whose lane it is, and this job is not that tenant's; leave it out",
        ),
        (not -MAX_PRIORITY <= new.priority <= MAX_PRIORITY, f"priority must be within ±{MAX_PRIORITY}"),
        (new.delay_ms < 0, "delay must not be negative; leave it out to run at once"),
        (new.run_at is not None and new.run_at < 0, "run_at must not be before 1970"),
        (new.run_at is not None and new.delay_ms > 0, "give either a delay or run_at, not both"),
        (budget < 1, "max_attempts must be at least 1"),
        (new.ttl_s is not None and not 1 <= new.ttl_s <= MAX_TTL_S, "ttl must be one second to ten years"),
        (
            new.idempotency is not None and not 1 <= new.idempotency.ttl_s <= MAX_TTL_S,
            "an idempotency key must be kept for one second to ten years",
        ),
        (new.concurrency_limit < 1, "concurrency_limit must be at least 1; pause the queue to stop work"),
        (new.unique_key == "" or new.concurrency_key == "", "keys must not be empty; leave them out instead"),
        (not _short_and_printable(new), f"keys and ids must be printable text of at most {MAX_NAME} characters"),
        (
            bool(new.depends_on)
            and new.on_dependency_failure is OnDependencyFailure.CANCEL
            and not lifecycle.allows(lifecycle.word(Status.QUEUED), lifecycle.word(Status.CANCELED)),
            "this contract cannot cancel a queued job; use on_dependency_failure='run' with depends_on",
        ),
        (
            new.resumed_from is not None and not IS_UUID(new.resumed_from),
            "resumed_from must be the id of a job, a UUID in its usual lower-case form",
        ),
        (
            new.credentials is not None and not _fits(new.credentials),
            f"credentials must be a sealed envelope with a version of 1 or more, at most {MAX_CREDENTIALS} characters",
        ),
    ]
    for wrong, why in faults:
        if wrong:
            raise InvalidJob(f"job {new.job_id}: {why}")


def _fits(envelope: Envelope) -> bool:
    texts = (envelope.storage_creds_encrypted, envelope.storage_creds_dek_wrapped)
    kek_id = envelope.storage_creds_kek_id
    return (
        envelope.credential_version >= 1
        and all(len(text) <= MAX_CREDENTIALS and IS_BASE64(text) for text in texts)
        and 0 < len(kek_id) <= MAX_NAME
        and kek_id.isprintable()
    )


def _short_and_printable(new: NewJob) -> bool:
    key = new.idempotency.key if new.idempotency is not None else None
    texts = (new.requester_id, new.correlation_id, new.unique_key, new.concurrency_key, key)
    return all(not text or (len(text) <= MAX_NAME and text.isprintable()) for text in texts)


def max_attempts_of(new: NewJob) -> int:
    """Return the execution budget of a new job: its own number, or else its policy's."""
    if new.max_attempts is not None:
        return new.max_attempts
    return read_policy(new.retry or lifecycle_of(new.contract).policy).max_attempts


def check_batch(batch: Sequence[NewJob], *, payload_limit_bytes: int = PAYLOAD_LIMIT_BYTES) -> None:
    """Check each job of a batch; raises for a repeated id or idempotency key and for circular dependencies."""
    last_shape: tuple[object, ...] = ()
    for new in batch:
        shape = new[1:2] + new[3:]  # all but the id and the payload: mostly the same from job to job
        if shape != last_shape or not IS_UUID(new[0]):
            check(new)
            last_shape = shape
        check_json(new[2], limit_bytes=payload_limit_bytes)
    _check_apart([new.job_id for new in batch], [(n.requester_id, n.idempotency.key) for n in batch if n.idempotency])
    if not any(new.depends_on for new in batch):
        return
    try:
        TopologicalSorter({new.job_id: new.depends_on for new in batch}).prepare()
    except CycleError as error:
        raise DependencyCycle(f"jobs wait for one another: {' → '.join(error.args[1])}") from None


def _check_apart(ids: list[str], keys: list[tuple[str, str]]) -> None:
    if len(set(ids)) < len(ids):
        twice = next(job_id for job_id in ids if ids.count(job_id) > 1)
        raise DuplicateJob(f"job id {twice} stands twice in one batch; give each job its own")
    if len(set(keys)) < len(keys):
        twice = next(key for _, key in keys if [k for _, k in keys].count(key) > 1)
        raise InvalidJob(f"idempotency key {twice!r} stands twice in one batch; give each request its own")
