"""The enqueue verb inside a SQLite transaction: jobs, their first events, keys and dependencies, all or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from callsheet.kernel.errors import DependencyNotFound, IdempotencyConflict, QueueFull, QuotaExceeded
from callsheet.kernel.job import RESUMED_FROM, RUN_AT, HoldReason, NewJob, OnDependencyFailure, Status
from callsheet.kernel.new_jobs import max_attempts_of
from callsheet.store.protocol import Enqueued
from callsheet.store.queries import Queries

from .connection import Db, refusing_duplicates
from .line import admit, next_positions
from .side_records import keep_credentials

Q = Queries("callsheet.store.sqlite")


def enqueue(
    db: Db,
    batch: Sequence[NewJob],
    now: int,
    depth_limit: int | None = None,
    quotas: Mapping[str, int] | None = None,
) -> list[Enqueued]:
    """Create the jobs of a batch; raises the protocol's errors, and then the caller's rollback leaves nothing."""
    earlier_answers = [_earlier_answer(db, new, now) for new in batch]
    answers: list[Enqueued] = []
    seq = next_positions(db, len(batch))
    fresh: list[NewJob] = []
    rows = []
    for i, new in enumerate(batch):
        if earlier := earlier_answers[i]:
            answers.append(earlier)
            continue
        if new.unique_key is not None:
            existing = _active(db, new.unique_key) or next(
                (n.job_id for n in fresh if n.unique_key == new.unique_key), None
            )
            if existing:
                answers.append(Enqueued(existing, created=False))
                _remember(db, new, existing, now)
                continue
        fresh.append(new)
        rows.append(_row(new, seq + i, now))
        answers.append(Enqueued(new.job_id, created=True))
        _remember(db, new, new.job_id, now)
    if depth_limit is not None:
        _check_depth(db, fresh, depth_limit)
    if quotas:
        _check_quotas(db, fresh, quotas)
    _insert(db, fresh, rows, now)
    return answers


def _check_depth(db: Db, fresh: list[NewJob], limit: int) -> None:
    for queue, more in Counter(new.queue for new in fresh).items():
        if db.execute(Q.depth, (queue, limit)).fetchone()[0] + more > limit:
            raise QueueFull(queue, limit)


def queued_of(db: Db, requester_id: str, most: int) -> int:
    """Return how many queued jobs a requester has; the count stops at `most`."""
    sql = Q.queued_of if requester_id else Q.queued_of_nobody
    count: int = db.execute(sql, (requester_id, most)).fetchone()[0]
    return min(count, most)


def _check_quotas(db: Db, fresh: list[NewJob], quotas: Mapping[str, int]) -> None:
    """Raise QuotaExceeded for a full quota. The write lock is held: no other batch adds jobs before this write."""
    for requester_id, more in Counter(new.requester_id for new in fresh).items():
        limit = quotas.get(requester_id)
        if limit is not None and (used := queued_of(db, requester_id, limit + 1)) + more > limit:
            raise QuotaExceeded("queued", requester_id, limit=limit, used=used)


def _insert(db: Db, fresh: list[NewJob], rows: list[tuple[object, ...]], now: int) -> None:
    with refusing_duplicates("a job with one of these ids exists already; use new ids"):
        db.executemany(Q.enqueue, rows)
    db.executemany(Q.event, [(new.job_id, 1, now, "queued", "gateway.enqueue", 0.0, "{}") for new in fresh])
    for new in fresh:
        if new.depends_on:
            _wait_for(db, new)
        if new.credentials is not None:
            keep_credentials(db, new)
        if new.resumed_from is not None:
            db.execute(Q.keep_checkpoint, (new.job_id, RESUMED_FROM, f'"{new.resumed_from}"'))
        if new.run_at is not None:
            db.execute(Q.keep_checkpoint, (new.job_id, RUN_AT, str(new.run_at)))
    keys = {new.concurrency_key: new.concurrency_limit for new in fresh if new.concurrency_key is not None}
    for key, limit in keys.items():
        db.execute(Q.limit_slots, (key, limit))
        admit(db, key)


def _row(new: NewJob, seq: int, now: int) -> tuple[object, ...]:
    run_at = now + new.delay_ms if new.run_at is None else new.run_at
    held = (
        HoldReason.DELAY.value if run_at > now else (HoldReason.SLOT.value if new.concurrency_key is not None else None)
    )
    return (
        seq,
        new.job_id,
        new.requester_id,
        new.contract,
        new.kind,
        new.queue,
        new.priority,
        held,
        run_at,
        new.payload,
        max_attempts_of(new),
        new.retry,
        now,
        new.unique_key,
        new.concurrency_key,
        new.on_dependency_failure.value,
        new.ttl_s,
        new.correlation_id,
    )


def _earlier_answer(db: Db, new: NewJob, now: int) -> Enqueued | None:
    """Return the earlier answer for the same idempotency key; raises IdempotencyConflict for another request."""
    if new.idempotency is None:
        return None
    row = db.execute(Q.idempotency_record, (new.requester_id, new.idempotency.key, now)).fetchone()
    if row is None:
        return None
    if row[0] != new.idempotency.request_hash:
        raise IdempotencyConflict(
            f"idempotency key {new.idempotency.key!r} was used with another request; use a new key"
        )
    return Enqueued(row[1], created=False, response=row[2])


def _remember(db: Db, new: NewJob, job_id: str, now: int) -> None:
    if (key := new.idempotency) is not None:
        expires_at = now + key.ttl_s * 1000
        db.execute(Q.remember, (new.requester_id, key.key, key.request_hash, job_id, key.response, expires_at))


def _active(db: Db, unique_key: str) -> str | None:
    row = db.execute(Q.active_unique, (unique_key,)).fetchone()
    return row[0] if row else None


def _wait_for(db: Db, new: NewJob) -> None:
    """Block a job on those of its dependencies that are still open; record a dependency that has failed already."""
    blocked_by, broken_by = 0, None
    for parent in dict.fromkeys(new.depends_on):
        row = db.execute(Q.status_of, (parent,)).fetchone()
        if row is None:
            raise DependencyNotFound(f"job {new.job_id} depends on {parent}, which does not exist; enqueue that first")
        status = Status(row[0])
        has_failed = status.terminal and status is not Status.SUCCEEDED
        if status is Status.SUCCEEDED or (has_failed and new.on_dependency_failure is OnDependencyFailure.RUN):
            continue
        if has_failed:
            broken_by = broken_by or parent
        db.execute(Q.depend, (parent, new.job_id))
        blocked_by += 1
    if blocked_by:
        db.execute(Q.block, (new.job_id, blocked_by, broken_by))
