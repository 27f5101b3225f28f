"""The PostgreSQL store: the protocol's verbs, each one statement or one short transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from callsheet.kernel.errors import DocumentConflict
from callsheet.kernel.job import Claim, Event, Status
from callsheet.kernel.workers import silence_of
from callsheet.store.hints import NoDoor
from callsheet.store.outbox import ANY_EVENT, UNLIMITED, ClaimShares, OutboxFilter
from callsheet.store.protocol import (
    Backlog,
    Document,
    EndedCount,
    Hint,
    IdempotencyRecord,
    JobPage,
    Settled,
    WorkerLoad,
)
from callsheet.store.queries import Queries
from callsheet.store.rows import (
    attempt_of,
    job_of,
    line_place,
    next_cursor,
    outbox_event_of,
    ready_page,
    running_attempt,
)

from . import audit, line, schema
from . import credentials as creds
from .claim import claim, heartbeat
from .clock import rebase
from .connection import Database
from .enqueue import Checks, enqueue
from .floor import Floor
from .ids import known_ids
from .settle import settle
from .target import Target
from .wire import Wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping, Sequence

    from callsheet.kernel.audit import AuditEntry
    from callsheet.kernel.job import Attempt, Credentials, Delivery, Job, Json, NewJob, OutboxEvent
    from callsheet.kernel.settlement import OutboxSettlement, Settlement
    from callsheet.store.audit import AuditPage, AuditQuery
    from callsheet.store.clock import ClockStep, Rebased
    from callsheet.store.outbox import Replay
    from callsheet.store.protocol import ClaimRequest, Enqueued, HeartbeatResult, JobQuery, ReadyPage

Q = Queries("callsheet.store.postgres")
NUL = "\0"  # PostgreSQL text cannot contain it
NOBODYS = Claim("00000000-0000-0000-0000-000000000000", 0)


class PostgresStore:
    """The whole protocol on one PostgreSQL database (13 or newer), shared by many processes and machines."""

    batch = 1_000
    streams = False

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
            await schema.check(self._db)
            ((commit, fsync, version),) = await self._db.fetch(Q.durability)
        except BaseException:
            await self._db.close()
            raise
        lost = "" if fsync == "on" else ", fsync=off: a crash of the server loses data"
        self.durability = f"PostgreSQL {version.split()[0]}, synchronous_commit={commit}{lost}"
        return self

    async def close(self) -> None:
        """Close all connections."""
        await self._wire.stop()
        await self._db.close()

    async def migrate(self) -> list[str]:
        """Run the missing migrations, in one transaction; the store need not be open."""
        return await schema.migrate(self.target)

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
        """See the protocol."""
        answers = await enqueue(self._db, batch, Checks(depth_limit, quotas), now)
        self._wire.send(Hint(frozenset({new.queue for new in batch})))
        return answers

    async def claim(self, request: ClaimRequest, *, now: int | None = None) -> list[Job]:
        """See the protocol."""
        return await claim(self._db, self._floor, request, now)

    async def heartbeat(
        self, claims: Sequence[Claim], *, lease_ms: int, silence_ms: int | None = None, now: int | None = None
    ) -> list[HeartbeatResult]:
        """See the protocol."""
        lengths_ms = lease_ms, silence_of(lease_ms) if silence_ms is None else silence_ms
        known = set(known_ids(claim.job_id for claim in claims))
        asked = [claim if claim.job_id in known else NOBODYS for claim in claims]
        return await heartbeat(self._db, Q.heartbeat, asked, now, *lengths_ms)

    async def settle(self, settlements: Sequence[Settlement], *, now: int | None = None) -> list[Settled]:
        """See the protocol."""
        lined_up: set[str] = set()
        answers = await settle(self._db, settlements, now, lined_up)
        self._wire.send(Hint(frozenset(lined_up), frozenset({s.job_id for s in settlements})))
        return answers

    async def with_expired_lease(self, limit: int, *, now: int | None = None) -> list[Job]:
        """See the protocol."""
        return [job_of(row) for row in await self._db.fetch(Q.with_expired_lease, now, limit)]

    async def running_of(self, worker_id: str, limit: int) -> list[Job]:
        """See the protocol."""
        return [job_of(row) for row in await self._db.fetch(Q.running_of, worker_id, limit)]

    async def ready_jobs(self, limit: int, *, cursor: str | None = None) -> ReadyPage:
        """See the protocol."""
        return ready_page(await self._db.fetch(Q.ready_jobs, *line_place(cursor), limit), limit)

    async def with_failed_dependency(self, limit: int) -> list[Job]:
        """See the protocol."""
        return [job_of(row) for row in await self._db.fetch(Q.with_failed_dependency, limit)]

    async def promote(self, *, now: int | None = None) -> int:
        """See the protocol."""
        lined_up = await self._db.transact(lambda session: line.promote(session, now))
        if lined_up:
            self._wire.send(Hint(frozenset(lined_up)))
        return len(lined_up)

    async def prune(self, *, ended_before: int, limit: int, now: int | None = None) -> int:
        """See the protocol."""
        count: int = (await self._db.fetch(Q.prune, now, ended_before, limit))[0][0]
        return count

    async def delete(self, claims: Sequence[Claim]) -> int:
        """See the protocol."""
        known = set(known_ids(claim.job_id for claim in claims))
        asked = sorted({claim for claim in claims if claim.job_id in known})
        rows = await self._db.fetch(Q.delete, [c.job_id for c in asked], [c.claim_version for c in asked])
        count: int = rows[0][0]
        return count

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        """See the protocol."""
        jobs = {job.job_id: job for job in map(job_of, await self._db.fetch(Q.get, known_ids(job_ids)))}
        return [jobs.get(job_id) for job_id in job_ids]

    async def find(self, query: JobQuery) -> JobPage:
        """See the protocol."""
        sql = Q.find_of_requester if query.requester_id else Q.find
        if query.ended_badly:
            sql = Q.find_ended_badly
        top, floor = int(query.cursor) if query.cursor else None, None
        if query.scan_limit is not None and sql is Q.find:
            last = await self._db.fetch(Q.find_floor, top, query.scan_limit)
            floor = last[0][0] if last else None
        rows = await self._db.fetch(
            sql,
            top,
            query.requester_id,
            query.kind,
            query.queue,
            query.contract,
            query.created_from,
            query.created_to,
            [status.value for status in query.statuses] or None,
            query.limit,
            query.needle,
            floor,
            query.has_begun,
        )
        return JobPage([job_of(row) for row in rows], next_cursor(rows, query.limit, floor))

    async def counts(self) -> dict[str, dict[Status, int]]:
        """See the protocol."""
        found: dict[str, dict[Status, int]] = {}
        for queue, status, count in await self._db.fetch(Q.counts):
            found.setdefault(queue, {})[Status(status)] = count
        return found

    async def queued_of(self, requester_ids: Sequence[str], *, most: int) -> list[int]:
        """See the protocol."""
        named = dict(await self._db.fetch(Q.queued_of_many, [name for name in requester_ids if name], most))
        if "" in requester_ids:
            named[""] = (await self._db.fetch(Q.queued_of_nobody, "", most))[0][0]
        return [named[name] for name in requester_ids]

    async def backlog(self, *, now: int | None = None) -> dict[str, Backlog]:
        """See the protocol."""
        return {queue: Backlog(*numbers) for queue, *numbers in await self._db.fetch(Q.backlog, now)}

    async def ended_counts(self, *, since: int, span_ms: int, requester_id: str | None = None) -> list[EndedCount]:
        """See the protocol."""
        rows = await self._db.fetch(Q.ended_counts, since, span_ms, requester_id)
        return [EndedCount(at, kind, Status(status), count) for at, kind, status, count in rows]

    async def dead_letters(self, requester_id: str | None = None) -> dict[str, int]:
        """See the protocol."""
        return dict(await self._db.fetch(Q.dead_letters, requester_id))

    async def worker_loads(self, requester_id: str | None = None) -> list[WorkerLoad]:
        """See the protocol."""
        return [WorkerLoad(*row) for row in await self._db.fetch(Q.worker_loads, requester_id)]

    async def attempts(self, job_id: str) -> list[Attempt]:
        """See the protocol."""
        (job,) = await self.get([job_id])
        if job is None:
            return []
        ended = [attempt_of(row) for row in await self._db.fetch(Q.attempts, job_id)]
        open_ = job.has_started and all(attempt.claim_version != job.claim_version for attempt in ended)
        return [*ended, running_attempt(job)] if open_ else ended

    async def checkpoints(self, job_id: str) -> dict[str, Json]:
        """See the protocol."""
        return dict(await self._db.fetch(Q.checkpoints, job_id)) if known_ids([job_id]) else {}

    async def events(self, after: Mapping[str, int], limit: int) -> list[Event]:
        """See the protocol."""
        ids = known_ids(after)
        return [Event(*row) for row in await self._db.fetch(Q.events, ids, [after[id_] for id_ in ids], limit)]

    async def hints(self) -> AsyncIterator[Hint]:
        """Yield hints of this process at once; of other processes by LISTEN, or every 250 ms without LISTEN."""
        self._wire.start()
        async for hint in self._wire.local.receive():
            yield hint

    async def listen_for(self, job_ids: Collection[str]) -> None:
        """See the protocol; every event passes through the store."""

    async def door(self, worker_id: str, queues: Sequence[str]) -> NoDoor:  # noqa: ARG002 - the protocol's
        """See the protocol; every job passes through the store."""
        return NoDoor()

    async def outbox_claim(
        self, worker_id: str, *, limit: int, lease_ms: int, shares: ClaimShares = UNLIMITED, now: int | None = None
    ) -> list[OutboxEvent]:
        """See the protocol."""
        limits = ([limit[column] for limit in shares.limits] for column in range(3))
        rows = await self._db.fetch(
            Q.outbox_claim, now, worker_id, lease_ms, limit, shares.each, *limits, list(shares.without)
        )
        return [outbox_event_of(row) for row in sorted(rows, key=lambda row: row[0])]

    async def outbox_heartbeat(
        self, claims: Sequence[Claim], *, lease_ms: int, now: int | None = None
    ) -> list[HeartbeatResult]:
        """See the protocol."""
        return await heartbeat(self._db, Q.outbox_heartbeat, claims, now, lease_ms)

    async def outbox_settle(self, settlements: Sequence[OutboxSettlement], *, now: int | None = None) -> list[Settled]:
        """See the protocol."""
        first = {(s.event_id, s.claim_version): s for s in reversed(settlements)}
        asked = sorted(first.values(), key=lambda s: s.event_id)
        rows = await self._db.fetch(
            Q.outbox_settle,
            now,
            [s.event_id for s in asked],
            [s.claim_version for s in asked],
            [s.status.value for s in asked],
            [int(s.counts) for s in asked],
            [s.error for s in asked],
            [s.delay_ms for s in asked],
        )
        applied = {(row[0], row[1]) for row in rows}
        return [
            Settled.APPLIED if (key := (s.event_id, s.claim_version)) in applied and first[key] is s else Settled.STALE
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
        """See the protocol."""
        if job_id is not None and not known_ids([job_id]):
            return []
        sql = Q.outbox_find_newest if where.newest_first else Q.outbox_find
        rows = await self._db.fetch(sql, job_id, status.value if status else None, limit, *where[:-1])
        return [outbox_event_of(row) for row in rows]

    async def outbox_replay(self, replays: Sequence[Replay], *, now: int | None = None) -> list[bool]:
        """See the protocol."""
        asked = sorted({r.event_id: r.delay_ms for r in reversed(replays)}.items())
        ids, delays = [event_id for event_id, _ in asked], [delay_ms for _, delay_ms in asked]
        found = {row[0] for row in await self._db.fetch(Q.outbox_replay, now, ids, delays)}
        first = {r.event_id: n for n, r in reversed(list(enumerate(replays)))}  # an event named twice is replayed once
        return [r.event_id in found and first[r.event_id] == n for n, r in enumerate(replays)]

    async def idempotency_record(
        self, requester_id: str, key: str, *, now: int | None = None
    ) -> IdempotencyRecord | None:
        """See the protocol."""
        rows = await self._db.fetch(Q.idempotency_record, now, [requester_id], [key])
        return IdempotencyRecord(*rows[0][2:]) if rows else None

    async def pause(self, queue: str, *, paused: bool) -> None:
        """See the protocol."""
        await self._db.fetch(Q.pause if paused else Q.resume, queue)
        self._wire.send(Hint(frozenset({queue})))

    async def paused_queues(self) -> frozenset[str]:
        """See the protocol."""
        return frozenset(row[0] for row in await self._db.fetch(Q.paused_queues))

    async def credentials(self, job_ids: Sequence[str]) -> list[Credentials | None]:
        """See the protocol."""
        return await creds.credentials(self._db, job_ids)

    async def replace_credentials(self, changes: Sequence[tuple[Credentials, Credentials]]) -> list[bool]:
        """See the protocol."""
        return await creds.replace_credentials(self._db, changes)

    async def credentials_under(self, kek_id: str, *, after: str = "", limit: int = 100) -> list[Credentials]:
        """See the protocol."""
        return await creds.credentials_under(self._db, kek_id, after, limit)

    async def credential_keks(self) -> dict[str, int]:
        """See the protocol."""
        return dict(await self._db.fetch(Q.credential_keks))

    async def put_document(self, document: Document) -> Document:
        """See the protocol."""
        return await _put(self._db, document)

    async def documents(self, kind: str, id: str | None = None) -> list[Document]:
        """See the protocol."""
        if id is not None and NUL in id:
            return []
        return [Document(*row) for row in await self._db.fetch(Q.documents, kind, id)]

    async def delete_document(self, kind: str, id: str) -> bool:
        """See the protocol."""
        return NUL not in id and bool(await self._db.fetch(Q.delete_document, kind, id))

    async def rebase(self, step: ClockStep, mark: Document) -> Rebased:
        """See the protocol."""

        async def work(session: Any) -> Rebased:
            await _put(session, mark)
            return await rebase(session, step)

        return await self._db.transact(work)

    async def audit_append(self, entries: Sequence[AuditEntry], *, now: int | None = None) -> list[str]:
        """See the protocol."""
        return await audit.append(self._db, entries, now)

    async def audit_find(self, query: AuditQuery) -> AuditPage:
        """See the protocol."""
        return await audit.find(self._db, query)

    async def audit_prune(self, *, before: int, limit: int) -> int:
        """See the protocol."""
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
