"""The PostgreSQL store: the protocol's verbs, each one statement or one short transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Self

from callsheet.kernel.audit import AuditEntry
from callsheet.kernel.errors import DocumentConflict
from callsheet.kernel.job import Attempt, Claim, Credentials, Delivery, Event, Job, Json, NewJob, OutboxEvent, Status
from callsheet.kernel.settlement import OutboxSettlement, Settlement
from callsheet.kernel.workers import silence_of
from callsheet.store.clock import ClockStep, Rebased
from callsheet.store.outbox import ANY_EVENT, UNLIMITED, ClaimShares, OutboxFilter, Replay
from callsheet.store.protocol import ClaimRequest, Document, Enqueued, HeartbeatResult, Hint, IdempotencyRecord, Settled
from callsheet.store.queries import Queries
from callsheet.store.rows import attempt_of, credentials_of, job_of, outbox_event_of, running_attempt
from callsheet.store.sql import SqlReads

from . import line, maintenance
from .claim import Floor, claim, heartbeat
from .columns import known_ids
from .connection import Database, Row, Target
from .enqueue import Checks, enqueue
from .settle import settle
from .side_records import append_audit, replace_credentials
from .wire import Wire

Q = Queries("callsheet.store.postgres")
NUL = "\0"  # PostgreSQL text cannot contain it
NOBODYS = Claim("00000000-0000-0000-0000-000000000000", 0)


class PostgresStore(SqlReads):
    """The whole protocol on one PostgreSQL database (13 or newer), shared by many processes and machines."""

    batch = 1_000
    streams = False
    _queries = Q

    def __init__(self, target: Target) -> None:
        self.target = target
        self.durability = "PostgreSQL, not open"
        self._db = Database(target)
        self._floor = Floor()
        self._wire = Wire(target)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Return a store for `postgresql://…`; `?pgbouncer=true` behind a transaction pooler, `?pool_size=5`."""
        return cls(Target.from_url(url))

    async def open(self) -> Self:
        """Connect and check the schema; raises SchemaMismatch if `migrate()` must run first."""
        try:
            await self._db.open()
            await maintenance.check(self._db)
            ((commit, fsync, version),) = await self._db.fetch(Q.durability)
        except BaseException:
            await self._db.close()
            raise
        warning = "" if fsync == "on" else ", fsync=off: a crash of the server loses data"
        self.durability = f"PostgreSQL {version.split()[0]}, synchronous_commit={commit}{warning}"
        return self

    async def close(self) -> None:
        """Close all connections."""
        await self._wire.stop()
        await self._db.close()

    async def migrate(self) -> list[str]:
        """Run the missing migrations, in one transaction; the store need not be open."""
        return await maintenance.migrate(self.target)

    async def now(self) -> int:
        """Return the time of the server's clock."""
        now: int = (await self._db.fetch(Q.now, None))[0][0]
        return now

    async def enqueue(
        self,
        batch: Sequence[NewJob],
        *,
        depth_limit: int | None = None,
        quotas: Mapping[str, int] | None = None,
        now: int | None = None,
    ) -> list[Enqueued]:
        answers = await enqueue(self._db, batch, Checks(depth_limit, quotas), now)
        self._wire.send(Hint(frozenset({new.queue for new in batch})))
        return answers

    async def claim(self, request: ClaimRequest, *, now: int | None = None) -> list[Job]:
        return await claim(self._db, self._floor, request, now)

    async def heartbeat(
        self, claims: Sequence[Claim], *, lease_ms: int, silence_ms: int | None = None, now: int | None = None
    ) -> list[HeartbeatResult]:
        lengths_ms = lease_ms, silence_of(lease_ms) if silence_ms is None else silence_ms
        valid_ids = set(known_ids(claim.job_id for claim in claims))
        valid_claims = [claim if claim.job_id in valid_ids else NOBODYS for claim in claims]
        return await heartbeat(self._db, Q.heartbeat, valid_claims, now, *lengths_ms)

    async def settle(self, settlements: Sequence[Settlement], *, now: int | None = None) -> list[Settled]:
        lined_up: set[str] = set()
        answers = await settle(self._db, settlements, now, lined_up)
        self._wire.send(Hint(frozenset(lined_up), frozenset({s.job_id for s in settlements})))
        return answers

    async def promote(self, *, now: int | None = None) -> int:
        lined_up = await self._db.transact(lambda session: line.promote(session, now))
        if lined_up:
            self._wire.send(Hint(frozenset(lined_up)))
        return len(lined_up)

    async def prune(self, *, ended_before: int, limit: int, now: int | None = None) -> int:
        count: int = (await self._db.fetch(Q.prune, now, ended_before, limit))[0][0]
        return count

    async def delete(self, claims: Sequence[Claim]) -> int:
        valid_ids = set(known_ids(claim.job_id for claim in claims))
        valid_claims = sorted({claim for claim in claims if claim.job_id in valid_ids})
        rows = await self._db.fetch(Q.delete, [c.job_id for c in valid_claims], [c.claim_version for c in valid_claims])
        count: int = rows[0][0]
        return count

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        jobs = {job.job_id: job for job in map(job_of, await self._db.fetch(Q.get, known_ids(job_ids)))}
        return [jobs.get(job_id) for job_id in job_ids]

    async def queued_of(self, requester_ids: Sequence[str], *, most: int) -> list[int]:
        counts = dict(await self._db.fetch(Q.queued_of_many, [name for name in requester_ids if name], most))
        if "" in requester_ids:
            counts[""] = (await self._db.fetch(Q.queued_of_nobody, "", most))[0][0]
        return [counts[name] for name in requester_ids]

    async def attempts(self, job_id: str) -> list[Attempt]:
        (job,) = await self.get([job_id])
        if job is None:
            return []
        attempts = [attempt_of(row) for row in await self._db.fetch(Q.attempts, job_id)]
        open_ = job.has_started and all(attempt.claim_version != job.claim_version for attempt in attempts)
        return [*attempts, running_attempt(job)] if open_ else attempts

    async def checkpoints(self, job_id: str) -> dict[str, Json]:
        return dict(await self._db.fetch(Q.checkpoints, job_id)) if known_ids([job_id]) else {}

    async def events(self, after: Mapping[str, int], limit: int) -> list[Event]:
        ids = known_ids(after)
        return [Event(*row) for row in await self._db.fetch(Q.events, ids, [after[id_] for id_ in ids], limit)]

    async def hints(self) -> AsyncIterator[Hint]:
        """Yield hints of this process at once; of other processes by LISTEN, or every 250 ms without LISTEN."""
        self._wire.start()
        async for hint in self._wire.local.receive():
            yield hint

    async def outbox_claim(
        self, worker_id: str, *, limit: int, lease_ms: int, shares: ClaimShares = UNLIMITED, now: int | None = None
    ) -> list[OutboxEvent]:
        limits = ([limit[column] for limit in shares.limits] for column in range(3))
        rows = await self._db.fetch(
            Q.outbox_claim, now, worker_id, lease_ms, limit, shares.each, *limits, list(shares.without)
        )
        return [outbox_event_of(row) for row in sorted(rows, key=lambda row: row[0])]

    async def outbox_heartbeat(
        self, claims: Sequence[Claim], *, lease_ms: int, now: int | None = None
    ) -> list[HeartbeatResult]:
        return await heartbeat(self._db, Q.outbox_heartbeat, claims, now, lease_ms)

    async def outbox_settle(self, settlements: Sequence[OutboxSettlement], *, now: int | None = None) -> list[Settled]:
        first = {(s.event_id, s.claim_version): s for s in reversed(settlements)}
        sorted_settlements = sorted(first.values(), key=lambda s: s.event_id)
        rows = await self._db.fetch(
            Q.outbox_settle,
            now,
            [s.event_id for s in sorted_settlements],
            [s.claim_version for s in sorted_settlements],
            [s.status.value for s in sorted_settlements],
            [int(s.counts) for s in sorted_settlements],
            [s.error for s in sorted_settlements],
            [s.delay_ms for s in sorted_settlements],
        )
        applied_keys = {(row[0], row[1]) for row in rows}
        return [
            Settled.APPLIED
            if (key := (s.event_id, s.claim_version)) in applied_keys and first[key] is s
            else Settled.STALE
            for s in settlements
        ]

    async def outbox_find(
        self,
        *,
        job_id: str | None = None,
        status: Delivery | None = None,
        limit: int = 50,
        where: OutboxFilter = ANY_EVENT,
    ) -> list[OutboxEvent]:
        if job_id is not None and not known_ids([job_id]):
            return []
        sql = Q.outbox_find_newest if where.newest_first else Q.outbox_find
        rows = await self._db.fetch(sql, job_id, status.value if status else None, limit, *where[:-1])
        return [outbox_event_of(row) for row in rows]

    async def outbox_replay(self, replays: Sequence[Replay], *, now: int | None = None) -> list[bool]:
        pairs = sorted({r.event_id: r.delay_ms for r in reversed(replays)}.items())
        ids, delays = [event_id for event_id, _ in pairs], [delay_ms for _, delay_ms in pairs]
        replayed_ids = {row[0] for row in await self._db.fetch(Q.outbox_replay, now, ids, delays)}
        first = {r.event_id: n for n, r in reversed(list(enumerate(replays)))}  # an event named twice is replayed once
        return [r.event_id in replayed_ids and first[r.event_id] == n for n, r in enumerate(replays)]

    async def idempotency_record(
        self, requester_id: str, key: str, *, now: int | None = None
    ) -> IdempotencyRecord | None:
        rows = await self._db.fetch(Q.idempotency_record, now, [requester_id], [key])
        return IdempotencyRecord(*rows[0][2:]) if rows else None

    async def pause(self, queue: str, *, paused: bool) -> None:
        await self._db.fetch(Q.pause if paused else Q.resume, queue)
        self._wire.send(Hint(frozenset({queue})))

    async def credentials(self, job_ids: Sequence[str]) -> list[Credentials | None]:
        by_id = {row[0]: credentials_of(row) for row in await self._db.fetch(Q.credentials, known_ids(job_ids))}
        return [by_id.get(job_id) for job_id in job_ids]

    async def replace_credentials(self, changes: Sequence[tuple[Credentials, Credentials]]) -> list[bool]:
        return await replace_credentials(self._db, changes)

    async def credentials_under(self, kek_id: str, *, after: str = "", limit: int = 100) -> list[Credentials]:
        return [credentials_of(row) for row in await self._db.fetch(Q.credentials_under, kek_id, after or None, limit)]

    async def put_document(self, document: Document) -> Document:
        return await _put(self._db, document)

    async def delete_document(self, kind: str, id: str) -> bool:
        return NUL not in id and bool(await self._db.fetch(Q.delete_document, kind, id))

    async def rebase(self, step: ClockStep, mark: Document) -> Rebased:
        async def work(session: Any) -> Rebased:
            await _put(session, mark)
            return await maintenance.rebase(session, step)

        return await self._db.transact(work)

    async def _fetch(self, sql: str, *parameters: object) -> list[Row]:
        return await self._db.fetch(sql, *parameters)

    def _statuses(self, statuses: tuple[Status, ...]) -> list[str] | None:
        return [status.value for status in statuses] or None

    async def audit_append(self, entries: Sequence[AuditEntry], *, now: int | None = None) -> list[str]:
        return await append_audit(self._db, entries, now)

    async def audit_prune(self, *, before: int, limit: int) -> int:
        return len(await self._db.fetch(Q.audit_prune, before, limit))


async def _put(session: Any, document: Document) -> Document:
    """Write a document whose stored version is unchanged; raises DocumentConflict."""
    d = document
    rows = (
        await session.fetch(Q.change_document, d.kind, d.id, d.body, d.version)
        if d.version
        else await session.fetch(Q.create_document, d.kind, d.id, d.body)
    )
    if not rows:
        raise DocumentConflict(f"{d.kind} {d.id} is not at version {d.version} any more; read it and try again")
    return d._replace(version=rows[0][0])
