"""The enqueue verb: one statement for plain jobs, a transaction for jobs with keys or dependencies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import asyncpg

from callsheet.kernel.errors import DependencyNotFound, DuplicateJob, IdempotencyConflict, QueueFull, QuotaExceeded
from callsheet.kernel.job import RESUMED_FROM, RUN_AT, NewJob, OnDependencyFailure, Status
from callsheet.kernel.new_jobs import max_attempts_of
from callsheet.store.protocol import Enqueued
from callsheet.store.queries import Queries

from .columns import is_uniform, known_ids, spread
from .line import admit
from .side_records import keep_credentials

if TYPE_CHECKING:
    from .connection import Database

Q = Queries("callsheet.store.postgres")
PLAIN = Q.enqueue.replace(" RETURNING job_id;", ";")  # creates all jobs or fails, so there is no answer to read
STATEMENT = (
    "requester_id",
    "contract",
    "kind",
    "queue",
    "priority",
    "run_at",
    "delay_ms",
    "payload",
    "max_attempts",
    "retry",
    "unique_key",
    "concurrency_key",
    "on_dependency_failure",
    "ttl_s",
    "correlation_id",
)
NOT_ALIKE = ("payload", "unique_key", "concurrency_key")


class Checks(NamedTuple):
    """Limits that refuse a batch: queued jobs per queue, and queued jobs per requester."""

    depth_limit: int | None = None
    quotas: Mapping[str, int] | None = None


NO_CHECKS = Checks()


async def enqueue(db: Database, batch: Sequence[NewJob], checks: Checks, now: int | None) -> list[Enqueued]:
    """Create the jobs of a batch, all or none; raises the protocol's errors."""
    if not batch:
        return []
    try:
        if checks.depth_limit is not None or checks.quotas:
            return await db.transact(lambda session: enqueue_within(session, batch, now, checks))
        alike = _alike(batch)
        if not all(map(_plain, batch[:1] if alike else batch)):
            return await db.transact(lambda session: enqueue_within(session, batch, now))
        if alike:
            await db.fetch(Q.enqueue_alike, now, *alike)
        else:
            await db.fetch(PLAIN, now, *_columns(batch))
        return [tuple.__new__(Enqueued, (new[0], True, None)) for new in batch]
    except asyncpg.UniqueViolationError as error:
        raise DuplicateJob("a job with one of these ids exists already; use new ids") from error


async def enqueue_within(
    session: Any, batch: Sequence[NewJob], now: int | None, checks: Checks = NO_CHECKS
) -> list[Enqueued]:
    """Create the jobs of a batch inside the caller's transaction; raises the protocol's errors."""
    with_quota = sorted({new.requester_id for new in batch} & set(checks.quotas or ()))
    for requester_id in with_quota:  # locked one after the other, so that the counts below are exact
        await session.fetchval(Q.lock_quota, requester_id)
    at = await session.fetchval(Q.now, now)
    answers = await _earlier_answers(session, batch, at)
    fresh = await _create(session, batch, answers, at)
    if checks.depth_limit is not None:
        await _check_depth(session, {new.queue for new in fresh}, checks.depth_limit)
    if checks.quotas:
        await _check_quotas(session, fresh, checks.quotas)
    await _remember_others(session, batch, answers)
    await _depend(session, [new for new in fresh if new.depends_on])
    await keep_credentials(session, fresh)
    await _keep_resumed(session, [new for new in fresh if new.resumed_from is not None])
    await _keep_moments(session, [new for new in fresh if new.run_at is not None])
    keys = {new.concurrency_key: new.concurrency_limit for new in fresh if new.concurrency_key is not None}
    if keys:
        await session.execute(Q.limit_slots, list(keys), list(keys.values()))
        await admit(session, list(keys))
    return [answers[i] for i in range(len(batch))]


async def _keep_resumed(session: Any, resuming: Sequence[NewJob]) -> None:
    """Write the checkpoint `~resumed_from` of each resuming job."""
    if resuming:
        texts = [f'"{new.resumed_from}"' for new in resuming]
        await session.execute(Q.keep_resumed, [new.job_id for new in resuming], RESUMED_FROM, texts)


async def _keep_moments(session: Any, jobs: Sequence[NewJob]) -> None:
    """Write the checkpoint `~run_at` of each job with a requested moment; a step of the clock does not move it."""
    if jobs:
        texts = [str(new.run_at) for new in jobs]
        await session.execute(Q.keep_resumed, [new.job_id for new in jobs], RUN_AT, texts)


async def _check_depth(session: Any, queues: set[str], limit: int) -> None:
    """Raise QueueFull if the created jobs made a queue longer than its limit; the rollback removes them."""
    for queue in queues:
        if await session.fetchval(Q.depth, queue, limit + 1) > limit:
            raise QueueFull(queue, limit)


async def _check_quotas(session: Any, fresh: list[NewJob], quotas: Mapping[str, int]) -> None:
    """Raise QuotaExceeded if the created jobs exceed a requester's quota; the rollback removes them."""
    for requester_id, more in Counter(new.requester_id for new in fresh).items():
        limit = quotas.get(requester_id)
        if limit is None:
            continue
        sql = Q.queued_of if requester_id else Q.queued_of_nobody
        count = await session.fetchval(sql, requester_id, limit + more + 1)
        if count > limit:
            raise QuotaExceeded("queued", requester_id, limit=limit, used=count - more)


def _plain(new: NewJob) -> bool:
    return (
        new.idempotency is None
        and new.unique_key is None
        and new.concurrency_key is None
        and not new.depends_on
        and new.credentials is None
        and new.resumed_from is None
        and new.run_at is None
    )


def _alike(batch: Sequence[NewJob]) -> tuple[object, ...] | None:
    """Return statement parameters for jobs that differ only in id and payload; None for any other batch."""
    ids, kinds, payloads, *others = zip(*batch, strict=True)
    if len(batch) > 1 and not all(map(is_uniform, (kinds, *others))):
        return None
    values = batch[0]._replace(max_attempts=max_attempts_of(batch[0]))._asdict()
    return (",".join(ids), payloads, *(values[name] for name in STATEMENT if name not in NOT_ALIKE))


def _columns(batch: Sequence[NewJob]) -> tuple[Sequence[Any], ...]:
    """Return the fields of the jobs as columns, in the order of the statement."""
    column = dict(zip(NewJob._fields, zip(*batch, strict=True), strict=True))
    if None in column["max_attempts"]:
        alike = len(set(zip(column["max_attempts"], column["retry"], column["contract"], strict=True))) == 1
        column["max_attempts"] = tuple(max_attempts_of(new) for new in (batch[:1] if alike else batch))
    return (column["job_id"], *(spread(column[name]) for name in STATEMENT))


async def _earlier_answers(session: Any, batch: Sequence[NewJob], now: int) -> dict[int, Enqueued]:
    """Take free idempotency keys; return the earlier answers of the other keys, by index in the batch."""
    by_key = {(new.requester_id, new.idempotency.key): new for new in batch if new.idempotency is not None}
    held: dict[tuple[str, str], Any] = {}
    missing = by_key
    while missing:  # a key neither taken here nor stored was pruned in between
        new_keys = {(row[0], row[1]) for row in await session.fetch(Q.remember, now, *_key_columns(missing, now))}
        missing = {key: new for key, new in missing.items() if key not in new_keys}
        if missing:
            rows = await session.fetch(Q.idempotency_record, now, [r for r, _ in missing], [k for _, k in missing])
            held |= {(row[0], row[1]): row for row in rows}
            missing = {key: new for key, new in missing.items() if key not in held}
    answers = {}
    for i, new in enumerate(batch):
        if new.idempotency is not None and (row := held.get((new.requester_id, new.idempotency.key))):
            if row[2] != new.idempotency.request_hash:
                raise IdempotencyConflict(
                    f"idempotency key {new.idempotency.key!r} was used with another request; use a new key"
                )
            answers[i] = Enqueued(row[3], created=False, response=row[4])
    return answers


def _key_columns(by_key: dict[tuple[str, str], NewJob], now: int) -> tuple[list[Any], ...]:
    keys = [new.idempotency for new in by_key.values() if new.idempotency is not None]
    return (
        [requester_id for requester_id, _ in by_key],
        [key.key for key in keys],
        [key.request_hash for key in keys],
        [new.job_id for new in by_key.values()],
        [key.response for key in keys],
        [now + key.ttl_s * 1000 for key in keys],
    )


async def _create(session: Any, batch: Sequence[NewJob], answers: dict[int, Enqueued], now: int) -> list[NewJob]:
    """Insert jobs without an answer and return the created jobs. A unique key in use answers with its holder's id."""
    open_ = {i: new for i, new in enumerate(batch) if i not in answers}
    first = {new.unique_key: i for i, new in reversed(open_.items()) if new.unique_key is not None}
    candidates = {i: new for i, new in open_.items() if new.unique_key is None or first[new.unique_key] == i}
    created_ids: set[str] = set()
    while candidates:  # if the holder ended between the two statements, its key is free
        sql = Q.enqueue_unique if first else Q.enqueue
        created_ids |= {job_id for (job_id,) in await session.fetch(sql, now, *_columns(list(candidates.values())))}
        candidates = {i: new for i, new in candidates.items() if new.job_id not in created_ids}
        if candidates:
            holders = dict(await session.fetch(Q.active_unique, [new.unique_key for new in candidates.values()]))
            for i, new in list(candidates.items()):
                if new.unique_key in holders:
                    answers[i] = Enqueued(holders[new.unique_key], created=False)
                    del candidates[i]
    for i, new in open_.items():
        if new.unique_key is not None and first[new.unique_key] != i:
            answers[i] = Enqueued(
                answers.get(first[new.unique_key], batch[first[new.unique_key]]).job_id, created=False
            )
        elif new.job_id in created_ids:
            answers[i] = Enqueued(new.job_id, created=True)
    return [new for i, new in open_.items() if answers[i].created]


async def _remember_others(session: Any, batch: Sequence[NewJob], answers: dict[int, Enqueued]) -> None:
    """Point new idempotency keys at the job that a unique key found instead."""
    others = [
        (new.requester_id, new.idempotency.key, answers[i].job_id)
        for i, new in enumerate(batch)
        if new.idempotency is not None and answers[i].response is None and answers[i].job_id != new.job_id
    ]
    if others:
        await session.execute(Q.remember_other, *(list(column) for column in zip(*others, strict=True)))


async def _depend(session: Any, waiting: list[NewJob]) -> None:
    """Block jobs on those of their dependencies that are still open; record a dependency that has failed already."""
    if not waiting:
        return
    parents = {parent: None for new in waiting for parent in new.depends_on}
    statuses = dict(await session.fetch(Q.touch_parents, known_ids(parents)))
    edges: list[tuple[str, str]] = []
    blocks: list[tuple[str, int, str | None]] = []
    for new in waiting:
        blocked_by, broken_by = 0, None
        for parent in dict.fromkeys(new.depends_on):
            if parent not in statuses:
                raise DependencyNotFound(
                    f"job {new.job_id} depends on {parent}, which does not exist; enqueue that first"
                )
            status = Status(statuses[parent])
            has_failed = status.terminal and status is not Status.SUCCEEDED
            if status is Status.SUCCEEDED or (has_failed and new.on_dependency_failure is OnDependencyFailure.RUN):
                continue
            if has_failed:
                broken_by = broken_by or parent
            edges.append((parent, new.job_id))
            blocked_by += 1
        if blocked_by:
            blocks.append((new.job_id, blocked_by, broken_by))
    if blocks:
        await session.execute(Q.depend, *(list(column) for column in zip(*edges, strict=True)))
        await session.execute(Q.block, *(list(column) for column in zip(*blocks, strict=True)))
