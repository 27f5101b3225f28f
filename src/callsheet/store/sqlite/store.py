"""The SQLite store: the protocol's verbs, each a short transaction on the writer's or the reader's thread."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Self
from urllib.parse import parse_qsl, unquote

from callsheet.kernel.audit import AuditEntry
from callsheet.kernel.errors import DocumentConflict, StoreUnavailable, UnknownStore
from callsheet.kernel.job import Attempt, Claim, Credentials, Delivery, Event, Job, Json, NewJob, OutboxEvent, Status
from callsheet.kernel.settlement import OutboxSettlement, Settlement
from callsheet.kernel.workers import silence_of
from callsheet.store.clock import ClockStep, Rebased
from callsheet.store.hints import Hints
from callsheet.store.outbox import ANY_EVENT, UNLIMITED, ClaimShares, OutboxFilter, Replay
from callsheet.store.protocol import ClaimRequest, Document, Enqueued, HeartbeatResult, Hint, IdempotencyRecord, Settled
from callsheet.store.queries import Queries
from callsheet.store.rows import attempt_of, credentials_of, job_of, outbox_event_of, running_attempt
from callsheet.store.sql import SqlReads
from callsheet.store.tasks import end

from .claim import claim, heartbeat
from .connection import Db, Target, Thread
from .enqueue import enqueue, queued_of
from .files import GROUPS
from .maintenance import delete, migrate, promote, prune, rebase
from .settle import settle
from .side_records import append_audit, claimable, replace_credentials

Q = Queries("callsheet.store.sqlite")
POLL_S = 0.005


class SqliteStore(SqlReads):
    """The whole protocol in one file. Several processes may share the file."""

    batch = 500
    streams = False
    _queries = Q

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
        answers = await self._writer.run(lambda db: enqueue(db, batch, _clock(now), depth_limit, quotas))
        self._hints.send(Hint(frozenset({new.queue for new in batch})))
        return answers

    async def claim(self, request: ClaimRequest, *, now: int | None = None) -> list[Job]:
        return await self._writer.run(lambda db: claim(db, request, _clock(now)))

    async def heartbeat(
        self, claims: Sequence[Claim], *, lease_ms: int, silence_ms: int | None = None, now: int | None = None
    ) -> list[HeartbeatResult]:
        lengths_ms = lease_ms, silence_of(lease_ms) if silence_ms is None else silence_ms
        return await self._writer.run(lambda db: heartbeat(db, Q.heartbeat, claims, _clock(now), *lengths_ms))

    async def settle(self, settlements: Sequence[Settlement], *, now: int | None = None) -> list[Settled]:
        answers = await self._writer.run(lambda db: settle(db, settlements, _clock(now)))
        self._hints.send(Hint(jobs=frozenset({s.job_id for s in settlements})))
        return answers

    async def promote(self, *, now: int | None = None) -> int:
        return await self._writer.run(lambda db: promote(db, _clock(now)))

    async def prune(self, *, ended_before: int, limit: int, now: int | None = None) -> int:
        return await self._writer.run(lambda db: prune(db, ended_before, limit, _clock(now)))

    async def delete(self, claims: Sequence[Claim]) -> int:
        return await self._writer.run(lambda db: delete(db, claims))

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        def work(db: Db) -> list[Job | None]:
            rows = [db.execute(Q.get, (job_id,)).fetchone() for job_id in job_ids]
            return [job_of(row) if row else None for row in rows]

        return await self._reader.run(work)

    async def queued_of(self, requester_ids: Sequence[str], *, most: int) -> list[int]:
        return await self._reader.run(lambda db: [queued_of(db, requester, most) for requester in requester_ids])

    async def attempts(self, job_id: str) -> list[Attempt]:
        rows = await self._fetch(Q.attempts, job_id)
        (job,) = await self.get([job_id])
        running = [running_attempt(job)] if job is not None and job.has_started else []
        return [attempt_of(row) for row in rows] + running

    async def checkpoints(self, job_id: str) -> dict[str, Json]:
        return dict(await self._pairs(Q.checkpoints, job_id))

    async def events(self, after: Mapping[str, int], limit: int) -> list[Event]:
        def work(db: Db) -> list[Event]:
            rows = (db.execute(Q.events, (job_id, seq, limit)).fetchall() for job_id, seq in after.items())
            return [Event(*row) for of_job in rows for row in of_job]

        return await self._reader.run(work)

    async def hints(self) -> AsyncIterator[Hint]:
        """Yield hints from this process at once; from other processes by polling the file's change counter."""
        if self._poll is None and not self.target.in_memory:
            self._poll = asyncio.create_task(self._watch_file())
        async for hint in self._hints.receive():
            yield hint

    async def outbox_claim(
        self, worker_id: str, *, limit: int, lease_ms: int, shares: ClaimShares = UNLIMITED, now: int | None = None
    ) -> list[OutboxEvent]:
        def work(db: Db) -> list[OutboxEvent]:
            at = _clock(now)
            seqs = claimable(db, at, limit, shares)
            rows = [db.execute(Q.outbox_claim, (worker_id, at + lease_ms, at, seq)).fetchone() for seq in seqs]
            return [outbox_event_of(row) for row in rows]

        return await self._writer.run(work)

    async def outbox_heartbeat(
        self, claims: Sequence[Claim], *, lease_ms: int, now: int | None = None
    ) -> list[HeartbeatResult]:
        return await self._writer.run(
            lambda db: [
                HeartbeatResult(beat.held) for beat in heartbeat(db, Q.outbox_heartbeat, claims, _clock(now), lease_ms)
            ]
        )

    async def outbox_settle(self, settlements: Sequence[OutboxSettlement], *, now: int | None = None) -> list[Settled]:
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
        of_requester = where.requester_id and job_id is None and where.event_id is None
        newest = Q.outbox_find_of_requester if of_requester else Q.outbox_find_newest
        sql = newest if where.newest_first else Q.outbox_find
        rows = await self._fetch(sql, job_id, status.value if status else None, limit, *where[:-1])
        return [outbox_event_of(row) for row in rows]

    async def outbox_replay(self, replays: Sequence[Replay], *, now: int | None = None) -> list[bool]:
        def work(db: Db) -> list[bool]:
            at = _clock(now)
            return [db.execute(Q.outbox_replay, (r.event_id, at, r.delay_ms)).fetchone() is not None for r in replays]

        return await self._writer.run(work)

    async def idempotency_record(
        self, requester_id: str, key: str, *, now: int | None = None
    ) -> IdempotencyRecord | None:
        rows = await self._fetch(Q.idempotency_record, requester_id, key, _clock(now))
        return IdempotencyRecord(*rows[0]) if rows else None

    async def pause(self, queue: str, *, paused: bool) -> None:
        sql = Q.pause if paused else Q.resume
        await self._writer.run(lambda db: db.execute(sql, (queue,)).fetchall())
        self._hints.send(Hint(frozenset({queue})))

    async def credentials(self, job_ids: Sequence[str]) -> list[Credentials | None]:
        def work(db: Db) -> list[Credentials | None]:
            rows = [db.execute(Q.credentials, (job_id,)).fetchone() for job_id in job_ids]
            return [credentials_of(row) if row else None for row in rows]

        return await self._reader.run(work)

    async def replace_credentials(self, changes: Sequence[tuple[Credentials, Credentials]]) -> list[bool]:
        return await self._writer.run(lambda db: replace_credentials(db, changes))

    async def credentials_under(self, kek_id: str, *, after: str = "", limit: int = 100) -> list[Credentials]:
        return [credentials_of(row) for row in await self._fetch(Q.credentials_under, kek_id, after, limit)]

    async def put_document(self, document: Document) -> Document:
        return await self._writer.run(lambda db: _put(db, document))

    async def delete_document(self, kind: str, id: str) -> bool:
        return bool(await self._writer.run(lambda db: db.execute(Q.delete_document, (kind, id)).fetchone()))

    async def rebase(self, step: ClockStep, mark: Document) -> Rebased:
        def work(db: Db) -> Rebased:
            _put(db, mark)
            return rebase(db, step)

        return await self._writer.run(work)

    async def audit_append(self, entries: Sequence[AuditEntry], *, now: int | None = None) -> list[str]:
        return await self._writer.run(lambda db: append_audit(db, entries, _clock(now)))

    async def audit_prune(self, *, before: int, limit: int) -> int:
        return len(await self._writer.run(lambda db: db.execute(Q.audit_prune, (before, limit)).fetchall()))

    async def _fetch(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        return await self._reader.run(lambda db: db.execute(sql, parameters).fetchall())

    def _at(self, now: int | None) -> int:
        return _clock(now)

    def _statuses(self, statuses: tuple[Status, ...]) -> str:
        return f" {' '.join(statuses)} " if statuses else ""

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
