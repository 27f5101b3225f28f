"""The SQLite store: the protocol's verbs, each a short transaction on the writer's or the reader's thread."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Self
from urllib.parse import parse_qsl, unquote

from callsheet.kernel.errors import DocumentConflict, StoreUnavailable, UnknownStore
from callsheet.kernel.job import Event, Status
from callsheet.kernel.workers import silence_of
from callsheet.store.hints import Hints, NoDoor
from callsheet.store.outbox import ANY_EVENT, UNLIMITED, ClaimShares, OutboxFilter
from callsheet.store.protocol import (
    Backlog,
    Document,
    EndedCount,
    HeartbeatResult,
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
from callsheet.store.tasks import end

from . import audit
from . import credentials as creds
from .claim import claim, heartbeat
from .clock import rebase
from .connection import Db, Target, Thread
from .enqueue import enqueue, queued_of
from .files import GROUPS
from .keeping import delete, migrate, promote, prune
from .outbox import claimable
from .settle import settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping, Sequence

    from callsheet.kernel.audit import AuditEntry
    from callsheet.kernel.job import Attempt, Claim, Credentials, Delivery, Job, Json, NewJob, OutboxEvent
    from callsheet.kernel.settlement import OutboxSettlement, Settlement
    from callsheet.store.audit import AuditPage, AuditQuery
    from callsheet.store.clock import ClockStep, Rebased
    from callsheet.store.outbox import Replay
    from callsheet.store.protocol import ClaimRequest, Enqueued, JobQuery, ReadyPage

Q = Queries("callsheet.store.sqlite")
POLL_S = 0.005


class SqliteStore:
    """The whole protocol in one file. Several processes may share the file."""

    batch = 500
    streams = False

    def __init__(self, target: Target) -> None:
        self.target = target
        self.durability = f"SQLite, WAL, synchronous={target.synchronous}"
        self._writer = Thread(target, writes=True)
        self._reader = self._writer if target.in_memory else Thread(target, writes=False)
        self._hints = Hints()
        self._poll: asyncio.Task[None] | None = None

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Return a store for `sqlite:///relative.db`, `sqlite:////absolute.db` or `sqlite::memory:`.

        Options are `?synchronous=` and `?group=`. Raises UnknownStore.
        """
        scheme, _, rest = url.partition(":")
        path, _, query = rest.partition("?")
        options = dict(parse_qsl(query))
        synchronous = options.pop("synchronous", "full").upper()
        group = options.pop("group", "")
        if path not in (":memory:", "///:memory:") and not path.startswith("///"):
            raise UnknownStore(f"{url!r} names no file; use sqlite:///jobs.db or sqlite::memory:")
        if synchronous not in ("FULL", "NORMAL", "EXTRA") or group not in GROUPS or options:
            raise UnknownStore(f"{url!r} has unknown options; there are ?synchronous=full|normal and ?group=read|write")
        name = ":memory:" if path.endswith(":memory:") else unquote(path[3:])
        return cls(Target(name, scheme, synchronous, group))

    async def open(self) -> Self:
        """Open the file, creating it, and migrate it; raises SchemaMismatch for a newer schema."""
        await self.migrate()
        await self._reader.start()
        return self

    async def close(self) -> None:
        """Stop both threads."""
        if self._poll is not None:
            await end(self._poll)
            self._poll = None
        await self._reader.stop()
        await self._writer.stop()

    async def migrate(self) -> list[str]:
        """Run the missing migrations, in one transaction."""
        await self._writer.start()
        return await self._writer.run(migrate)

    async def now(self) -> int:
        """Return the time of this machine's clock, since the store runs in this process."""
        return _clock(None)

    async def enqueue(
        self,
        batch: Sequence[NewJob],
        *,
        depth_limit: int | None = None,
        quotas: Mapping[str, int] | None = None,
        now: int | None = None,
    ) -> list[Enqueued]:
        """See the protocol."""
        answers = await self._writer.run(lambda db: enqueue(db, batch, _clock(now), depth_limit, quotas))
        self._hints.send(Hint(frozenset({new.queue for new in batch})))
        return answers

    async def claim(self, request: ClaimRequest, *, now: int | None = None) -> list[Job]:
        """See the protocol."""
        return await self._writer.run(lambda db: claim(db, request, _clock(now)))

    async def heartbeat(
        self, claims: Sequence[Claim], *, lease_ms: int, silence_ms: int | None = None, now: int | None = None
    ) -> list[HeartbeatResult]:
        """See the protocol."""
        lengths_ms = lease_ms, silence_of(lease_ms) if silence_ms is None else silence_ms
        return await self._writer.run(lambda db: heartbeat(db, Q.heartbeat, claims, _clock(now), *lengths_ms))

    async def settle(self, settlements: Sequence[Settlement], *, now: int | None = None) -> list[Settled]:
        """See the protocol."""
        answers = await self._writer.run(lambda db: settle(db, settlements, _clock(now)))
        self._hints.send(Hint(jobs=frozenset({s.job_id for s in settlements})))
        return answers

    async def with_expired_lease(self, limit: int, *, now: int | None = None) -> list[Job]:
        """See the protocol."""
        return await self._jobs(Q.with_expired_lease, _clock(now), limit)

    async def running_of(self, worker_id: str, limit: int) -> list[Job]:
        """See the protocol."""
        return await self._jobs(Q.running_of, worker_id, limit)

    async def ready_jobs(self, limit: int, *, cursor: str | None = None) -> ReadyPage:
        """See the protocol."""
        parameters = (*line_place(cursor), limit)
        return ready_page(await self._reader.run(lambda db: db.execute(Q.ready_jobs, parameters).fetchall()), limit)

    async def with_failed_dependency(self, limit: int) -> list[Job]:
        """See the protocol."""
        return await self._jobs(Q.with_failed_dependency, limit)

    async def promote(self, *, now: int | None = None) -> int:
        """See the protocol."""
        return await self._writer.run(lambda db: promote(db, _clock(now)))

    async def prune(self, *, ended_before: int, limit: int, now: int | None = None) -> int:
        """See the protocol."""
        return await self._writer.run(lambda db: prune(db, ended_before, limit, _clock(now)))

    async def delete(self, claims: Sequence[Claim]) -> int:
        """See the protocol."""
        return await self._writer.run(lambda db: delete(db, claims))

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        """See the protocol."""

        def work(db: Db) -> list[Job | None]:
            rows = [db.execute(Q.get, (job_id,)).fetchone() for job_id in job_ids]
            return [job_of(row) if row else None for row in rows]

        return await self._reader.run(work)

    async def find(self, query: JobQuery) -> JobPage:
        """See the protocol."""
        statuses = f" {' '.join(query.statuses)} " if query.statuses else ""
        top = int(query.cursor) if query.cursor else None
        sql = Q.find_of_requester if query.requester_id else Q.find
        if query.ended_badly:
            sql = Q.find_ended_badly
        floor = None
        if query.scan_limit is not None and sql is Q.find:
            last = await self._reader.run(lambda db: db.execute(Q.find_floor, (top, query.scan_limit)).fetchone())
            floor = last[0] if last else None
        parameters = (
            top,
            query.requester_id,
            query.kind,
            query.queue,
            query.contract,
            query.created_from,
            query.created_to,
            statuses,
            query.limit,
            query.needle,
            floor,
            query.has_begun,
        )
        rows = await self._reader.run(lambda db: db.execute(sql, parameters).fetchall())
        return JobPage([job_of(row) for row in rows], next_cursor(rows, query.limit, floor))

    async def counts(self) -> dict[str, dict[Status, int]]:
        """See the protocol."""
        found: dict[str, dict[Status, int]] = {}
        for queue, status, count in await self._reader.run(lambda db: db.execute(Q.counts).fetchall()):
            found.setdefault(queue, {})[Status(status)] = count
        return found

    async def queued_of(self, requester_ids: Sequence[str], *, most: int) -> list[int]:
        """See the protocol."""
        return await self._reader.run(lambda db: [queued_of(db, requester, most) for requester in requester_ids])

    async def backlog(self, *, now: int | None = None) -> dict[str, Backlog]:
        """See the protocol."""
        rows = await self._reader.run(lambda db: db.execute(Q.backlog, (_clock(now),)).fetchall())
        return {queue: Backlog(*numbers) for queue, *numbers in rows}

    async def ended_counts(self, *, since: int, span_ms: int, requester_id: str | None = None) -> list[EndedCount]:
        """See the protocol."""
        parameters = (since, span_ms, requester_id)
        rows = await self._reader.run(lambda db: db.execute(Q.ended_counts, parameters).fetchall())
        return [EndedCount(at, kind, Status(status), count) for at, kind, status, count in rows]

    async def dead_letters(self, requester_id: str | None = None) -> dict[str, int]:
        """See the protocol."""
        return dict(await self._reader.run(lambda db: db.execute(Q.dead_letters, (requester_id,)).fetchall()))

    async def worker_loads(self, requester_id: str | None = None) -> list[WorkerLoad]:
        """See the protocol."""
        rows = await self._reader.run(lambda db: db.execute(Q.worker_loads, (requester_id,)).fetchall())
        return [WorkerLoad(*row) for row in rows]

    async def attempts(self, job_id: str) -> list[Attempt]:
        """See the protocol."""
        rows = await self._reader.run(lambda db: db.execute(Q.attempts, (job_id,)).fetchall())
        (job,) = await self.get([job_id])
        running = [running_attempt(job)] if job is not None and job.has_started else []
        return [attempt_of(row) for row in rows] + running

    async def checkpoints(self, job_id: str) -> dict[str, Json]:
        """See the protocol."""
        return dict(await self._reader.run(lambda db: db.execute(Q.checkpoints, (job_id,)).fetchall()))

    async def events(self, after: Mapping[str, int], limit: int) -> list[Event]:
        """See the protocol."""

        def work(db: Db) -> list[Event]:
            rows = (db.execute(Q.events, (job_id, seq, limit)).fetchall() for job_id, seq in after.items())
            return [Event(*row) for found in rows for row in found]

        return await self._reader.run(work)

    async def hints(self) -> AsyncIterator[Hint]:
        """Yield hints from this process at once; from other processes by polling the file's change counter."""
        if self._poll is None and not self.target.in_memory:
            self._poll = asyncio.create_task(self._watch_file())
        async for hint in self._hints.receive():
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

        def work(db: Db) -> list[OutboxEvent]:
            at = _clock(now)
            chosen = claimable(db, at, limit, shares)
            rows = [db.execute(Q.outbox_claim, (worker_id, at + lease_ms, at, seq)).fetchone() for seq in chosen]
            return [outbox_event_of(row) for row in rows]

        return await self._writer.run(work)

    async def outbox_heartbeat(
        self, claims: Sequence[Claim], *, lease_ms: int, now: int | None = None
    ) -> list[HeartbeatResult]:
        """See the protocol."""
        return await self._writer.run(
            lambda db: [
                HeartbeatResult(beat.held) for beat in heartbeat(db, Q.outbox_heartbeat, claims, _clock(now), lease_ms)
            ]
        )

    async def outbox_settle(self, settlements: Sequence[OutboxSettlement], *, now: int | None = None) -> list[Settled]:
        """See the protocol."""

        def work(db: Db) -> list[Settled]:
            at = _clock(now)
            return [
                Settled.APPLIED
                if db.execute(
                    Q.outbox_settle,
                    (s.event_id, s.claim_version, s.status.value, s.counts, s.error, at, s.delay_ms),
                ).fetchone()
                else Settled.STALE
                for s in settlements
            ]

        return await self._writer.run(work)

    async def outbox_find(
        self,
        *,
        job_id: str | None = None,
        status: Delivery | None = None,
        limit: int = 50,
        where: OutboxFilter = ANY_EVENT,
    ) -> list[OutboxEvent]:
        """See the protocol."""
        of_requester = where.requester_id and job_id is None and where.event_id is None
        newest = Q.outbox_find_of_requester if of_requester else Q.outbox_find_newest
        sql = newest if where.newest_first else Q.outbox_find
        parameters = (job_id, status.value if status else None, limit, *where[:-1])
        rows = await self._reader.run(lambda db: db.execute(sql, parameters).fetchall())
        return [outbox_event_of(row) for row in rows]

    async def outbox_replay(self, replays: Sequence[Replay], *, now: int | None = None) -> list[bool]:
        """See the protocol."""

        def work(db: Db) -> list[bool]:
            at = _clock(now)
            return [db.execute(Q.outbox_replay, (r.event_id, at, r.delay_ms)).fetchone() is not None for r in replays]

        return await self._writer.run(work)

    async def idempotency_record(
        self, requester_id: str, key: str, *, now: int | None = None
    ) -> IdempotencyRecord | None:
        """See the protocol."""
        parameters = (requester_id, key, _clock(now))
        row = await self._reader.run(lambda db: db.execute(Q.idempotency_record, parameters).fetchone())
        return IdempotencyRecord(*row) if row else None

    async def pause(self, queue: str, *, paused: bool) -> None:
        """See the protocol."""
        sql = Q.pause if paused else Q.resume
        await self._writer.run(lambda db: db.execute(sql, (queue,)).fetchall())
        self._hints.send(Hint(frozenset({queue})))

    async def paused_queues(self) -> frozenset[str]:
        """See the protocol."""
        return frozenset(row[0] for row in await self._reader.run(lambda db: db.execute(Q.paused_queues).fetchall()))

    async def credentials(self, job_ids: Sequence[str]) -> list[Credentials | None]:
        """See the protocol."""
        return await self._reader.run(lambda db: creds.credentials(db, job_ids))

    async def replace_credentials(self, changes: Sequence[tuple[Credentials, Credentials]]) -> list[bool]:
        """See the protocol."""
        return await self._writer.run(lambda db: creds.replace_credentials(db, changes))

    async def credentials_under(self, kek_id: str, *, after: str = "", limit: int = 100) -> list[Credentials]:
        """See the protocol."""
        return await self._reader.run(lambda db: creds.credentials_under(db, kek_id, after, limit))

    async def credential_keks(self) -> dict[str, int]:
        """See the protocol."""
        return dict(await self._reader.run(lambda db: db.execute(Q.credential_keks).fetchall()))

    async def put_document(self, document: Document) -> Document:
        """See the protocol."""
        return await self._writer.run(lambda db: _put(db, document))

    async def documents(self, kind: str, id: str | None = None) -> list[Document]:
        """See the protocol."""
        rows = await self._reader.run(lambda db: db.execute(Q.documents, (kind, id)).fetchall())
        return [Document(*row) for row in rows]

    async def delete_document(self, kind: str, id: str) -> bool:
        """See the protocol."""
        return bool(await self._writer.run(lambda db: db.execute(Q.delete_document, (kind, id)).fetchone()))

    async def rebase(self, step: ClockStep, mark: Document) -> Rebased:
        """See the protocol."""

        def work(db: Db) -> Rebased:
            _put(db, mark)
            return rebase(db, step)

        return await self._writer.run(work)

    async def audit_append(self, entries: Sequence[AuditEntry], *, now: int | None = None) -> list[str]:
        """See the protocol."""
        return await self._writer.run(lambda db: audit.append(db, entries, _clock(now)))

    async def audit_find(self, query: AuditQuery) -> AuditPage:
        """See the protocol."""
        return await self._reader.run(lambda db: audit.find(db, query))

    async def audit_prune(self, *, before: int, limit: int) -> int:
        """See the protocol."""
        return len(await self._writer.run(lambda db: db.execute(Q.audit_prune, (before, limit)).fetchall()))

    async def _jobs(self, sql: str, *parameters: object) -> list[Job]:
        rows = await self._reader.run(lambda db: db.execute(sql, parameters).fetchall())
        return [job_of(row) for row in rows]

    async def _watch_file(self) -> None:
        """Send a hint after each commit of any process: the file's change counter also counts our own commits."""
        seen = None
        while True:
            with contextlib.suppress(StoreUnavailable):
                version = await self._reader.run(lambda db: db.execute("PRAGMA data_version").fetchone()[0])
                if seen not in (None, version):
                    self._hints.send(Hint())
                seen = version
            await asyncio.sleep(POLL_S)


def _put(db: Db, document: Document) -> Document:
    """Write a document whose stored version is unchanged; raises DocumentConflict."""
    d = document
    sql, parameters = (
        (Q.change_document, (d.kind, d.id, d.body, d.version))
        if d.version
        else (Q.create_document, (d.kind, d.id, d.body))
    )
    row = db.execute(sql, parameters).fetchone()
    if row is None:
        raise DocumentConflict(f"{d.kind} {d.id} is not at version {d.version} any more; read it and try again")
    return d._replace(version=row[0])


def _clock(now: int | None) -> int:
    return time.time_ns() // 1_000_000 if now is None else now
